"""The study of the perturbation space: its own measures on sounds made by hand, and a small run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.perception.degradations.lost_samples import Pops
from sottovoce.studies.manocha2020 import perturbation_measures as m1_measure
from sottovoce.studies.manocha2020 import perturbations as m1
from sottovoce.studies.run_study import run_study
from sottovoce.studies.study import Choice

RATE = 16000


def test_decay_of_a_made_response() -> None:
    # The amplitude falls by 60 dB in 0.4 s: to a thousandth after 6400 samples.
    response = np.zeros(8000)
    response[40:] = 0.01 * 10 ** (-3 * np.arange(7960) / 6400)
    response[0] = 1.0
    assert m1_measure.rt60_seconds(response, RATE) == pytest.approx(0.4, rel=1e-3)
    # A geometric series of ratio 10^(-6/6400): 1e-4 / (1 - ratio), 1e-4 * 463.7 = 0.04637.
    assert m1_measure.drr_db(response, RATE) == pytest.approx(-10 * np.log10(0.04637), abs=0.01)


def test_distance_by_hand() -> None:
    sound = 0.1 * np.random.default_rng(0).standard_normal(8000)
    one = AudioBatch.of([sound.clip(-0.5, 0.5)], RATE)
    # Half the amplitude is 6.02 dB in each cell.
    half = m1_measure.spectral_distance_db(one, one.with_waveforms(one.waveforms / 2))
    assert half == pytest.approx([20 * np.log10(2)], abs=0.01)
    assert m1_measure.spectral_distance_db(one, one) == pytest.approx([0.0])
    assert m1_measure.noise_db(one, one.with_waveforms(one.waveforms * 1.1)) == pytest.approx(
        [20.0], abs=0.01
    )


def test_share_of_samples() -> None:
    assert m1_measure.changed_percent(Pops(percent=2.5), RATE, Draws(0)) == pytest.approx(2.5, abs=1e-3)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    for number in range(2):
        sound = 0.1 * np.sin(np.arange(6000) * 0.05 * (number + 1)) + 0.01 * source.standard_normal(6000)
        soundfile.write(tmp_path / f"{number}.wav", sound, RATE, subtype="PCM_16")
    (tmp_path / "clips.csv").write_text("path,label\n0.wav,a\n1.wav,b\n", encoding="utf-8")
    choice = Choice(data=f"csv:{tmp_path / 'clips.csv'}", seed=3)
    _, result, page = run_study(m1.STUDY, choice, tmp_path / "out", device="cpu")
    rows = {row[0]: row[3:] for row in result.sheets[0].rows}
    assert rows["white"] == ("66 / 66", "50 / 50", "34 / 34", "18 / 18", "2 / 2")
    assert rows["rt60"][0] == "0.05 / 0.05" and rows["rt60"][4] == "8 / 8"
    assert rows["drr"][4] == "-27 / -27" and rows["dropouts"][4] == "20 / 20" and rows["mulaw"][4] == "3 / 3"
    assert len(rows) == 13
    text = page.read_text(encoding="utf-8")
    assert "synthesised" in text and "griffin-lim" in text
    facts = json.loads((page.parent / "results.json").read_text("utf-8"))
    assert facts["setting"]["clips"] == ["0", "1"]
    assert facts["values"]["figures"]["pops"][4]["found"] == pytest.approx([10.0])


def test_options_that_say_nothing() -> None:
    with pytest.raises(InputError, match="--attack"):
        m1.open_bench(Choice(attack="pgd"), None, "cpu", lambda done, note: None)


def test_magnitudes_cover_the_clip() -> None:
    # 400 samples every 160, with 240 of silence either side: (16000 + 480 - 400) // 160 + 1 frames.
    assert m1_measure.magnitudes(torch.zeros(16000), RATE).shape == (201, 101)
