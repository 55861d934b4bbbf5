"""The laws of a target's powers. That scores are the same in any batch is checked with the target itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Languages, Matches, Scores, Target, Timings
from sottovoce.testing.laws import Law, gap, require


def check_powers(
    target: Target, batch: AudioBatch, labels: Sequence[str], draws: Draws, tolerance: float
) -> None:
    """Raise `ContractError` where a power that the target offers breaks a law."""
    if target.offers(Scores):
        _check_scores(target, batch, draws, tolerance)
    if target.offers(Matches):
        _check_matches(target, batch, labels, draws, tolerance)
    if target.offers(Languages):
        _check_languages(target, batch, draws, tolerance)
    if target.offers(Timings):
        _check_timings(target, batch, draws)


def _check_scores(target: Target, batch: AudioBatch, draws: Draws, tolerance: float) -> None:
    """They have a gradient, clip by clip, and the best of them is what is decoded."""
    power = target.power(Scores)
    leaf = batch.waveforms.detach().clone().requires_grad_()
    with torch.enable_grad():
        scores = power.scores(batch.with_waveforms(leaf), draws=draws)
        require(scores.requires_grad, Law.GRADIENT, "The scores are detached: they carry no gradient at all.")
        # Weights that differ, so that no symmetry of the classes can hide a gradient.
        rows = (scores * torch.linspace(1.0, 2.0, scores.shape[1], device=scores.device)).sum(dim=1)
        (first,) = torch.autograd.grad(rows[0], leaf, allow_unused=True, retain_graph=True)
        (slope,) = torch.autograd.grad(rows.sum(), leaf, allow_unused=True)
    require(slope is not None, Law.GRADIENT, "The scores do not depend on the waveform.")
    for name, row in zip(batch.ids, slope, strict=True):
        fine = bool(torch.isfinite(row).all()) and bool(row.any())
        require(fine, Law.GRADIENT, f"The scores of clip {name!r} have a gradient of zero, NaN or infinity.")
    leaks = bool((first[1:].abs().amax(dim=1) > 1e-6 * first[0].abs().max()).any())
    require(not leaks, Law.ISOLATED, f"The scores of clip {batch.ids[0]!r} depend on other clips.")
    if not target.random:
        _check_decision(target, batch, power, scores.detach(), draws, tolerance)


def _check_decision(
    target: Target, batch: AudioBatch, power: Scores, scores: Tensor, draws: Draws, tolerance: float
) -> None:
    """A random target may decide by other passes than those that it scores."""
    with torch.no_grad():
        texts = target.decode(batch, draws=draws)
    for name, text, row in zip(batch.ids, texts, scores, strict=True):
        best, winner = float(row.max()), power.classes[int(row.argmax())]
        said = float(row[power.classes.index(text)]) if text in power.classes else -torch.inf
        detail = f"Clip {name!r}: {text!r} is decoded, {winner!r} has the best score."
        require(best - said <= tolerance * max(1.0, abs(best)), Law.POWER, detail)


def _check_matches(
    target: Target, batch: AudioBatch, labels: Sequence[str], draws: Draws, tolerance: float
) -> None:
    power = target.power(Matches)
    with torch.no_grad():
        plain = target.loss(batch, labels, draws=draws)
        loss, match = power.loss_and_match(batch, labels, draws=draws)
    shapes = tuple(loss.shape), tuple(match.shape)
    fine = shapes == ((len(batch),), (len(batch),)) and match.dtype == torch.bool
    require(fine, Law.SHAPE, f"Expected a loss and a bool match a clip, got {shapes} and {match.dtype}.")
    require(gap(loss, plain) <= tolerance, Law.POWER, "The loss beside the match is not the target's loss.")
    if power.exact:
        with torch.no_grad():
            said = target.decode(batch, draws=draws)
            _, match = power.loss_and_match(batch, said, draws=draws)
        require(bool(match.all()), Law.POWER, f"What is decoded, {said}, does not match: {match.tolist()}.")
        _, match = power.loss_and_match(batch, labels, draws=draws)
    for row in range(len(batch)):
        with torch.no_grad():
            _, alone = power.loss_and_match(batch.select([row]), [labels[row]], draws=draws)
        require(bool(alone[0] == match[row]), Law.ALONE, f"Clip {batch.ids[row]!r} alone matches otherwise.")


def _check_languages(target: Target, batch: AudioBatch, draws: Draws, tolerance: float) -> None:
    power = target.power(Languages)
    leaf = batch.waveforms.detach().clone().requires_grad_()
    with torch.enable_grad():
        scores = power.language_scores(batch.with_waveforms(leaf), draws=draws)
        got, expected = tuple(scores.shape), (len(batch), len(power.languages))
        require(got == expected, Law.SHAPE, f"Expected language scores of shape {expected}, got {got}.")
        require(scores.requires_grad, Law.GRADIENT, "The language scores are detached.")
        (slope,) = torch.autograd.grad(scores.square().sum(), leaf)
    silent = not bool(slope.masked_select(~batch.mask).any())
    require(silent, Law.PADDING, "The language scores have a gradient in the padding.")
    for row in range(len(batch)):
        with torch.no_grad():
            alone = power.language_scores(batch.select([row]), draws=draws)
        detail = f"Clip {batch.ids[row]!r} alone has other language scores."
        require(gap(alone, scores[[row]].detach()) <= tolerance, Law.ALONE, detail)


def _check_timings(target: Target, batch: AudioBatch, draws: Draws) -> None:
    with torch.no_grad():
        found = target.power(Timings).timings(batch, draws=draws)
        texts = target.decode(batch, draws=draws)
    for name, words, text in zip(batch.ids, found, texts, strict=True):
        said = " ".join(word.text for word in words)
        same = target.canonical(said) == target.canonical(text)
        require(same, Law.POWER, f"Clip {name!r}: timed words {said!r} are not the text {text!r}.")
        times = [time for word in words for time in (word.start_seconds, word.end_seconds)]
        require(times == sorted(times), Law.POWER, f"Clip {name!r}: words out of order in time: {times}.")
