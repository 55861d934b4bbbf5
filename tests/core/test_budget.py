"""Budgets: radii by hand, projections, steepest directions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, DbMax, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError

# |x|_2 = 0.5 over four samples, peak 0.4; and 0.6 over one sample.
CLIPS = AudioBatch.of([[0.3, 0.4, 0.0, 0.0], [0.6]], 8000, ["a", "b"])
SILENT = AudioBatch.of([[0.0, 0.0, 0.0, 0.0]], 8000)
HALF_STEP = 1.52587890625e-05


@pytest.mark.parametrize(
    ("budget", "radius"),
    [
        (LInf(0.01), [0.01, 0.01]),
        (L2(0.3), [0.3, 0.3]),
        (Snr(20.0), [0.05, 0.06]),
        (Snr(0.0), [0.5, 0.6]),
        (Snr(-20.0), [5.0, 6.0]),
        (Snr(20.0, "linf"), [0.025, 0.06]),
        (DbMax(-20.0), [0.04, 0.06]),
        (DbMax(-40.0), [0.004, 0.006]),
    ],
)
def test_radius(budget: Ball, radius: list[float]) -> None:
    assert budget.radius(CLIPS).tolist() == pytest.approx(radius)


def test_silence_counts_as_half_a_step() -> None:
    # RMS of half a step over four samples: |x|_2 = 2 half steps.
    assert float(Snr(20.0).radius(SILENT)) == pytest.approx(2 * HALF_STEP / 10)
    assert float(Snr(20.0, "linf").radius(SILENT)) == pytest.approx(HALF_STEP / 10)
    assert float(DbMax(-20.0).radius(SILENT)) == pytest.approx(HALF_STEP / 10)


def test_projection_and_excess_in_linf() -> None:
    delta = torch.tensor([[0.5, -0.004, -0.5, 0.0], [0.005, 0.0, 0.0, 0.0]])
    assert LInf(0.01).excess(delta, CLIPS).tolist() == pytest.approx([50.0, 0.5])
    assert LInf(0.01).project(delta, CLIPS)[0].tolist() == pytest.approx([0.01, -0.004, -0.01, 0.0])
    assert LInf(0.01).project(delta, CLIPS)[1].tolist() == delta[1].tolist()


def test_projection_and_excess_in_l2() -> None:
    delta = torch.tensor([[3.0, 0.0, -4.0, 0.0], [0.25, 0.0, 0.0, 0.0]])
    assert L2(0.5).excess(delta, CLIPS).tolist() == pytest.approx([10.0, 0.5])
    assert L2(0.5).project(delta, CLIPS)[0].tolist() == pytest.approx([0.3, 0.0, -0.4, 0.0])
    assert L2(0.5).project(delta, CLIPS)[1].tolist() == delta[1].tolist()
    assert L2(0.5).project(torch.zeros(2, 4), CLIPS).tolist() == [[0.0] * 4] * 2


def test_steepest() -> None:
    batch = AudioBatch.of([[0.0] * 4, [0.0] * 4], 1000)
    gradient = torch.tensor([[3.0, 0.0, -4.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert LInf(0.1).steepest(gradient, batch).tolist() == [[1.0, 0.0, -1.0, 0.0], [0.0] * 4]
    assert L2(0.1).steepest(gradient, batch)[0].tolist() == pytest.approx([0.6, 0.0, -0.8, 0.0])
    assert L2(0.1).steepest(gradient, batch)[1].tolist() == [0.0] * 4
    # The square of 1e-30 is zero in single precision; its direction is not.
    assert L2(0.1).steepest(1e-30 * gradient, batch)[0].tolist() == pytest.approx([0.6, 0.0, -0.8, 0.0])


def test_random_starts_reach_all_of_the_ball() -> None:
    batch = AudioBatch.of([[0.1] * 50] * 200, 8000)
    for budget in (LInf(0.01), L2(0.3)):
        filled = budget.excess(budget.sample(batch, Draws(0)), batch)
        assert float(filled.max()) <= 1.0 + 1e-6
        if budget.norm == "l2":
            # A uniform length: mean 0.5, and a standard error of 0.02 over 200 clips.
            assert float(filled.mean()) == pytest.approx(0.5, abs=0.1)


def test_names() -> None:
    names = [str(budget) for budget in (LInf(0.01), L2(2), Snr(30.0), Snr(30.0, "linf"), DbMax(-32.0))]
    assert names == ["Linf 0.01", "L2 2", "SNR 30 dB", "SNR 30 dB (Linf)", "dB_max -32 dB"]


def test_bad_settings() -> None:
    for eps in (0.0, -1.0, math.nan, math.inf):
        for kind in (LInf, L2):
            with pytest.raises(InputError, match="eps"):
                kind(eps)
    for kind in (Snr, DbMax):
        with pytest.raises(InputError, match=r"\(db=(nan|inf|-inf)\): expected a finite number"):
            kind(math.nan)
        with pytest.raises(InputError, match=r"(Snr|DbMax)\(db='30'\): expected a number"):
            kind("30")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"\(shape='l1'\): expected 'l2' or 'linf'"):
        Snr(30.0, "l1")  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(
    samples=st.lists(st.floats(-2.0, 2.0, width=32), min_size=4, max_size=4),
    db=st.floats(-10.0, 60.0),
    shape=st.sampled_from(["l2", "linf"]),
)
def test_every_projection_keeps_the_ratio(samples: list[float], db: float, shape: str) -> None:
    clean = CLIPS.select([0])
    delta = Snr(db, shape).project(torch.tensor([samples]), clean).double()  # type: ignore[arg-type]
    noise = float(delta.square().sum())
    if noise > 0:
        assert 10 * math.log10(0.25 / noise) >= db - 1e-4
