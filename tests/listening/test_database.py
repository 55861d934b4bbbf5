"""Tables and migrations on real databases, and writing that is all or nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.exc import IntegrityError, OperationalError

from sottovoce.errors import InputError, StoreError
from sottovoce.listening.server.database import (
    Database,
    _Job,
    alembic_config,
    default_url,
    describe,
    migrate,
    open_engine,
)
from sottovoce.listening.server.session_store import first_gap
from sottovoce.listening.server.tables import METADATA, STUDY, now

TABLES = {"study", "session", "step", "handout", "answer"}


def add_study(link: Connection, name: str) -> None:
    link.execute(STUDY.insert(), {"hash": name, "title": name, "created": now()})


def titles(database: Database) -> list[str]:
    return database.read(lambda link: sorted(link.scalars(select(STUDY.c.title))))


def test_migrations_make_the_tables_that_the_code_expects(database_url):
    engine = open_engine(database_url)
    with engine.connect() as link:
        assert compare_metadata(MigrationContext.configure(link), METADATA) == []
        assert set(inspect(link).get_table_names()) == TABLES | {"alembic_version"}
    engine.dispose()


def test_migrations_can_be_taken_back(database_url):
    engine = open_engine(database_url)
    with engine.begin() as link:
        command.downgrade(alembic_config(link), "base")
        assert set(inspect(link).get_table_names()) == {"alembic_version"}
    migrate(engine)
    with engine.connect() as link:
        assert set(inspect(link).get_table_names()) == TABLES | {"alembic_version"}
    engine.dispose()


def test_a_database_is_opened_again(database_url):
    first = open_engine(database_url)
    Database(first).write(lambda link: add_study(link, "kept"))
    first.dispose()
    again = open_engine(database_url)
    assert titles(Database(again)) == ["kept"]
    again.dispose()


def test_a_database_of_a_newer_version_is_refused(database_url):
    engine = open_engine(database_url)
    with engine.begin() as link:
        link.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(StoreError, match=r"got a newer one .*9999"):
        open_engine(database_url)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path):
    (tmp_path / "notes.db").write_text("this is not a database, but long enough to look at " * 40)
    with pytest.raises(StoreError, match="file is not a database"):
        open_engine(f"sqlite:///{tmp_path / 'notes.db'}")


def test_a_database_that_is_down_is_refused_without_its_password():
    with pytest.raises(StoreError, match="check the address") as refused:
        open_engine("postgresql://me:secret-word@127.0.0.1:1/nothing")
    assert "secret-word" not in str(refused.value)


@pytest.mark.parametrize("url", ["mysql://me:secret@host/x", "sqlite://", "study.db", "sqlite:///:memory:"])
def test_other_databases_are_refused(url):
    with pytest.raises(InputError, match=r"sqlite:///study\.db or postgresql://") as refused:
        open_engine(url)
    assert "secret" not in str(refused.value)


def test_answers_lie_beside_the_study(tmp_path: Path):
    url = default_url(tmp_path / "words.yaml")
    engine = open_engine(url)
    assert describe(engine) == str((tmp_path / "words.db").resolve())
    assert (tmp_path / "words.db").exists()
    engine.dispose()


def test_sqlite_waits_for_the_disk(tmp_path: Path):
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}")
    with engine.connect() as link:
        found = [
            link.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        ]
    # 2 is FULL: https://sqlite.org/pragma.html#pragma_synchronous
    assert found == ["wal", 2, 1, 5000]
    engine.dispose()


def test_writes_that_wait_together_fail_alone(database_url):
    engine = open_engine(database_url)
    database = Database(engine)
    database.write(lambda link: add_study(link, "taken"))
    outcomes: dict[int, type[BaseException] | None] = {}
    start = threading.Barrier(12)

    def work(number: int) -> None:
        start.wait()
        try:
            # Every third writes a row of its own first, and then one that is there already.
            def both(link: Connection) -> None:
                add_study(link, f"row {number:02d}")
                if number % 3 == 0:
                    add_study(link, "taken")

            database.write(both)
            outcomes[number] = None
        except BaseException as error:
            outcomes[number] = type(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {number: IntegrityError if number % 3 == 0 else None for number in range(12)}
    assert titles(database) == [*(f"row {n:02d}" for n in range(12) if n % 3), "taken"]
    engine.dispose()


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path):
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}")
    database = Database(engine)

    def fill(link: Connection) -> None:
        # SQLite's own way to have a small disk.
        pages = link.exec_driver_sql("PRAGMA page_count").scalar_one()
        link.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
        try:
            for number in range(100):
                add_study(link, f"{number:010d}" + "x" * 4000)
        finally:
            link.exec_driver_sql("PRAGMA max_page_count = 1000000")

    # SQLite takes the whole transaction back by itself, and with it whatever was written together.
    with pytest.raises(OperationalError):
        database.write(fill)
    together = [
        _Job(lambda link: add_study(link, "before")),
        _Job(fill),
        _Job(lambda link: add_study(link, "after")),
    ]
    database._waiting.extend(together)
    database._write_waiting()
    assert [type(job.error) for job in together] == [OperationalError] * 3
    assert titles(database) == []
    database.write(lambda link: add_study(link, "there is room again"))
    assert titles(database) == ["there is room again"]
    engine.dispose()


@pytest.mark.parametrize(
    ("taken", "free"), [([], 0), ([0], 1), ([1], 0), ([0, 1, 3], 2), ([0, 1, 2], 3), ([2, 5], 0)]
)
def test_the_lowest_free_number(taken, free):
    assert first_gap(taken) == free
