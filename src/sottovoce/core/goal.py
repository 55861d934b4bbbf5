"""What an attack is after: which way to step, and what counts as success."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self, final

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Languages, Says, Target, best_places
from sottovoce.core.text_normaliser import word_errors
from sottovoce.errors import InputError, UnknownName

JudgedBy = Literal["errors", "change", "goal"]
"""What success meant for a clip. errors: more word errors against its true text than before the attack;
change: another answer than to the clean clip; goal: what the goal asks for, such as a text to force."""


BOUND = {"bound": True}
"""Marks the fields of a goal that come with its clips; the others are settings."""


def _as_is(text: str) -> str:
    return text


@final
@dataclass(frozen=True)
class Truth:
    """What is really said in a clip, and how many of its words the model got wrong before the attack."""

    text: str
    language: str = ""
    errors_before: int = 0

    @classmethod
    def of(cls, text: str, language: str, clean_text: str) -> Truth:
        return cls(text, language, word_errors(text, clean_text, language))

    def worse(self, heard: str) -> bool:
        """Whether a transcript has more word errors than the one before the attack."""
        return word_errors(self.text, heard, self.language) > self.errors_before


@dataclass(frozen=True)
class Goal(ABC):
    """A goal is bound to one reference text a clip: what the model says, or should say, to the clean clip.

    canonical: the form in which the target's texts are compared; `heard_by` sets it.
    truths: what is really said in each clip, None where that is not known; `knowing` sets it.
    """

    needs: ClassVar[tuple[type, ...]] = ()
    """Powers that the target must have."""
    says: ClassVar[Says | None] = None
    """What the target must say for the goal to make sense: "class", "words", or None for either."""
    about: ClassVar[str] = "text"
    """What the references are: a "text", or the "language" that is heard."""

    references: tuple[str, ...] = field(default=(), kw_only=True, metadata=BOUND)
    canonical: Callable[[str], str] = field(
        default=_as_is, kw_only=True, repr=False, compare=False, metadata=BOUND
    )
    truths: tuple[Truth | None, ...] = field(default=(), kw_only=True, metadata=BOUND)

    @abstractmethod
    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        """`(batch,)`, differentiable: the higher, the nearer to success. Every attack steps up."""

    @abstractmethod
    def achieved(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text that was read is a success."""

    @abstractmethod
    def applies(self, reference: str) -> bool:
        """Whether a clip with this reference can be attacked at all (forcing what is already said is not)."""

    def read(self, target: Target, batch: AudioBatch, texts: Sequence[str], *, draws: Draws) -> list[str]:
        """What success is judged by, one a clip: the decoded texts, unless the goal is about more."""
        return list(texts)

    @property
    def judged_by(self) -> tuple[JudgedBy, ...]:
        """What success means for each clip."""
        same: JudgedBy = "goal"
        return (same,) * len(self.references)

    def wins(self, classes: Sequence[str]) -> Tensor:
        """`(batch, classes)` bool: the classes that a classifier may name for the attack to succeed."""
        columns = [self.achieved([name] * len(self.references)) for name in classes]
        return torch.tensor(columns, dtype=torch.bool).T

    def check(self, target: Target) -> None:
        """Raise before any work where the goal makes no sense for the target."""
        if self.says not in (None, target.says):
            raise InputError(
                f"the goal {type(self).__name__} expected a target that says {self.says}, got "
                f"{type(target).__name__}; choose another goal, such as evade."
            )
        target.check_labels(self.wanted)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Texts that the model must be able to say for this goal to make sense."""
        return ()

    @final
    def bind(self, references: Sequence[str]) -> Self:
        """The same goal for clips with these references; what was known of other clips is dropped."""
        return replace(self, references=tuple(references), truths=())

    @final
    def knowing(self, truths: Sequence[Truth | None]) -> Self:
        """The same goal, judged by what is really said in each of its clips, where that is known."""
        return replace(self, truths=tuple(truths))

    @final
    def heard_by(self, target: Target) -> Self:
        """The same goal, comparing texts as the target does."""
        return replace(self, canonical=target.canonical)

    @final
    def select(self, rows: Sequence[int]) -> Self:
        some = self.bind([self.references[row] for row in rows])
        return some.knowing([self.truths[row] for row in rows]) if self.truths else some

    @final
    def margin(self, scores: Tensor, classes: Sequence[str]) -> Tensor:
        """Best winning score minus best other score, `(batch,)`: positive when a classifier is fooled."""
        wins = self.wins(classes).to(scores.device)
        lowest = torch.finfo(scores.dtype).min
        best_win = scores.masked_fill(~wins, lowest).amax(dim=1)
        return best_win - scores.masked_fill(wins, lowest).amax(dim=1)

    @final
    def _same(self, one: str, two: str) -> bool:
        return self.canonical(one) == self.canonical(two)


@final
@dataclass(frozen=True)
class Evade(Goal):
    """Make the model say anything but the reference; of words whose true text is known, more of them wrong
    than before: an attack that corrects a transcript has not succeeded."""

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return target.loss(batch, self.references, draws=draws)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [
            not self._same(text, reference) if truth is None else truth.worse(text)
            for text, reference, truth in zip(texts, self.references, self._truths, strict=True)
        ]

    @property
    def judged_by(self) -> tuple[JudgedBy, ...]:
        return tuple("change" if truth is None else "errors" for truth in self._truths)

    def applies(self, reference: str) -> bool:
        return True

    def wins(self, classes: Sequence[str]) -> Tensor:
        return ~_one_hot(self.references, classes)

    @property
    def _truths(self) -> tuple[Truth | None, ...]:
        return self.truths or (None,) * len(self.references)


@dataclass(frozen=True)
class Become(Goal):
    """Make the model say a certain text; a subclass says which, clip by clip."""

    @abstractmethod
    def text_for(self, reference: str) -> str:
        """What a clip with this reference is to become."""

    @property
    @final
    def texts(self) -> list[str]:
        """What each clip is to become."""
        return [self.text_for(reference) for reference in self.references]

    @final
    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return -target.loss(batch, self.texts, draws=draws)


@final
@dataclass(frozen=True)
class Force(Become):
    """Make the model say `text`."""

    text: str

    def __post_init__(self) -> None:
        _check_text(self.text)

    @property
    def wanted(self) -> tuple[str, ...]:
        return (self.text,)

    def text_for(self, reference: str) -> str:
        return self.text

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [self._same(text, self.text) for text in texts]

    def applies(self, reference: str) -> bool:
        return not self._same(reference, self.text)

    def wins(self, classes: Sequence[str]) -> Tensor:
        return _one_hot([self.text] * len(self.references), classes)


@final
@dataclass(frozen=True)
class ForceNearest(Become):
    """Make the model say the one of `choices` whose length is nearest to the reference's, the first of two.

    A text of about the same length is the fairest to force: Olivier (2023), section 5.2, has three.
    """

    choices: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.choices:
            raise InputError("expected at least one text in choices, got none; give some to choose from.")
        for choice in self.choices:
            _check_text(choice)

    @property
    def wanted(self) -> tuple[str, ...]:
        return self.choices

    def text_for(self, reference: str) -> str:
        return min(self.choices, key=lambda choice: abs(len(choice) - len(reference)))

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [self._same(text, wanted) for text, wanted in zip(texts, self.texts, strict=True)]

    def applies(self, reference: str) -> bool:
        return not self._same(reference, self.text_for(reference))


@final
@dataclass(frozen=True)
class Prefix(Become):
    """Make the model say `word` before what it says now: a mild target (Olivier 2023, section 6.6).

    Success is a text that starts with the word, whatever follows.
    """

    word: str

    says: ClassVar[Says | None] = "words"

    def __post_init__(self) -> None:
        _check_text(self.word)

    @property
    def wanted(self) -> tuple[str, ...]:
        return (self.word,)

    def text_for(self, reference: str) -> str:
        return f"{self.word} {reference}"

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [self._starts(text) for text in texts]

    def applies(self, reference: str) -> bool:
        return not self._starts(reference)

    def _starts(self, text: str) -> bool:
        return f"{self.canonical(text)} ".startswith(f"{self.canonical(self.word)} ")


@final
@dataclass(frozen=True)
class Language(Goal):
    """Make the model hear another language, the one with this `code` (Olivier 2023, section 5.4).

    Success is the language that is detected; references are languages, and the text is whatever follows.
    """

    code: str

    needs: ClassVar[tuple[type, ...]] = (Languages,)
    about: ClassVar[str] = "language"

    def check(self, target: Target) -> None:
        known = target.power(Languages).languages
        if self.code not in known:
            raise UnknownName("language of the model", self.code, known)

    def read(self, target: Target, batch: AudioBatch, texts: Sequence[str], *, draws: Draws) -> list[str]:
        return detect_languages(target, batch, draws=draws)

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        power = target.power(Languages)
        scores = power.language_scores(batch, draws=draws)
        return scores.log_softmax(dim=1)[:, power.languages.index(self.code)]

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [text == self.code for text in texts]

    def applies(self, reference: str) -> bool:
        return reference != self.code


def detect_languages(target: Target, batch: AudioBatch, *, draws: Draws) -> list[str]:
    """The code of the likeliest language, one a clip."""
    power = target.power(Languages)
    with torch.no_grad():
        places = best_places(power.language_scores(batch, draws=draws), batch.ids).tolist()
    return [power.languages[place] for place in places]


def _check_text(text: str) -> None:
    if not text.strip():
        raise InputError(f"expected a text for the model to say, got {text!r}; name one, such as stop.")


def _one_hot(labels: Sequence[str], classes: Sequence[str]) -> Tensor:
    """`(batch, classes)` bool, true at each label's class."""
    places = {name: place for place, name in enumerate(classes)}
    try:
        rows = torch.tensor([places[label] for label in labels], dtype=torch.int64)
    except KeyError as error:
        raise InputError(
            f"expected a class of the model ({', '.join(classes)}), got {error}; mend the label."
        ) from None
    return torch.nn.functional.one_hot(rows, len(classes)).bool()
