"""Checks a metric against its laws."""

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
from sottovoce.core.metric import Metric
from sottovoce.core.quantisation import round_clean
from sottovoce.core.target import Says
from sottovoce.testing.clips import example_clips, misnamed, widened
from sottovoce.testing.guards import check_random_state, handed_back, unchanged
from sottovoce.testing.laws import ContractError, Law, distance, gap, require

Value = TypeVar("Value")


def check_metric(metric: Metric, trial: Trial | None = None, *, tolerance: float = 1e-6) -> None:
    """Raise `ContractError` if a metric breaks a law.

    Its parts must add up to the estimate, and must not depend on padding, on other clips or on names.

    trial: the examples to measure. Default: made up.
    tolerance: by how much parts may differ.

    >>> sv.testing.check_metric(sv.metrics.Snr())
    """
    trial = example_trial(metric.says) if trial is None else trial
    require(bool(metric.name and metric.title), Law.SHAPE, "Expected a name and a title.")
    with unchanged(metric):
        parts = check_random_state(
            lambda: _measured(metric, trial),
            lambda one, two: "parts" if _off(one, one, two) > tolerance else None,
        )
    got, expected = tuple(parts.shape), (len(trial.clean), 2)
    right = got == expected and parts.dtype == torch.float64
    require(right, Law.SHAPE, f"Expected float64 parts of shape {expected}, got {parts.dtype} {got}.")
    with handed_back(trial.clean, trial.adversarial):
        metric.reasons(trial, parts.clone())
    off = _off(parts, parts, _measured(metric, wider_trial(trial)))
    require(off <= tolerance, Law.PADDING, f"More padding changed the parts by {off:.3g}.")
    _check_alone(metric, trial, parts, tolerance)
    _check_company(metric, trial, parts, tolerance)
    untouched = _measured(metric, untouched_trial(trial))
    require(tuple(untouched.shape) == expected, Law.SHAPE, "Clips without an attack have no parts.")
    _check_summary(metric, parts, tolerance)


def _measured(metric: Metric, trial: Trial) -> torch.Tensor:
    with handed_back(trial.clean, trial.adversarial):
        return metric.measure(trial)


def _check_alone(metric: Metric, trial: Trial, parts: torch.Tensor, tolerance: float) -> None:
    """Every clip alone, under another name, and all in another order."""
    rows = list(range(len(trial.clean)))
    for picked in [*([row] for row in rows), rows[::-1]]:
        part = select_trial(trial, picked)
        other = _pick(trial, picked, misnamed(trial.clean, picked), misnamed(trial.adversarial, picked))
        off = _off(parts, parts[picked], _measured(metric, other))
        if off <= tolerance:
            continue
        where = f"Clip {trial.clean.ids[picked[0]]!r} alone" if len(picked) == 1 else "Another order"
        again = _off(parts, parts[picked], _measured(metric, part))
        require(again <= tolerance, Law.ALONE, f"{where} has other parts, by {again:.3g}.")
        raise ContractError(Law.SOUND, f"{where} has other parts under another clip's name, by {off:.3g}.")


def _check_company(metric: Metric, trial: Trial, parts: torch.Tensor, tolerance: float) -> None:
    """The same clips among two others, all under new names.

    The others are the first clip at a lower level, without an attack, so that anything computed over the
    whole batch changes.
    """
    rows = [*range(len(trial.clean)), 0, 0]
    clean, adversarial = (_company(batch, trial.clean, rows) for batch in (trial.clean, trial.adversarial))
    off = _off(parts, parts, _measured(metric, _pick(trial, rows, clean, adversarial))[: len(parts)])
    require(off <= tolerance, Law.ALONE, f"Among other clips a clip has other parts, by {off:.3g}.")


def _company(batch: AudioBatch, others: AudioBatch, rows: Sequence[int]) -> AudioBatch:
    """The batch, and the further clips of `rows` at a quarter of their level."""
    more = list(rows[len(batch) :])
    return AudioBatch(
        torch.cat([batch.waveforms, 0.25 * others.waveforms[more]]),
        torch.cat([batch.lengths, others.lengths[more]]),
        batch.sample_rate,
        tuple(f"company-{place}" for place in range(len(rows))),
    )


def example_trial(says: Says | None = None) -> Trial:
    """Four clips with a little noise, of which the first and the last fool the model.

    The model was wrong about one before. For a target that says words, the texts are sentences in two
    languages.
    """
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
# The text before the attack, the truth, and the text after it: another sentence, the same in another case,
# words in silence, nothing.
_SENTENCES = (
    ("open the door", "Two cats.", "", "abra la puerta"),
    ("open the doors", "two cats", "", "abra la puerta"),
    ("close all doors now", "two cats", "thank you", ""),
)


def select_trial(trial: Trial, rows: Sequence[int]) -> Trial:
    """Some of the clips of a trial."""
    return _pick(trial, rows, trial.clean.select(rows), trial.adversarial.select(rows))


def _pick(trial: Trial, rows: Sequence[int], clean: AudioBatch, adversarial: AudioBatch) -> Trial:
    """A trial of some of the clips, which may repeat, with this audio."""

    def pick(values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(values[row] for row in rows)

    return replace(
        trial,
        clean=clean,
        adversarial=adversarial,
        references=pick(trial.references),
        labels=None if trial.labels is None else pick(trial.labels),
        clean_texts=pick(trial.clean_texts),
        adversarial_texts=pick(trial.adversarial_texts),
        achieved=pick(trial.achieved),
        achieved_unrounded=pick(trial.achieved_unrounded),
        judged_by=pick(trial.judged_by) if trial.judged_by else (),
        wanted=None if trial.wanted is None else pick(trial.wanted),
        languages=None if trial.languages is None else (pick(trial.languages[0]), pick(trial.languages[1])),
        facts=pick(trial.facts) if trial.facts else (),
    )


def wider_trial(trial: Trial) -> Trial:
    """The same trial with more padding."""
    return replace(trial, clean=widened(trial.clean), adversarial=widened(trial.adversarial))


def untouched_trial(trial: Trial) -> Trial:
    """The same clips after an attack that changed nothing."""
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


def _off(parts: torch.Tensor, wanted: torch.Tensor, found: torch.Tensor) -> float:
    """The largest difference, of numerators and of weights, as a share of the largest of them in `parts`."""
    if wanted.shape != found.shape or wanted.ndim != 2:
        return gap(found, wanted)
    columns = zip(found.T, wanted.T, parts.T, strict=True)
    return max(distance(one, other, _scale(all_of_them)) for one, other, all_of_them in columns)


def _scale(values: torch.Tensor) -> float:
    finite = values[values.isfinite()].abs()
    return (float(finite.max()) if len(finite) else 0.0) or 1.0


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
