"""The masking threshold, against values worked out by hand and against scipy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError
from sottovoce.perception.masking.hearing_curves import bark, masking_offset_db, quiet_db, spread_db
from sottovoce.perception.masking.threshold import Masker, MaskingThreshold

RATE = 16000
MASKER = Masker(RATE)
# Frames 3 to 28 of a second lie wholly inside it.
INNER = 12


def tone(*parts: tuple[int, float], seconds: float = 1.0) -> np.ndarray:
    """Tones at whole bins (7.8125 Hz apart), each of an amplitude."""
    time = np.arange(round(seconds * RATE)) / RATE
    return sum(level * np.sin(2 * np.pi * place * 7.8125 * time) for place, level in parts)


def spectrum(clip: np.ndarray) -> torch.Tensor:
    """An inner frame on the scale of the threshold, `(1, bins)`, in double precision."""
    power = MASKER.power(torch.from_numpy(clip)[None])
    return (power / power.max() * 10**9.6)[:, :, INNER]


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def test_published_curves_at_known_places() -> None:
    assert float(bark(number(1000.0))) == pytest.approx(8.5105, abs=1e-4)
    # Zwicker's critical bands number 2, 15 and 21 end at 200, 2700 and 7700 Hz.
    for edge_hz, band in ((200.0, 2.0), (2700.0, 15.0), (7700.0, 21.0)):
        assert float(bark(number(edge_hz))) == pytest.approx(band, abs=0.2)
    # 3.64 - 6.5 exp(-0.6 * 2.3^2) + 0.001
    assert float(quiet_db(number(1000.0))) == pytest.approx(3.369, abs=1e-3)
    assert float(quiet_db(number(3300.0))) == pytest.approx(-4.981, abs=1e-3)
    assert float(quiet_db(number(100.0))) == pytest.approx(22.953, abs=1e-3)
    assert float(quiet_db(number(0.0))) == pytest.approx(83.219, abs=1e-3)


def test_offsets_of_tones_and_noise() -> None:
    # ISO 11172-3: -1.525 - 0.275 z - 4.5 for tones, -1.525 - 0.175 z - 0.5 for noise.
    assert float(masking_offset_db(number(8.0), tonal=True)) == pytest.approx(-8.225)
    assert float(masking_offset_db(number(8.0), tonal=False)) == pytest.approx(-3.425)


@pytest.mark.parametrize(
    ("distance", "iso", "two_slope"),
    [
        # The pieces of the standard at 80 dB: 0.4 X + 6 = 38 below, 17 - 0.15 X = 5 above.
        (-3.5, -np.inf, -94.5),
        (-2.0, -17.0 - 38.0, -54.0),
        (-0.5, -19.0, -13.5),
        (0.0, 0.0, 0.0),
        # -27 + 0.37 * 40 = -12.2 a Bark
        (0.5, -8.5, -6.1),
        (3.0, -17.0 - 2 * 5.0, -36.6),
        (8.0, -np.inf, -97.6),
    ],
)
def test_spreading_at_80_db(distance: float, iso: float, two_slope: float) -> None:
    assert float(spread_db(number(distance), number(80.0))) == pytest.approx(iso)
    assert float(spread_db(number(distance), number(80.0), "two-slope")) == pytest.approx(two_slope)


def test_power_is_that_of_scipy() -> None:
    clip = 0.1 * np.random.default_rng(0).standard_normal(RATE)
    _, _, expected = scipy.signal.spectrogram(
        *(clip, RATE, "hann", 2048, 1536, None, False), scaling="spectrum", mode="psd"
    )
    # scipy divides by the window's sum squared, 2048^2 / 4, and doubles all but the first and last bin.
    expected[[0, -1]] *= 2
    found = MASKER.power(torch.from_numpy(clip)[None])[0]
    # Three frames start before the clip.
    np.testing.assert_allclose(found[:, 3 : 3 + expected.shape[1]], expected / 3, rtol=1e-9, atol=1e-18)


def test_frames_cover_every_sample_alike() -> None:
    # 1 s: (16000 + 1536) / 512 = 34.25, so 35 frames; a single sample is in 4 frames.
    lengths = torch.tensor([16000, 1, 512, 513, 2048])
    assert MASKER.frames(lengths).tolist() == [35, 4, 4, 5, 7]
    assert (MASKER.window, MASKER.hop, Masker(8000).window) == (2048, 512, 1024)
    for place in (0, 777, 8000, 15999):
        click = torch.zeros(1, RATE, dtype=torch.float64)
        click[0, place] = 1.0
        # Four Hann windows a quarter apart have squares that sum to 3/2, and a click's spectrum is flat.
        found = float(MASKER.power(click)[0, 100].sum())
        assert found == pytest.approx(8 / 3 * 1.5 / 2048**2)


def test_the_strongest_cell_has_96_db_in_each_clip_by_itself() -> None:
    clips = AudioBatch.of([tone((128, 0.5)), tone((128, 0.01), seconds=0.7)], RATE)
    threshold = MASKER.threshold(clips)
    # A tone of amplitude a has a power of 8/3 (a/4)^2 = a^2 / 6 in its bin.
    np.testing.assert_allclose(threshold.peak, [0.25 / 6, 0.0001 / 6], rtol=1e-4)
    # The gain of the window enters a perturbation as it enters the clip: the clip itself peaks at 96 dB.
    same = MASKER.perturbation(clips.waveforms, threshold)
    np.testing.assert_allclose(10 * same.amax(dim=(1, 2)).log10(), [96.0, 96.0], atol=1e-4)


def test_a_pure_tone_is_one_tonal_masker_with_the_standards_slopes() -> None:
    maskers = MASKER.maskers(spectrum(tone((128, 0.5))))
    # Its neighbours have half the amplitude: 96 + 10 log10(1 + 1/4 + 1/4).
    assert maskers.bin.tolist() == [128]
    assert float(maskers.db) == pytest.approx(97.761, abs=1e-3)
    assert not maskers.noise_db.isfinite().any()
    found = MASKER.threshold(AudioBatch.of([tone((128, 0.5))], RATE)).db[0, :, INNER]
    # 97.761 - 6.025 - 0.275 * 8.5105 = 89.396 at 1 kHz, then by the distances in Bark to each frequency:
    # 500 Hz is more than 3 Bark below, 750 Hz -1.7406, 875 Hz -0.8339, 1125 Hz 0.7643, 1250 Hz 1.4636,
    # 2 kHz 4.5935; 4 kHz is more than 8 above, so that the quiet is left.
    frequencies = (500, 750, 875, 1000, 1125, 1250, 2000, 4000)
    expected = [6.279, 31.708, 51.784, 89.396, 76.403, 71.313, 64.002, -3.388]
    np.testing.assert_allclose(found[[round(f / 7.8125) for f in frequencies]], expected, atol=5e-3)


def test_two_slopes_where_asked_for() -> None:
    masker = Masker(RATE, "two-slope")
    found = masker.threshold(AudioBatch.of([tone((128, 0.5))], RATE)).db[0, :, INNER]
    frequencies = (500, 750, 1000, 1125, 2000, 4000, 7000)
    expected = [6.336, 42.399, 89.396, 85.094, 63.541, 40.156, 21.898]
    np.testing.assert_allclose(found[[round(f / 7.8125) for f in frequencies]], expected, atol=5e-3)


def test_of_tones_within_half_a_bark_the_stronger_stays() -> None:
    # 118 and 123 are 0.26 Bark apart, 100 and 108 0.45, 100 and 114 0.78.
    assert MASKER.maskers(spectrum(tone((118, 0.3), (123, 0.4)))).bin.tolist() == [123]
    assert MASKER.maskers(spectrum(tone((100, 0.4), (108, 0.3)))).bin.tolist() == [100]
    assert MASKER.maskers(spectrum(tone((100, 0.3), (114, 0.4)))).bin.tolist() == [100, 114]
    # 108 gives way to 100, and so 116, which is 0.88 Bark from 100, has no rival left.
    chain = tone((100, 0.5), (108, 0.4), (116, 0.3))
    assert MASKER.maskers(spectrum(chain)).bin.tolist() == [100, 116]


def test_a_tone_must_stand_out_and_be_audible() -> None:
    # Beside a bin of 96 dB, two bins off, one 6 dB less hides the tone: both are noise then.
    power = torch.full((1, 1025), 1e-3, dtype=torch.float64)
    power[0, 128], power[0, 130] = 10**9.6, 10**9.0
    assert MASKER.maskers(power).bin.tolist() == []
    power[0, 130] = 10**8.8
    assert MASKER.maskers(power).bin.tolist() == [128]
    # 1 dB lies below the 3.4 dB of the quiet at 1 kHz.
    quiet = torch.full((1, 1025), 1e-6, dtype=torch.float64)
    quiet[0, 128] = 10**0.1
    assert MASKER.maskers(quiet).bin.tolist() == []
    quiet[0, 128] = 10**0.5
    assert MASKER.maskers(quiet).bin.tolist() == [128]


def test_noise_is_one_masker_a_critical_band() -> None:
    power = torch.full((1, 1025), 10.0**4, dtype=torch.float64)
    maskers = MASKER.maskers(power)
    assert len(maskers.bin) == 0
    # Up to 8 kHz there are 22 bands. 920 to 1080 Hz has bins 118 to 138: 40 + 10 log10(21) dB; the first,
    # below 100 Hz, has 1 to 12.
    assert maskers.noise_db.shape == (1, 22)
    assert float(maskers.noise_db[0, 8]) == pytest.approx(53.222, abs=1e-3)
    assert float(maskers.noise_db[0, 0]) == pytest.approx(50.792, abs=1e-3)


def test_what_a_band_of_noise_hides() -> None:
    power = torch.zeros(1, 1025, dtype=torch.float64)
    power[0, 118:139] = 10.0**6
    # 73.222 dB at the geometric mean of the bins 118 to 138, which is 127.86: bin 128, 8.5105 Bark.
    # Offset -2.025 - 0.175 * 8.5105 = -3.514; 0.7643 Bark above falls by 12.993, 0.8339 below by
    # (0.4 * 73.222 + 6) * 0.8339 = 29.428.
    hidden = 10 * MASKER.spread(MASKER.maskers(power))[0].log10()
    np.testing.assert_allclose(hidden[[128, 144, 112]], [69.708, 56.715, 40.281], atol=0.02)


def test_white_noise_has_hardly_a_tone() -> None:
    clip = 0.1 * np.random.default_rng(1).standard_normal(4 * RATE)
    power = MASKER.power(torch.from_numpy(clip)[None])[0].T[3:-3]
    maskers = MASKER.maskers(power / power.max() * 10**9.6)
    assert maskers.noise_db.isfinite().all()
    assert len(maskers.bin) < 0.05 * maskers.noise_db.numel()


def test_a_clip_alone_is_as_in_a_batch() -> None:
    source = np.random.default_rng(2)
    rows = [0.1 * source.standard_normal(length) for length in (9000, 16000, 700, 1)]
    rows[1] += tone((200, 0.3))
    clips = AudioBatch.of(rows, RATE)
    delta = 0.01 * torch.from_numpy(source.standard_normal((4, 16000))).float()
    delta = clips.with_waveforms(delta).waveforms
    together = MASKER.threshold(clips)
    assert together.frames.tolist() == [21, 35, 5, 4]
    for row, clip in enumerate(rows):
        alone = MASKER.threshold(AudioBatch.of([clip], RATE))
        count, piece = int(alone.frames), delta[row : row + 1, : len(clip)]
        np.testing.assert_allclose(together.db[row, :, :count], alone.db[0], atol=1e-3)
        loss = MASKER.exceedance_loss(delta, together)[row]
        np.testing.assert_allclose(loss, MASKER.exceedance_loss(piece, alone)[0], rtol=1e-3)
        whole, part = MASKER.excess(delta, together), MASKER.excess(piece, alone)
        np.testing.assert_allclose(whole.share[row], part.share[0], atol=1e-3)
        np.testing.assert_allclose(whole.mean_db[row], part.mean_db[0], atol=1e-3)
        np.testing.assert_allclose(whole.max_db[row], part.max_db[0], atol=1e-3)
        one = together.select(torch.tensor([row]))
        np.testing.assert_allclose(one.db[0], alone.db[0], atol=1e-3)


def test_loss_is_the_mean_power_above_the_threshold() -> None:
    delta = 0.1 * np.random.default_rng(3).standard_normal((1, 4096))
    # On the scale where the clip's strongest cell of power 0.5 has 10^9.6.
    cells = MASKER.power(torch.from_numpy(delta)).numpy() * 10**9.6 / 0.5
    limit = float(np.median(cells))
    flat = MaskingThreshold(
        torch.full(cells.shape, limit, dtype=torch.float64),
        torch.tensor([0.5], dtype=torch.float64),
        torch.tensor([cells.shape[2]]),
    )
    perturbation = torch.from_numpy(delta).requires_grad_()
    loss = MASKER.exceedance_loss(perturbation, flat)
    assert float(loss.detach()) == pytest.approx(np.maximum(cells - limit, 0).mean())
    (slope,) = torch.autograd.grad(loss.sum(), perturbation)
    step = 1e-6 * slope / slope.norm()
    with torch.no_grad():
        rise = MASKER.exceedance_loss(perturbation + step, flat) - loss
    assert float(rise) == pytest.approx(1e-6 * float(slope.norm()), rel=1e-3)
    over = 10 * np.log10(cells / limit)
    excess = MASKER.excess(torch.from_numpy(delta), flat)
    assert float(excess.share) == pytest.approx(0.5, abs=1e-3)
    assert float(excess.mean_db) == pytest.approx(np.maximum(over, 0).mean())
    assert float(excess.max_db) == pytest.approx(over.max())


def test_silence_hides_what_nobody_hears() -> None:
    threshold = MASKER.threshold(AudioBatch.of([np.zeros(4000)], RATE))
    assert threshold.power.isfinite().all()
    assert float(threshold.db[0, 128, 4]) == pytest.approx(3.369, abs=1e-3)


@pytest.mark.parametrize("wrong", [{"sample_rate": 0}, {"sample_rate": 16000, "spreading": "steep"}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"expected|needs clips at 500 Hz"):
        Masker(**wrong)  # type: ignore[arg-type]


def test_clips_of_another_rate_are_refused() -> None:
    with pytest.raises(InputError, match="8000 Hz"):
        MASKER.threshold(AudioBatch.of([np.zeros(4000)], 8000))
