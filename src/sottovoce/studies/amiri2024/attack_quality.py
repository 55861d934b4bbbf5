"""A3: how much of an attack is heard, by measures of speech enhancement (Amiri and Kodrasi, Fig. 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from sottovoce import __version__
from sottovoce.attacks.pgd import Pgd
from sottovoce.attacks.white_noise import WhiteNoise
from sottovoce.auditing.run.fitting_clips import usable
from sottovoce.core.attack import decode
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.quantisation import on_grid, round_clean
from sottovoce.core.statistics import Interval, clopper_pearson, ratio_bootstrap
from sottovoce.core.target import Target
from sottovoce.data.labels import OWN, open_clips
from sottovoce.data.load import collate
from sottovoce.errors import InputError, SottovoceError
from sottovoce.metrics.signal_distortion import snr_db
from sottovoce.studies.amiri2024 import attack_quality_sheets as sheets
from sottovoce.studies.manocha2020.judges import Judge
from sottovoce.studies.study import Choice, Result, Study, Tell, default_folder, find_scale
from sottovoce.targets.open_target import find_device, open_target

LEVELS_DB = tuple(range(0, 101, 10))
STEPS = 10
STEP = 0.25
"""Step as a share of the radius: ten steps are 2.5 radii."""
CLIPS = {"mini": 6, "full": 50}
MODELS = ("keyword", "recogniser")
SERIES = ("attack", "attack, 16 bits", "white noise")
JUDGES = (
    Judge(id="stoi", title="STOI", name="stoi", better="higher"),
    Judge(id="pesq", title="PESQ", name="pesq", better="higher"),
    Judge(id="cd", title="CD", name="cd"),
    Judge(id="fwssnr", title="fwSSNR", name="fwssnr", better="higher"),
    Judge(id="auditory", title="P(heard), auditory", name="auditory", kind="ear"),
    Judge(id="learned", title="P(heard), learned (simulated)", name="learned", kind="ear"),
)
"""The last two: chances that a listener tells the clips apart, as models of hearing judge them."""


class BudgetQuality(NamedTuple):
    """One budget. snr_db: mean of what was reached. changed: share of clips that are not the clean ones."""

    success: Interval
    snr_db: float
    changed: float
    measures: dict[str, Interval]


Curves = Mapping[str, Mapping[float, BudgetQuality]]
"""By series, then by the requested SNR; infinite: the clean clips themselves."""


@final
@dataclass(frozen=True)
class QualitySetup:
    """Curves by model; `absent`: measures that were not to be had, and why."""

    folder: Path
    curves: dict[str, Curves]
    clips: dict[str, int]
    data: dict[str, str]
    absent: dict[str, str]
    setting: dict[str, Any]
    unused: dict[str, str] = field(default_factory=dict)

    @property
    def judges(self) -> list[Judge]:
        return [one for one in JUDGES if one.id not in self.absent]

    @property
    def titles(self) -> dict[str, str]:
        return {one.id: one.title for one in JUDGES}

    def facts(self) -> dict[str, Any]:
        return self.setting

    def scope(self, study: Study[Any]) -> list[str]:
        models = [f"{name} on {self.data[name]} ({count} clips)" for name, count in self.clips.items()]
        lines = [
            f"Models: {', '.join(models)}, seed {self.setting['seed']}. They replace the paper's "
            "detectors of pathological speech and its patients' recordings.",
            f"PGD with {STEPS} steps in the L-infinity ball eps = ||x|| 10^(-SNR/20) / sqrt(N), without a "
            "random start; the radius that the paper prints does not guarantee the SNR.",
        ]
        if min(self.clips.values()) < 30:
            lines.append(f"Only {min(self.clips.values())} clips in places: too few to generalise from.")
        return lines


def open_quality(choice: Choice, out: Path | None, device: str, tell: Tell) -> QualitySetup:
    """Attack at every SNR and measure the results."""
    choice.refuse("A3", "attack", "fit", "batch")
    scale = find_scale(choice.scale).name
    models = MODELS if choice.model is None else (choice.model,)
    count = choice.clips or CLIPS[scale]
    key: list[str | int] = [*models, choice.data or OWN, count, choice.seed]
    setting = {
        "version": __version__,
        "models": list(models),
        "data": choice.data or OWN,
        "scale": scale,
        "clips": count,
        "seed": choice.seed,
    }
    bench = QualitySetup(out or default_folder("A3", scale, key), {}, {}, {}, {}, setting)
    device = find_device(device)
    for place, name in enumerate(models):
        target = open_target(name, device)
        clean = _load(bench, name, target, choice, count, device)

        def told(done: float, note: str, place: int = place, name: str = name) -> None:
            tell((place + done) / len(models), f"{name}: {note}")

        bench.curves[name] = measure(target, clean, bench, Draws(choice.seed).turn("a3"), told)
    return bench


def _load(
    bench: QualitySetup, name: str, target: Target, choice: Choice, count: int, device: str
) -> AudioBatch:
    corpus = open_clips(choice.data or OWN, target).limit(count, choice.seed)
    clips, failures = next(corpus.chunks(len(corpus), target.sample_rate))
    kept, refused = usable(target, clips)
    bench.unused.update({one.id: one.reason for one in [*failures, *refused]})
    if not kept:
        raise InputError(
            f"data {corpus.name!r}: no clip can be used with model {name}; give other clips with --data."
        )
    bench.clips[name], bench.data[name] = len(kept), corpus.name
    return round_clean(collate(kept).to(device), 16)


def measure(target: Target, clean: AudioBatch, bench: QualitySetup, draws: Draws, tell: Tell) -> Curves:
    """Curves of the attack in floats, of the same on the 16-bit grid, and of white noise."""
    before = decode(target, clean, draws)
    untouched = _point(clean, clean, [False] * len(clean), bench)
    found: dict[str, dict[float, BudgetQuality]] = {name: {math.inf: untouched} for name in SERIES}
    for place, level in enumerate(LEVELS_DB):
        tell(place / len(LEVELS_DB), f"SNR {level} dB")
        ball = Snr(level, shape="linf")
        # PGD keeps floats here: at 90 dB nothing of the attack is left once it is rounded.
        attack = Pgd(steps=STEPS, step=STEP)(target, clean, Evade(), ball, draws=draws, bits=None)
        rounded = on_grid(clean, attack.adversarial, ball, 16)
        noise = WhiteNoise()(target, clean, Evade(), Snr(level), draws=draws, bits=None)
        fooled = [one != other for one, other in zip(decode(target, rounded, draws), before, strict=True)]
        for name, changed, achieved in (
            (SERIES[0], attack.adversarial, list(attack.achieved)),
            (SERIES[1], rounded, fooled),
            (SERIES[2], noise.adversarial, list(noise.achieved)),
        ):
            found[name][float(level)] = _point(clean, changed, achieved, bench)
    return found


def _point(
    clean: AudioBatch, changed: AudioBatch, achieved: list[bool], bench: QualitySetup
) -> BudgetQuality:
    delta = changed.waveforms - clean.waveforms
    reached = snr_db(clean.waveforms, delta, clean.lengths)
    measures = {}
    for judge in bench.judges:
        try:
            found = judge.measure(clean, changed)
        except SottovoceError as error:
            bench.absent[judge.id] = str(error)
            continue
        values = found.values if judge.kind == "metric" else found.heard
        if values is not None:
            measures[judge.id] = ratio_bootstrap(np.stack([values, np.ones_like(values)], axis=1))
        bench.unused.update({f"{judge.title}, {clip}": why for clip, why in found.reasons.items()})
    return BudgetQuality(
        success=clopper_pearson(sum(achieved), len(achieved)),
        snr_db=float(reached[reached.isfinite()].mean()) if bool(reached.isfinite().any()) else math.inf,
        changed=float(delta.any(dim=1).double().mean()),
        measures=measures,
    )


def run(bench: QualitySetup) -> Result:
    return Result(
        sheets=[
            sheets.trends(bench),
            *(sheets.curve(bench, model, series) for model in bench.curves for series in SERIES),
            *sheets.not_run(bench),
        ],
        drawings=sheets.drawings(bench),
        values={
            model: {
                series: [_numbers(level, point) for level, point in points.items()]
                for series, points in curves.items()
            }
            for model, curves in bench.curves.items()
        },
        notes=list(sheets.NOTES),
    )


def _numbers(level: float, point: BudgetQuality) -> dict[str, Any]:
    return {"asked_db": level, **point._asdict()}


STUDY = Study(
    id="A3",
    title="Whether attacks are heard, by their SNR",
    paper="Amiri and Kodrasi (2024), section 5.1, Fig. 2",
    reports="STOI, PESQ, CD and fwSSNR all read no difference (1, 4.6, 0 dB, 35 dB) from an SNR of 60 dB on, "
    "where both detectors are below chance",
    open=open_quality,
    run=run,
)
