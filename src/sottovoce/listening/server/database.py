"""The database of a study: SQLite in a file, or PostgreSQL; opened, brought up to date, and written to.

What `Database.write` has returned from is on the disk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar, final

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, make_url, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, SQLAlchemyError

from sottovoce.errors import InputError, StoreError
from sottovoce.listening.analysis.answer_rows import AnswerRow, Visit
from sottovoce.listening.server.tables import ANSWER, SESSION, STEP, STUDY
from sottovoce.listening.session.steps import Step

Result = TypeVar("Result")
CONNECTIONS = 8
"""More would wait for the same two or four cores."""
TOGETHER = 32
"""Answers that SQLite may write at once."""
MIGRATING = 7_305_508_147
"""Names the lock that lets one server at a time bring the tables up to date."""


def default_url(study: Path) -> str:
    """SQLite beside the study file: `study.yaml` has its answers in `study.db`."""
    return f"sqlite:///{study.expanduser().resolve().with_suffix('.db')}"


def open_engine(url: str) -> Engine:
    """An engine with the tables as this version needs them.

    url: such as sqlite:////home/me/study.db or postgresql://user:password@host/name.
    """
    place = _parse(url)
    engine = _sqlite(place) if place.get_backend_name() == "sqlite" else _postgresql(place)
    try:
        migrate(engine)
    except SQLAlchemyError as error:
        engine.dispose()
        cause = " ".join(str(getattr(error, "orig", None) or error).split())
        raise StoreError(
            f"{place.render_as_string()}: expected a database that can be opened, got: {cause}; check the "
            "address, and that the database is up."
        ) from None
    return engine


def describe(engine: Engine) -> str:
    """Where the answers are, without a password."""
    return engine.url.database or "" if engine.dialect.name == "sqlite" else engine.url.render_as_string()


def migrate(engine: Engine) -> None:
    """Bring the tables of a database, new or old, up to date."""
    with engine.connect().execution_options(write=True) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": MIGRATING})
        try:
            command.upgrade(alembic_config(connection), "head")
        except CommandError as error:
            raise StoreError(
                f"expected a database of this version or an older one, got a newer one ({error}); update it."
            ) from None


def alembic_config(connection: Connection) -> Config:
    """What Alembic needs to know; there is no alembic.ini."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def read_answers(engine: Engine, study_hash: str | None = None) -> list[AnswerRow]:
    """Every answer, by session in the order of arrival and by place; of one study, or of all."""
    query = (
        select(SESSION, *STEP.c["place", "kind", "content"], *ANSWER.c["given", "seconds", "plays"])
        .join_from(ANSWER, STEP, ANSWER.c.step_id == STEP.c.id)
        .join(SESSION, STEP.c.session_id == SESSION.c.id)
        .join(STUDY, SESSION.c.study_id == STUDY.c.id)
        .order_by(SESSION.c.created, SESSION.c.id, STEP.c.place)
    )
    if study_hash is not None:
        query = query.where(STUDY.c.hash == study_hash)
    found, ends = _do(lambda link: (link.execute(query).all(), _ends(link)), engine)
    return [_row(one, ends.get(one.id, {})) for one in found]


def read_visits(engine: Engine, study_hash: str | None = None) -> list[Visit]:
    """Every session in the order of arrival, those without an answer among them; of one study, or of all."""
    query = select(SESSION).join(STUDY, SESSION.c.study_id == STUDY.c.id)
    query = query.order_by(SESSION.c.created, SESSION.c.id)
    if study_hash is not None:
        query = query.where(STUDY.c.hash == study_hash)
    found, ends = _do(lambda link: (link.execute(query).all(), _ends(link)), engine)
    return [_visit(one, ends.get(one.id, {})) for one in found]


def _ends(link: Connection) -> dict[str, Mapping[str, str]]:
    """What is kept of the last screens, by session: how it came, the code, notes."""
    ends = select(STEP.c.session_id, STEP.c.content).where(STEP.c.kind == "done")
    return {one.session_id: one.content["facts"] for one in link.execute(ends)}


def _visit(found: Any, end: Mapping[str, str]) -> Visit:
    return Visit(
        session=found.id,
        seat=found.seat,
        simulated=found.simulated,
        state=found.state,
        accepted=found.accepted,
        reason=found.reason,
        notes=end.get("notes", ""),
        arrived_with=dict(found.arrived_with),
        code=end.get("code", ""),
        created=_utc(found.created),
        finished=None if found.finished is None else _utc(found.finished),
    )


def _utc(time: datetime) -> datetime:
    """SQLite gives times without their zone, PostgreSQL in its own."""
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


def _row(found: Any, end: Mapping[str, str]) -> AnswerRow:
    step = Step.from_json(found.content)
    return AnswerRow(
        session=found.id,
        seat=found.seat,
        simulated=found.simulated,
        accepted=found.accepted,
        place=found.place,
        kind=found.kind,
        block=step.block,
        teaching=step.teaching,
        sentinel=step.sentinel,
        roles=dict(step.roles),
        truth=dict(step.truth),
        facts=dict(step.facts),
        given=found.given,
        seconds=found.seconds,
        plays=found.plays,
        reason=found.reason,
        notes=end.get("notes", ""),
        dither=step.dither,
    )


@final
class Database:
    """Reading and writing, with one way to do each.

    SQLite has one writer at a time and waits for the disk at each commit. So writes that come while another
    is on its way to the disk are put together and committed at once, each in a savepoint of its own.
    A connection that the other side has closed is found out by using it: work may be done a second time, and
    whatever it writes has a key, so that it is there once.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.is_file = engine.dialect.name == "sqlite"
        self._bare = engine.execution_options(single=True)
        self._turn = threading.Lock()
        self._waiting: deque[_Job[Any]] = deque()

    @property
    def threads(self) -> int:
        """So many may write at once; of SQLite as many as are to be put together."""
        return TOGETHER if self.is_file else CONNECTIONS

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Do the work on what is on the disk."""
        return _do(work, self.engine if self.is_file else self._bare)

    def say(self, statement: str, values: Mapping[str, Any]) -> None:
        """Run one statement of PostgreSQL, which is a transaction by itself: it is on the disk, or was not.

        Past SQLAlchemy, which would take as long as the statement does.
        """
        kind = self.engine.dialect.loaded_dbapi.Error
        for left in range(CONNECTIONS, -1, -1):
            link = None
            try:
                link = self.engine.raw_connection()
                driver: Any = link.driver_connection
                driver.execute(statement, values)
                return
            except kind as error:
                if link is None or not driver.broken or not left:
                    raise DBAPIError.instance(statement, None, error, kind) from None
                # Others that wait may be as stale.
                link.invalidate(error)
            finally:
                if link is not None:
                    link.close()

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Do the work in one transaction: all of it is on the disk when this returns, or none of it."""
        if not self.is_file:
            return _do(work, self.engine)
        job = _Job(work)
        self._waiting.append(job)
        with self._turn:
            if not job.over:
                self._write_waiting()
        return job.result()

    def _write_waiting(self) -> None:
        jobs = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            with self.engine.connect().execution_options(write=True) as connection, connection.begin():
                for job in jobs:
                    job.run(connection)
        except BaseException as error:
            for job in jobs:
                job.error = job.error or error
        finally:
            for job in jobs:
                job.over = True


def _do(work: Callable[[Connection], Result], engine: Engine) -> Result:
    """In one transaction; once more where the connection, and with it all that were waiting, was stale."""
    try:
        with engine.begin() as connection:
            return work(connection)
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise
    with engine.begin() as connection:
        return work(connection)


class _Job(Generic[Result]):
    def __init__(self, work: Callable[[Connection], Result]) -> None:
        self.over = False
        self.error: BaseException | None = None
        self._work = work
        self._result: list[Result] = []

    def run(self, connection: Connection) -> None:
        try:
            with connection.begin_nested():
                self._result.append(self._work(connection))
        except IntegrityError as error:
            self.error = error
        except SQLAlchemyError:
            # SQLite may have ended the whole transaction, as it does when the disk is full: all must fail.
            raise
        except Exception as error:
            self.error = error

    def result(self) -> Result:
        if self.error is not None:
            raise self.error
        return self._result[0]


def _parse(url: str) -> URL:
    try:
        place = make_url(url)
    except ArgumentError:
        place = make_url("none://")
    if place.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return place.set(drivername="postgresql+psycopg")
    if place.drivername == "sqlite" and place.database and place.database != ":memory:":
        return place
    raise InputError(
        f"expected --db such as sqlite:///study.db or postgresql://user@host/name, got {place.drivername!r}."
    )


def _postgresql(place: URL) -> Engine:
    options = {"connect_timeout": 5, "options": "-c statement_timeout=10s -c lock_timeout=5s"}
    pool: dict[str, Any] = {"pool_size": CONNECTIONS, "max_overflow": 0, "pool_timeout": 10}
    engine = create_engine(place, connect_args=options, isolation_level="AUTOCOMMIT", **pool)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # Begun here, not by the driver, so that a single statement can go without.
        if not connection.get_execution_options().get("single", False):
            connection.exec_driver_sql("BEGIN")

    return engine


def _sqlite(place: URL) -> Engine:
    engine = create_engine(place, pool_size=CONNECTIONS, max_overflow=0, pool_timeout=10)

    @event.listens_for(engine, "connect")
    def _set_up(connection: Any, _: Any) -> None:
        # Transactions are begun below, not by the driver, which would do so too late for savepoints.
        connection.isolation_level = None
        for setting in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {setting}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A reader that turns into a writer can be refused at once; who means to write says so first.
        writes = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
