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
    """The fewest edits that turn a reference into a transcript, in words or in characters.

    >>> edits = sv.metrics.Edits(hits=2, substitutions=1, deletions=1, insertions=0)
    >>> edits.errors, edits.length, edits.rate
    (2, 4, 0.5)
    """

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
    """Edits in words, after normalising both texts.

    language: a code such as "en", for the normaliser.

    >>> sv.metrics.word_edits("turn the light on", "Turn a light!")
    Edits(hits=2, substitutions=1, deletions=1, insertions=0)
    """
    return _count(*(split_words(normalise(text, language), language) for text in (reference, heard)))


@lru_cache(maxsize=8192)
def character_edits(reference: str, heard: str, language: str = "en") -> Edits:
    """Edits in characters, spaces included, after normalising both texts.

    language: a code such as "en", for the normaliser.

    >>> sv.metrics.character_edits("light on", "Right on")
    Edits(hits=7, substitutions=1, deletions=0, insertions=0)
    """
    return _count(normalise(reference, language), normalise(heard, language))


def _count(reference: Sequence[str], heard: Sequence[str]) -> Edits:
    kinds = Counter(edit.tag for edit in Levenshtein.editops(reference, heard))
    hits = len(reference) - kinds["replace"] - kinds["delete"]
    return Edits(hits, kinds["replace"], kinds["delete"], kinds["insert"])


class TextMetric(Metric):
    """A metric of transcripts. A subclass says which texts are compared, and what their edits count.

    against: what the transcript is compared with: the true text ("label"), the text that the attack wanted,
        or the transcript of the clean clip. A clip without that text has no value.
    heard: whose transcript: that of the adversarial example, or that of the clean clip.
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
        return self.compare(references, heard, _languages(trial))

    @final
    def compare(
        self, references: Sequence[str], heard: Sequence[str], languages: Sequence[str] | None = None
    ) -> Tensor:
        """Numerator and weight of each pair of texts, `(texts, 2)`, without a `Trial`.

        languages: a code a text, such as "en", for the normaliser; English where none are given.
        """
        count = type(self).edits
        rows = zip(references, heard, languages or ["en"] * len(heard), strict=True)
        return torch.tensor([self.parts(count(*row)) for row in rows], dtype=torch.float64)


class CorpusRate(TextMetric):
    """All errors over all words, so that long clips weigh more. Words written for silence are errors too."""

    @final
    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.errors, edits.length


@final
class Wer(CorpusRate):
    """Word error rate under attack, in %; above 100 % where many words are added.

    All substitutions, deletions and insertions over all words of the true texts, after Whisper's text
    normaliser, so that case and punctuation do not count. An attack that evades raises it.

    >>> parts = sv.metrics.Wer().compare(["turn the light on"], ["Turn a light on, please"])
    >>> parts.tolist()  # two errors in four words: 50 %
    [[2.0, 4.0]]
    """

    name, title = "wer", "WER under attack"


@final
class CleanWer(CorpusRate):
    """Word error rate of the clean clips, in %: what the recogniser gets wrong without any attack.

    >>> parts = sv.metrics.CleanWer().compare(["turn the light on"], ["turn the lights on"])
    >>> parts.tolist()  # one error in four words: 25 %
    [[1.0, 4.0]]
    """

    name, title = "clean-wer", "clean WER"
    before: ClassVar[bool] = True
    heard: ClassVar[Literal["adversarial", "clean"]] = "clean"


@final
class Cer(CorpusRate):
    """Character error rate under attack, in %: as `wer`, by characters, spaces included.

    >>> parts = sv.metrics.Cer().compare(["light on"], ["right on"])
    >>> parts.tolist()  # one error in eight characters
    [[1.0, 8.0]]
    """

    name, title = "cer", "CER under attack"
    edits: ClassVar[Callable[[str, str, str], Edits]] = staticmethod(character_edits)


@final
class CleanCer(CorpusRate):
    """Character error rate of the clean clips, in %.

    >>> parts = sv.metrics.CleanCer().compare(["light on"], ["light own"])
    >>> parts.tolist()  # one error in eight characters
    [[1.0, 8.0]]
    """

    name, title = "clean-cer", "clean CER"
    before: ClassVar[bool] = True
    heard: ClassVar[Literal["adversarial", "clean"]] = "clean"
    edits: ClassVar[Callable[[str, str, str], Edits]] = staticmethod(character_edits)


@final
class TranscriptChange(CorpusRate):
    """Word error rate under attack against the transcript of the clean clip, in %; needs no labels.

    >>> change = sv.metrics.TranscriptChange()
    >>> change.compare(["light on"], ["light off"]).tolist()  # clean transcript, transcript under attack
    [[1.0, 2.0]]
    """

    name, title = "transcript-change", "WER against the clean transcript"
    against: ClassVar[Literal["label", "wanted", "clean"]] = "clean"


@final
class WerClips(TextMetric):
    """Mean over clips of each clip's word error rate, in %: short clips weigh as much as long ones.

    >>> metric = sv.metrics.WerClips()
    >>> parts = metric.compare(["yes", "turn the light on"], ["no", "turn the lights on"])
    >>> metric.summarise(parts.numpy()).value  # the mean of 100 % and 25 %
    0.625
    """

    name, title = "wer-clips", "WER under attack, mean of clips"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.rate, 1.0


@final
class Substitutions(TextMetric):
    """Words that were replaced by others, in % of the words of the true texts.

    >>> sv.metrics.Substitutions().compare(["turn the light on"], ["turn a light"]).tolist()
    [[1.0, 4.0]]
    """

    name, title = "substitutions", "words substituted"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.substitutions, edits.length


@final
class Deletions(TextMetric):
    """Words that were lost, in % of the words of the true texts.

    >>> sv.metrics.Deletions().compare(["turn the light on"], ["turn a light"]).tolist()
    [[1.0, 4.0]]
    """

    name, title = "deletions", "words deleted"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.deletions, edits.length


@final
class Insertions(TextMetric):
    """Words that were added, in % of the words of the true texts.

    >>> sv.metrics.Insertions().compare(["turn the light on"], ["turn the light on again"]).tolist()
    [[1.0, 4.0]]
    """

    name, title = "insertions", "words inserted"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return edits.insertions, edits.length


@final
class SentenceError(TextMetric):
    """Share of clips whose transcript under attack has any error, in %.

    >>> sv.metrics.SentenceError().compare(["light on", "light on"], ["light on", "lights on"]).tolist()
    [[0.0, 1.0], [1.0, 1.0]]
    """

    name, title = "sentence-error", "sentence error under attack"
    interval: ClassVar[Literal["bootstrap", "exact"]] = "exact"

    def parts(self, edits: Edits) -> tuple[float, float]:
        return float(edits.errors > 0), 1.0


class Untargeted(TextMetric):
    """How much of the true text is lost: min(error rate, 1), mean over clips (Olivier 2023, eq. 6.2)."""

    @final
    def parts(self, edits: Edits) -> tuple[float, float]:
        return min(edits.rate, 1.0), 1.0


@final
class UasrWord(Untargeted):
    """Untargeted success by words, in %: min(WER, 1) of each clip, mean over clips.

    100 % means that no transcript keeps anything of its true text (Olivier 2023, eq. 6.2).

    >>> metric = sv.metrics.UasrWord()
    >>> parts = metric.compare(["light on", "light on"], ["light off", "who was that"])
    >>> metric.summarise(parts.numpy()).value  # 50 %, and 150 % that count as 100 %
    0.75
    """

    name, title = "uasr-word", "untargeted success, words"


@final
class UasrChar(Untargeted):
    """Untargeted success by characters, in %: min(CER, 1) of each clip, mean over clips.

    See `uasr-word` (Olivier 2023, eq. 6.2).

    >>> sv.metrics.UasrChar().compare(["light on"], ["right in"]).tolist()  # two of eight characters
    [[0.25, 1.0]]
    """

    name, title = "uasr-char", "untargeted success, characters"
    edits: ClassVar[Callable[[str, str, str], Edits]] = staticmethod(character_edits)


class Targeted(TextMetric):
    """How near the transcript is to the wanted text: max(1 - error rate, 0), mean over clips (eq. 6.1)."""

    against: ClassVar[Literal["label", "wanted", "clean"]] = "wanted"

    @final
    def parts(self, edits: Edits) -> tuple[float, float]:
        return max(1.0 - edits.rate, 0.0), 1.0


@final
class TasrWord(Targeted):
    """Targeted success by words, in %: max(1 - WER, 0) against the wanted text, mean over clips.

    100 % means that every transcript is the wanted text, word by word (Olivier 2023, eq. 6.1). Only for goals
    that name a text, such as `force(text=light off)`.

    >>> sv.metrics.TasrWord().compare(["turn the light off"], ["turn the light on"]).tolist()
    [[0.75, 1.0]]
    """

    name, title = "tasr-word", "targeted success, words"


@final
class TasrChar(Targeted):
    """Targeted success by characters, in %: max(1 - CER, 0) against the wanted text, mean over clips.

    See `tasr-word` (Olivier 2023, eq. 6.1).

    >>> sv.metrics.TasrChar().compare(["light on"], ["right in"]).tolist()  # six of eight are right
    [[0.75, 1.0]]
    """

    name, title = "tasr-char", "targeted success, characters"
    edits: ClassVar[Callable[[str, str, str], Edits]] = staticmethod(character_edits)


@final
class LanguageConfusion(Metric):
    """Share of clips in which the target hears another language after the attack, in %.

    Only for targets that detect the language, such as multilingual Whisper. The interval is exact
    (Clopper-Pearson).

    >>> clips = sv.AudioBatch.of([[0.5], [0.5]], sample_rate=16000)
    >>> trial = sv.Trial(
    ...     clips, clips, labels=None, references=("yes", "no"), clean_texts=("yes", "no"),
    ...     adversarial_texts=("si", "no"), achieved=(True, False), achieved_unrounded=(True, False),
    ...     says="words", languages=(("en", "en"), ("it", "en")),
    ... )
    >>> sv.metrics.LanguageConfusion().measure(trial)[:, 0].tolist()
    [1.0, 0.0]
    """

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
