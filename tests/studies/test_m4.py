"""M4 on a made listening test in which the order is known: more noise, worse ratings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.errors import InputError
from sottovoce.studies.manocha2020 import human_ratings as m4
from sottovoce.studies.manocha2020.human_ratings import STUDY
from sottovoce.studies.manocha2020.judges import Judge, Mse, as_trial, judges, try_all
from sottovoce.studies.manocha2020.manocha_tables import TABLE_2
from sottovoce.studies.manocha2020.rated_pairs import as_batch
from sottovoce.studies.run_study import run_study
from sottovoce.studies.study import Choice

RATE = 16000
LEVELS = {"quiet": 0.001, "middle": 0.01, "loud": 0.1}
RATINGS = {"Reference": 100, "quiet": 80, "middle": 50, "loud": 20, "Anchor": 5}
JUDGES = [
    Judge(id="snr", title="SNR", name="snr", better="higher"),
    Judge(id="mse", title="MSE", name="mse"),
    Judge(id="auditory", title="auditory model", name="auditory", kind="ear"),
    Judge(id="cdpam", title="CDPAM", name="cdpam", slow=True),
    Judge(id="stoi", title="STOI", name="stoi-of-old", better="higher"),
    Judge(id="pesq", title="PESQ", name="pesq-of-old", better="higher"),
    Judge(id="visqol", title="ViSQOL", name="visqol-of-old", better="higher"),
    *(judge for judge in judges(None) if judge.id.startswith("dpam")),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = ["signal,condition,ratings,participant_ids,file"]
    generator = np.random.default_rng(0)
    for item in ("one", "two", "three"):
        (tmp_path / "audio" / item).mkdir(parents=True)
        clean = 0.2 * generator.standard_normal(8000) * np.hanning(8000)
        for name, level in {"Reference": 0.0, **LEVELS}.items():
            samples = clean + level * generator.standard_normal(8000)
            soundfile.write(tmp_path / "audio" / item / f"{name}.wav", samples, RATE)
        for name, mean in RATINGS.items():
            ratings = [mean - 2, mean - 1, mean] if mean == 100 else [mean - 1, mean, mean + 1]
            file = "" if name == "Anchor" else f"{item}/{name}.wav"
            rows.append(f'{item},{name},"{ratings}","[1, 2, 3]",{file}')
    (tmp_path / "ratings.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


@pytest.mark.parametrize("prefix", ["mushra:", ""])
def test_measures_that_follow_the_noise_agree(
    folder: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(m4, "judges", lambda dpam: JUDGES)
    bench, _, page = run_study(STUDY, Choice(data=f"{prefix}{folder}"), folder / "out")
    assert (bench.codecs, bench.conditions) == (list(LEVELS), [*LEVELS, "Reference"])
    kept = json.loads((page.parent / "results.json").read_text())["values"]
    for name in ("snr", "mse", "auditory"):
        found = kept["judges"][name]["codecs"]
        assert found["spearman_conditions"]["value"] == pytest.approx(1.0)
        # Nine pairs of conditions, all of them clear, and all in the order of the ratings.
        assert (found["pairs"]["value"], found["pairs"]["n"]) == (1.0, 9)
    with_reference = kept["judges"]["snr"]["with_reference"]
    assert with_reference["spearman_conditions"]["value"] == pytest.approx(1.0)
    assert with_reference["pearson_conditions"]["value"] is None
    assert set(kept["not_run"]) == {judge.id for judge in JUDGES} - {"snr", "mse", "auditory"}
    assert "--scale full" in kept["not_run"]["cdpam"]
    assert "weights" in kept["not_run"]["dpam-scratch"]
    text = page.read_text()
    assert "simulated listeners" in text and "A proxy" in text and "Anchor" in text
    assert [clip["shift_samples"] for clip in kept["clips"]] == [0] * 12


def test_without_ratings_it_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"needs ratings by people, and none come with sottovoce: give --data mushra:DIR"
    ):
        run_study(STUDY, Choice(), tmp_path)
    with pytest.raises(InputError, match="does not use --clips"):
        run_study(STUDY, Choice(data="mushra:x", clips=3), tmp_path)
    with pytest.raises(InputError, match="got no such folder"):
        run_study(STUDY, Choice(data=f"mushra:{tmp_path}/x"), tmp_path)


def test_mse_by_hand() -> None:
    clean = as_batch([np.zeros(4), np.zeros(2)], RATE, ["a", "b"])
    changed = as_batch([np.full(4, 0.5), np.array([0.5, 0.0])], RATE, ["a", "b"])
    assert Mse().measure(as_trial(clean, changed))[:, 0].tolist() == [0.25, 0.125]


def test_every_judge_turns_values_so_that_more_is_better() -> None:
    known = {judge.id: judge for judge in judges(None)}
    higher = {"snr", "segmental-snr", "fwssnr", "pesq", "stoi", "estoi", "visqol", "dnsmos", "dnsmos-change"}
    assert {name for name, judge in known.items() if judge.better == "higher"} == higher
    assert known["mse"].turned(np.array([1.0, 2.0])).tolist() == [-1.0, -2.0]
    assert set(TABLE_2) <= set(known)


def test_a_judge_that_is_not_to_be_had_does_not_stop_the_others() -> None:
    clips = as_batch([0.1 * np.ones(4000)], RATE, ["a"])
    asked = [Judge(id="odd", title="odd", name="odd"), Judge(id="snr", title="SNR", name="snr")]
    found, absent = try_all(asked, clips, clips, slow=False, tell=lambda done, note: None)
    assert list(found) == ["snr"]
    assert "unknown metric 'odd'" in absent["odd"]


def test_table_2_as_printed() -> None:
    assert TABLE_2["dpam-scratch"] == (0.71, 0.94, 0.63, 0.59, 70.0, 0.61, 0.47, 87.68, 71.78)
    assert TABLE_2["mse"].voco_pearson == 0.80 and TABLE_2["pesq"].fftnet_2afc == 88.57
    assert TABLE_2["visqol"].bwe_2afc == 44.4
