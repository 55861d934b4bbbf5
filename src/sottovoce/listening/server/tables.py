"""The tables: studies, sessions, the screens given out, what was behind their slots, and the answers.

Times are UTC. Whatever has to be true under retries and races is a constraint here, not a check elsewhere:
one answer a screen, one screen a place, one live session a seat.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Column, MetaData, UniqueConstraint
from sqlmodel import Field, SQLModel

METADATA = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
    }
)


def now() -> datetime:
    return datetime.now(UTC)


class Base(SQLModel):
    """Keeps these tables apart from any that another library may define."""

    metadata = METADATA


class StudyRow(Base, table=True):
    """A version of a study. hash: of its whole content, so that a changed file is another study."""

    __tablename__ = "study"

    id: int | None = Field(default=None, primary_key=True)
    hash: str = Field(max_length=64, unique=True)
    title: str
    created: datetime


class SessionRow(Base, table=True):
    """One listener.

    token_hash: of what brings the listener back; the token itself is not kept.
    seat: of the layout. held: the same while nobody else may have it, NULL once it is free again.
    seed: of what is drawn on the way. state: "open", "abandoned" or "finished". seen: the last answer.
    accepted, reason: the verdict on a finished session.
    """

    __tablename__ = "session"
    __table_args__ = (UniqueConstraint("study_id", "simulated", "held", name="one_session_a_seat"),)

    id: str = Field(max_length=64, primary_key=True)
    token_hash: str = Field(max_length=64, unique=True)
    study_id: int = Field(foreign_key="study.id")
    seat: int
    held: int | None = None
    seed: int = Field(sa_column=Column(BigInteger, nullable=False))
    arrived_with: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    simulated: bool
    state: str = Field(max_length=16)
    created: datetime
    seen: datetime
    finished: datetime | None = None
    accepted: bool | None = None
    reason: str = ""


class StepRow(Base, table=True):
    """A screen that was given out. content: what the server alone knows of it."""

    __tablename__ = "step"
    __table_args__ = (UniqueConstraint("session_id", "place", name="one_step_a_place"),)

    id: str = Field(max_length=64, primary_key=True)
    session_id: str = Field(foreign_key="session.id", max_length=64)
    place: int
    kind: str = Field(max_length=32)
    content: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    given_at: datetime


class HandoutRow(Base, table=True):
    """The name under which one slot's clip can be fetched."""

    __tablename__ = "handout"

    name: str = Field(max_length=64, primary_key=True)
    step_id: str = Field(foreign_key="step.id", max_length=64, index=True)
    label: str = Field(max_length=32)
    clip: str


class AnswerGiven(Base, table=True):
    """What a listener said to a screen: once."""

    __tablename__ = "answer"

    step_id: str = Field(foreign_key="step.id", max_length=64, primary_key=True)
    session_id: str = Field(foreign_key="session.id", max_length=64)
    given: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    seconds: float
    plays: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    at: datetime


STUDY, SESSION, STEP, HANDOUT, ANSWER = (
    METADATA.tables[name] for name in ("study", "session", "step", "handout", "answer")
)
