"""The learned ear: laws on a tiny network with random weights, and figures of the shipped ones."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce import registry
from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError, UnknownName
from sottovoce.perception.ears.learned import FOLDER, VARIANTS, Learned
from sottovoce.perception.ears.learned_network import (
    EarShape,
    LearnedNetwork,
    front_end,
    load_network,
    pool_time,
    save_network,
)

TINY = EarShape(bands=16, channels=(4, 4, 4, 4))
shipped = pytest.mark.skipif(
    not (FOLDER / "learned-scratch.safetensors").is_file(), reason="the trained weights are not here"
)


def make_network(seed: int = 0, shape: EarShape = TINY) -> LearnedNetwork:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = LearnedNetwork(shape)
        for block in network.blocks:
            block.shift.data.normal_()
            block.variance.uniform_(0.5, 2.0)
    return network


@pytest.fixture
def ear(tmp_path: Path) -> Learned:
    path = tmp_path / "tiny.safetensors"
    save_network(path, make_network(), {"listeners": "simulated"})
    return Learned(weights=str(path))


def sound(seconds: float, seed: int, rate: int = 16_000, level: float = 0.05) -> np.ndarray:
    return (level * np.random.default_rng(seed).standard_normal(round(seconds * rate))).clip(-1, 1)


def batch(*clips: np.ndarray, rate: int = 16_000) -> AudioBatch:
    return AudioBatch.of(clips, rate)


def test_a_sine_reads_its_level_above_the_threshold_in_quiet() -> None:
    """Full scale is 92 dB SPL; Terhardt's threshold at 1 kHz is 3.64 - 6.5 e^-3.174 + 0.001 = 3.37 dB."""
    clip = torch.sin(2 * math.pi * 1000 * torch.arange(16_000) / 16_000)[None]
    levels, frames = front_end(clip, torch.tensor([16_000]), EarShape())
    assert frames.tolist() == [126]
    middle = levels[0, 1, :, 60]
    assert float(middle.max()) == pytest.approx((92.0 - 3.37) / 10, abs=0.2)
    # The band at 1 kHz: 64 of them evenly over the ERB scale from 60 to 7600 Hz.
    low, high, here = (21.4 * math.log10(0.00437 * hz + 1) for hz in (60.0, 7600.0, 1000.0))
    assert abs(int(middle.argmax()) - 63 * (here - low) / (high - low)) <= 1


def test_silence_is_at_zero() -> None:
    levels, _ = front_end(torch.zeros(1, 4000), torch.tensor([4000]), EarShape())
    assert not levels.any()


def test_time_is_pooled_over_the_worst_second() -> None:
    frames = torch.tensor([16, 48, 4, 1])
    powers = torch.zeros(4, 48)
    powers[0, 5] = 16.0
    powers[1, 40] = 16.0
    powers[2, 0] = 16.0
    powers[3, 0] = 16.0
    powers[2, 4:] = 1e6
    # Means over at most 16 frames: 1, 1, 4 and 16; their fourth roots.
    wanted = torch.tensor([1.0, 1.0, math.sqrt(2.0), 2.0])
    torch.testing.assert_close(pool_time(powers, frames), wanted)


def test_a_steady_difference_does_not_grow_with_length() -> None:
    frames = torch.tensor([3, 16, 60])
    torch.testing.assert_close(pool_time(torch.full((3, 60), 81.0), frames), torch.full((3,), 3.0))


def test_head_is_a_weibull_function(ear: Learned) -> None:
    p = ear.probability(torch.tensor([0.0, 1.0, 50.0]))
    torch.testing.assert_close(p, torch.tensor([0.0, 0.5, 1.0]))
    slope = float(make_network().slope.detach())
    assert float(ear.probability(torch.tensor([0.5]))) == pytest.approx(1 - 0.5 ** (0.5**slope), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=8), st.floats(-20, 20))
def test_head_never_falls_and_has_a_slope(distances: list[float], raw: float) -> None:
    network = make_network()
    network.raw_slope.data.fill_(raw)
    values = torch.tensor(sorted(distances)).requires_grad_()
    p = network.probability(values)
    assert bool((p.diff() >= 0).all())
    p.sum().backward()
    assert bool(torch.isfinite(values.grad).all())


def test_equal_clips_are_at_zero_with_a_finite_gradient(ear: Learned) -> None:
    clean = batch(sound(0.5, 0), sound(0.3, 1), np.zeros(1000))
    waveforms = clean.waveforms.clone().requires_grad_()
    distance = ear.distance(clean, clean.with_waveforms(waveforms))
    assert distance.tolist() == [0.0, 0.0, 0.0]
    ear.probability(distance).sum().backward()
    assert bool(torch.isfinite(waveforms.grad).all())


def test_gradient_reaches_both_clips(ear: Learned) -> None:
    clean, changed = batch(sound(0.5, 0)), batch(sound(0.5, 1))
    one, two = (pair.waveforms.clone().requires_grad_() for pair in (clean, changed))
    ear.heard(clean.with_waveforms(one), changed.with_waveforms(two)).sum().backward()
    for found in (one.grad, two.grad):
        assert bool(torch.isfinite(found).all())
    ear.distance(clean.with_waveforms(one), changed.with_waveforms(two)).sum().backward()
    assert float(one.grad.abs().max()) > 0
    assert float(two.grad.abs().max()) > 0


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000])
def test_a_clip_alone_is_as_in_a_batch(ear: Learned, rate: int) -> None:
    clips = [sound(seconds, seed, rate) for seed, seconds in enumerate((1.3, 0.02, 0.5, 2.1))]
    changed = [clip + sound(len(clip) / rate, 9, rate, 0.01) for clip in clips]
    together = ear.distance(batch(*clips, rate=rate), batch(*changed, rate=rate))
    alone = [
        ear.distance(batch(one, rate=rate), batch(two, rate=rate))[0]
        for one, two in zip(clips, changed, strict=True)
    ]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-4, atol=1e-6)
    assert bool((together > 0).all())


def test_padding_gets_no_gradient(ear: Learned) -> None:
    clean = batch(sound(0.5, 0), sound(0.2, 1))
    waveforms = (clean.waveforms + 0.01 * clean.mask).requires_grad_()
    changed = clean.with_waveforms(waveforms)
    ear.distance(clean, changed).sum().backward()
    assert not waveforms.grad[1, 3200:].any()


@pytest.mark.parametrize("samples", [1, 2, 100, 320])
def test_very_short_clips(ear: Learned, samples: int) -> None:
    clean, changed = batch(np.full(samples, 0.2)), batch(np.full(samples, 0.4))
    assert 0 < float(ear.distance(clean, changed)) < math.inf


def test_gain_is_seen_and_grows(ear: Learned) -> None:
    clean = sound(0.5, 0, level=0.02)
    found = [
        float(ear.distance(batch(clean), batch(clean * 10 ** (db / 20)))) for db in (0.5, 1, 2, 4, 8, 16)
    ]
    assert found == sorted(found)
    assert found[0] > 0


def test_distances_change_places(ear: Learned) -> None:
    one, two = batch(sound(0.5, 0)), batch(sound(0.5, 1))
    torch.testing.assert_close(ear.distance(one, two), ear.distance(two, one))


def test_a_short_event_counts_as_much_in_a_long_clip() -> None:
    """With the front end alone, where a level depends on no more than 160 ms about it."""
    network = LearnedNetwork(EarShape(bands=16, channels=()))
    event = sound(0.1, 3, level=0.2)
    found = []
    for seconds in (3, 12):
        clean = sound(3, 0)
        clean = np.concatenate([clean] * (seconds // 3))
        changed = clean.copy()
        changed[20_000 : 20_000 + len(event)] += event
        first, second = (
            torch.from_numpy(one.clip(-1, 1).astype(np.float32))[None] for one in (clean, changed)
        )
        found.append(float(network(first, second, torch.tensor([len(clean)])).detach()))
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def test_a_network_is_left_as_it_was(ear: Learned) -> None:
    before = {name: value.clone() for name, value in ear._loaded[0].state_dict().items()}
    ear.heard(batch(sound(0.5, 0)), batch(sound(0.5, 1)))
    after = ear._loaded[0].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not ear._loaded[0].training


def test_saved_weights_come_back(tmp_path: Path) -> None:
    network = make_network(3)
    save_network(tmp_path / "one.safetensors", network, {"listeners": "people"})
    found, facts = load_network(tmp_path / "one.safetensors")
    assert found.shape == TINY
    assert facts["listeners"] == "people"
    for name, value in network.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], value)


def test_weights_of_another_shape_or_kind(tmp_path: Path) -> None:
    import safetensors.torch

    path = tmp_path / "w.safetensors"
    save_network(path, make_network(), {})
    state = safetensors.torch.load_file(path)
    state["blocks.0.kernel"] = torch.zeros(4, 3, 3, 3)
    with safetensors.safe_open(path, framework="pt") as file:
        about = dict(file.metadata())
    safetensors.torch.save_file(state, path, metadata=about)
    with pytest.raises(InputError, match=r"blocks.0.kernel \(4, 2, 3, 3\), got \(4, 3, 3, 3\)"):
        Learned(weights=str(path)).probability(torch.tensor([1.0]))
    safetensors.torch.save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(InputError, match="those of another model"):
        Learned(weights=str(path)).probability(torch.tensor([1.0]))
    path.write_text("text")
    with pytest.raises(InputError, match="expected weights as safetensors"):
        Learned(weights=str(path)).probability(torch.tensor([1.0]))


def test_missing_weights_say_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sottovoce metric train"):
        Learned(weights=str(tmp_path / "none.safetensors"))
    with pytest.raises(UnknownName):
        Learned(variant="best")  # type: ignore[arg-type]


def test_own_weights_for_a_whole_command(ear: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOTTOVOCE_EAR_WEIGHTS", str(ear.weights))
    pair = batch(sound(0.5, 0)), batch(sound(0.5, 1))
    assert float(Learned().distance(*pair)) == float(ear.distance(*pair))


def test_bad_pairs(ear: Learned) -> None:
    with pytest.raises(InputError, match="one length"):
        ear.distance(batch(sound(0.5, 0)), batch(sound(0.4, 0)))
    with pytest.raises(InputError, match="one rate"):
        ear.distance(batch(sound(0.5, 0)), batch(sound(0.5, 0), rate=8000))
    with pytest.raises(InputError, match="8000 Hz or more"):
        ear.distance(batch(sound(0.5, 0), rate=4000), batch(sound(0.5, 1), rate=4000))


def test_built_by_name(ear: Learned) -> None:
    assert registry.build("ear", "learned", {"weights": ear.weights}) == ear


@shipped
@pytest.mark.parametrize("variant", VARIANTS)
def test_shipped_weights(variant: str) -> None:
    """On speech: a shift is nearly nothing, half the gain is heard, and noise in the order of its level."""
    from sottovoce.data.embedded import embedded

    corpus = embedded()
    clip = corpus.load(next(entry for entry in corpus if entry.label == "yes"), 16_000).waveform.numpy()
    ear = Learned(variant=variant)  # type: ignore[arg-type]
    clean = batch(clip)
    assert float(ear.distance(clean, batch(np.concatenate([[0.0], clip[:-1]])))) < 0.3
    assert float(ear.heard(clean, batch(0.5 * clip))) > 0.9
    power = float(np.mean(clip**2))
    noise = np.random.default_rng(0).standard_normal(len(clip))
    found = [
        float(ear.distance(clean, batch((clip + math.sqrt(power / 10 ** (db / 10)) * noise).clip(-1, 1))))
        for db in (70, 50, 30, 10)
    ]
    assert found == sorted(found)
    assert found[-1] > 1.5
    assert ear.facts["listeners"] == "simulated"


@shipped
def test_shipped_weights_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("learned-*.safetensors")) < 5_000_000
