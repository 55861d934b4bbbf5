"""Checks a transform against its laws."""

from __future__ import annotations

import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.testing.checks.check_target import check_leak, slope
from sottovoce.testing.clips import example_clips, misnamed, widened
from sottovoce.testing.guards import check_random_state, handed_back, unchanged
from sottovoce.testing.laws import ContractError, Law, gap, require

DRAWS = Draws(7, ("contract",))


def check_transform(
    transform: Transform, clips: AudioBatch | None = None, *, tolerance: float = 1e-4
) -> None:
    """Raise `ContractError` if a transform breaks a law.

    It must keep lengths and silence in the padding, pass a gradient, and give the same samples in any batch.

    clips: default: made up, of different lengths.
    tolerance: by how much samples may differ.

    >>> sv.testing.check_transform(sv.defenses.Gaussian(sigma=0.01))
    """
    batch = example_clips() if clips is None else clips

    def differ(one: AudioBatch, two: AudioBatch) -> str | None:
        return "samples" if gap(one.waveforms, two.waveforms) > tolerance else None

    def run() -> AudioBatch:
        with handed_back(batch):
            return transform(batch, draws=DRAWS)

    with unchanged(transform):
        whole = check_random_state(run, differ)
    _check_shape(batch, whole)
    wide = transform(widened(batch), draws=DRAWS)
    width = batch.waveforms.shape[1]
    same = gap(wide.waveforms[:, :width], whole.waveforms) <= tolerance
    require(same, Law.PADDING, "More padding changed the samples.")
    _check_gradient(transform, batch)
    for rows in [*([row] for row in range(len(batch))), list(reversed(range(len(batch))))]:

        def alike(part: AudioBatch, rows: list[int] = rows) -> bool:
            found = transform(part, draws=DRAWS).waveforms
            return gap(found, whole.waveforms[rows, : found.shape[1]]) <= tolerance

        # What is random depends on the names.
        if alike(batch.select(rows) if transform.random else misnamed(batch, rows)):
            continue
        where = f"Clip {batch.ids[rows[0]]!r} alone" if len(rows) == 1 else "Another order of the batch"
        require(alike(batch.select(rows)), Law.ALONE, f"{where} gives other samples.")
        raise ContractError(Law.SOUND, f"{where} gives other samples under another clip's name.")


def _check_shape(batch: AudioBatch, after: AudioBatch) -> None:
    same = after.waveforms.shape == batch.waveforms.shape and torch.equal(after.lengths, batch.lengths)
    require(same and after.ids == batch.ids, Law.SHAPE, "Expected the same clips with the same lengths.")
    require(after.sample_rate == batch.sample_rate, Law.SHAPE, "Expected the same sample rate.")
    finite = bool(torch.isfinite(after.waveforms).all())
    require(finite, Law.SHAPE, "Expected finite samples, got NaN or infinity.")
    silent = not bool(after.waveforms.masked_select(~batch.mask).any())
    require(silent, Law.PADDING, "There is sound past the end of a clip.")


def _check_gradient(transform: Transform, batch: AudioBatch) -> None:
    """A random weighting of the samples, so that no symmetry can hide a gradient."""
    leaf = batch.waveforms.detach().clone().requires_grad_()
    with torch.enable_grad():
        heard = transform(batch.with_waveforms(leaf), draws=DRAWS).waveforms
        probes: Tensor = (heard * DRAWS.turn("probe").normal(batch)).sum(dim=1)
        for row, name in enumerate(batch.ids):
            gradient = slope(probes[row], leaf, keep=True)
            finite = bool(torch.isfinite(gradient).all())
            require(finite, Law.GRADIENT, f"Clip {name!r} has NaN or infinity in its gradient.")
            require(
                bool((gradient[row] != 0).any()),
                Law.GRADIENT,
                f"Clip {name!r} has a zero gradient everywhere; a rounding step needs StraightThrough.",
            )
            check_leak(gradient.abs().amax(dim=1), row, "sound", batch)
