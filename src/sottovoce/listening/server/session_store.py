"""Sessions in the database: who sits where, which screen is given out, and what was answered.

An answer and the screen after it are one transaction: what a listener was told is kept, is kept, and nobody
hears the next clip before. The first answer to a screen stays; whoever repeats it, or sends another one,
gets the current state of the session. Sessions in use are held in memory to save reading them again; the
constraints of the tables find out whoever is behind.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, TypeVar, final

from pydantic import TypeAdapter
from sqlalchemy import Connection, Row, insert, select
from sqlalchemy.exc import IntegrityError

from sottovoce.errors import SottovoceError
from sottovoce.listening.server.database import Database
from sottovoce.listening.server.statements import (
    ADD_SESSION,
    COUNT_SEATS,
    ONE_AT_A_TIME,
    SEATS,
    SESSION_OF,
    STEPS,
    SWEEP,
    Values,
    give_out,
    record,
)
from sottovoce.listening.server.tables import STUDY, now
from sottovoce.listening.session.answer_checks import find_fault
from sottovoce.listening.session.protocol import Answer, Given, Joined, Next, Screen
from sottovoce.listening.session.session_course import SessionCourse, Step, screen
from sottovoce.listening.session.steps import Cue
from sottovoce.listening.study.study_file import ListeningStudy

GIVEN: TypeAdapter[Given] = TypeAdapter(Given)
Result = TypeVar("Result")
Done = list[tuple[Step, Given]]
IN_MEMORY = 4096
"""Sessions that are held; older ones are read again."""


@final
class Refusal(SottovoceError):
    """A request that is answered with a reason. code: for the page."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


def unknown_session() -> Refusal:
    return Refusal(404, "unknown-session", "expected the token of a session, got one unknown or expired.")


@final
@dataclass(frozen=True)
class Handed:
    """A screen that is given out. names: of its slots, by label; cues: what is played, by these names."""

    id: str
    step: Step
    names: Mapping[str, str]
    cues: Mapping[str, Cue]
    screen: Screen

    def rows(self, session: str, at: datetime) -> tuple[Values, list[Values]]:
        """What is kept of it: the screen, and its slots."""
        step = self.step
        shown = {"id": self.id, "session_id": session, "place": step.place, "kind": step.kind}
        slots: list[Values] = [
            {"name": name, "step_id": self.id, "label": label, "clip": step.roles[label]}
            for label, name in self.names.items()
        ]
        return {**shown, "content": step.to_json(), "given_at": at}, slots


@final
@dataclass(frozen=True)
class Guest:
    """What of a session stays as it is."""

    id: str
    created: datetime
    arrived_with: Mapping[str, str]
    course: SessionCourse


@final
@dataclass
class OpenSession:
    """A session as far as it is. answered: places of its answered screens by their ids."""

    guest: Guest
    done: Done
    answered: dict[str, int]
    handed: Handed
    lock: threading.Lock = field(default_factory=threading.Lock)


@final
class SessionStore:
    """All sessions of one study.

    abandon_after: without an answer for so long, a session gives its seat to the next listener.
    expire_after: from its start on, until its token is no longer known.
    """

    def __init__(
        self,
        database: Database,
        study: ListeningStudy,
        *,
        abandon_after: timedelta = timedelta(hours=2),
        expire_after: timedelta = timedelta(days=30),
        clock: Callable[[], datetime] = now,
    ) -> None:
        self.database, self.study = database, study
        self.abandon_after, self.expire_after, self.clock = abandon_after, expire_after, clock
        self._held: OrderedDict[str, OpenSession] = OrderedDict()
        self._lock = threading.Lock()
        self._swept: datetime | None = None
        self.study_id = database.write(self._enter_study)

    def join(
        self, arrived_with: Mapping[str, str], simulated: bool = False, token: str | None = None
    ) -> Joined:
        """A new session on the lowest seat that is free. token: of the listener's own making; sent again, it
        leads to the session that it made."""
        token = token or secrets.token_urlsafe(32)
        key = hash_token(token)

        def attempt(fresh: bool) -> OpenSession:
            def work(link: Connection) -> OpenSession:
                known = fresh and link.execute(SESSION_OF, {"token": key}).first() is not None
                return self._read_all(link, key) if known else self._seat(link, key, arrived_with, simulated)

            return self.database.write(work)

        sitting = self._known(_twice(attempt))
        self._keep(key, sitting)
        return Joined(token=token, title=self.study.title, screen=sitting.handed.screen)

    def show(self, token: str) -> Screen:
        """The screen that is given out now."""
        # Another process may have taken the answer to the one in memory.
        return self._sitting(hash_token(token), fresh=True).handed.screen

    def recall_clip(self, token: str, name: str) -> Cue | None:
        """The same as `find_clip` where the session is in memory; else, or for any doubt, None."""
        with self._lock:
            sitting = self._held.get(hash_token(token))
        if sitting is None or self.clock() - sitting.guest.created > self.expire_after:
            return None
        return sitting.handed.cues.get(name)

    def find_clip(self, token: str, name: str) -> Cue:
        """What is played in a slot of the screen that is given out now."""
        key = hash_token(token)
        for fresh in (False, True):
            found = self._sitting(key, fresh).handed.cues.get(name)
            if found is not None:
                return found
        raise Refusal(404, "unknown-audio", "expected a clip of the screen that is given out now.")

    def answer(self, token: str, answer: Answer) -> Next:
        """Keep an answer and give out the next screen."""
        key = hash_token(token)

        def attempt(fresh: bool) -> Next:
            sitting = self._sitting(key, fresh)
            with sitting.lock:
                try:
                    return self._answer(sitting, answer)
                except Refusal:
                    raise
                except BaseException:
                    # Nobody knows what has reached the disk: the database will tell.
                    self._forget(key)
                    raise

        return _twice(attempt)

    def _answer(self, sitting: OpenSession, answer: Answer) -> Next:
        course, handed = sitting.guest.course, sitting.handed
        place = sitting.answered.get(answer.screen)
        if place is not None:
            return Next(screen=handed.screen, feedback=course.feedback(*sitting.done[place]))
        if answer.screen != handed.id or handed.step.kind == "done":
            raise Refusal(409, "not-given", "expected an answer to the screen that is given out now.")
        fault = find_fault(handed.screen, answer)
        if fault is not None:
            raise Refusal(422, "bad-answer", fault)
        done = [*sitting.done, (handed.step, answer.given)]
        following = self._hand_out(course, done, sitting.guest.arrived_with)
        self._record(sitting, answer, following, done)
        sitting.answered[handed.id] = len(sitting.done)
        sitting.done, sitting.handed = done, following
        return Next(screen=following.screen, feedback=course.feedback(handed.step, answer.given))

    def _record(self, sitting: OpenSession, answer: Answer, following: Handed, done: Done) -> None:
        at = self.clock()
        kept = {
            "step_id": answer.screen,
            "session_id": sitting.guest.id,
            "given": answer.given.model_dump(mode="json"),
            "seconds": answer.seconds,
            "plays": answer.plays,
            "at": at,
        }
        stand: dict[str, Any] = {"now_is": "open", "ended": None, "counts": None, "why": "", "gone": False}
        if following.step.kind == "done":
            counts, why = sitting.guest.course.verdict(done)
            stand = {"now_is": "finished", "ended": at, "counts": counts, "why": why, "gone": not counts}
        step, slots = following.rows(sitting.guest.id, at)
        stand |= {"of_session": sitting.guest.id, "at_time": at}
        record(self.database, kept, step, slots, stand)

    def _seat(
        self, link: Connection, key: str, arrived_with: Mapping[str, str], simulated: bool
    ) -> OpenSession:
        at = self.clock()
        seat = self._find_seat(link, simulated, at)
        seed, name = secrets.randbits(62), secrets.token_urlsafe(12)
        course = SessionCourse(self.study, seat, seed)
        handed = self._hand_out(course, [], arrived_with)
        row = {
            "id": name,
            "token_hash": key,
            "study_id": self.study_id,
            "seat": seat,
            "held": seat,
            "seed": seed,
            "arrived_with": dict(arrived_with),
            "simulated": simulated,
            "state": "open",
            "created": at,
            "seen": at,
            "reason": "",
        }
        link.execute(ADD_SESSION, row)
        give_out(link, *handed.rows(name, at))
        return OpenSession(Guest(name, at, dict(arrived_with), course), [], {}, handed)

    def _find_seat(self, link: Connection, simulated: bool, at: datetime) -> int:
        """The lowest that is free, those of listeners who are long gone among them."""
        study = {"study": self.study_id}
        link.execute(ONE_AT_A_TIME, study)
        if self._swept is None or at - self._swept > self.abandon_after / 100:
            link.execute(SWEEP, {**study, "since": at - self.abandon_after})
            self._swept = at
        seats = {**study, "made_up": simulated}
        count, top = link.execute(COUNT_SEATS, seats).one()
        return int(count) if count == top + 1 else first_gap(link.scalars(SEATS, seats))

    def _hand_out(self, course: SessionCourse, done: Done, arrived_with: Mapping[str, str]) -> Handed:
        step, progress = course.advance(done)
        names = {label: secrets.token_urlsafe(18) for label in step.roles}
        return self._show(course, step, names, secrets.token_urlsafe(18), progress, arrived_with)

    def _show(
        self,
        course: SessionCourse,
        step: Step,
        names: Mapping[str, str],
        id: str,
        progress: float,
        arrived_with: Mapping[str, str],
    ) -> Handed:
        shown = screen(step, names, self.study, progress, id=id, arrived_with=arrived_with)
        return Handed(
            id, step, names, {name: course.cue(step, label) for label, name in names.items()}, shown
        )

    def _sitting(self, key: str, fresh: bool = False) -> OpenSession:
        """A session as it is in memory, or fresh: as it is in the database."""
        with self._lock:
            sitting = self._held.get(key)
            if sitting is not None:
                self._held.move_to_end(key)
        if sitting is None or fresh:
            sitting = self._read(key, sitting)
            self._keep(key, sitting)
        return self._known(sitting)

    def _known(self, sitting: OpenSession) -> OpenSession:
        """The session, unless its time is over."""
        if self.clock() - sitting.guest.created > self.expire_after:
            raise unknown_session()
        return sitting

    def _keep(self, key: str, sitting: OpenSession) -> None:
        with self._lock:
            self._held[key] = sitting
            self._held.move_to_end(key)
            while len(self._held) > IN_MEMORY:
                self._held.popitem(last=False)

    def _forget(self, key: str) -> None:
        with self._lock:
            self._held.pop(key, None)

    def _read(self, key: str, known: OpenSession | None) -> OpenSession:
        """A session from the database. known: as it was; what has come since is read alone."""
        if known is not None:
            guest, done, answered = known.guest, known.done, known.answered
            since = {"session": guest.id, "since": len(done)}
            rows = self.database.read(lambda link: link.execute(STEPS, since).all())
            if rows:
                return self._sit(guest, done, answered, rows)
        return self.database.read(lambda link: self._read_all(link, key))

    def _read_all(self, link: Connection, key: str) -> OpenSession:
        found = link.execute(SESSION_OF, {"token": key}).first()
        if found is None or found.study_id != self.study_id:
            raise unknown_session()
        rows = link.execute(STEPS, {"session": found.id, "since": 0}).all()
        course = SessionCourse(self.study, found.seat, found.seed)
        return self._sit(Guest(found.id, found.created, found.arrived_with, course), [], {}, rows)

    def _sit(
        self, guest: Guest, done: Done, answered: dict[str, int], rows: Sequence[Row[Any]]
    ) -> OpenSession:
        """A session from what was answered before, and the rows of all that came after."""
        past = [row for row in rows if row.given is not None]
        answered = answered | {row.id: place for place, row in enumerate(past, start=len(done))}
        done = [*done, *((Step.from_json(row.content), GIVEN.validate_python(row.given)) for row in past)]
        now, names = rows[-1], {row.label: row.name for row in rows[len(past) :] if row.name is not None}
        progress = guest.course.progress(done)
        step = Step.from_json(now.content)
        handed = self._show(guest.course, step, names, now.id, progress, guest.arrived_with)
        return OpenSession(guest, done, answered, handed)

    def _enter_study(self, link: Connection) -> int:
        found = link.scalar(select(STUDY.c.id).where(STUDY.c.hash == self.study.digest))
        if found is None:
            row = {"hash": self.study.digest, "title": self.study.title, "created": self.clock()}
            found = link.execute(insert(STUDY).returning(STUDY.c.id), row).scalar_one()
        return int(found)


def hash_token(token: str) -> str:
    """What is kept of a token. It is 256 random bits: nothing slower is needed."""
    return sha256(token.encode()).hexdigest()


def first_gap(taken: Iterable[int]) -> int:
    """The lowest number from 0 on that is not among the sorted ones."""
    free = 0
    for number in taken:
        if number != free:
            break
        free += 1
    return free


def _twice(attempt: Callable[[bool], Result]) -> Result:
    """Try with what is in memory; where that may be behind the database, once more with what it says."""
    try:
        return attempt(False)
    except IntegrityError:
        pass
    except Refusal as refusal:
        if refusal.code != "not-given":
            raise
    try:
        return attempt(True)
    except IntegrityError:
        raise Refusal(503, "try-again", "somebody else was faster; try again.") from None
