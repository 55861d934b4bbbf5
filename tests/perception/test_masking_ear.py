"""The masking ear against what masking means, and against values worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from sottovoce import registry
from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError
from sottovoce.perception.ears.masking_ear import MaskingEar
from sottovoce.perception.masking.hearing_curves import quiet_db
from sottovoce.testing.clips import example_clips, widened

RATE = 16000
EAR = MaskingEar()


def tone(frequency_hz: float, amplitude: float) -> np.ndarray:
    return amplitude * np.sin(2 * np.pi * frequency_hz * np.arange(RATE) / RATE)


def noise(amplitude: float, *, seed: int = 0) -> np.ndarray:
    return amplitude * np.random.default_rng(seed).standard_normal(RATE)


def distance(clean: np.ndarray, added: np.ndarray) -> float:
    return float(EAR.distance(AudioBatch.of([clean], RATE), AudioBatch.of([clean + added], RATE)))


def test_the_registry_knows_it() -> None:
    assert registry.build("ear", "masking") == EAR


def test_a_tone_at_the_threshold_in_quiet() -> None:
    """A far tone at the level at which it is heard in quiet has distance 1."""
    # 200 Hz is bin 25.6 and 3000 Hz bin 384 of 128 ms; a whole bin (203.125 Hz, bin 26) sets the level: its
    # strongest cell is 96 dB, and a tone of the same amplitude in a whole bin too. A tone's three bins add up
    # to 1 + 2/4 of the strongest.
    masker = tone(203.125, 0.5)
    threshold_db = float(quiet_db(torch.tensor(3000.0))) - 96.0 - 10 * np.log10(1.5)
    assert distance(masker, tone(3000.0, 0.5 * 10 ** (threshold_db / 20))) == pytest.approx(1.0, abs=0.1)
    # Distance grows as the amplitude.
    assert distance(masker, tone(3000.0, 5.0 * 10 ** (threshold_db / 20))) == pytest.approx(10.0, rel=0.1)


def test_many_bands_are_heard_at_the_root_of_their_number() -> None:
    # Four tones, each at half the power (n^-1/2) at which one is heard: together as well as the one.
    masker = tone(203.125, 0.5)
    places_hz = (2000.0, 3000.0, 4500.0, 6000.0)
    levels_db = [float(quiet_db(torch.tensor(hz))) - 96.0 - 10 * np.log10(1.5) for hz in places_hz]
    tones = [tone(hz, 0.5 * 10 ** (db / 20)) for hz, db in zip(places_hz, levels_db, strict=True)]
    together = distance(masker, np.sqrt(0.5) * np.sum(tones, axis=0))
    assert together == pytest.approx(float(np.mean([distance(masker, one) for one in tones])), rel=0.1)


def test_probability() -> None:
    found = EAR.probability(torch.tensor([0.0, 1.0, 10.0]))
    assert found.tolist() == pytest.approx([0.0, 0.5, 1.0])
    # From 0.1 to 0.9 within 7 dB: (log2(1/0.1) / log2(1/0.9))^(1/4) = 2.163, 6.7 dB.
    low, high = (-np.log2(1 - np.array([0.1, 0.9]))) ** 0.25
    assert 20 * np.log10(high / low) == pytest.approx(6.7, abs=0.05)
    assert EAR.probability(torch.tensor([low, high])).tolist() == pytest.approx([0.1, 0.9])


@pytest.mark.parametrize(("frequency_hz", "bandwidth_hz"), [(500, 110), (1000, 160), (3000, 500)])
def test_a_tone_in_noise(frequency_hz: int, bandwidth_hz: int) -> None:
    # People hear it 2 to 5 dB below the level of the critical band; this ear is keener by up to 8 dB.
    masker = noise(0.05)
    band = np.sqrt(2 * 0.05**2 * bandwidth_hz / 8000)
    assert distance(masker, tone(frequency_hz, band * 10 ** (-2 / 20))) > 1.0
    assert distance(masker, tone(frequency_hz, band * 10 ** (-13 / 20))) < 1.0


def test_a_loud_tone_hides_its_neighbour() -> None:
    masker, added = tone(1000.0, 0.5), 0.5 * 10 ** (-30 / 20)
    assert distance(masker, tone(1100.0, added)) < 1.0
    assert distance(masker, tone(4000.0, added)) > 10.0


def test_equal_clips_are_not_told_apart() -> None:
    clips = AudioBatch.of([noise(0.1), np.zeros(400), [0.5]], RATE)
    waveforms = clips.waveforms.clone().requires_grad_()
    found = EAR.distance(clips, clips.with_waveforms(waveforms))
    found.sum().backward()
    assert found.tolist() == [0.0, 0.0, 0.0]
    assert EAR.heard(clips, clips).tolist() == [0.0, 0.0, 0.0]
    assert waveforms.grad is not None and not bool(waveforms.grad.any())


def test_proportional_to_the_gain_of_what_was_added() -> None:
    clean, added = noise(0.05), noise(0.001, seed=1)
    distances = [distance(clean, gain * added) for gain in (1.0, 2.0, 4.0, 8.0)]
    assert distances == pytest.approx([distances[0] * gain for gain in (1.0, 2.0, 4.0, 8.0)], rel=0.02)


def test_silence_that_becomes_loud_stays_finite() -> None:
    clean = AudioBatch.of([np.zeros(4000)], RATE)
    changed = torch.ones(1, 4000, requires_grad=True)
    found = EAR.distance(clean, clean.with_waveforms(changed))
    found.sum().backward()
    assert bool(found.isfinite().all()) and found.item() > 100.0
    assert changed.grad is not None and bool(changed.grad.isfinite().all())


def test_gradient_to_both_clips_is_that_of_their_difference() -> None:
    batch = AudioBatch.of([noise(0.05)], RATE)
    clean = batch.waveforms.clone().requires_grad_()
    changed = (batch.waveforms + torch.from_numpy(noise(0.001, seed=1))).float().detach().requires_grad_()
    EAR.distance(batch.with_waveforms(clean), batch.with_waveforms(changed)).backward()
    assert changed.grad is not None and clean.grad is not None and bool(changed.grad.any())
    assert torch.equal(clean.grad, -changed.grad)
    # Distance is linear in what was added (Euler): the slope along it is the distance itself.
    delta = (changed - clean).detach()
    value = float(EAR.distance(batch, batch.with_waveforms(changed.detach())))
    assert float((changed.grad * delta).sum()) == pytest.approx(value, rel=0.01)


def test_alone_and_in_a_batch() -> None:
    clean = example_clips(RATE)
    changed = clean.with_waveforms(clean.waveforms + 0.002 * torch.randn(clean.waveforms.shape))
    together = EAR.distance(clean, changed)
    alone = [float(EAR.distance(clean.select([row]), changed.select([row]))) for row in range(len(clean))]
    assert together.tolist() == pytest.approx(alone, rel=1e-3)
    assert EAR.distance(widened(clean), widened(changed)).tolist() == pytest.approx(alone, rel=1e-3)


def test_no_gradient_in_the_padding() -> None:
    clean = example_clips(RATE)
    changed = (clean.waveforms * 1.1).requires_grad_()
    EAR.distance(clean, AudioBatch(changed, clean.lengths, RATE, clean.ids))[1].backward()
    assert changed.grad is not None and bool(changed.grad[1].any())
    assert not bool(changed.grad[1, int(clean.lengths[1]) :].any())
    assert not bool(changed.grad[[0, 2, 3]].any())


def test_bad_input() -> None:
    with pytest.raises(InputError, match="one length"):
        EAR.distance(AudioBatch.of([np.zeros(1000)], RATE), AudioBatch.of([np.zeros(999)], RATE))
    with pytest.raises(InputError, match="spreading"):
        MaskingEar(spreading="none")  # type: ignore[arg-type]


def test_noise_on_speech(librispeech: Path) -> None:
    path = sorted(librispeech.glob("*/*.flac"))[0]
    clip = soundfile.read(path, frames=5 * RATE)[0]
    added = np.random.default_rng(0).standard_normal(len(clip)) * clip.std()
    distances = [distance(clip, added * 10 ** (-snr / 20)) for snr in range(20, 90, 10)]
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > 10.0
    assert distances[-1] < 0.5
