"""Clipping of strong bins on clips whose bins are known by hand."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sottovoce.attacks.yeehaw import Yeehaw, clip_level
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.target import Target
from sottovoce.errors import InputError
from sottovoce.testing import ToyAttention, ToyClassifier, ToyCtc, check_attack

RATE = 1000
ONES = torch.ones(4, dtype=torch.float64)


def tone(amplitude: float, hz: float, phase: float = 0.3) -> Tensor:
    """400 samples, a whole number of periods for multiples of 2.5 Hz; its norm is amplitude x sqrt(200)."""
    time = torch.arange(400, dtype=torch.float64) / RATE
    return amplitude * torch.cos(2 * torch.pi * hz * time + phase)


@pytest.mark.parametrize(
    ("energy", "level"),
    [
        (0.0, 5.0),
        (1.0, 4.0),  # 5 to 4
        (4.0, 3.0),  # 5 to 3; here the bin at 3 begins to count
        (10.0, 2.0),  # 3^2 + 1^2 for 5 and 3 to 2
        (29.0, 0.5),  # 4.5^2 + 2.5^2 + 1.5^2 + 0.5^2
        (39.0, 0.0),  # 25 + 9 + 4 + 1: silence
        (100.0, 0.0),
    ],
)
def test_clip_level(energy: float, level: float) -> None:
    magnitudes = torch.tensor([2.0, 5.0, 1.0, 3.0], dtype=torch.float64)
    assert clip_level(magnitudes, ONES, energy) == pytest.approx(level, abs=1e-9)


def test_clip_level_with_equal_bins_and_weights() -> None:
    """Two bins at 4 that count twice: 2 x 2 x (4 - c)^2 = 16 at c = 2."""
    magnitudes = torch.tensor([4.0, 1.0, 4.0], dtype=torch.float64)
    weights = torch.tensor([2.0, 1.0, 2.0], dtype=torch.float64)
    assert clip_level(magnitudes, weights, 16.0) == pytest.approx(2.0)


def test_weakest_go_and_strongest_are_levelled() -> None:
    """Tones of 0.4, 0.1 and 0.001. The budget, 200 x 0.1^2 = 2, has a hundredth for removal: 0.02 takes the
    third tone, which costs 200 x 0.001^2 = 0.0002. The rest clips the first: 200 x 0.01 - 0.0002 is
    200 x (0.4 - c)^2 at c = 0.4 - sqrt(0.009999) = 0.300005. Phases stay."""
    clip = tone(0.4, 50) + tone(0.1, 120, 1.0) + tone(0.001, 300, 2.0)
    wanted = tone(0.300005, 50) + tone(0.1, 120, 1.0)
    found = clip + Yeehaw().reducer(clip)(2.0**0.5)
    torch.testing.assert_close(found, wanted, atol=1e-7, rtol=0)


def test_without_room_for_removal_it_only_clips() -> None:
    """A hundredth of 200 x 0.01^2 does not pay for the second tone: the first goes from 0.4 to 0.39."""
    clip = tone(0.4, 50) + tone(0.1, 120)
    found = clip + Yeehaw().reducer(clip)(0.01 * 200**0.5)
    torch.testing.assert_close(found, tone(0.39, 50) + tone(0.1, 120), atol=1e-9, rtol=0)


@given(seed=st.integers(0, 2**20), samples=st.integers(2, 60), share=st.floats(0.01, 1.5))
@settings(max_examples=40, deadline=None)
def test_size_is_what_is_asked_for(seed: int, samples: int, share: float) -> None:
    """Clipping is continuous, so that the whole budget is used, up to silence."""
    clip = torch.randn(samples, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    size = float(Yeehaw().reducer(clip)(share * float(clip.norm())).norm())
    assert size == pytest.approx(min(share, 1.0) * float(clip.norm()), rel=1e-6)


def test_snr_asked_for_is_the_snr_measured() -> None:
    clean = AudioBatch.of([tone(0.3, 50) + tone(0.1, 120), tone(0.2, 70)[:333]], RATE)
    attack = Yeehaw(search=False)
    trial = attack(ToyClassifier(), clean, Evade(), Snr(15.0), draws=Draws(0), bits=None)
    ratio = 10 * torch.log10(clean.waveforms.square().sum(dim=1) / trial.delta.square().sum(dim=1))
    assert ratio.tolist() == pytest.approx([15.0, 15.0], abs=1e-3)


@pytest.mark.parametrize("target", [ToyClassifier(), ToyCtc(), ToyAttention()], ids=["class", "ctc", "att"])
def test_contract(target: Target) -> None:
    check_attack(Yeehaw(steps=4), target)


def test_bad_input() -> None:
    clean = AudioBatch.of([tone(0.3, 50)], RATE)
    with pytest.raises(InputError, match="needs a budget in the norm l2"):
        Yeehaw()(ToyClassifier(), clean, Evade(), LInf(0.1), draws=Draws(0))
    with pytest.raises(
        InputError, match=r"removal_db=-.*: expected a number of at least 0; the default is 20"
    ):
        Yeehaw(removal_db=-1.0)
