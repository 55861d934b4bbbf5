"""Controls change what they say, by as much as they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, UnknownName
from sottovoce.perception.jnd.degradation_paths import CONTROLS, Control, Mix, find_path

RATE = 16_000


def clip(seed: int = 0, size: int = 8000, scale: float = 0.05) -> AudioBatch:
    noise = np.random.default_rng(seed).standard_normal(size) * scale
    return AudioBatch.of([noise.clip(-1, 1)], RATE, ["a"])


def at(name: str, strength: float, batch: AudioBatch, seed: int = 0) -> np.ndarray:
    (found,) = find_path(name).render(batch, [strength], draws=Draws(seed))
    return found.batch.waveforms[0].double().numpy()


def snr_db(clean: np.ndarray, changed: np.ndarray) -> float:
    return float(10 * np.log10(np.sum(clean**2) / np.sum((changed - clean) ** 2)))


def test_equal_is_equal() -> None:
    batch = clip()
    np.testing.assert_array_equal(at("equal", 100.0, batch), batch.waveforms[0].double().numpy())


@pytest.mark.parametrize(("strength", "db"), [(0.0, 0.2), (50.0, 1.549), (100.0, 12.0)])
def test_gain_in_equal_ratios_of_decibels(strength: float, db: float) -> None:
    batch = clip()
    length = float(batch.length_l2[0])
    lengths = [np.linalg.norm(at("gain", strength, batch, seed)) for seed in range(10)]
    ratios = [float(20 * np.log10(one / length)) for one in lengths]
    assert [abs(ratio) for ratio in ratios] == pytest.approx([db] * 10, abs=2e-3)
    assert min(ratios) < 0 < max(ratios)
    # A clip near full scale can only be made softer.
    loud = clip(scale=0.3)
    assert all(np.abs(at("gain", 100.0, loud, seed)).max() < 1.0 for seed in range(5))


@pytest.mark.parametrize(("strength", "samples"), [(0.0, 1), (100.0, 40)])
def test_shift_moves_by_samples(strength: float, samples: int) -> None:
    batch = clip()
    clean, moved = batch.waveforms[0].double().numpy(), at("shift", strength, batch)
    later = np.array_equal(moved[samples:], clean[:-samples])
    earlier = np.array_equal(moved[:-samples], clean[samples:])
    assert later or earlier
    assert not (moved[:samples] if later else moved[-samples:]).any()


@pytest.mark.parametrize("name", ["bursts", "shaped", "sign"])
@pytest.mark.parametrize(("strength", "db"), [(0.0, 60.0), (50.0, 35.0), (100.0, 10.0)])
def test_noise_comes_at_its_snr(name: str, strength: float, db: float) -> None:
    batch = clip()
    found = at(name, strength, batch)
    assert snr_db(batch.waveforms[0].double().numpy(), found) == pytest.approx(db, abs=0.05)


def test_signs_have_one_amplitude_and_bursts_leave_silence() -> None:
    batch = clip()
    clean = batch.waveforms[0].double().numpy()
    signs = np.abs(at("sign", 60.0, batch) - clean)
    assert signs.max() == pytest.approx(signs.min(), rel=1e-3)
    still = clip(size=48_000)
    burst = at("bursts", 60.0, still) - still.waveforms[0].double().numpy()
    assert (burst == 0).mean() > 0.5


def test_shaped_noise_is_silent_where_the_clip_is() -> None:
    samples = np.random.default_rng(0).standard_normal(8000) * 0.05
    samples[4000:] = 0.0
    batch = AudioBatch.of([samples], RATE)
    noise = at("shaped", 80.0, batch) - batch.waveforms[0].double().numpy()
    assert np.abs(noise[:3500]).max() > 0.001 and not noise[4400:].any()


def test_a_mix_leads_from_the_clip_to_the_direction() -> None:
    batch = clip()
    path = find_path("white+eq@40")
    assert isinstance(path, Mix) and str(path) == "white+eq@40"
    whole = path.direction.at(40.0)(batch, draws=Draws(0)).waveforms
    ends = list(path.render(batch, [0.0, 50.0, 100.0], draws=Draws(0)))
    torch.testing.assert_close(ends[2].batch.waveforms, whole)
    change = torch.linalg.vector_norm(whole - batch.waveforms)
    for step, db in zip(ends, (-60.0, -30.0, 0.0), strict=True):
        now = torch.linalg.vector_norm(step.batch.waveforms - batch.waveforms)
        assert 20 * torch.log10(now / change) == pytest.approx(db, abs=0.05)


@given(name=st.sampled_from([*CONTROLS, "pink+mulaw", "pops+drr@7"]))
def test_names_come_back(name: str) -> None:
    assert str(find_path(name)) == name


def test_each_clip_has_its_own_draws_in_any_batch() -> None:
    clips = [np.random.default_rng(k).standard_normal(4000 + 100 * k) * 0.05 for k in range(3)]
    batch = AudioBatch.of(clips, RATE, ["a", "b", "c"])
    for name in ("bursts", "gain", "shift", "shaped"):
        (together,) = Control(name).render(batch, [70.0], draws=Draws(1))
        for row in range(3):
            (alone,) = Control(name).render(batch.select([row]), [70.0], draws=Draws(1))
            torch.testing.assert_close(together.batch.clip(row), alone.batch.clip(0))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UnknownName):
        Control("loud")
    with pytest.raises(UnknownName):
        find_path("loud")
    with pytest.raises(InputError, match="a strength from 0 to 100 after"):
        find_path("white@much")
