"""The figure asked for is the figure found in the output, each by its textbook definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from scipy import signal

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Transform
from sottovoce.data.embedded import strings
from sottovoce.data.load import collate
from sottovoce.defenses.codecs import encode
from sottovoce.perception.degradations.added_noise import Noise
from sottovoce.perception.degradations.coding_rates import Mp3Coding, MuLawCoding
from sottovoce.perception.degradations.equaliser import Equaliser
from sottovoce.perception.degradations.griffin_lim import GriffinLim
from sottovoce.perception.degradations.lost_samples import Dropouts, Pops
from sottovoce.perception.degradations.reverberation import ReverbRatio, ReverbTime

RATE = 16000
Floats = NDArray[np.float64]
KINDS = ("white", "pink", "applause", "water-drops", "room")


@pytest.fixture(scope="module")
def speech() -> AudioBatch:
    corpus = strings().limit(3)
    return collate([corpus.load(entry, RATE) for entry in corpus])


def through(transform: Transform, clip: Floats, rate: int = RATE, seed: int = 0) -> Floats:
    batch = AudioBatch.of([clip], rate, ["clip"])
    return transform(batch, draws=Draws(seed)).clip(0).double().numpy()


def impulse(seconds: float, rate: int = RATE) -> Floats:
    clip = np.zeros(round(seconds * rate))
    clip[0] = 0.5
    return clip


def white(seconds: float, rate: int = RATE) -> Floats:
    return (0.05 * np.random.default_rng(1).standard_normal(round(seconds * rate))).clip(-1, 1)


def slope_db(sound: Floats, rate: int, low_hz: float, high_hz: float) -> float:
    """dB an octave, by Welch's method, fitted between two frequencies."""
    hz, power = signal.welch(sound, rate, nperseg=4096)
    inside = (hz >= low_hz) & (hz <= high_hz)
    # Octaves count alike, not hertz.
    weight = 1 / np.sqrt(hz[inside])
    return float(np.polyfit(np.log2(hz[inside]), 10 * np.log10(power[inside]), 1, w=weight)[0])


# Noise


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("snr_db", [2.0, 20.0, 66.0])
def test_snr(speech: AudioBatch, kind: str, snr_db: float) -> None:
    noisy = Noise(kind=kind, snr_db=snr_db)(speech, draws=Draws(0))  # type: ignore[arg-type]
    for row in range(len(speech)):
        clean = speech.clip(row).double().numpy()
        added = noisy.clip(row).double().numpy() - clean
        assert 10 * np.log10((clean**2).sum() / (added**2).sum()) == pytest.approx(snr_db, abs=0.01)


def added(kind: str, seconds: float = 20.0, rate: int = RATE) -> Floats:
    clean = white(seconds, rate)
    return through(Noise(kind=kind, snr_db=0), clean, rate) - clean  # type: ignore[arg-type]


def test_white_noise_is_white_gaussian_and_without_dc() -> None:
    noise = added("white")
    level = noise.std()
    assert abs(noise.mean()) < 1e-6 * level + 1e-9
    # The kurtosis of a Gaussian is 3, here with a deviation of sqrt(24/n) = 0.009.
    assert np.mean(noise**4) / level**4 == pytest.approx(3.0, abs=0.05)
    assert slope_db(noise, RATE, 100, 7000) == pytest.approx(0.0, abs=0.15)
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.01


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_pink_noise_falls_by_3_db_an_octave(rate: int) -> None:
    noise = added("pink", 20.0, rate)
    assert slope_db(noise, rate, 60, 0.45 * rate) == pytest.approx(-3.01, abs=0.15)
    assert abs(noise.mean()) < 1e-4 * noise.std()


def test_made_noises_sound_as_they_are_called() -> None:
    applause, drops, room = (added(kind, 5.0) for kind in ("applause", "water-drops", "room"))

    def crest(sound: Floats) -> float:
        return float(np.abs(sound).max() / sound.std())

    def centre_hz(sound: Floats) -> float:
        hz, power = signal.welch(sound, RATE, nperseg=1024)
        return float((hz * power).sum() / power.sum())

    # A crowd's clapping is broad and peaky, drops are rarer than claps, a room is low and steady.
    assert 700 < centre_hz(applause) < 4000 and centre_hz(room) < 700
    assert crest(drops) > crest(room) and crest(applause) > crest(room)
    loudness = (drops[: 5 * RATE // 800 * 800].reshape(-1, 800) ** 2).mean(axis=1)
    assert np.median(loudness) < 0.5 * loudness.mean()


@pytest.mark.parametrize("rate", [8000, 24000, 44100])
@pytest.mark.parametrize("kind", ["applause", "water-drops", "room"])
def test_made_noises_at_other_rates(kind: str, rate: int) -> None:
    clean = white(0.5, rate)
    noise = through(Noise(kind=kind, snr_db=30), clean, rate) - clean  # type: ignore[arg-type]
    assert 10 * np.log10((clean**2).sum() / (noise**2).sum()) == pytest.approx(30.0, abs=0.01)


# Reverberation


def rt60_seconds(response: Floats, rate: int = RATE) -> float:
    """Schroeder's backward integration behind the first 2.5 ms, a line from -5 to -35 dB, down to -60."""
    tail = response[round(0.0025 * rate) :]
    level = 10 * np.log10(np.cumsum(tail[::-1] ** 2)[::-1] / (tail**2).sum() + 1e-20)
    fit = (level < -5) & (level > -35)
    return float(-60 / np.polyfit(np.arange(len(tail))[fit] / rate, level[fit], 1)[0])


def drr_db(response: Floats, rate: int = RATE) -> float:
    late = round(0.0025 * rate)
    return float(10 * np.log10((response[:late] ** 2).sum() / (response[late:] ** 2).sum()))


@pytest.mark.parametrize("seconds", [0.05, 0.3, 1.5, 8.0])
def test_rt60(seconds: float) -> None:
    found = through(ReverbTime(rt60_seconds=seconds), impulse(1.2 * seconds + 0.1))
    assert rt60_seconds(found) == pytest.approx(seconds, rel=0.01)
    # 20 dB at 0.05 s, 3 dB (10 log10 2) less for each doubling.
    assert drr_db(found) == pytest.approx(20 - 10 * np.log10(seconds / 0.05), abs=0.05)


@pytest.mark.parametrize("drr", [-27.0, 0.0, 30.0, 65.0])
@pytest.mark.parametrize("rate", [8000, 16000, 24000])
def test_drr(drr: float, rate: int) -> None:
    found = through(ReverbRatio(drr_db=drr, rt60_seconds=0.4), impulse(1.0, rate), rate)
    assert drr_db(found, rate) == pytest.approx(drr, abs=0.05)
    assert rt60_seconds(found, rate) == pytest.approx(0.4, rel=0.01)
    assert np.abs(found[1 : round(0.0025 * rate)]).max() < 1e-7


def test_rt60_by_another_library() -> None:
    measure = pytest.importorskip("pyroomacoustics").experimental.measure_rt60
    found = through(ReverbTime(rt60_seconds=0.7, drr_db=0.0), impulse(1.2))
    assert measure(found[40:], fs=RATE, decay_db=30) == pytest.approx(0.7, rel=0.02)


def test_rooms_differ_where_only_the_ratio_is_asked_for() -> None:
    batch = AudioBatch.of([impulse(1.6)] * 20, RATE)
    wet = ReverbRatio(drr_db=0.0)(batch, draws=Draws(0))
    times = [rt60_seconds(wet.clip(row).double().numpy()) for row in range(20)]
    assert all(0.19 < time < 1.02 for time in times) and max(times) > 2 * min(times)


def test_reverberation_is_a_convolution_that_keeps_level_and_place(speech: AudioBatch) -> None:
    part, row = ReverbRatio(drr_db=3.0, rt60_seconds=0.3), 0
    clean = speech.clip(row).double().numpy()
    named = AudioBatch.of([np.r_[0.5, np.zeros(len(clean) - 1)]], RATE, [speech.ids[row]])
    response = part(named, draws=Draws(4)).clip(0).double().numpy()
    wet = part(speech, draws=Draws(4)).clip(row).double().numpy()
    by_hand = signal.fftconvolve(clean, response)[: len(clean)]
    by_hand *= np.linalg.norm(clean) / np.linalg.norm(by_hand)
    assert np.allclose(wet, by_hand, atol=1e-5)
    assert np.linalg.norm(wet) == pytest.approx(np.linalg.norm(clean), rel=1e-5)
    lags = signal.correlate(wet, clean, "full")
    assert int(lags.argmax()) - (len(clean) - 1) == 0


def test_a_recorded_response(tmp_path: Path) -> None:
    rate, source = 16000, np.random.default_rng(3)
    time = np.arange(rate) / rate
    hall = np.zeros(rate + 300)
    # Silence before the direct path, which points down; a tail of 0.5 s from 5 ms on.
    hall[300] = -0.8
    hall[380:] = 0.05 * source.standard_normal(rate - 80) * 10 ** (-3 * time[:-80] / 0.5)
    soundfile.write(tmp_path / "hall.wav", hall, rate, subtype="FLOAT")
    for drr in (-10.0, 25.0):
        found = through(ReverbRatio(drr_db=drr, file=str(tmp_path / "hall.wav")), impulse(1.2))
        assert int(np.abs(found[:40]).argmax()) == 0 and found[0] > 0
        assert drr_db(found) == pytest.approx(drr, abs=0.05)
        assert rt60_seconds(found) == pytest.approx(0.5, rel=0.1)
        # The tail is the recording's own, up to its level.
        assert np.corrcoef(found[80:4000], -hall[380:4300])[0, 1] > 0.9999


# Codecs


@pytest.mark.parametrize(("kbps", "used"), [(8, 8), (64, 64), (320, 160)])
def test_bit_rate(kbps: int, used: int) -> None:
    # Below 3 kHz, which every rate from 64 kbit/s on lets through.
    low = signal.sosfilt(signal.butter(8, 3000, fs=RATE, output="sos"), white(20.0))
    clip = low.astype(np.float32)
    # Two or three frames more than the sound lasts: below a per cent of 20 s.
    assert len(encode(clip, RATE, used)) * 8 / 20 / 1000 == pytest.approx(used, rel=0.01)
    coded = through(Mp3Coding(kbps=kbps), clip.astype(np.float64))
    level = float(coded @ clip / (clip @ clip))
    assert used < 64 or level == pytest.approx(1.0, abs=0.01)
    assert int(signal.correlate(coded, clip, "full", "fft").argmax()) == len(clip) - 1


def test_fewer_bits_are_farther_away(speech: AudioBatch) -> None:
    gaps = [
        float((Mp3Coding(kbps=kbps)(speech, draws=Draws(0)).waveforms - speech.waveforms).norm())
        for kbps in (160, 64, 24, 8)
    ]
    assert gaps == sorted(gaps) and gaps[0] < 0.05 * float(speech.waveforms.norm())


@pytest.mark.parametrize(("levels", "found"), [(3, 3), (4, 3), (7, 7), (15, 15), (60, 59)])
def test_levels(levels: int, found: int) -> None:
    # The ramp's peak is 0.4, not full scale: levels span the clip.
    heard = through(MuLawCoding(levels=levels), np.linspace(-0.4, 0.4, 20001))
    assert len(np.unique(heard)) == found
    assert np.abs(heard).max() == pytest.approx(0.4, abs=1e-6)


def test_levels_by_hand() -> None:
    # Five levels: 0, expm1(ln(256)/2)/255 = 15/255 of the peak, and the peak.
    # The curve log(1 + 255 x)/log(256) is 0.25 at 3/255 and 0.75 at 63/255 of the peak: there it rounds over.
    edge_1, edge_2 = 0.5 * 3 / 255, 0.5 * 63 / 255
    clip = np.array([0.5, 0.0, edge_1 * 0.99, edge_1 * 1.01, edge_2 * 0.99, -edge_2 * 1.01])
    expected = [0.5, 0.0, 0.0, 0.5 * 15 / 255, 0.5 * 15 / 255, -0.5]
    assert through(MuLawCoding(levels=5), clip) == pytest.approx(expected, abs=1e-7)


# Equaliser


@pytest.mark.parametrize("bands", [(1, 0, -1), (0, 1, 0), (-1, 1, 0), (0, 0, 1)])
@pytest.mark.parametrize("amount", [0.25, 1.0])
def test_gains(bands: tuple[int, int, int], amount: float) -> None:
    clean = white(20.0)
    heard = through(Equaliser(amount=amount, bands=bands), clean)
    hz, before = signal.welch(clean, RATE, nperseg=4096)
    _, after = signal.welch(heard, RATE, nperseg=4096)
    # Inside the bands: three equal parts, in octaves, of 100 to 8000 Hz end at 431 and 1857 Hz.
    pieces = [(100, 300), (600, 1300), (2600, 7500)]
    gains = [
        10 * np.log10(after[inside].sum() / before[inside].sum())
        for low, high in pieces
        for inside in [(hz >= low) & (hz <= high)]
    ]
    still = bands.index(0)
    assert [gain - gains[still] for gain in gains] == pytest.approx(
        [20 * amount * sign for sign in bands], abs=0.2
    )
    assert np.linalg.norm(heard) == pytest.approx(np.linalg.norm(clean), rel=1e-5)


def test_the_equaliser_moves_nothing_in_time() -> None:
    clip = np.zeros(4001)
    clip[2000] = 0.5
    heard = through(Equaliser(amount=0.7, bands=(1, 0, -1)), clip)
    assert np.allclose(heard, heard[::-1], atol=1e-6) and int(np.abs(heard).argmax()) == 2000


def test_no_amount_is_no_change() -> None:
    clip = white(1.0)
    assert np.allclose(through(Equaliser(amount=0), clip), clip, atol=1e-6)


# Bursts


@pytest.mark.parametrize(("percent", "count"), [(0.01, 5), (1.0, 500), (10.0, 5000)])
def test_pops(percent: float, count: int) -> None:
    clip = white(50_000 / RATE)
    heard = through(Pops(percent=percent), clip)
    popped = heard != np.float32(clip)
    assert popped.sum() == count
    assert np.abs(heard[popped]) == pytest.approx(np.abs(clip).max(), rel=1e-6)
    # As many up as down, within four deviations.
    assert abs((heard[popped] > 0).mean() - 0.5) < 4 * 0.5 / np.sqrt(count)


@pytest.mark.parametrize(("percent", "count"), [(0.01, 5), (1.0, 500), (20.0, 10_000)])
def test_dropouts(percent: float, count: int) -> None:
    clip = white(50_000 / RATE)
    heard = through(Dropouts(percent=percent), clip)
    lost = heard == 0
    assert lost.sum() == count and (heard[~lost] == np.float32(clip)[~lost]).all()
    # 20 ms are 320 samples. A gap ends where a packet of that ends, but for the last and two in a row.
    starts = np.flatnonzero(np.diff(np.r_[0, lost.astype(int)]) == 1)
    assert (starts % 320 == 0).all() and len(starts) <= -(-count // 320)


# Griffin-Lim


def test_griffin_lim_keeps_magnitudes_and_not_phases(speech: AudioBatch) -> None:
    clean = speech.clip(0).double().numpy()

    def error_db(iterations: int) -> float:
        heard = through(GriffinLim(iterations=iterations), clean)
        before, after = (
            np.abs(signal.stft(one, RATE, nperseg=512, noverlap=384)[2]) for one in (clean, heard)
        )
        return float(20 * np.log10(np.linalg.norm(after - before) / np.linalg.norm(before)))

    errors = [error_db(count) for count in (1, 5, 30, 150)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > -10 and errors[-1] < -20
    heard = through(GriffinLim(iterations=150), clean)
    assert np.linalg.norm(heard) == pytest.approx(np.linalg.norm(clean), rel=0.05)
    # Loud stays where loud was: the envelope in 16 ms steps has no lag.
    count = len(clean) // 256 * 256
    one, two = (np.sqrt((x[:count].reshape(-1, 256) ** 2).mean(axis=1)) for x in (clean, heard))
    lags = signal.correlate(one - one.mean(), two - two.mean(), "full")
    assert int(lags.argmax()) == len(one) - 1
    assert np.corrcoef(one, two)[0, 1] > 0.98


def test_a_perfect_start_stays() -> None:
    """From the right phases the first step gives the clip back: analysis and synthesis are inverse."""
    from sottovoce.perception.degradations import griffin_lim

    batch = AudioBatch.of([white(0.5), white(0.3)], RATE)
    window = torch.hann_window(512)
    padded = griffin_lim._padded(batch, 128)
    spectra = griffin_lim._spectra(padded, window, 128)
    found = griffin_lim.rebuild(spectra.abs(), spectra / spectra.abs().clamp_min(1e-20), window, 128, 3)
    assert float((found[:, 512 : 512 + 8000] - batch.waveforms).abs().max()) < 1e-5
