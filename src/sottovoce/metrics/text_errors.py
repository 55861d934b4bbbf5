"""What an attack did to the words: errors counted in texts that Whisper's normaliser has cleaned."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar, Literal, NamedTuple, final

import torch
from rapidfuzz.distance import Levenshtein
from torch import Tensor

from sottovoce.core.attack import Trial
from sottovoce.core.metric import Metric
from sottovoce.core.text_normaliser import normalise, split_words


class Edits(NamedTuple):
    """The fewest edits that turn a reference into what was heard, in words or in characters."""

    hits: int
    substitutions: int
    deletions: int
    insertions: int

    @property
    def errors(self) -> int:
        return self.substitutions + self.deletions + self.insertions

    @property
    def length(self) -> int:
        """Of the reference: 0 for silence."""
        return self.hits + self.substitutions + self.deletions

    @property
    def rate(self) -> float:
        """Errors over length; silence counts as one word, as jiwer has it."""
        return self.errors / max(self.length, 1)


@lru_cache(maxsize=8192)
def word_edits(reference: str, heard: str, language: str = "en") -> Edits:
    """Edits in words, after normalising both texts."""
    return _count(*(split_words(normalise(text, language), language) for text in (reference, heard)))


@lru_cache(maxsize=8192)
def character_edits(reference: str, heard: str, language: str = "en") -> Edits:
    """Edits in characters, spaces among them, after normalising both texts."""
    return _count(normalise(reference, language), normalise(heard, language))


def _count(reference: Sequence[str], heard: Sequence[str]) -> Edits:
    kinds = Counter(edit.tag for edit in Levenshtein.editops(reference, heard))
    hits = len(reference) - kinds["replace"] - kinds["delete"]
    return Edits(hits, kinds["replace"], kinds["delete"], kinds["insert"])


class TextMetric(Metric):
    """A subclass says which two texts of a clip are held against each other, and what their edits count for.

    against: the truth, what the clip was to become, or what the model said to the clean clip.
    A clip without that text has no value.
    """

    unit = "%"
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    says: ClassVar[Literal["class", "words"] | None] = "words"
    against: ClassVar[Literal["label", "wanted", "clean"]] = "label"
    heard: ClassVar[Literal["adversarial", "clean"]] = "adversarial"
    edits: ClassVar[Callable[[str, str, str], Edits]] = staticmethod(word_edits)

    @abstractmethod
    def parts(self, edits: Edits) -> tuple[float, float]:
        """Numerator and weight of a clip."""

    @final
    def measure(self, trial: Trial) -> Tensor:
        heard = trial.adversarial_texts if self.heard == "adversarial" else trial.clean_texts
        references = _references(trial, self.against)
        if references is None:
            return torch.full((len(heard), 2), math.nan, dtype=torch.float64)
        count = type(self).edits
        rows = zip(references, heard, _languages(trial), strict=True)
        return torch.tensor([self.parts(count(*row)) for row in rows], dtype=torch.float64)


class CorpusRate(TextMetric):
    """All errors over all words, so that long clips weigh more. Words heard in silence are errors too."""

    @final
    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.errors, edits.length


@final
class Wer(CorpusRate):
    """Word error rate under attack; it can pass 100 % where words are added."""

    name, title = "wer", "WER under attack"


@final
class CleanWer(CorpusRate):
    """Word error rate before the attack."""

    name, title = "clean-wer", "clean WER"
    before: ClassVar[bool] = True
    heard: ClassVar[Literal["adversarial", "clean"]] = "clean"


@final
class Cer(CorpusRate):
    """Character error rate under attack."""

    name, title = "cer", "CER under attack"
    edits: ClassVar[Callable[[str, str, str], Edits]] = staticmethod(character_edits)


@final
class CleanCer(CorpusRate):
    """Character error rate before the attack."""

    name, title = "clean-cer", "clean CER"
    before: ClassVar[bool] = True
    heard: ClassVar[Literal["adversarial", "clean"]] = "clean"
    edits: ClassVar[Callable[[str, str, str], Edits]] = staticmethod(character_edits)


@final
class TranscriptChange(CorpusRate):
    """Word error rate against what the model said to the clean clip: it needs no labels."""

    name, title = "transcript-change", "WER against the clean transcript"
    against: ClassVar[Literal["label", "wanted", "clean"]] = "clean"


@final
class WerClips(TextMetric):
    """Mean over clips of each one's word error rate."""

    name, title = "wer-clips", "WER under attack, mean of clips"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.rate, 1.0


@final
class Substitutions(TextMetric):
    """Words that became others, as a share of the words of the reference."""

    name, title = "substitutions", "words substituted"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.substitutions, edits.length


@final
class Deletions(TextMetric):
    """Words that were lost, as a share of the words of the reference."""

    name, title = "deletions", "words deleted"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.deletions, edits.length


@final
class Insertions(TextMetric):
    """Words that were added, as a share of the words of the reference."""

    name, title = "insertions", "words inserted"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.insertions, edits.length


@final
class SentenceError(TextMetric):
    """Share of clips with any error under attack."""

    name, title = "sentence-error", "sentence error under attack"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return float(edits.errors > 0), 1.0


class Untargeted(TextMetric):
    """How far the words are from the truth: min(error rate, 1), mean over clips (Olivier 2023, eq. 6.2)."""

    @final
    def parts(self, edits: Edits) -> tuple[float, float]:
        return min(edits.rate, 1.0), 1.0


@final
class UasrWord(Untargeted):
    """min(WER, 1) of each clip against the truth, averaged: how much of the transcript is lost (eq. 6.2)."""

    name, title = "uasr-word", "untargeted success, words"


@final
class UasrChar(Untargeted):
    """As uasr-word, by characters."""

    name, title = "uasr-char", "untargeted success, characters"
    edits: ClassVar[Callable[[str, str, str], Edits]] = staticmethod(character_edits)


class Targeted(TextMetric):
    """How near the words are to the wanted ones: max(1 - error rate, 0), mean over clips (eq. 6.1)."""

    against: ClassVar[Literal["label", "wanted", "clean"]] = "wanted"

    @final
    def parts(self, edits: Edits) -> tuple[float, float]:
        return max(1.0 - edits.rate, 0.0), 1.0


@final
class TasrWord(Targeted):
    """max(1 - WER, 0) of each clip against the wanted text, averaged: how much of it is said (eq. 6.1)."""

    name, title = "tasr-word", "targeted success, words"


@final
class TasrChar(Targeted):
    """As tasr-word, by characters."""

    name, title = "tasr-char", "targeted success, characters"
    edits: ClassVar[Callable[[str, str, str], Edits]] = staticmethod(character_edits)


@final
class LanguageConfusion(Metric):
    """Share of clips in which another language is heard after the attack; for targets that tell languages."""

    name, title, unit = "language-confusion", "language confusion", "%"
    of: ClassVar[Literal["decisions", "audio"]] = "decisions"
    says: ClassVar[Literal["class", "words"] | None] = "words"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"

    def measure(self, trial: Trial) -> Tensor:
        if trial.languages is None:
            return torch.full((len(trial.clean), 2), math.nan, dtype=torch.float64)
        changed = [float(before != after) for before, after in zip(*trial.languages, strict=True)]
        return torch.tensor([[value, 1.0] for value in changed], dtype=torch.float64)


def _references(trial: Trial, against: str) -> Sequence[str] | None:
    return {"label": trial.labels, "wanted": trial.wanted, "clean": trial.clean_texts}[against]


def _languages(trial: Trial) -> list[str]:
    """Of each clip, "" where it is not known."""
    facts = trial.facts or ({},) * len(trial.clean)
    return [known.get("language", "") for known in facts]
