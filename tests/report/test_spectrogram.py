"""Spectrograms as pictures, read back by matplotlib."""

from __future__ import annotations

import io

import numpy as np
from matplotlib import colormaps
from matplotlib.image import imread

from sottovoce.report.examples import draw_spectrogram


def test_a_tone_is_a_bright_line_at_its_frequency_and_the_rest_is_black() -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(16000) / 16000)
    picture = imread(io.BytesIO(draw_spectrogram(tone, top_db=-6.0)))[:, :, :3]
    # 512 samples a window: 257 bins of 31.25 Hz, bin 0 at the bottom; 1000 Hz is bin 32. A Hann window
    # halves a sine, and its amplitude of 0.5 is -6 dB: the end of the scale.
    assert picture.shape[0] == 257
    brightest, darkest = colormaps["magma"](1.0)[:3], colormaps["magma"](0.0)[:3]
    middle = picture.shape[1] // 2
    assert np.abs(picture[256 - 32, middle] - brightest).max() < 1 / 255
    assert np.abs(picture[0, middle] - darkest).max() < 1 / 255


def test_silence_is_one_colour() -> None:
    picture = imread(io.BytesIO(draw_spectrogram(np.zeros(4000), top_db=0.0)))[:, :, :3]
    assert np.abs(picture - np.array(colormaps["magma"](0.0)[:3])).max() < 1 / 255
