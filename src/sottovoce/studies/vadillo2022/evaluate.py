"""What perturbations do to decisions and to sound, and how sure the numbers are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.core.attack import decode, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2
from sottovoce.core.goal import Evade
from sottovoce.core.quantisation import round_clean
from sottovoce.core.statistics import Interval, clopper_pearson, ratio_bootstrap
from sottovoce.core.universal_attack import Perturbation
from sottovoce.metrics.vocal_parts import part_distortion_db
from sottovoce.studies.vadillo2022.universal_setup import UniversalSetup
from sottovoce.studies.vadillo2022.vadillo_tables import BOUND_L2

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def fooled(
    bench: UniversalSetup, clips: Sequence[AudioBatch], perturbation: Perturbation
) -> tuple[Bools, Bools]:
    """Which clips get another decision, `(clips,)`: in floats as in the paper, and as 16-bit files."""
    exact: list[bool] = []
    saved: list[bool] = []
    for clean in clips:
        trial = perturbation(bench.target, clean, Evade(), L2(BOUND_L2), draws=bench.draws, bits=16)
        exact += trial.achieved_unrounded
        saved += trial.achieved
    return np.array(exact), np.array(saved)


def decisions(bench: UniversalSetup, clips: Sequence[AudioBatch]) -> list[str]:
    """What the model says, one text a clip."""
    return [text for clean in clips for text in decode(bench.target, clean, bench.draws)]


def changed(
    bench: UniversalSetup,
    clips: Sequence[AudioBatch],
    before: Sequence[str],
    delta: Callable[[AudioBatch], Tensor],
) -> tuple[Bools, Bools]:
    """As `fooled`, for a perturbation of any size, `delta(clean) (batch, time)`, rounded without a budget."""
    heard = [clean.with_waveforms(clean.waveforms + within(clean, delta(clean))) for clean in clips]
    exact = decisions(bench, heard)
    saved = decisions(bench, [round_clean(one, 16) for one in heard])
    return np.array(exact) != np.array(before), np.array(saved) != np.array(before)


def distortion_db(clips: Sequence[AudioBatch], perturbations: Sequence[Perturbation]) -> dict[str, Floats]:
    """Levels of v relative to each clip, `whole_max`, `vocal_mean` and so on, each `(sets, clips)`.

    v is measured as it is added, before the sum is cut to [-1, 1], as in the paper.
    """
    rows: list[dict[str, Tensor]] = []
    for one in perturbations:
        found = [part_distortion_db(clean.waveforms, one.over(clean), clean.lengths) for clean in clips]
        rows.append({name: torch.cat([each[name] for each in found]) for name in found[0]})
    return {name: np.stack([row[name].numpy() for row in rows]) for name in rows[0]}


def audible(perturbations: Sequence[Perturbation]) -> list[Perturbation]:
    """Those that are not all zeros, which is what a fit returns where it could fool no clip."""
    return [one for one in perturbations if bool(one.waveform.any())]


def rate(hits: Bools) -> Interval:
    """A share with its exact interval, from `(clips,)` or `(sets, clips)`.

    Several perturbations on the same clips are no new clips: each clip counts once, by its mean.
    """
    rows = np.atleast_2d(hits)
    value, n = float(rows.mean()), rows.shape[1]
    return clopper_pearson(round(value * n), n)._replace(value=value)


def mean(values: Floats) -> Interval:
    """The mean over clips of `(sets, clips)`, each clip by its own mean, with a bootstrap interval."""
    by_clip = values.mean(axis=0)
    return ratio_bootstrap(np.stack([by_clip, np.ones_like(by_clip)], axis=1))
