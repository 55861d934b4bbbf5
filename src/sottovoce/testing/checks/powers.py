"""The laws of a target's powers, besides scores, which are checked with the target itself."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Languages, Matches, Target, Timings
from sottovoce.testing.laws import Law, gap, require


def check_powers(
    target: Target, batch: AudioBatch, labels: Sequence[str], draws: Draws, tolerance: float
) -> None:
    """Raise `ContractError` where a power that the target offers breaks a law."""
    if target.offers(Matches):
        _check_matches(target, batch, labels, draws, tolerance)
    if target.offers(Languages):
        _check_languages(target, batch, draws, tolerance)
    if target.offers(Timings):
        _check_timings(target, batch, draws)


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
