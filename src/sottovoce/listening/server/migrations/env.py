"""Runs the steps on the connection that `database.migrate` hands over."""

from __future__ import annotations

from alembic import context

from sottovoce.listening.server.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"], target_metadata=METADATA, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
