"""A3 on a model whose limits are known by hand: "up" where a clip's mean is above zero.

A clip that is constant at a is turned by -a in every sample, which is 0 dB: no budget of the sweep does it.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.errors import InputError
from sottovoce.studies.amiri2024 import attack_quality as a3
from sottovoce.studies.amiri2024.attack_quality import STUDY, BudgetQuality
from sottovoce.studies.manocha2020.judges import Judge
from sottovoce.studies.run_study import run_study
from sottovoce.studies.study import Choice

CHEAP = (
    Judge(id="segmental", title="segmental SNR", name="segmental-snr", better="higher"),
    Judge(id="odd", title="odd", name="of-old"),
)


@pytest.fixture
def clips(tmp_path: Path) -> str:
    """Two clips of 1000 steps of 16 bits."""
    for label, level in (("up", 1000), ("down", -1000)):
        (tmp_path / "clips" / label).mkdir(parents=True)
        path = tmp_path / "clips" / label / "one.wav"
        soundfile.write(path, np.full(2400, level, dtype=np.int16), 8000, subtype="PCM_16")
    return str(tmp_path / "clips")


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a3, "JUDGES", CHEAP)
    for table, value in (("NO_DIFFERENCE", 35.0), ("DIGITS", 1), ("NEAR", 1.0)):
        monkeypatch.setitem(getattr(a3.sheets, table), "segmental", value)


@pytest.mark.usefixtures("cheap")
def test_sweep_by_hand(mean_model: str, clips: str, tmp_path: Path) -> None:
    bench, result, page = run_study(STUDY, Choice(model=mean_model, data=clips), tmp_path / "out")
    curves = bench.curves[mean_model]
    attack, rounded, noise = (curves[name] for name in a3.SERIES)
    for level in (10.0, 50.0, 90.0):
        # All samples move by the radius, so the SNR is the one that was asked for; frames are held to 35 dB.
        assert attack[level].snr_db == pytest.approx(level, abs=0.01)
        assert attack[level].measures["segmental"].value == pytest.approx(min(level, 35.0), abs=0.01)
        assert noise[level].snr_db == pytest.approx(level, abs=0.01)
        assert attack[level].success.value == 0.0
    # 50 dB is 3.16 steps, of which a file keeps 3; 100 dB is a hundredth of a step, of which it keeps none.
    assert rounded[50.0].snr_db == pytest.approx(20 * math.log10(1000 / 3), abs=1e-3)
    assert (rounded[50.0].changed, rounded[100.0].changed, attack[100.0].changed) == (1.0, 0.0, 1.0)
    assert math.isinf(rounded[100.0].snr_db)
    # The clean clip beside itself has no frame with noise: each is at its limit.
    assert attack[math.inf].measures["segmental"].value == 35.0
    assert list(bench.absent) == ["odd"]
    assert [sheet.title for sheet in result.sheets][-1] == "Not run"
    kept = json.loads((page.parent / "results.json").read_text())["values"][mean_model]["attack"]
    assert [one["asked_db"] for one in kept] == [None, *range(0, 101, 10)]


@pytest.mark.usefixtures("cheap")
def test_every_attacked_clip_keeps_its_snr(mean_model: str, clips: str, tmp_path: Path) -> None:
    # Correction of the printed radius: the measured SNR is never below the one asked for.
    bench, _, _ = run_study(STUDY, Choice(model=mean_model, data=clips), tmp_path / "out")
    for series in a3.SERIES[:2]:
        for level, point in bench.curves[mean_model][series].items():
            # At 100 dB the last bits of single precision are seen.
            assert math.isinf(level) or point.snr_db >= level - 0.02


def test_trends_are_held_against_what_equal_clips_read() -> None:
    interval = a3.clopper_pearson(3, 4)

    def point(pesq: float) -> BudgetQuality:
        return BudgetQuality(interval, 60.0, 1.0, {"pesq": interval._replace(value=pesq)})

    curves = {"attack": {60.0: point(4.55), 100.0: point(4.64), 0.0: point(1.0)}}
    bench = a3.QualitySetup(Path("."), {"m": curves}, {"m": 4}, {"m": "d"}, {}, {"seed": 0})
    rows = {row[0]: row[1] for row in a3.sheets.trends(bench).rows}
    assert rows["m: PESQ reads no difference from 60 dB on"] == "yes"
    assert rows["m: the attack succeeds on most clips at 60 dB"] == "yes"
    curves["attack"][60.0] = point(4.5)
    rows = {row[0]: row[1] for row in a3.sheets.trends(bench).rows}
    assert rows["m: PESQ reads no difference from 60 dB on"] == "NO"


def test_what_is_refused(tmp_path: Path, mean_model: str, clips: str) -> None:
    with pytest.raises(InputError, match="does not use --attack"):
        run_study(STUDY, Choice(attack="pgd"), tmp_path)
    soundfile.write(Path(clips) / "up" / "one.wav", np.zeros((0,)), 8000)
    soundfile.write(Path(clips) / "down" / "one.wav", np.zeros((0,)), 8000)
    with pytest.raises(InputError, match="no clip can be used with model"):
        run_study(STUDY, Choice(model=mean_model, data=clips), tmp_path / "out")
