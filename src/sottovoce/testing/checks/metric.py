"""The laws of metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.grid import round_clean
from sottovoce.core.metric import Metric
from sottovoce.core.target import Says
from sottovoce.testing.clips import example_clips, widened
from sottovoce.testing.guards import check_random_state, unchanged
from sottovoce.testing.laws import Law, distance, gap, require

Value = TypeVar("Value")


def check_metric(metric: Metric, trial: Trial | None = None, *, tolerance: float = 1e-6) -> None:
    """Raise `ContractError` where a metric breaks a law. Made-up examples where no trial is given."""
    trial = example_trial(metric.says) if trial is None else trial
    require(bool(metric.name and metric.title), Law.SHAPE, "Expected a name and a title.")
    with unchanged(metric):
        parts = check_random_state(
            lambda: metric.measure(trial), lambda one, two: "parts" if gap(one, two) > tolerance else None
        )
    got, expected = tuple(parts.shape), (len(trial.clean), 2)
    right = got == expected and parts.dtype == torch.float64
    require(right, Law.SHAPE, f"Expected float64 parts of shape {expected}, got {parts.dtype} {got}.")
    off = _off(parts, metric.measure(wider_trial(trial)))
    require(off <= tolerance, Law.PADDING, f"More padding changed the parts by {off:.3g}.")
    rows = list(range(len(trial.clean)))
    for picked in [*([row] for row in rows), rows[::-1]]:
        off = _off(parts[picked], metric.measure(select_trial(trial, picked)))
        where = f"Clip {trial.clean.ids[picked[0]]!r} alone" if len(picked) == 1 else "Another order"
        require(off <= tolerance, Law.ALONE, f"{where} has other parts, by {off:.3g}.")
    untouched = metric.measure(untouched_trial(trial))
    require(tuple(untouched.shape) == expected, Law.SHAPE, "Clips without an attack have no parts.")
    _check_summary(metric, parts, tolerance)


def example_trial(says: Says | None = None) -> Trial:
    """Four clips with a little noise: one that fools, two that do not (one was heard wrong before), one that
    does. A target that says words says sentences, two languages among them."""
    clean = example_clips()
    noise = 0.01 * Draws(3).normal(clean)
    heard, labels, after = _SENTENCES if says == "words" else _CLASSES
    trial = Trial(
        clean=clean,
        adversarial=round_clean(clean.with_waveforms(clean.waveforms + noise), 16),
        references=heard,
        labels=labels,
        clean_texts=heard,
        adversarial_texts=after,
        achieved=(True, False, False, True),
        achieved_unrounded=(True, False, False, True),
    )
    if says != "words":
        return trial
    return replace(
        trial,
        says="words",
        wanted=("close all doors", "close all doors", "close all doors", "cierre la puerta"),
        languages=(("en", "en", "en", "es"), ("en", "en", "en", "en")),
        facts=tuple({"language": code} for code in ("en", "en", "", "es")),
    )


_CLASSES = (("yes", "no", "up", "yes"), ("yes", "no", "down", "yes"), ("no", "no", "up", "stop"))
# What is heard before the attack, the truth, and what is heard after it: another sentence, the same but for
# case, words in silence, nothing.
_SENTENCES = (
    ("open the door", "Two cats.", "", "abra la puerta"),
    ("open the doors", "two cats", "", "abra la puerta"),
    ("close all doors now", "two cats", "thank you", ""),
)


def select_trial(trial: Trial, rows: Sequence[int]) -> Trial:
    """Some of the clips of a trial."""

    def pick(values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(values[row] for row in rows)

    return replace(
        trial,
        clean=trial.clean.select(rows),
        adversarial=trial.adversarial.select(rows),
        references=pick(trial.references),
        labels=None if trial.labels is None else pick(trial.labels),
        clean_texts=pick(trial.clean_texts),
        adversarial_texts=pick(trial.adversarial_texts),
        achieved=pick(trial.achieved),
        achieved_unrounded=pick(trial.achieved_unrounded),
        judged_by=pick(trial.judged_by) if trial.judged_by else (),
        wanted=None if trial.wanted is None else pick(trial.wanted),
        languages=None if trial.languages is None else tuple(map(pick, trial.languages)),
        facts=pick(trial.facts) if trial.facts else (),
    )


def wider_trial(trial: Trial) -> Trial:
    """The same trial with more padding."""
    return replace(trial, clean=widened(trial.clean), adversarial=widened(trial.adversarial))


def untouched_trial(trial: Trial) -> Trial:
    """The same clips as an attack leaves them that finds nothing."""
    nothing: tuple[bool, ...] = (False,) * len(trial.clean)
    clean: AudioBatch = trial.clean
    return replace(
        trial,
        adversarial=clean,
        adversarial_texts=trial.clean_texts,
        languages=None if trial.languages is None else (trial.languages[0], trial.languages[0]),
        achieved=nothing,
        achieved_unrounded=nothing,
    )


def _off(wanted: torch.Tensor, found: torch.Tensor) -> float:
    if wanted.shape != found.shape:
        return math.inf
    finite = wanted[wanted.isfinite()].abs()
    return distance(found, wanted, max(1.0, float(finite.max())) if len(finite) else 1.0)


def _check_summary(metric: Metric, parts: torch.Tensor, tolerance: float) -> None:
    values = parts.numpy()
    whole = metric.summarise(values)
    scored = values[np.isfinite(values).all(axis=1)]
    require(whole.n == len(scored), Law.PARTS, f"{len(scored)} clips have a value, {whole.n} were counted.")
    missing = np.full((1, 2), np.nan)
    more = metric.summarise(np.concatenate([values, missing]))
    same = more.n == whole.n and _close(more.value, whole.value, tolerance)
    require(same, Law.PARTS, "A clip without a value changed the estimate.")
    if whole.n == 0 or scored[:, 1].sum() == 0:
        return
    expected = float(scored[:, 0].sum() / scored[:, 1].sum())
    detail = f"The parts add up to {expected:.6g}, the estimate is {whole.value:.6g}."
    require(_close(whole.value, expected, tolerance), Law.PARTS, detail)
    if whole.n > 1:
        inside = whole.low - tolerance <= whole.value <= whole.high + tolerance
        require(inside, Law.PARTS, f"The interval [{whole.low}, {whole.high}] is without {whole.value}.")


def _close(one: float, two: float, tolerance: float) -> bool:
    return (
        one == two
        or (math.isnan(one) and math.isnan(two))
        or abs(one - two) <= tolerance * max(1.0, abs(two))
    )
