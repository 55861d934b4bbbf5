"""How a report is worded: which figures lead and what they are called, for classifiers and recognisers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from sottovoce.auditing.results.summary import find_metric
from sottovoce.core.target import Says


@dataclass(frozen=True, kw_only=True)
class ModelReading:
    """A family of models as a reader thinks of it. Prose is whole sentences, figures are metric names."""

    says: Says
    main: tuple[str, ...]
    """Columns of the main table."""
    levels: tuple[str, ...]
    """Columns by intensity of the clip."""
    example: tuple[str, ...]
    """Figures of one example."""
    clean: Mapping[str, str]
    """What is known of the model before any attack: metric to title, the foremost first."""
    samples: int
    """How much of an example is played: what keeps eighteen players within some megabytes."""
    counted: str
    """Head of the column that counts clips, and what it means."""
    counted_about: str
    leads: Mapping[str, str]
    """What is said of each figure that may lead."""
    note: str
    """What the main table's columns mean, beyond SNR and dB."""
    heard: str


CLASSES = ModelReading(
    says="class",
    main=("success", "fooling-ratio", "accuracy", "snr", "db-max", "below-32db"),
    levels=("success", "snr", "db-max", "db-mean-background", "below-32db"),
    example=("snr", "db-max", "db-mean", "db-mean-vocal", "db-mean-background"),
    clean={"clean-accuracy": "clean accuracy"},
    samples=96_000,
    counted="right / clips",
    counted_about="clips that were classified correctly before the attack, of all judged clips",
    leads={
        "success": "Share of the clips classified correctly before the attack on which it reaches its goal.",
    },
    note="",
    heard="heard as",
)

WORDS = ModelReading(
    says="words",
    main=("wer", "cer", "success", "sentence-error", "snr", "masking-share"),
    levels=("wer", "success", "snr", "db-max", "db-mean-background"),
    example=("wer", "cer", "language-confusion", "snr", "db-mean-background", "masking-share"),
    clean={"clean-wer": "WER, clean", "clean-cer": "CER, clean"},
    samples=240_000,
    counted="clips",
    counted_about="clips that were judged, whether or not they were transcribed right before the attack",
    leads={
        "wer": "WER of the transcripts under attack; the thin green line is the WER of the clean clips. It "
        "can exceed 100 % when words are added.",
        "success": "Success is the share of all clips on which the attack reaches its goal.",
    },
    note="WER and CER are all errors of all clips over all words or characters of their references, and can "
    "exceed 100 % when much is added. Success is the share of clips on which the attack reaches its goal; to "
    "evade means more word errors than before the attack (or, without a reference, a different transcript). "
    "Sentence error is the share of clips with any error. Audible cells are the time-frequency cells in "
    "which the perturbation exceeds the masking threshold of the clip.",
    heard="transcript",
)

LEAD_TITLES = {"success": "attack success", "wer": "WER under attack"}


def read_as(metrics: Iterable[str]) -> ModelReading:
    """The reading of a run in which these were measured."""
    return WORDS if any(_says(name) == "words" for name in metrics) else CLASSES


@cache
def _says(metric: str) -> Says | None:
    return find_metric(metric).says
