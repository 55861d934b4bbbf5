"""Removal of weak components on clips whose components are known by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sottovoce.attacks.kenansville import Kenansville, KenansvilleSsa, Removal, one_sided, projected
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, DbMax, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force
from sottovoce.core.target import Target
from sottovoce.errors import InputError
from sottovoce.testing import ToyAttention, ToyClassifier, ToyCtc, check_attack

RATE = 1000
BOTH = pytest.mark.parametrize(
    "attack", [Kenansville(steps=4), KenansvilleSsa(steps=4, window_samples=30)], ids=["dft", "ssa"]
)


class Weak(Target):
    """Hears whether a clip's bin at 120 Hz is there; it has neither a loss nor a gradient to give."""

    sample_rate = RATE

    def __init__(self, least: float = 0.5) -> None:
        self.least = least
        self.decoded = 0

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        raise RuntimeError("a removal asked for the loss")

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        if batch.waveforms.requires_grad:
            raise RuntimeError("a removal asked for a gradient")
        self.decoded += 1
        rows = [batch.clip(row) for row in range(len(batch))]
        found = [float(torch.fft.rfft(row)[round(0.12 * len(row))].abs()) for row in rows]
        return [
            "there" if part > self.least * len(row) / 2 else "gone"
            for part, row in zip(found, rows, strict=True)
        ]


def tones(samples: int = 400, phase: float = 0.3) -> Tensor:
    """0.4 at 50 Hz, 0.1 at 120 Hz and 0.02 at 300 Hz, each a whole number of periods in 400 or 300 samples.

    Their energies are 400 x a^2 / 2: 32, 2 and 0.08.
    """
    time = torch.arange(samples, dtype=torch.float64) / RATE
    parts = [(0.4, 50), (0.1, 120), (0.02, 300)]
    return sum((a * torch.cos(2 * torch.pi * hz * time + phase) for a, hz in parts), torch.zeros(samples))


def tone(amplitude: float, hz: float, samples: int = 400, phase: float = 0.3) -> Tensor:
    time = torch.arange(samples, dtype=torch.float64) / RATE
    return amplitude * torch.cos(2 * torch.pi * hz * time + phase)


def batch_of(*clips: Tensor) -> AudioBatch:
    return AudioBatch.of([clip.numpy() for clip in clips], RATE, [f"c{place}" for place in range(len(clips))])


@pytest.mark.parametrize(
    ("radius", "lost"),
    [(0.28, []), (0.29, [(0.02, 300)]), (1.44, [(0.02, 300)]), (1.45, [(0.02, 300), (0.1, 120)])],
)
def test_weakest_bins_go_first(radius: float, lost: list[tuple[float, int]]) -> None:
    """sqrt(0.08) = 0.283 pays for the weakest tone, sqrt(2.08) = 1.442 for the two weaker ones."""
    attack = Kenansville(search=False)
    trial = attack(Weak(), batch_of(tones()), Evade(), L2(radius), draws=Draws(0), bits=None)
    kept = tones() - sum((tone(*part) for part in lost), torch.zeros(400))
    torch.testing.assert_close(trial.adversarial.waveforms[0].double(), kept, atol=1e-6, rtol=0)


def test_snr_by_hand() -> None:
    """10 log10(34.08 / 2.08) = 12.14 dB is what is left without the two weaker tones."""
    clean = batch_of(tones())
    for db, energy in ((12.2, 0.08), (12.1, 2.08)):
        trial = Kenansville(search=False)(Weak(), clean, Evade(), Snr(db), draws=Draws(0), bits=None)
        assert float(trial.delta.square().sum()) == pytest.approx(energy, rel=1e-4)


@pytest.mark.parametrize("samples", [7, 8])
def test_energy_of_the_bins(samples: int) -> None:
    """Parseval on one side of the spectrum, for odd and even lengths, with sound at 0 Hz and at the edge."""
    clip = torch.tensor([1.0, -2.0, 3.0, 0.5, -1.0, 2.0, 4.0, -3.0], dtype=torch.float64)[:samples]
    spectrum, weights = one_sided(clip)
    energy = {7: 35.25, 8: 44.25}[samples]
    assert float((weights * spectrum.abs().square()).sum()) == pytest.approx(energy)


def test_edge_bins_count_once() -> None:
    """Constant 0.1 and alternating 0.1 have energy 8 x 0.01 each; a tone of 0.13 has 8 x 0.0169 / 2 = 0.0676:
    the tone is the weakest, although its one-sided bin is no smaller than half of the others."""
    time = torch.arange(8, dtype=torch.float64)
    steady, alternating = torch.full((8,), 0.1), 0.1 * (-1.0) ** time
    middle = 0.13 * torch.cos(2 * torch.pi * time / 4)
    reduce = Kenansville().reducer((steady + alternating + middle).double())
    torch.testing.assert_close(reduce(0.0676**0.5 + 1e-9), -middle, atol=1e-7, rtol=0)
    assert not reduce(0.0676**0.5 - 1e-4).abs().gt(1e-7).any()


@pytest.mark.parametrize("attack", [Kenansville(), KenansvilleSsa(window_samples=9)], ids=["dft", "ssa"])
@given(seed=st.integers(0, 2**20), samples=st.integers(2, 60), share=st.floats(0.0, 1.2))
@settings(max_examples=30, deadline=None)
def test_size_never_exceeds_what_is_allowed(attack: Removal, seed: int, samples: int, share: float) -> None:
    clip = torch.randn(samples, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    radius = share * float(clip.norm())
    assert float(attack.reducer(clip)(radius).norm()) <= radius * (1 + 1e-9)


def test_all_of_it_may_go() -> None:
    for attack in (Kenansville(), KenansvilleSsa(window_samples=20)):
        torch.testing.assert_close(attack.reducer(tones())(100.0), -tones(), atol=1e-9, rtol=0)


def test_search_finds_the_least_that_is_heard() -> None:
    """The tone at 120 Hz must go, and with it the weaker one: 12.14 dB, whatever the budget of 3 dB allows.

    Clips of 400 and 300 samples in one batch; at 0 dB below the budget and in 8 halvings of 40 dB the model
    decodes 9 times, besides what judges the clean and the finished clips.
    """
    target = Weak(least=0.05)
    trial = Kenansville()(target, batch_of(tones(), tones(300)), Evade(), Snr(3.0), draws=Draws(0), bits=None)
    assert trial.achieved == (True, True)
    ratio = 10 * torch.log10(trial.clean.waveforms.square().sum(dim=1) / trial.delta.square().sum(dim=1))
    assert ratio.tolist() == pytest.approx([12.14, 12.14], abs=0.01)
    assert target.decoded == 9 + 2


def test_without_a_success_the_budget_is_used() -> None:
    trial = Kenansville()(
        Weak(0.05), batch_of(tones()), Force("absent"), Snr(12.1), draws=Draws(0), bits=None
    )
    assert trial.achieved == (False,)
    assert float(trial.delta.square().sum()) == pytest.approx(2.08, rel=1e-4)


def test_success_below_a_failure_is_found() -> None:
    """A target that is fooled by small removals only: at the budget it hears silence, and knows."""

    class Odd(Target):
        sample_rate = RATE

        def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
            raise RuntimeError("a removal asked for the loss")

        def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
            energy = batch.waveforms.square().sum(dim=1)
            return ["odd" if 0.5 < value < 33 else "even" for value in energy.tolist()]

    trial = Kenansville()(Odd(), batch_of(tones()), Evade(), Snr(-1.0), draws=Draws(0))
    assert trial.achieved == (True,)
    assert float(trial.delta.square().sum()) == pytest.approx(2.08, rel=1e-2)


def test_ssa_separates_two_tones() -> None:
    """With a window of 40 and 400 windows, both whole numbers of the periods 8 and 5, the two are orthogonal
    in the matrix of windows: dropping the weaker pair leaves the stronger tone."""
    time = torch.arange(439, dtype=torch.float64)
    strong, weak = 0.5 * torch.sin(2 * torch.pi * time / 8), 0.05 * torch.sin(2 * torch.pi * time / 5)
    reduce = KenansvilleSsa(window_samples=40).reducer(strong + weak)
    torch.testing.assert_close(reduce(1.01 * float(weak.norm())), -weak, atol=1e-6, rtol=0)


def dense_ssa(clip: np.ndarray, window: int, drop: int) -> np.ndarray:
    """Singular spectrum analysis by the book: SVD of the Hankel matrix, means of its anti-diagonals."""
    matrix = np.stack([clip[place : place + len(clip) - window + 1] for place in range(window)])
    left, sizes, right = np.linalg.svd(matrix, full_matrices=False)
    kept = len(sizes) - drop
    part = (left[:, kept:] * sizes[kept:]) @ right[kept:]
    flipped = part[::-1]
    return np.array([flipped.diagonal(place).mean() for place in range(1 - window, len(clip) - window + 1)])


@pytest.mark.parametrize(("samples", "window"), [(50, 8), (51, 25), (15, 8), (16, 8)])
def test_ssa_against_the_dense_matrix(samples: int, window: int) -> None:
    clip = torch.randn(samples, dtype=torch.float64, generator=torch.Generator().manual_seed(samples))
    wanted = torch.from_numpy(dense_ssa(clip.numpy(), window, drop=window // 2))
    reduce = KenansvilleSsa(window_samples=window).reducer(clip)
    torch.testing.assert_close(reduce(float(wanted.norm()) * (1 + 1e-9)), -wanted, atol=1e-9, rtol=0)


def test_averaging_windows_by_hand() -> None:
    """Windows (1, 2) and (2, 3) through [[1, 1], [0, 1]] are (1, 3) and (2, 5); the middle is (3 + 2) / 2.
    With a third window, (3, 4) to (3, 7), there is a sample that is no end: the filter gives (5 + 3) / 2."""
    matrix = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    found = projected(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64), matrix)
    assert found.tolist() == pytest.approx([1.0, 2.5, 5.0])
    longer = projected(torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64), matrix)
    assert longer.tolist() == pytest.approx([1.0, 2.5, 4.0, 7.0])


@BOTH
@pytest.mark.parametrize("target", [ToyClassifier(), ToyCtc(), ToyAttention()], ids=["class", "ctc", "att"])
def test_contract(attack: Removal, target: Target) -> None:
    check_attack(attack, target)


@BOTH
def test_bad_input(attack: Removal) -> None:
    for budget in (LInf(0.1), DbMax(-20.0), Snr(20.0, "linf")):
        with pytest.raises(InputError, match="needs a budget in the norm l2"):
            attack(Weak(), batch_of(tones()), Evade(), budget, draws=Draws(0))
    for wrong in ({"steps": 0}, {"depth_db": 0.0}):
        with pytest.raises(InputError, match=rf"\({next(iter(wrong))}=0.*\): expected a number"):
            type(attack)(**wrong)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"\(window_samples=1\): expected a number of at least 2; the default is 200"
    ):
        KenansvilleSsa(window_samples=1)
