"""Sessions in the database: who sits where, which screen is given out, and what was answered.

An answer and the screen after it are one transaction: what a listener was told is kept, is kept, and nobody
hears the next clip before. The first answer to a screen stays; whoever repeats it, or sends another one,
is told where the session stands now. Sessions in use are held in memory to save reading them again; the
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
from sqlalchemy import Boolean, Case, Connection, Row, Select, bindparam, case, exists, insert, select, update
from sqlalchemy.exc import IntegrityError

from sottovoce.errors import SottovoceError
from sottovoce.listening.database import Database
from sottovoce.listening.fit import find_fault
from sottovoce.listening.protocol import Answer, Given, Joined, Next, Screen
from sottovoce.listening.schema import ANSWER, HANDOUT, SESSION, STEP, STUDY, now
from sottovoce.listening.session import Course, Step, screen
from sottovoce.listening.study import Study

GIVEN: TypeAdapter[Given] = TypeAdapter(Given)
Result = TypeVar("Result")
IN_MEMORY = 4096
"""Sessions that are held; older ones are read again."""


def _hold_again() -> Case[Any]:
    """The seat of a listener who comes back late: theirs if nobody else has it by now."""
    other = SESSION.alias()
    sits = (
        (other.c.study_id == SESSION.c.study_id)
        & (other.c.simulated == SESSION.c.simulated)
        & (other.c.held == SESSION.c.seat)
    )
    free = SESSION.c.held.is_(None) & ~exists(select(other.c.id).where(sits))
    return case((free, SESSION.c.seat), else_=SESSION.c.held)


# Made once: to put a statement together takes longer than to run it.
ADD_ANSWER, ADD_STEP, ADD_HANDOUT = insert(ANSWER), insert(STEP), insert(HANDOUT)
GO_ON = (
    update(SESSION)
    .where(SESSION.c.id == bindparam("session"))
    .values(seen=bindparam("now"), state="open", held=_hold_again())
)
END = (
    update(SESSION)
    .where(SESSION.c.id == bindparam("session"))
    .values(
        state="finished",
        finished=bindparam("now"),
        accepted=bindparam("counts"),
        reason=bindparam("why"),
        held=case((bindparam("counts", type_=Boolean), SESSION.c.held), else_=None),
    )
)


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
    """A screen that is given out. clips: keys by the names that stand for them."""

    id: str
    step: Step
    names: Mapping[str, str]
    screen: Screen

    @property
    def clips(self) -> dict[str, str]:
        return {name: self.step.roles[label] for label, name in self.names.items()}


@final
@dataclass
class Sitting:
    """A session as far as it is. answered: places of its answered screens by their ids."""

    id: str
    created: datetime
    arrived_with: Mapping[str, str]
    course: Course
    done: list[tuple[Step, Given]]
    answered: dict[str, int]
    handed: Handed
    lock: threading.Lock = field(default_factory=threading.Lock)


@final
class Ledger:
    """All sessions of one study.

    abandon_after: without an answer for so long, a session gives its seat to the next listener.
    expire_after: from its start on, until its token is no longer known.
    """

    def __init__(
        self,
        database: Database,
        study: Study,
        *,
        abandon_after: timedelta = timedelta(hours=2),
        expire_after: timedelta = timedelta(days=30),
        clock: Callable[[], datetime] = now,
    ) -> None:
        self.database, self.study = database, study
        self.abandon_after, self.expire_after, self.clock = abandon_after, expire_after, clock
        self._held: OrderedDict[str, Sitting] = OrderedDict()
        self._lock = threading.Lock()
        self.study_id = database.write(self._enter_study)

    def join(self, arrived_with: Mapping[str, str], simulated: bool = False) -> Joined:
        """A new session on the lowest seat that is free."""
        token = secrets.token_urlsafe(32)
        key = hash_token(token)
        sitting = _twice(
            lambda _: self.database.write(lambda link: self._seat(link, key, arrived_with, simulated))
        )
        self._keep(key, sitting)
        return Joined(token=token, title=self.study.title, screen=sitting.handed.screen)

    def show(self, token: str) -> Screen:
        """The screen that is given out now."""
        return self._sitting(hash_token(token)).handed.screen

    def recall_clip(self, token: str, name: str) -> str | None:
        """The same as `find_clip` where the session is in memory; else, or for any doubt, None."""
        with self._lock:
            sitting = self._held.get(hash_token(token))
        if sitting is None or self.clock() - sitting.created > self.expire_after:
            return None
        return sitting.handed.clips.get(name)

    def find_clip(self, token: str, name: str) -> str:
        """The key of a clip on the screen that is given out now."""
        key = hash_token(token)
        for fresh in (False, True):
            clips = self._sitting(key, fresh).handed.clips
            if name in clips:
                return clips[name]
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

    def _answer(self, sitting: Sitting, answer: Answer) -> Next:
        place = sitting.answered.get(answer.screen)
        if place is not None:
            return Next(screen=sitting.handed.screen, feedback=sitting.course.feedback(*sitting.done[place]))
        handed = sitting.handed
        if answer.screen != handed.id or handed.step.kind == "done":
            raise Refusal(409, "not-given", "expected an answer to the screen that is given out now.")
        fault = find_fault(handed.screen, answer)
        if fault is not None:
            raise Refusal(422, "bad-answer", fault)
        done = [*sitting.done, (handed.step, answer.given)]
        following = self._hand_out(sitting.course, done, sitting.arrived_with)
        self.database.write(lambda link: self._record(link, sitting, answer, following, done))
        sitting.answered[handed.id] = len(sitting.done)
        sitting.done, sitting.handed = done, following
        return Next(screen=following.screen, feedback=sitting.course.feedback(handed.step, answer.given))

    def _record(
        self,
        link: Connection,
        sitting: Sitting,
        answer: Answer,
        following: Handed,
        done: list[tuple[Step, Given]],
    ) -> None:
        at = self.clock()
        kept = {
            "step_id": answer.screen,
            "session_id": sitting.id,
            "given": answer.given.model_dump(mode="json"),
            "seconds": answer.seconds,
            "plays": answer.plays,
            "at": at,
        }
        link.execute(ADD_ANSWER, kept)
        self._record_step(link, sitting.id, following, at)
        link.execute(GO_ON, {"session": sitting.id, "now": at})
        if following.step.kind == "done":
            accepted, reason = sitting.course.verdict(done)
            end = {"session": sitting.id, "now": at, "counts": accepted, "why": reason}
            link.execute(END, end)

    def _seat(self, link: Connection, key: str, arrived_with: Mapping[str, str], simulated: bool) -> Sitting:
        at = self.clock()
        # One at a time looks for a seat; where this locks nothing, there is one writer anyway.
        link.execute(select(STUDY.c.id).where(STUDY.c.id == self.study_id).with_for_update(key_share=True))
        mine = (SESSION.c.study_id == self.study_id) & (SESSION.c.simulated == simulated)
        late = mine & (SESSION.c.state == "open") & (SESSION.c.seen < at - self.abandon_after)
        link.execute(update(SESSION).where(late).values(state="abandoned", held=None))
        taken = select(SESSION.c.held).where(mine, SESSION.c.held.is_not(None)).order_by(SESSION.c.held)
        seat = first_gap(link.scalars(taken))
        seed = secrets.randbits(62)
        name = secrets.token_urlsafe(12)
        course = Course(self.study, seat, seed)
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
        link.execute(insert(SESSION), row)
        self._record_step(link, name, handed, at)
        return Sitting(name, at, dict(arrived_with), course, [], {}, handed)

    def _hand_out(
        self, course: Course, done: list[tuple[Step, Given]], arrived_with: Mapping[str, str]
    ) -> Handed:
        step = course.next_step(done)
        names = {label: secrets.token_urlsafe(18) for label in step.roles}
        return self._show(course, step, names, secrets.token_urlsafe(18), done, arrived_with)

    def _show(
        self,
        course: Course,
        step: Step,
        names: Mapping[str, str],
        id: str,
        done: list[tuple[Step, Given]],
        arrived_with: Mapping[str, str],
    ) -> Handed:
        shown = screen(step, names, self.study, course.progress(done), id=id, arrived_with=arrived_with)
        return Handed(id, step, names, shown)

    def _record_step(self, link: Connection, session: str, handed: Handed, at: datetime) -> None:
        step = handed.step
        row = {"session_id": session, "place": step.place, "kind": step.kind, "content": step.to_json()}
        link.execute(ADD_STEP, {"id": handed.id, "given_at": at, **row})
        if handed.names:
            rows = [
                {"name": name, "step_id": handed.id, "label": label, "clip": step.roles[label]}
                for label, name in handed.names.items()
            ]
            link.execute(ADD_HANDOUT, rows)

    def _sitting(self, key: str, fresh: bool = False) -> Sitting:
        with self._lock:
            sitting = None if fresh else self._held.get(key)
            if sitting is not None:
                self._held.move_to_end(key)
        if sitting is None:
            sitting = self._read(key)
            self._keep(key, sitting)
        if self.clock() - sitting.created > self.expire_after:
            raise unknown_session()
        return sitting

    def _keep(self, key: str, sitting: Sitting) -> None:
        with self._lock:
            self._held[key] = sitting
            self._held.move_to_end(key)
            while len(self._held) > IN_MEMORY:
                self._held.popitem(last=False)

    def _forget(self, key: str) -> None:
        with self._lock:
            self._held.pop(key, None)

    def _read(self, key: str) -> Sitting:
        query = select(SESSION).where(SESSION.c.token_hash == key, SESSION.c.study_id == self.study_id)
        with self.database.reading() as link:
            found = link.execute(query).first()
            if found is None:
                raise unknown_session()
            rows = link.execute(_steps_of(found.id)).all()
            names = _names_of(link, rows[-1].id)
        return self._sit_again(found, rows, names)

    def _sit_again(self, found: Row[Any], rows: Sequence[Row[Any]], names: Mapping[str, str]) -> Sitting:
        course = Course(self.study, found.seat, found.seed)
        *past, last = rows
        done = [(Step.from_json(row.content), GIVEN.validate_python(row.given)) for row in past]
        step = Step.from_json(last.content)
        handed = self._show(course, step, names, last.id, done, found.arrived_with)
        answered = {row.id: place for place, row in enumerate(past)}
        return Sitting(found.id, found.created, found.arrived_with, course, done, answered, handed)

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


def _steps_of(session: str) -> Select[Any]:
    return (
        select(STEP.c.id, STEP.c.content, ANSWER.c.given)
        .join_from(STEP, ANSWER, STEP.c.id == ANSWER.c.step_id, isouter=True)
        .where(STEP.c.session_id == session)
        .order_by(STEP.c.place)
    )


def _names_of(link: Connection, step: str) -> dict[str, str]:
    rows = link.execute(select(HANDOUT.c.label, HANDOUT.c.name).where(HANDOUT.c.step_id == step))
    return {row.label: row.name for row in rows}
