"""Checks a budget against its laws."""

from __future__ import annotations

import torch
from torch import Tensor

from sottovoce.core.attack import within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.quantisation import on_grid
from sottovoce.testing.clips import example_clips, misnamed, widened
from sottovoce.testing.guards import check_random_state, handed_back
from sottovoce.testing.laws import ContractError, Law, gap, require

DRAWS = Draws(7, ("contract",))
# From far inside to far outside any budget in use.
SCALES = (1e-5, 1e-3, 1e-1, 10.0)
# A projection is computed in single precision, so the size of its result has an error.
SLACK = 1e-5
STEP = 1.0 / 32768


def check_budget(budget: Budget, clips: AudioBatch | None = None) -> None:
    """Raise `ContractError` if a budget breaks a law.

    A projection must be inside, leave what is inside alone, and be the same alone and in any batch; the
    budget must hold after rounding to 16 bits.

    clips: default: made up, of different lengths.

    >>> sv.testing.check_budget(sv.budgets.Snr(30))
    """
    clean = example_clips() if clips is None else clips
    for scale in SCALES:
        for place, noise in enumerate((DRAWS.normal(clean), DRAWS.uniform(clean), _spikes(clean))):
            delta = scale * noise
            with handed_back(clean, delta):
                _check_projection(budget, clean, delta)
            if place == 0:
                _check_batches(budget, clean, delta)
    _check_grid(budget, clean)
    if isinstance(budget, Ball):
        with handed_back(clean):
            _check_sample(budget, clean)
    require(bool(str(budget).strip()), Law.SHAPE, "Expected the budget in words from str, got nothing.")


def _spikes(clean: AudioBatch) -> Tensor:
    """All the energy in the first sample, where the norms L2 and L-infinity differ most."""
    spikes = torch.zeros_like(clean.waveforms)
    spikes[:, 0] = 1.0
    return spikes


def _check_projection(budget: Budget, clean: AudioBatch, delta: Tensor) -> None:
    excess = budget.excess(delta, clean)
    got = tuple(excess.shape)
    require(got == (len(clean),), Law.SHAPE, f"Expected one excess a clip, ({len(clean)},), got {got}.")
    once = budget.project(delta, clean)
    require(once.shape == delta.shape, Law.SHAPE, f"Expected {tuple(delta.shape)}, got {tuple(once.shape)}.")
    after = float(budget.excess(once, clean).max())
    require(after <= 1.0 + SLACK, Law.PROJECTION, f"A projection reaches {after:.6g} of what is allowed.")
    silent = not bool(once.masked_select(~clean.mask).any())
    require(silent, Law.PADDING, "A projection put sound past the end of a clip.")
    twice = budget.project(once, clean)
    size = float(once.abs().max()) or 1.0
    moved = float((twice - once).abs().max()) / size
    require(
        moved <= SLACK, Law.PROJECTION, f"A second projection moved the first by {moved:.3g} of its size."
    )
    inside = 0.5 * once
    moved = float((budget.project(inside, clean) - inside).abs().max()) / size
    require(moved <= SLACK, Law.PROJECTION, f"A perturbation inside was moved by {moved:.3g} of its size.")


def _check_batches(budget: Budget, clean: AudioBatch, delta: Tensor) -> None:
    whole, excess = budget.project(delta, clean), budget.excess(delta, clean)
    wide = widened(clean)
    padded = torch.nn.functional.pad(delta, (0, wide.waveforms.shape[1] - delta.shape[1]))
    same = gap(budget.excess(padded, wide), excess) <= SLACK
    same = same and gap(budget.project(padded, wide)[:, : delta.shape[1]], whole) <= SLACK
    require(same, Law.PADDING, "More padding changed the size or the projection.")
    for row in range(len(clean)):
        width = int(clean.lengths[row])

        def alike(alone: AudioBatch, row: int = row, width: int = width) -> bool:
            part = delta[[row], :width]
            same = gap(budget.excess(part, alone), excess[[row]]) <= SLACK
            return same and gap(budget.project(part, alone), whole[[row], :width]) <= SLACK

        if not alike(misnamed(clean, [row])):
            detail = f"Clip {clean.ids[row]!r} alone has another size or projection"
            require(alike(clean.select([row])), Law.ALONE, f"{detail}.")
            raise ContractError(Law.SOUND, f"{detail} under another clip's name.")


def _check_grid(budget: Budget, clean: AudioBatch) -> None:
    filled = within(clean, budget.project(10.0 * DRAWS.normal(clean), clean))
    adversarial = on_grid(clean, clean.with_waveforms(clean.waveforms + filled), budget, 16)
    delta = adversarial.waveforms - clean.waveforms
    worst = float(budget.excess(delta, clean).max())
    require(worst <= 1.0, Law.BUDGET, f"After rounding an example reaches {worst:.9g} of what is allowed.")
    if isinstance(budget, Snr):
        _check_ratio(budget, clean, filled, delta)


def _check_ratio(budget: Snr, clean: AudioBatch, filled: Tensor, delta: Tensor) -> None:
    """The measured SNR is the requested one: never less, and not more if the grid is fine enough."""
    signal, noise = clean.waveforms.double().square().sum(dim=1), delta.double().square().sum(dim=1)
    measured_db = 10.0 * (signal / noise).log10()
    level = (filled.double().square().sum(dim=1) / clean.lengths).sqrt()
    for row, ratio_db in enumerate(measured_db.tolist()):
        detail = f"clip {clean.ids[row]!r}: requested {budget.db:g} dB, measured {ratio_db:.4f} dB"
        require(ratio_db >= budget.db - 1e-6, Law.BUDGET, f"Too loud, {detail}.")
        fine = budget.norm == "l2" and float(level[row]) > 10 * STEP
        require(not fine or ratio_db <= budget.db + 0.1, Law.BUDGET, f"Too quiet, {detail}.")


def _check_sample(budget: Ball, clean: AudioBatch) -> None:
    sample = check_random_state(
        lambda: budget.sample(clean, DRAWS), lambda one, two: "sample" if gap(one, two) > 0 else None
    )
    worst = float(budget.excess(sample, clean).max())
    require(worst <= 1.0 + SLACK, Law.BUDGET, f"A random start reaches {worst:.6g} of what is allowed.")
    require(bool((sample != 0).any(dim=1).all()), Law.SHAPE, "A random start is zero everywhere.")
    silent = not bool(sample.masked_select(~clean.mask).any())
    require(silent, Law.PADDING, "A random start has sound past the end of a clip.")
