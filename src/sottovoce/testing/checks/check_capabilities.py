"""Checks a target's capabilities against their laws. The check of the target itself compares batches."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Languages, Matches, Scores, Target, Timings
from sottovoce.testing.laws import Law, gap, require


def check_capabilities(
    target: Target, batch: AudioBatch, labels: Sequence[str], draws: Draws, tolerance: float
) -> None:
    """Raise `ContractError` if a capability of the target breaks a law."""
    if target.offers(Scores):
        _check_scores(target, batch, draws, tolerance)
    if target.offers(Matches):
        _check_matches(target, batch, labels, draws, tolerance)
    if target.offers(Languages):
        _check_languages(target, batch, draws, tolerance)
    if target.offers(Timings):
        _check_timings(target, batch, draws)


def _check_scores(target: Target, batch: AudioBatch, draws: Draws, tolerance: float) -> None:
    """They have a gradient, clip by clip, if the target shows one; the best of them is what is decoded."""
    scorer = target.capability(Scores)
    if target.shows == "gradient":
        _check_slopes(scorer, batch, draws)
    if not target.random:
        with torch.no_grad():
            scores = scorer.scores(batch, draws=draws)
        _check_decision(target, batch, scorer, scores, draws, tolerance)


def _check_slopes(scorer: Scores, batch: AudioBatch, draws: Draws) -> None:
    """The scores of each clip have a gradient to its own sound alone."""
    leaf = batch.waveforms.detach().clone().requires_grad_()
    with torch.enable_grad():
        scores = scorer.scores(batch.with_waveforms(leaf), draws=draws)
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


def _check_decision(
    target: Target, batch: AudioBatch, scorer: Scores, scores: Tensor, draws: Draws, tolerance: float
) -> None:
    """Only for targets that are not random: those may decide by another pass than the one that is scored."""
    with torch.no_grad():
        texts = target.decode(batch, draws=draws)
    for name, text, row in zip(batch.ids, texts, scores, strict=True):
        best, winner = float(row.max()), scorer.classes[int(row.argmax())]
        said = float(row[scorer.classes.index(text)]) if text in scorer.classes else -torch.inf
        detail = f"Clip {name!r}: {text!r} is decoded, {winner!r} has the best score."
        require(best - said <= tolerance * max(1.0, abs(best)), Law.CAPABILITY, detail)


def _check_matches(
    target: Target, batch: AudioBatch, labels: Sequence[str], draws: Draws, tolerance: float
) -> None:
    matcher = target.capability(Matches)
    with torch.no_grad():
        plain = target.loss(batch, labels, draws=draws)
        loss, match = matcher.loss_and_match(batch, labels, draws=draws)
    shapes = tuple(loss.shape), tuple(match.shape)
    fine = shapes == ((len(batch),), (len(batch),)) and match.dtype == torch.bool
    require(fine, Law.SHAPE, f"Expected a loss and a bool match a clip, got {shapes} and {match.dtype}.")
    require(
        gap(loss, plain) <= tolerance, Law.CAPABILITY, "The loss beside the match is not the target's loss."
    )
    if matcher.exact:
        with torch.no_grad():
            said = target.decode(batch, draws=draws)
            _, match = matcher.loss_and_match(batch, said, draws=draws)
        require(
            bool(match.all()), Law.CAPABILITY, f"What is decoded, {said}, does not match: {match.tolist()}."
        )
        _, match = matcher.loss_and_match(batch, labels, draws=draws)
    for row in range(len(batch)):
        with torch.no_grad():
            _, alone = matcher.loss_and_match(batch.select([row]), [labels[row]], draws=draws)
        require(bool(alone[0] == match[row]), Law.ALONE, f"Clip {batch.ids[row]!r} alone matches otherwise.")


def _check_languages(target: Target, batch: AudioBatch, draws: Draws, tolerance: float) -> None:
    detector = target.capability(Languages)
    leaf = batch.waveforms.detach().clone().requires_grad_()
    with torch.enable_grad():
        scores = detector.language_scores(batch.with_waveforms(leaf), draws=draws)
        got, expected = tuple(scores.shape), (len(batch), len(detector.languages))
        require(got == expected, Law.SHAPE, f"Expected language scores of shape {expected}, got {got}.")
        if target.shows == "gradient":
            require(scores.requires_grad, Law.GRADIENT, "The language scores are detached.")
            (slope,) = torch.autograd.grad(scores.square().sum(), leaf)
            silent = not bool(slope.masked_select(~batch.mask).any())
            require(silent, Law.PADDING, "The language scores have a gradient in the padding.")
    for row in range(len(batch)):
        with torch.no_grad():
            alone = detector.language_scores(batch.select([row]), draws=draws)
        detail = f"Clip {batch.ids[row]!r} alone has other language scores."
        require(gap(alone, scores[[row]].detach()) <= tolerance, Law.ALONE, detail)


def _check_timings(target: Target, batch: AudioBatch, draws: Draws) -> None:
    with torch.no_grad():
        found = target.capability(Timings).timings(batch, draws=draws)
        texts = target.decode(batch, draws=draws)
    for name, words, text in zip(batch.ids, found, texts, strict=True):
        said = " ".join(word.text for word in words)
        same = target.canonical(said) == target.canonical(text)
        require(same, Law.CAPABILITY, f"Clip {name!r}: timed words {said!r} are not the text {text!r}.")
        times = [time for word in words for time in (word.start_seconds, word.end_seconds)]
        require(
            times == sorted(times), Law.CAPABILITY, f"Clip {name!r}: words out of order in time: {times}."
        )
