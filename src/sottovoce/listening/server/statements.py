"""What is read and written for a session: statements that are made once, as making one takes longer than
running it.

PostgreSQL takes an answer, the screen after it and where the session is now as one statement, which is one
transaction and one trip. SQLite, to which the way is short, takes them one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Case,
    Connection,
    Select,
    Text,
    Update,
    bindparam,
    case,
    column,
    exists,
    func,
    insert,
    make_url,
    null,
    select,
    update,
)

from sottovoce.listening.server.database import Database
from sottovoce.listening.server.tables import ANSWER, HANDOUT, SESSION, STEP, STUDY

Values = Mapping[str, Any]

ADD_SESSION, ADD_ANSWER, ADD_STEP, ADD_HANDOUT = map(insert, (SESSION, ANSWER, STEP, HANDOUT))


def _hold() -> Case[Any]:
    """The seat of a listener: free for others after a session that does not count; theirs again where they
    come back late and nobody else has it by now."""
    other = SESSION.alias()
    sits = (
        (other.c.study_id == SESSION.c.study_id)
        & (other.c.simulated == SESSION.c.simulated)
        & (other.c.held == SESSION.c.seat)
    )
    free = SESSION.c.held.is_(None) & ~exists(select(other.c.id).where(sits))
    gone = bindparam("gone", type_=Boolean)
    return case((gone, null()), (free, SESSION.c.seat), else_=SESSION.c.held)


MOVE_ON = (
    update(SESSION)
    .where(SESSION.c.id == bindparam("of_session"))
    .values(
        seen=bindparam("at_time"),
        state=bindparam("now_is"),
        finished=bindparam("ended"),
        accepted=bindparam("counts"),
        reason=bindparam("why"),
        held=_hold(),
    )
)


def _at_once() -> Update:
    """All of `record` in one."""
    answer = ("step_id", "session_id", "given", "seconds", "plays", "at")
    step = ("id", "session_id", "place", "kind", "content", "given_at")
    names = ("name", "step_id", "label", "clip")
    slots = func.json_to_recordset(bindparam("slots", type_=JSON))
    slot = slots.table_valued(*(column(name, Text) for name in names)).render_derived(with_types=True)
    return MOVE_ON.add_cte(
        ADD_ANSWER.values({name: bindparam(f"answer_{name}") for name in answer}).cte("kept"),
        ADD_STEP.values({name: bindparam(f"step_{name}") for name in step}).cte("given_out"),
        ADD_HANDOUT.from_select(names, select(slot)).cte("named"),
    )


AT_ONCE = str(_at_once().compile(dialect=make_url("postgresql+psycopg://").get_dialect()()))


def record(
    database: Database, answer: Values, step: Values, slots: Sequence[Values], session: Values
) -> None:
    """Keep an answer, the screen that comes after it, what is in its slots, and where the session is now."""
    if database.is_file:
        database.write(lambda link: _record(link, answer, step, slots, session))
        return
    values = dict(session)
    values |= {f"answer_{name}": value for name, value in answer.items()}
    values |= {f"step_{name}": value for name, value in step.items()}
    for name, content in (("answer_given", answer["given"]), ("answer_plays", answer["plays"])):
        values[name] = json.dumps(content)
    database.say(AT_ONCE, {**values, "step_content": json.dumps(step["content"]), "slots": json.dumps(slots)})


def _record(link: Connection, answer: Values, step: Values, slots: Sequence[Values], session: Values) -> None:
    link.execute(ADD_ANSWER, answer)
    give_out(link, step, slots)
    link.execute(MOVE_ON, session)


def give_out(link: Connection, step: Values, slots: Sequence[Values]) -> None:
    """Keep a screen and what is in its slots."""
    link.execute(ADD_STEP, step)
    if slots:
        link.execute(ADD_HANDOUT, slots)


def _steps() -> Select[Any]:
    """Screens of a session from a place on with their answers; of the one without, a row for each slot."""
    asked = ANSWER.c.step_id.is_(None)
    return (
        select(STEP.c.id, STEP.c.content, ANSWER.c.given, HANDOUT.c.label, HANDOUT.c.name)
        .join_from(STEP, ANSWER, STEP.c.id == ANSWER.c.step_id, isouter=True)
        .join(HANDOUT, (HANDOUT.c.step_id == STEP.c.id) & asked, isouter=True)
        .where(STEP.c.session_id == bindparam("session"), STEP.c.place >= bindparam("since"))
        .order_by(STEP.c.place)
    )


STEPS = _steps()
SESSION_OF = select(SESSION).where(SESSION.c.token_hash == bindparam("token"))

_OURS = SESSION.c.study_id == bindparam("study")
_MINE = _OURS & (SESSION.c.simulated == bindparam("made_up"))
ONE_AT_A_TIME = select(STUDY.c.id).where(STUDY.c.id == bindparam("study")).with_for_update(key_share=True)
"""Who looks for a seat holds the study until it is taken; where this locks nothing, there is one writer."""
SWEEP = (
    update(SESSION)
    .where(_OURS, SESSION.c.state == "open", SESSION.c.seen < bindparam("since"))
    .values(state="abandoned", held=None)
)
COUNT_SEATS = select(func.count(SESSION.c.held), func.coalesce(func.max(SESSION.c.held), -1)).where(_MINE)
SEATS = select(SESSION.c.held).where(_MINE, SESSION.c.held.is_not(None)).order_by(SESSION.c.held)
