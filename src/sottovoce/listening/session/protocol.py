"""What the server and the page say to each other: a session is a row of screens, each answered once.

A screen shows nothing but opaque names of clips, in slots. What is behind a slot, which answer is right and
which screens are sentinels, the server alone knows. Models refuse what they do not know, so that a page and
a server of two versions fail at once and in the open.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

Confidence = Literal["low", "medium", "high"]
Name = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_-]+$")]
"""An opaque name of a clip, a screen or a session."""
Token = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{43}$")]
Text = Annotated[str, Field(max_length=4000)]
Long = Annotated[str, Field(max_length=20_000)]
"""What may fill a page, such as the consent that an ethics board asks for."""
CLOSED: dict[str, JsonValue] = {"additionalProperties": False}
"""Of a mapping: there is no key but those that its pattern lets through, and the schema is to say so."""
Rating = Annotated[int, Field(ge=0, le=100, strict=True)]


class Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Slot(Message):
    """A place with a clip in it: what the page calls it, and the name under which the clip is fetched."""

    label: Annotated[str, Field(min_length=1, max_length=32)]
    audio: Name


class Shown(Message):
    """What all screens have: a name of their own, and how far the session is, from 0 to 1."""

    id: Name
    progress: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0


class QuestionScreen(Shown):
    """What all screens with a question about clips have.

    teaching: the answer is followed by feedback and does not count.
    """

    question: Text
    teaching: bool = False


class Consent(Shown):
    kind: Literal["consent"] = "consent"
    title: Text
    text: Long


class Notice(Shown):
    """Something to read: instructions, or a break."""

    kind: Literal["notice"] = "notice"
    title: Text
    text: Long
    rest_seconds: Annotated[int, Field(ge=0, le=600)] = 0


class Volume(Shown):
    """Set the volume by a clip that plays in a loop."""

    kind: Literal["volume"] = "volume"
    text: Text
    clip: Slot


class Headphones(QuestionScreen):
    """Which of three tones is the quietest: one is in antiphase, and quiet over loudspeakers alone."""

    kind: Literal["headphones"] = "headphones"
    clips: Annotated[list[Slot], Field(min_length=3, max_length=3)]


class AttentionScreen(QuestionScreen):
    """Which word is heard in a sentence."""

    kind: Literal["attention"] = "attention"
    clip: Slot
    choices: Annotated[list[Text], Field(min_length=2, max_length=40)]


class Naming(QuestionScreen):
    """Part 1 of Vadillo and Santana's experiment: name the command and say how natural the clip sounds.

    scale: the wording of 1 to 5, in that order.
    """

    kind: Literal["naming"] = "naming"
    clip: Slot
    choices: Annotated[list[Text], Field(min_length=2, max_length=40)]
    scale_question: Text
    scale: Annotated[list[Text], Field(min_length=5, max_length=5)]


class Abx(QuestionScreen):
    """Is X the clip A or the clip B, and how sure is the listener."""

    kind: Literal["abx"] = "abx"
    a: Slot
    b: Slot
    x: Slot


class SameDifferent(QuestionScreen):
    """Two clips after each other: the same recording or not."""

    kind: Literal["same-different"] = "same-different"
    first: Slot
    second: Slot
    gap_seconds: Annotated[float, Field(ge=0.0, le=5.0)] = 0.5


class Mushra(QuestionScreen):
    """Clips to rate from 0 to 100 beside an open reference (ITU-R BS.1534)."""

    kind: Literal["mushra"] = "mushra"
    reference: Slot
    clips: Annotated[list[Slot], Field(min_length=2, max_length=15)]


class Preference(QuestionScreen):
    """Which of two clips is better; a reference where the study has one."""

    kind: Literal["preference"] = "preference"
    a: Slot
    b: Slot
    reference: Slot | None = None


class Closer(QuestionScreen):
    """Which of two clips is closer to the reference (2AFC)."""

    kind: Literal["closer"] = "closer"
    reference: Slot
    a: Slot
    b: Slot


class Question(Message):
    name: Name
    text: Text
    kind: Literal["text", "number", "choice"] = "text"
    choices: list[Text] = []
    required: bool = True


class Questionnaire(Shown):
    kind: Literal["questionnaire"] = "questionnaire"
    title: Text
    questions: Annotated[list[Question], Field(min_length=1, max_length=40)]


class Done(Shown):
    """The end. code, link: what a listener needs to be paid, where the study says so."""

    kind: Literal["done"] = "done"
    title: Text
    text: Long
    code: Text | None = None
    # What the listener came with is in it: it may be longer than the study has it.
    link: str | None = None


Screen = Annotated[
    Consent
    | Notice
    | Volume
    | Headphones
    | AttentionScreen
    | Naming
    | Abx
    | SameDifferent
    | Mushra
    | Preference
    | Closer
    | Questionnaire
    | Done,
    Field(discriminator="kind"),
]


class Agreed(Message):
    kind: Literal["consent"]
    agreed: bool


class Read(Message):
    kind: Literal["notice", "volume"]


class Quietest(Message):
    kind: Literal["headphones"]
    choice: Annotated[int, Field(ge=0, le=2, strict=True)]


class Word(Message):
    kind: Literal["attention"]
    choice: Text


class Named(Message):
    kind: Literal["naming"]
    choice: Text
    naturalness: Annotated[int, Field(ge=1, le=5, strict=True)]


class Matched(Message):
    kind: Literal["abx"]
    choice: Literal["a", "b"]
    confidence: Confidence


class Told(Message):
    kind: Literal["same-different"]
    different: Annotated[bool, Field(strict=True)]


class Rated(Message):
    """One rating for each slot of the screen, by its label."""

    kind: Literal["mushra"]
    ratings: Annotated[dict[str, Rating], Field(min_length=2, max_length=15)]


class Preferred(Message):
    kind: Literal["preference", "closer"]
    choice: Literal["a", "b"]


class Filled(Message):
    kind: Literal["questionnaire"]
    answers: Annotated[dict[Name, Text | float], Field(max_length=40, json_schema_extra=CLOSED)]


Given = Annotated[
    Agreed | Read | Quietest | Word | Named | Matched | Told | Rated | Preferred | Filled,
    Field(discriminator="kind"),
]


class Answer(Message):
    """An answer to a screen. plays: how often each slot was played, by label."""

    screen: Name
    given: Given
    seconds: Annotated[float, Field(ge=0.0, le=86400.0)] = 0.0
    plays: Annotated[dict[str, Annotated[int, Field(ge=0, le=10000)]], Field(max_length=20)] = {}


class Feedback(Message):
    """What is said after a teaching trial."""

    right: bool
    text: Long


class Next(Message):
    """What comes next, after what was just answered."""

    screen: Screen
    feedback: Feedback | None = None


class Standing(Next):
    """Where a session stands, and what the study is called, for a page that comes back to it."""

    title: Text


class Join(Message):
    """A listener who comes: what the recruiting site said of them, kept as it is.

    token: of the page's own making, 256 random bits. Sent again after a lost reply, it leads to the same
    session and not to a second seat. Without one the server makes one.
    """

    arrived_with: Annotated[
        dict[Name, Annotated[str, Field(max_length=200)]], Field(max_length=20, json_schema_extra=CLOSED)
    ] = {}
    token: Token | None = None


class Joined(Message):
    """The token that brings a listener back to the same session, and where it stands."""

    token: Name
    title: Text
    screen: Screen


class Problem(Message):
    """Why a request was refused: one sentence. code: for the page, which retries some of them."""

    code: str
    detail: JsonValue
