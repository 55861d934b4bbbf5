"""Goals: the objective that an attack maximises, and what counts as success."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self, final

import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import CheckedSettings
from sottovoce.core.target import Languages, Says, Target, best_places, shown_name
from sottovoce.core.text_normaliser import word_errors
from sottovoce.errors import InputError, UnknownName

JudgedBy = Literal["errors", "change", "goal"]
"""What success meant for a clip. errors: more word errors against its true text than before the attack;
change: another answer than for the clean clip; goal: what the goal defines, such as a text to force."""


BOUND = {"bound": True}
"""Marks the fields of a goal that belong to its clips; the others are settings."""


def _as_is(text: str) -> str:
    return text


@final
@dataclass(frozen=True)
class Truth:
    """The true text of a clip, and how many of its words the model got wrong before the attack."""

    text: str
    language: str = ""
    errors_before: int = 0

    @classmethod
    def of(cls, text: str, language: str, clean_text: str) -> Truth:
        """From the true text and what the model said to the clean clip."""
        return cls(text, language, word_errors(text, clean_text, language))

    def worse(self, heard: str) -> bool:
        """Whether a transcript has more word errors than the clean one had."""
        return word_errors(self.text, heard, self.language) > self.errors_before


@dataclass(frozen=True)
class Goal(CheckedSettings, ABC):
    """What an attack tries to reach: an objective to maximise, and a test for success.

    Shipped are `sv.goals.Evade`, `Force`, `ForceNearest`, `Prefix` and `Language`. Before an attack a goal is
    bound to one reference text for each clip, normally what the model says to the clean clip. A subclass
    writes `objective`, `achieved` and `applies`. `sv.testing.check_goal` tests it.

    canonical: the form in which the target's texts are compared; `heard_by` sets it.
    truths: the true text of each clip, None if unknown; `knowing` sets it.

    >>> goal = sv.goals.Evade().bind(["yes", "no"])
    >>> goal.achieved(["yes", "up"])  # what the model said to the examples
    [False, True]
    """

    name: ClassVar[str] = ""
    """The name it is registered under, for messages."""
    needs: ClassVar[tuple[type, ...]] = ()
    """Capabilities that the target must have."""
    says: ClassVar[Says | None] = None
    """The kind of target that the goal applies to: "class", "words", or None for both."""
    about: ClassVar[str] = "text"
    """What the references are: a "text", or the "language" that is detected."""

    references: tuple[str, ...] = field(default=(), kw_only=True, metadata=BOUND)
    canonical: Callable[[str], str] = field(
        default=_as_is, kw_only=True, repr=False, compare=False, metadata=BOUND
    )
    truths: tuple[Truth | None, ...] = field(default=(), kw_only=True, metadata=BOUND)

    @abstractmethod
    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        """The objective `(batch,)`, differentiable: the higher, the nearer to success."""

    @abstractmethod
    def achieved(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text is a success."""

    @abstractmethod
    def applies(self, reference: str) -> bool:
        """Whether a clip with this reference can be attacked: forcing what is already said cannot."""

    def nearness(self, texts: Sequence[str]) -> list[float]:
        """How near each transcript is to success: what is maximised where a model gives answers alone.

        Default: 1 for a success and 0 for any other text, which tells a search nothing on its way.
        """
        return [float(reached) for reached in self.achieved(texts)]

    def read(self, target: Target, batch: AudioBatch, texts: Sequence[str], *, draws: Draws) -> list[str]:
        """What success is judged by, one for each clip: the decoded texts, unless the goal needs more."""
        return list(texts)

    @property
    def judged_by(self) -> tuple[JudgedBy, ...]:
        """What success means for each clip."""
        same: JudgedBy = "goal"
        return (same,) * len(self.references)

    def wins(self, classes: Sequence[str]) -> Tensor:
        """The classes whose decision is a success, `(batch, classes)` bool."""
        columns = [self.achieved([name] * len(self.references)) for name in classes]
        return torch.tensor(columns, dtype=torch.bool).T

    def check(self, target: Target) -> None:
        """Raise before any work if the goal does not apply to the target."""
        if self.says not in (None, target.says):
            kinds = {"words": "a speech recogniser", "class": "a classifier"}
            raise InputError(
                f"the goal {shown_name(self)} needs {kinds[str(self.says)]}, but the model is "
                f"{kinds[target.says]} ({type(target).__name__}). Use evade or force."
            )
        target.check_labels(self.wanted)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Texts that the model must be able to say."""
        return ()

    @final
    def bind(self, references: Sequence[str]) -> Self:
        """The same goal for clips with these references; what belongs to other clips is dropped."""
        return replace(self, references=tuple(references), truths=())

    @final
    def knowing(self, truths: Sequence[Truth | None]) -> Self:
        """The same goal, judged by the true text of each clip if it is known."""
        return replace(self, truths=tuple(truths))

    @final
    def heard_by(self, target: Target) -> Self:
        """The same goal, comparing texts in the target's canonical form."""
        return replace(self, canonical=target.canonical)

    @final
    def select(self, rows: Sequence[int]) -> Self:
        """The same goal for some of its clips, by row."""
        some = self.bind([self.references[row] for row in rows])
        return some.knowing([self.truths[row] for row in rows]) if self.truths else some

    @final
    def margin(self, scores: Tensor, classes: Sequence[str]) -> Tensor:
        """The best winning score less the best other score, `(batch,)`: positive if the attack succeeds."""
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
    """Make the model give another answer than for the clean clip. The default of every attack.

    For a recogniser and clips with a true text, success is more word errors than before: an attack that
    happens to correct a transcript has not succeeded.

    >>> goal = sv.goals.Evade().bind(["yes", "no"])
    >>> goal.achieved(["no", "no"])
    [True, False]
    """

    name: ClassVar[str] = "evade"

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

    def nearness(self, texts: Sequence[str]) -> list[float]:
        """Word errors, and less than one more for the share of letters that are others."""
        found = []
        for text, reference, truth in zip(texts, self.references, self._truths, strict=True):
            right, language = (reference, "") if truth is None else (truth.text, truth.language)
            letters = Levenshtein.normalized_distance(self.canonical(right), self.canonical(text))
            found.append(word_errors(right, text, language) + 0.5 * letters)
        return found

    def applies(self, reference: str) -> bool:
        return True

    def wins(self, classes: Sequence[str]) -> Tensor:
        return ~_one_hot(self.references, classes)

    @property
    def _truths(self) -> tuple[Truth | None, ...]:
        return self.truths or (None,) * len(self.references)


@dataclass(frozen=True)
class Become(Goal):
    """Make the model say a given text; a subclass chooses the text for each clip."""

    @abstractmethod
    def text_for(self, reference: str) -> str:
        """The text that a clip with this reference is meant to become."""

    @property
    @final
    def texts(self) -> list[str]:
        """The text that each clip is meant to become."""
        return [self.text_for(reference) for reference in self.references]

    @final
    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return -target.loss(batch, self.texts, draws=draws)

    @final
    def nearness(self, texts: Sequence[str]) -> list[float]:
        """Less the edits of letters to the wanted text, as a share of the longer one; 0 for a success."""
        found = zip(texts, self.texts, self.achieved(texts), strict=True)
        return [
            0.0 if reached else -Levenshtein.normalized_distance(self.canonical(text), self.canonical(wanted))
            for text, wanted, reached in found
        ]


@final
@dataclass(frozen=True)
class Force(Become):
    """Make the model say `text`: the name of a class, or a transcript (a targeted attack).

    >>> clips = sv.open_data("embedded", model="keyword", limit=2)
    >>> trial = sv.attack("keyword", clips, "pgd(steps=10)", budget="snr(db=10)", goal="force(text=stop)")
    >>> trial.adversarial_texts
    ('stop', 'stop')
    """

    text: str
    name: ClassVar[str] = "force"

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
    """Make the model say the one of `choices` whose length is nearest to what it says now.

    A text of about the same length is the fairest to force (Olivier 2023, section 5.2, uses three). Of two
    equally near the first is taken.

    >>> goal = sv.goals.ForceNearest(("open the door", "stop"))
    >>> goal.text_for("left"), goal.text_for("turn the light off")
    ('stop', 'open the door')
    """

    choices: tuple[str, ...]
    name: ClassVar[str] = "force-nearest"

    def __post_init__(self) -> None:
        if not self.choices:
            raise InputError("choices must have at least one text, got none; write choices=[yes, no].")
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
    """Make a recogniser say `word` before what it says now: an easy target (Olivier 2023, section 6.6).

    Success is a text that starts with the word, whatever follows.

    >>> goal = sv.goals.Prefix("stop").bind(["turn left"])
    >>> goal.texts, goal.achieved(["stop turn right"])
    (['stop turn left'], [True])
    """

    word: str

    name: ClassVar[str] = "prefix"
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
    """Make a multilingual recogniser detect the language `code`, such as "fr" (Olivier 2023, section 5.4).

    References are languages, and success is the language that is detected, whatever the transcript says.

    >>> model = sv.testing.ToyAttention()  # a toy with the languages aa, bb and cc
    >>> clips = sv.testing.clips_for(model)
    >>> trial = sv.attack(model, clips, "pgd", budget="snr(db=0)", goal=sv.goals.Language("bb"))
    >>> set(trial.languages[1])  # detected in the examples
    {'bb'}
    """

    code: str

    name: ClassVar[str] = "language"
    needs: ClassVar[tuple[type, ...]] = (Languages,)
    about: ClassVar[str] = "language"

    def check(self, target: Target) -> None:
        known = target.capability(Languages).languages
        if self.code not in known:
            raise UnknownName("language of the model", self.code, known)

    def read(self, target: Target, batch: AudioBatch, texts: Sequence[str], *, draws: Draws) -> list[str]:
        return detect_languages(target, batch, draws=draws)

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        detector = target.capability(Languages)
        scores = detector.language_scores(batch, draws=draws)
        return scores.log_softmax(dim=1)[:, detector.languages.index(self.code)]

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [text == self.code for text in texts]

    def applies(self, reference: str) -> bool:
        return reference != self.code


def detect_languages(target: Target, batch: AudioBatch, *, draws: Draws) -> list[str]:
    """The code of the likeliest language of each clip."""
    detector = target.capability(Languages)
    with torch.no_grad():
        places = best_places(detector.language_scores(batch, draws=draws), batch.ids).tolist()
    return [detector.languages[place] for place in places]


def _check_text(text: str) -> None:
    if not text.strip():
        raise InputError(f"expected a text for the model to say, got {text!r}; write one, such as stop.")


def _one_hot(labels: Sequence[str], classes: Sequence[str]) -> Tensor:
    """`(batch, classes)` bool, true at each label's class."""
    places = {name: place for place, name in enumerate(classes)}
    try:
        rows = torch.tensor([places[label] for label in labels], dtype=torch.int64)
    except KeyError as error:
        raise InputError(
            f"expected a class of the model ({', '.join(classes)}), got {error}; correct the label."
        ) from None
    return torch.nn.functional.one_hot(rows, len(classes)).bool()
