"""Frame measures: models known in closed form, a loop over frames with scipy, real speech in white noise."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import soundfile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sottovoce.errors import InputError
from sottovoce.metrics.segmental import (
    Segmental,
    band_snr_db,
    best_mean,
    cepstral_distance,
    cepstrum,
    log_likelihood_ratio,
    predict,
    segmental,
)

IN_DB = 10.0 * math.sqrt(2.0) / math.log(10.0)  # 6.1419: of a cepstral difference of 1


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)[:, None]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return 0.1 * torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def measure(clean: Tensor, changed: Tensor, rate: int = 16000) -> Segmental:
    return segmental(clean, changed, torch.full((len(clean),), clean.shape[1]), sample_rate=rate)


def test_prediction_finds_the_process_that_made_the_lags():
    # x[n] = 0.5 x[n-1] + 0.3 x[n-2] + white noise; Yule-Walker: r1 = 0.5 + 0.3 r1, r2 = 0.5 r1 + 0.3, ...
    r1 = 0.5 / 0.7
    r2 = 0.5 * r1 + 0.3
    lags = column(1.0, r1, r2, 0.5 * r2 + 0.3 * r1)
    assert predict(lags).flatten().tolist() == pytest.approx([1.0, -0.5, -0.3, 0.0], abs=1e-12)
    assert predict(column(2.0, 1.6, 1.28)).flatten().tolist() == pytest.approx([1.0, -0.8, 0.0], abs=1e-12)


def test_prediction_agrees_with_scipy():
    frames = noise(7, 200).numpy()
    lags = np.stack([[frame[: 200 - lag] @ frame[lag:] for lag in range(11)] for frame in frames])
    expected = [scipy.linalg.solve_toeplitz(row[:-1], -row[1:]) for row in lags]
    assert predict(torch.from_numpy(lags.T))[1:].T.numpy() == pytest.approx(np.array(expected), abs=1e-9)


def test_prediction_of_silence_and_of_a_constant_is_finite():
    assert predict(torch.zeros(4, 1)).flatten().tolist() == [1.0, 0.0, 0.0, 0.0]
    # What is fully known needs one coefficient.
    assert predict(column(1.0, 1.0, 1.0)).flatten().tolist() == pytest.approx([1.0, -1.0, 0.0])


def test_the_cepstrum_of_poles_is_the_sum_of_their_powers():
    # 1 / ((1 - 0.5 z)(1 + 0.2 z)): c_k = (0.5^k + (-0.2)^k) / k
    found = cepstrum(column(1.0, -0.3, -0.1, 0.0, 0.0)).flatten().tolist()
    assert found == pytest.approx([(0.5**k + (-0.2) ** k) / k for k in range(1, 5)], abs=1e-15)


def test_cepstral_distance_of_two_models_by_hand():
    # Poles at 0.5 and -0.5: c = (0.5, 0.125) and (-0.5, 0.125), apart by 1 in the first alone.
    one, two = cepstrum(column(1.0, -0.5, 0.0)), cepstrum(column(1.0, 0.5, 0.0))
    assert float(cepstral_distance(one, two)) == pytest.approx(IN_DB)
    assert float(cepstral_distance(one, 5.0 * two)) == 10.0


def test_log_likelihood_ratio_of_two_models_by_hand():
    # A first-order process with r1 = 0.5 leaves 0.75 under its own filter and 1 under none: ln(4/3).
    lags, own, none = column(1.0, 0.5), column(1.0, -0.5), column(1.0, 0.0)
    assert float(log_likelihood_ratio(lags, own, none)) == pytest.approx(math.log(4.0 / 3.0))
    assert float(log_likelihood_ratio(lags, own, own)) == 0.0
    assert float(log_likelihood_ratio(lags, own, column(1.0, 9.0))) == 2.0


def test_bands_weigh_by_the_fifth_root_of_their_magnitude():
    # 20 dB in a band of weight 1 and 10 dB in one of weight (1/32)^0.2 = 0.5: 25 / 1.5.
    clean = torch.tensor([[1.0, 1.0 / 32.0]], dtype=torch.float64)
    changed = torch.tensor([[0.9, (1.0 - math.sqrt(0.1)) / 32.0]], dtype=torch.float64)
    assert float(band_snr_db(clean, changed)) == pytest.approx(25.0 / 1.5)
    assert float(band_snr_db(clean, clean)) == 35.0
    assert float(band_snr_db(clean, 9.0 * clean)) == -10.0


def test_the_worst_twentieth_of_frames_is_left_out():
    frames = torch.arange(20, dtype=torch.float64)[None].repeat(3, 1)
    frames[1, 10:] = torch.nan  # 10 frames: 9.5 rounds to 10
    frames[2] = torch.nan
    assert best_mean(frames).tolist() == pytest.approx([9.0, 4.5, math.nan], nan_ok=True)


@pytest.mark.parametrize("gain", [1.0, 0.3])
def test_equal_clips_read_35_and_0_at_any_gain(gain: float):
    clean = noise(2, 8000)
    found = measure(clean, gain * clean)
    assert found.fwssnr_db.tolist() == [35.0, 35.0]
    assert found.cd.tolist() == pytest.approx([0.0, 0.0], abs=1e-9)
    assert found.llr.tolist() == pytest.approx([0.0, 0.0], abs=1e-9)


@pytest.mark.parametrize(("rate", "order"), [(8000, 10), (16000, 16)])
def test_clips_agree_with_a_loop_over_frames(rate: int, order: int):
    clean = noise(1, rate // 5).cumsum(dim=1) / 20.0
    changed = clean + noise(1, rate // 5, seed=1) / 5.0
    found = measure(clean, changed, rate)
    cd, llr = _loop(clean[0].numpy(), changed[0].numpy(), rate, order)
    assert float(found.cd) == pytest.approx(cd, rel=1e-7)
    assert float(found.llr) == pytest.approx(llr, rel=1e-7)


def _loop(clean: np.ndarray, changed: np.ndarray, rate: int, order: int) -> tuple[float, float]:
    size = round(0.03 * rate)
    window = np.sin(np.pi * np.arange(1, size + 1) / (size + 1)) ** 2
    distances, ratios = [], []
    for start in range(0, len(clean) - size + 1, size // 4):
        lags, filters, cepstra = [], [], []
        for clip in (clean, changed):
            frame = clip[start : start + size] * window
            own = np.correlate(frame, frame, "full")[size - 1 : size + order]
            found = np.concatenate([[1.0], scipy.linalg.solve_toeplitz(own[:-1], -own[1:])])
            lags.append(own)
            filters.append(found)
            # The cepstrum of 1/A is the sum of powers of its poles.
            poles = np.roots(found)
            cepstra.append(np.array([np.sum(poles**k).real / k for k in range(1, order + 1)]))
        distances.append(min(10.0, IN_DB * float(np.linalg.norm(cepstra[0] - cepstra[1]))))
        matrix = scipy.linalg.toeplitz(lags[0])
        energy = [row @ matrix @ row for row in filters]
        ratios.append(min(2.0, math.log(energy[1] / energy[0])))
    kept = math.floor(0.95 * len(distances) + 0.5)
    return float(np.mean(np.sort(distances)[:kept])), float(np.mean(np.sort(ratios)[:kept]))


def test_magnitudes_are_shares_of_a_frame():
    # Half of a tone is moved to 6 kHz, which lies in no band. Both tones have one spectrum but for its place,
    # so that every band keeps half of its share: noise of half the size, 6.02 dB.
    time = torch.arange(4800, dtype=torch.float64) / 16000
    low, high = (torch.sin(2 * math.pi * hertz * time)[None] for hertz in (1015.625, 6000.0))
    found = float(measure(0.5 * low, 0.25 * low + 0.25 * high).fwssnr_db)
    assert found == pytest.approx(20.0 * math.log10(2.0), abs=0.3)


def test_silence_and_short_clips():
    silent, sound = torch.zeros(1, 1600), noise(1, 1600)
    assert [float(each) for each in measure(silent, sound)] == [-10.0, 10.0, 2.0]
    assert [float(each) for each in measure(sound, silent)] == pytest.approx([0.0, 10.0, 2.0], abs=1e-9)
    for clean in (silent, sound[:, :479], sound[:, :1]):
        assert all(math.isnan(float(each)) for each in measure(clean, clean))


def test_frames_in_which_both_are_silent_are_left_out():
    sound, other = noise(1, 4800), noise(1, 4800, seed=1)
    rest = torch.zeros(1, 4800)
    whole = measure(sound, other)
    found = measure(torch.cat([sound, rest], dim=1), torch.cat([other, rest], dim=1))
    # Only the frames across the edge are new.
    assert float(found.cd) == pytest.approx(float(whole.cd), abs=0.5)
    assert float(found.fwssnr_db) == pytest.approx(float(whole.fwssnr_db), abs=1.0)


def test_a_rate_without_all_bands_has_no_weighted_snr():
    found = measure(noise(1, 1000), noise(1, 1000, seed=1), rate=1000)
    assert math.isnan(float(found.fwssnr_db))
    assert 0.0 < float(found.cd) <= 10.0


def test_a_pure_tone_in_16_bits_has_finite_values():
    tone = torch.sin(torch.arange(16000, dtype=torch.float64) * 0.05)[None] / 2
    for each in measure(tone, (tone * 32768).round() / 32768):
        assert math.isfinite(float(each))


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 4000), min_size=1, max_size=4), wider=st.integers(0, 900))
def test_padding_and_neighbours_have_no_say(lengths: list[int], wider: int):
    width = max(lengths) + wider
    clean = torch.full((len(lengths), width), 7.0, dtype=torch.float64)  # what padding holds is ignored
    changed = clean.clone()
    for row, length in enumerate(lengths):
        clean[row, :length] = noise(length, seed=row)
        changed[row, :length] = clean[row, :length] + noise(length, seed=row + 9) / 3
    found = segmental(clean, changed, torch.tensor(lengths), sample_rate=16000)
    for row, length in enumerate(lengths):
        alone = measure(clean[row : row + 1, :length], changed[row : row + 1, :length])
        for each, own in zip(found, alone, strict=True):
            assert float(each[row]) == pytest.approx(float(own), abs=1e-6, nan_ok=True)


@pytest.mark.slow
def test_real_speech_in_white_noise_reads_as_published_code_does(librispeech: Path):
    # What the authors' conventions give on 10 s of speech at 40, 30 ... 0 dB; speech differs, so do figures.
    fwssnr, cd = [28.6, 22.0, 13.2, 7.0, 3.7], [2.3, 4.4, 6.4, 7.3, 7.7]
    files = sorted(librispeech.rglob("*.flac"))
    speech = np.concatenate([soundfile.read(files[37 * place % len(files)])[0] for place in range(18)])
    clean = torch.from_numpy(speech[: 8 * 160000].reshape(8, 160000))
    white = noise(8, 160000)
    for place, snr_db in enumerate((40, 30, 20, 10, 0)):
        gain = (clean.square().mean(1) / white.square().mean(1) / 10 ** (snr_db / 10)).sqrt()
        found = measure(clean, clean + gain[:, None] * white)
        assert float(found.fwssnr_db.mean()) == pytest.approx(fwssnr[place], abs=1.5)
        assert float(found.cd.mean()) == pytest.approx(cd[place], abs=1.2)


def test_results_are_float64_one_a_clip():
    for each in measure(noise(3, 2000).float(), noise(3, 2000, seed=1).float()):
        assert each.shape == (3,) and each.dtype == torch.float64


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="one shape"):
        measure(noise(1, 100), noise(1, 99))
    with pytest.raises(InputError, match="sample rate"):
        measure(noise(1, 100), noise(1, 100), rate=0)
