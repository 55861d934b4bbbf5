"""The first tables: studies, sessions, steps, handouts, answers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "study",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_study"),
        sa.UniqueConstraint("hash", name="uq_study_hash"),
    )
    op.create_table(
        "session",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("token_hash", sa.String(64), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("seat", sa.Integer(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("arrived_with", sa.JSON(), nullable=False),
        sa.Column("simulated", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished", sa.DateTime(timezone=True), nullable=True),
        sa.Column("accepted", sa.Boolean(), nullable=True),
        sa.Column("reason", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["study_id"], ["study.id"], name="fk_session_study_id"),
        sa.PrimaryKeyConstraint("id", name="pk_session"),
        sa.UniqueConstraint("study_id", "simulated", "held", name="one_session_a_seat"),
        sa.UniqueConstraint("token_hash", name="uq_session_token_hash"),
    )
    op.create_table(
        "step",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("content", sa.JSON(), nullable=False),
        sa.Column("given_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name="fk_step_session_id"),
        sa.PrimaryKeyConstraint("id", name="pk_step"),
        sa.UniqueConstraint("session_id", "place", name="one_step_a_place"),
    )
    op.create_table(
        "answer",
        sa.Column("step_id", sa.String(64), nullable=False),
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("given", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("plays", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["session_id"], ["session.id"], name="fk_answer_session_id"),
        sa.ForeignKeyConstraint(["step_id"], ["step.id"], name="fk_answer_step_id"),
        sa.PrimaryKeyConstraint("step_id", name="pk_answer"),
    )
    op.create_table(
        "handout",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("step_id", sa.String(64), nullable=False),
        sa.Column("label", sa.String(32), nullable=False),
        sa.Column("clip", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["step_id"], ["step.id"], name="fk_handout_step_id"),
        sa.PrimaryKeyConstraint("name", name="pk_handout"),
    )
    op.create_index("ix_handout_step_id", "handout", ["step_id"], unique=False)


def downgrade() -> None:
    op.drop_index("ix_handout_step_id", table_name="handout")
    op.drop_table("handout")
    op.drop_table("answer")
    op.drop_table("step")
    op.drop_table("session")
    op.drop_table("study")
