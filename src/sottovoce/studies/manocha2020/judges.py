"""What is held against listeners: metrics and ears by name, each with the way that is good."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce import registry
from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.metric import clip_values
from sottovoce.errors import InputError, SottovoceError
from sottovoce.metrics.distortion import ClipMean
from sottovoce.metrics.signal_distortion import as_samples
from sottovoce.perception.ears.ear import Ear

Floats = NDArray[np.float64]
AT_ONCE = 8
"""Pairs that are measured together."""
VARIANTS = ("scratch", "fin", "lin", "pre")


class Measured(NamedTuple):
    """values: one a pair, NaN where there is none. heard: P(different), of ears that tell. seconds: taken."""

    values: Floats
    heard: Floats | None
    reasons: dict[str, str]
    seconds: float


@final
@dataclass(frozen=True, kw_only=True)
class Judge:
    """A metric or an ear of the registry. better: which way its values are good.

    slow: left to the full scale, because it takes seconds a clip. lacks: what it cannot be run without.
    """

    id: str
    title: str
    name: str
    kind: Literal["metric", "ear"] = "metric"
    better: Literal["higher", "lower"] = "lower"
    settings: Mapping[str, Any] = field(default_factory=dict)
    slow: bool = False
    lacks: str = ""

    def turned(self, values: Floats) -> Floats:
        """So that more is better."""
        return values if self.better == "higher" else -values

    def measure(self, clean: AudioBatch, changed: AudioBatch) -> Measured:
        """All pairs, a few at a time. Raises a `SottovoceError` where it cannot be had."""
        started = time.perf_counter()
        part = Mse() if self.id == "mse" else registry.build(self.kind, self.name, self.settings)
        values: list[Floats] = []
        heard: list[Floats] = []
        reasons: dict[str, str] = {}
        for first in range(0, len(clean), AT_ONCE):
            rows = range(first, min(first + AT_ONCE, len(clean)))
            trial = as_trial(clean.select(rows), changed.select(rows))
            if isinstance(part, Ear):
                distances, chances = _ask(part, trial)
                values.append(distances)
                heard += [] if chances is None else [chances]
            else:
                parts = part.measure(trial)
                values.append(clip_values(parts.numpy()))
                reasons |= part.reasons(trial, parts)
        known = np.concatenate(heard) if heard else None
        return Measured(np.concatenate(values), known, reasons, time.perf_counter() - started)


@final
class Mse(ClipMean):
    """The mean square of what changed."""

    name, title = "mse", "MSE"

    def values(self, trial: Trial) -> Tensor:
        squares = as_samples(trial.delta, trial.clean.lengths).square().sum(dim=1)
        return squares / trial.clean.lengths.cpu()


def as_trial(clean: AudioBatch, changed: AudioBatch) -> Trial:
    """Two batches as a trial in which no model took part."""
    nothing = ("",) * len(clean)
    return Trial(
        clean=clean,
        adversarial=changed,
        references=nothing,
        labels=None,
        clean_texts=nothing,
        adversarial_texts=nothing,
        achieved=(False,) * len(clean),
        achieved_unrounded=(False,) * len(clean),
    )


def judges(dpam: str | None) -> list[Judge]:
    """All that are compared. dpam: the folder of its published weights."""
    return [
        Judge(id="snr", title="SNR", name="snr", better="higher"),
        Judge(id="mse", title="MSE", name="mse"),
        Judge(id="segmental-snr", title="segmental SNR", name="segmental-snr", better="higher"),
        Judge(id="fwssnr", title="fwSSNR", name="fwssnr", better="higher"),
        Judge(id="cd", title="cepstral distance", name="cd"),
        Judge(id="llr", title="LLR", name="llr"),
        Judge(id="pesq", title="PESQ", name="pesq", better="higher"),
        Judge(id="stoi", title="STOI", name="stoi", better="higher"),
        Judge(id="estoi", title="ESTOI", name="estoi", better="higher"),
        Judge(id="masking-share", title="masking, share of cells", name="masking-share"),
        Judge(id="masking-excess", title="masking, mean excess", name="masking-excess"),
        Judge(id="masking-max", title="masking, largest excess", name="masking-max"),
        Judge(id="visqol", title="ViSQOL", name="visqol", better="higher"),
        Judge(id="zimtohrli", title="Zimtohrli", name="zimtohrli"),
        Judge(id="dnsmos", title="DNSMOS (no reference)", name="dnsmos", better="higher", slow=True),
        Judge(id="dnsmos-change", title="DNSMOS, change", name="dnsmos-change", better="higher", slow=True),
        Judge(id="cdpam", title="CDPAM", name="cdpam", slow=True),
        *(_dpam(variant, dpam) for variant in VARIANTS),
        Judge(id="auditory", title="auditory model", name="auditory", kind="ear"),
        Judge(id="masking-ear", title="masking ear", name="masking", kind="ear"),
        *(
            Judge(
                id=f"learned-{variant}",
                title=f"ours, {variant}",
                name="learned",
                kind="ear",
                settings={"variant": variant},
            )
            for variant in VARIANTS
        ),
    ]


def _dpam(variant: str, folder: str | None) -> Judge:
    return Judge(
        id=f"dpam-{variant}",
        title=f"DPAM, {variant}",
        name="dpam",
        kind="ear",
        settings={"variant": variant, "weights": folder or ""},
        lacks="" if folder else "DPAM's published weights; name their folder with --model",
    )


def try_all(
    asked: Sequence[Judge], clean: AudioBatch, changed: AudioBatch, *, slow: bool, tell: Any
) -> tuple[dict[str, Measured], dict[str, str]]:
    """What each judge found, and why others were not run, by id."""
    found: dict[str, Measured] = {}
    absent: dict[str, str] = {}
    for place, judge in enumerate(asked):
        tell(place / len(asked), f"measuring {judge.title}")
        if judge.lacks or (judge.slow and not slow):
            absent[judge.id] = judge.lacks or "takes seconds per clip; give --scale full"
            continue
        try:
            found[judge.id] = judge.measure(clean, changed)
        except SottovoceError as error:
            absent[judge.id] = str(error)
    return found, absent


def _ask(ear: Ear, trial: Trial) -> tuple[Floats, Floats | None]:
    """Distances, and P(different) where the ear has one: some published weights came without."""
    with torch.no_grad():
        distance = ear.distance(trial.clean, trial.adversarial)
        try:
            chances = ear.probability(distance).double().cpu().numpy()
        except InputError:
            chances = None
    return distance.double().cpu().numpy(), chances
