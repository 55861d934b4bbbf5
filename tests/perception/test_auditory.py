"""The auditory model against published thresholds of hearing."""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce import registry
from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError
from sottovoce.perception.ears.auditory import Auditory, bark, step_db
from sottovoce.testing.clips import example_clips, widened

RATE = 16000
EAR = Auditory()


def tone(frequency_hz: float, level_db: float, *, seconds: float = 1.0, rate: int = RATE) -> np.ndarray:
    """A tone of a sound pressure level: amplitude 1 is 92 dB SPL."""
    time = np.arange(round(seconds * rate)) / rate
    return 10 ** ((level_db - 92) / 20) * np.sin(2 * np.pi * frequency_hz * time)


def noise(level_db: float, *, seconds: float = 1.0, seed: int = 0) -> np.ndarray:
    """White noise up to 8 kHz of a sound pressure level: an RMS of 0.7071 is 92 dB SPL."""
    source = np.random.default_rng(seed).standard_normal(round(seconds * RATE))
    return 10 ** ((level_db - 92) / 20) * np.sqrt(0.5) * source


def gain(clip: np.ndarray, db: float) -> np.ndarray:
    return clip * 10 ** (db / 20)


def distance(clean: np.ndarray, changed: np.ndarray, *, rate: int = RATE, ear: Auditory = EAR) -> float:
    return float(ear.distance(AudioBatch.of([clean], rate), AudioBatch.of([changed], rate)))


def just_heard(at: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising distance reaches 1."""
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle) < 1 else (low, middle)
    return (low + high) / 2


def test_the_registry_knows_it() -> None:
    assert registry.build("ear", "auditory") == EAR


def test_steps_of_the_standard() -> None:
    # 5.95072 (6.39468/60)^1.71332 = 0.1285; 9.01033e-11 60^4 = 0.0012; 5.05622e-6 60^3 = 1.0921;
    # -1.02438e-3 60^2 = -3.6878; 0.0550197 60 = 3.3012; -0.1987
    levels = torch.tensor([20.0, 40.0, 60.0, 80.0], dtype=torch.float64)
    expected = [1.377, 0.944, 0.6364, 0.317]
    assert step_db(levels).tolist() == pytest.approx(expected, abs=2e-3)


def test_pitch_scale() -> None:
    # asinh(1) = 0.88137; BS.1387 has 109 bands of a quarter of a Bark from 80 to 18000 Hz.
    assert bark(650.0) == pytest.approx(6.16961, abs=1e-4)
    shape = EAR.excitation_db(torch.zeros(1, 48000), 48000).shape
    assert shape == (1, 109, 51)


@pytest.mark.parametrize(("frequency_hz", "outer_db"), [(1000.0, -1.913), (3300.0, 5.586)])
def test_a_tone_keeps_its_level(frequency_hz: float, outer_db: float) -> None:
    # -0.6 * 3.64 + 6.5 exp(-0.6 * 2.3^2) - 0.001; -2.184 * 3.3^-0.8 + 6.5 - 0.001 * 3.3^3.6. A tone that
    # falls into two bands gains up to 10 log10(2^(2.5 - 1)) = 4.5 dB.
    clip = torch.from_numpy(tone(frequency_hz, 60.0))[None]
    peak = float(EAR.excitation_db(clip, RATE)[0, :, 20].max())
    assert 60.0 + outer_db - 1.0 < peak < 60.0 + outer_db + 4.5


def test_silence_has_only_the_noise_of_the_ear() -> None:
    # 1.456 dB at 1 kHz, 1.456 * 4^-0.8 = 0.480 dB at 4 kHz; bands are a few percent off.
    level = EAR.excitation_db(torch.zeros(1, RATE), RATE)[0, :, 10]
    places = [int((bark(hz) - bark(80.0)) / 0.25) for hz in (1000.0, 4000.0)]
    assert level[places].tolist() == pytest.approx([1.456, 0.480], rel=0.04)


@pytest.mark.parametrize(
    ("frequency_hz", "field_db", "earphone_db"),
    # ISO 389-7 (free field, both ears) and ISO 389-1 (TDH-39 earphone, one ear)
    [
        *((125, 22.1, 45.0), (250, 11.4, 25.5), (500, 4.4, 11.5), (1000, 2.4, 7.0)),
        *((2000, -1.3, 9.0), (3000, -5.8, 10.0), (4000, -5.4, 9.5), (6000, 4.3, 15.5)),
    ],
)
def test_threshold_in_quiet(frequency_hz: int, field_db: float, earphone_db: float) -> None:
    silence = np.zeros(RATE)
    found = just_heard(lambda level: distance(silence, tone(frequency_hz, level)), -20.0, 60.0)
    assert field_db - 3.0 < found < earphone_db + 3.0


def test_a_tone_of_1_khz_in_quiet() -> None:
    assert distance(np.zeros(RATE), tone(1000, 2.0)) < 0.5
    assert distance(np.zeros(RATE), tone(1000, 15.0)) > 1.5


def test_white_noise_in_quiet() -> None:
    # 20 critical bands share its power: it is heard at about the level of a single tone.
    assert EAR.probability(torch.tensor(distance(np.zeros(RATE), noise(0.0)))) < 0.05
    assert EAR.probability(torch.tensor(distance(np.zeros(RATE), noise(15.0)))) > 0.95


@pytest.mark.parametrize(("frequency_hz", "bandwidth_hz"), [(500, 110), (1000, 160), (3000, 500)])
def test_a_tone_in_noise(frequency_hz: int, bandwidth_hz: int) -> None:
    # Zwicker: 2 to 4 dB below the level of the critical band, there 2 to 5.
    masker = noise(70.0)
    band_db = 70.0 + 10 * np.log10(bandwidth_hz / 8000)
    found = just_heard(lambda level: distance(masker, masker + tone(frequency_hz, level)), 20.0, 80.0)
    assert found - band_db == pytest.approx(-3.0, abs=3.0)


def test_a_far_tone_is_not_masked_and_a_near_one_is() -> None:
    # A tone of 1 kHz at 80 dB SPL hides one of 40 dB at 1.2 kHz, not at 4 kHz, nor far below, at 300 Hz.
    masker = tone(1000, 80.0)
    assert distance(masker, masker + tone(1200, 40.0)) < 1.0
    assert distance(masker, masker + tone(4000, 40.0)) > 1.5
    assert distance(masker, masker + tone(300, 40.0)) > 1.5


def test_a_change_of_level_of_noise() -> None:
    # Published: 0.5 dB for expert listeners (Miller 1947), about 1 dB as a rule.
    clip = noise(60.0)
    for sign in (1, -1):
        found = just_heard(lambda db, sign=sign: distance(clip, gain(clip, sign * db)), 0.0, 6.0)
        assert 0.5 < found < 1.5


@pytest.mark.parametrize(("level_db", "published_db"), [(40, 0.93), (60, 0.69), (80, 0.50)])
def test_a_change_of_level_of_a_tone(level_db: int, published_db: float) -> None:
    # Jesteadt, Wier & Green (1977): 10 log10(1 + 0.463 (I/I0)^-0.072), here less than double.
    found = just_heard(lambda db: distance(tone(1000, level_db), tone(1000, level_db + db)), 0.0, 6.0)
    assert published_db < found < 2.0 * published_db


def test_near_miss_to_webers_law() -> None:
    distances = [distance(tone(1000, level), tone(1000, level + 1.0)) for level in (20, 40, 60, 80)]
    assert distances == sorted(distances)
    assert distances[-1] > 1.5 * distances[1]


def test_probability() -> None:
    # 1 - 0.5^(d^4)
    found = EAR.probability(torch.tensor([0.0, 0.5, 1.0, 2.0**0.5, 100.0]))
    assert found.tolist() == pytest.approx([0.0, 1 - 0.5 ** (1 / 16), 0.5, 1 - 0.5**4, 1.0])


def test_equal_clips_are_not_told_apart() -> None:
    clips = AudioBatch.of([noise(60.0), np.zeros(4000), [0.5]], RATE)
    waveforms = clips.waveforms.clone().requires_grad_()
    found = EAR.distance(clips, clips.with_waveforms(waveforms))
    found.sum().backward()
    assert found.tolist() == [0.0, 0.0, 0.0]
    assert EAR.heard(clips, clips).tolist() == [0.0, 0.0, 0.0]
    assert waveforms.grad is not None and not bool(waveforms.grad.any())


def test_phase_and_small_shifts_are_not_heard() -> None:
    clip = noise(65.0) * np.hanning(RATE)
    assert distance(clip, -clip) == 0.0
    shifted = [distance(clip[samples:], clip[:-samples]) for samples in (1, 8, 16)]
    assert max(shifted) < 0.5


@settings(max_examples=10, deadline=None)
@given(first=st.floats(-60.0, 0.0), step=st.floats(1.0, 20.0), seed=st.integers(0, 99))
def test_more_noise_is_heard_better(first: float, step: float, seed: int) -> None:
    clip, added = noise(60.0, seconds=0.5, seed=seed), noise(60.0, seconds=0.5, seed=seed + 100)
    assert distance(clip, clip + gain(added, first)) < distance(clip, clip + gain(added, first + step))


def test_graded_far_above_threshold() -> None:
    clip, added = noise(50.0), noise(50.0, seed=1)
    distances = [distance(clip, clip + gain(added, db)) for db in (0, 10, 20, 30)]
    assert distances[0] > 1.5
    assert all(later > earlier + 2.0 for earlier, later in pairwise(distances))


def test_the_clips_can_change_places() -> None:
    clip, other = noise(60.0), noise(62.0, seed=1)
    assert distance(clip, other) == pytest.approx(distance(other, clip), rel=1e-5)


def test_a_short_event_in_a_long_clip_is_heard() -> None:
    clip = noise(60.0, seconds=20.0)
    changed = clip.copy()
    changed[160000:163200] *= 10 ** (3 / 20)  # 0.2 s, 3 dB
    assert distance(clip, changed) > 2.0
    # The mean over time falls away, and the strongest moment stays: 2^-(1/4) of a lasting change.
    lasting = distance(clip, gain(clip, 3.0))
    assert distance(clip, changed) > 0.75 * lasting


def test_length_alone_is_not_heard() -> None:
    distances = []
    for seconds in (1.0, 10.0, 60.0):
        clip = noise(60.0, seconds=seconds)
        distances.append(distance(clip, gain(clip, 1.0)))
    assert distances[2] == pytest.approx(distances[0], rel=0.05)
    assert distances[2] == pytest.approx(distances[1], rel=0.02)


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 24000, 44100, 48000])
def test_any_rate_from_8_khz(rate: int) -> None:
    clip = tone(1000, 60.0, rate=rate)
    expected = distance(tone(1000, 60.0), gain(tone(1000, 60.0), 1.0))
    assert distance(clip, gain(clip, 1.0), rate=rate) == pytest.approx(expected, rel=0.01)


def test_playback_level() -> None:
    clip = np.zeros(RATE)
    assert distance(clip, tone(1000, 0.0)) < 0.1
    assert distance(clip, tone(1000, 0.0), ear=Auditory(full_scale_db=112.0)) == pytest.approx(
        distance(clip, tone(1000, 20.0)), rel=1e-3
    )


def test_alone_and_in_a_batch() -> None:
    clean = example_clips(RATE)
    changed = clean.with_waveforms(clean.waveforms + 0.002 * torch.randn(clean.waveforms.shape))
    together = EAR.distance(clean, changed)
    wider = EAR.distance(widened(clean), widened(changed))
    alone = [float(EAR.distance(clean.select([row]), changed.select([row]))) for row in range(len(clean))]
    assert together.tolist() == pytest.approx(alone, rel=1e-4)
    assert wider.tolist() == pytest.approx(alone, rel=1e-4)


def test_no_gradient_in_the_padding_and_none_between_clips() -> None:
    clean = example_clips(RATE)
    changed = (clean.waveforms * 1.1).requires_grad_()
    EAR.distance(clean, AudioBatch(changed, clean.lengths, RATE, clean.ids))[1].backward()
    assert changed.grad is not None and bool(changed.grad.isfinite().all())
    assert bool(changed.grad[1, : int(clean.lengths[1])].any())
    assert not bool(changed.grad[1, int(clean.lengths[1]) :].any())
    assert not bool(changed.grad[[0, 2, 3]].any())


def test_gradient_to_both_clips_is_that_of_differences() -> None:
    clean = AudioBatch(torch.from_numpy(noise(60.0, seconds=0.1))[None], torch.tensor([1600]), RATE, ("a",))
    changed = torch.from_numpy(noise(60.0, seconds=0.1, seed=1))[None]

    def of(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return EAR.distance(clean.with_waveforms(first), clean.with_waveforms(second))

    both = (clean.waveforms.clone().requires_grad_(), changed.requires_grad_())
    assert torch.autograd.gradcheck(of, both, fast_mode=True)


def test_loud_and_silent_clips_have_finite_gradients() -> None:
    clean = AudioBatch.of([np.zeros(4000), np.ones(4000), noise(60.0, seconds=0.25)], RATE)
    for other in (torch.zeros(3, 4000), torch.ones(3, 4000), clean.waveforms * (1 + 1e-6)):
        changed = other.clone().requires_grad_()
        found = EAR.distance(clean, clean.with_waveforms(changed))
        found.sum().backward()
        assert bool(found.isfinite().all())
        assert changed.grad is not None and bool(changed.grad.isfinite().all())


def test_bad_input() -> None:
    clip = AudioBatch.of([np.zeros(1000)], 4000)
    with pytest.raises(InputError, match="needs clips at 8000 Hz or more, got 4000"):
        EAR.distance(clip, clip)
    with pytest.raises(InputError, match="one rate"):
        EAR.distance(AudioBatch.of([np.zeros(1000)], 16000), AudioBatch.of([np.zeros(1000)], 8000))
    with pytest.raises(InputError, match="one length"):
        EAR.distance(AudioBatch.of([np.zeros(1000)], 16000), AudioBatch.of([np.zeros(999)], 16000))
    with pytest.raises(InputError, match="full_scale_db"):
        Auditory(full_scale_db=0.0)
    for wrong in ({"exponent": 1.0}, {"fluctuation": 2.0}, {"memory_db": -1.0}, {"exponent": float("nan")}):
        with pytest.raises(InputError, match="expected exponent of 2 or more"):
            Auditory(**wrong)


def test_noise_on_speech(librispeech: Path) -> None:
    for path in sorted(librispeech.glob("*/*.flac"))[::100][:3]:
        clip = soundfile.read(path, frames=5 * RATE)[0]
        added = np.random.default_rng(0).standard_normal(len(clip)) * clip.std()
        distances = [distance(clip, np.clip(clip + gain(added, -snr), -1, 1)) for snr in range(10, 80, 10)]
        assert distances == sorted(distances, reverse=True)
        # A change of level by 1 dB is about one just noticeable difference.
        assert 0.7 < distance(clip, gain(clip, -1.0)) < 1.5
        assert distances[0] > 10.0
        assert distances[-1] < 0.3


@pytest.mark.slow
def test_it_ranks_codecs_as_people_do() -> None:
    """Rank correlation with the mean rating of a condition, the reference left out."""
    data = Path(os.environ.get("SOTTOVOCE_DATA", Path(__file__).parents[3] / "shared" / "data"))
    table = data / "mushra" / "ratings.csv"
    if not table.exists():
        pytest.skip("needs mushra/ratings.csv in the folder named by SOTTOVOCE_DATA")
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with table.open() as rows:
        for row in csv.DictReader(rows):
            path = table.parent / "audio" / row["file"]
            if not path.is_file() or path.name == "ref.flac":
                continue
            (reference, rate), (coded, _) = (
                soundfile.read(file, always_2d=True) for file in (path.parent / "ref.flac", path)
            )
            length = min(len(reference), len(coded))
            apart = distance(reference[:length].mean(1), coded[:length].mean(1), rate=rate)
            found[row["condition"]].append((apart, float(np.mean(json.loads(row["ratings"])))))
    means = np.array([np.mean(pairs, axis=0) for pairs in found.values()])
    assert len(means) == 7
    assert scipy.stats.spearmanr(means[:, 0], means[:, 1])[0] < -0.6
