"""Study A from files of jobs that were written by hand, and once from beginning to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from sottovoce.core.statistics import clopper_pearson
from sottovoce.errors import InputError, StoreError
from sottovoce.studies.pathology import quality as measures
from sottovoce.studies.pathology.bench import (
    Accuracy,
    PathologyBench,
    Speaker,
    certified_share,
    read_jobs,
    share_above,
)
from sottovoce.studies.pathology.options import Attacked, Option, strongest
from sottovoce.studies.pathology.plan import FULL, MINI, Job, Plan, Setting
from sottovoce.studies.pathology.sheets import recommend, trends
from sottovoce.studies.pathology.study import STUDY
from sottovoce.studies.run import run_study, tabulate
from sottovoce.studies.study import Choice


def make_setting(plan: Plan = MINI, **others: object) -> Setting:
    known = {
        "plan": plan,
        "data": "clinic",
        "note": "",
        "encoder": "recogniser",
        "layer": 7,
        "layers": 8,
        "seed": 0,
        "speakers": {"control": 2, "pathological": 2},
        "clips": 4,
        "minutes": 1.0,
        "folds": plan.folds,
        "split": False,
        "sigma": 0.01,
    }
    return Setting(**{**known, **others})  # type: ignore[arg-type]


def test_jobs_of_the_scales() -> None:
    # Two detectors, CNN-A, six noises and five options are 14 kinds; mini has 2 x 3 more of a second seed.
    assert len(list(make_setting(MINI).jobs())) == 48
    assert len(list(make_setting(FULL).jobs())) == 14 * 10 * 5
    seen: set[Job] = set()
    for job in make_setting(FULL).jobs():
        assert job.needs is None or job.needs in seen
        seen.add(job)
    assert Job("low-pass", 3, 1).needs == Job("cnn", 3, 1)
    assert Job("noise-KG", 3, 1).needs is None
    assert Job("noise-KG", 3, 1).name == "noise-KG-f3-s1"


def test_a_folder_is_of_one_setting(tmp_path: Path) -> None:
    setting = make_setting()
    setting.save(tmp_path)
    setting.save(tmp_path)
    assert Setting.read(tmp_path) == setting
    with pytest.raises(StoreError, match="got one of other data"):
        replace(setting, data="another").save(tmp_path)
    with pytest.raises(InputError, match=r"expected a folder with setting\.json"):
        Setting.read(tmp_path / "empty")


def test_a_proxy_says_so() -> None:
    assert (
        make_setting(note="SYNTHETIC PROXY, no patients: 4 speakers").label == "PROXY: synthetic, no patients"
    )
    assert make_setting(note="").label == "clinic"


def found(speakers: list[str], labels: list[str], cells: dict[str, list[list[float]]]) -> dict[str, Any]:
    return {
        "clips": [f"clip-{place}-{name}" for place, name in enumerate(speakers)],
        "speakers": speakers,
        "labels": labels,
        "cells": {name: {"chance": rows, "snr_db": None} for name, rows in cells.items()},
    }


@pytest.fixture
def bench(tmp_path: Path) -> PathologyBench:
    """Two folds, two seeds. The first seed tells 3 of 4 speakers right, the second 2 of 4."""
    setting = make_setting(replace(MINI, folds=2), folds=2)
    first = {"clean": [[0.9, 1.0], [1.8, 9.0], [0.6, 1.0]]}
    jobs = {
        # a: 0.9 of one segment and 0.2 of nine: (0.9 + 1.8) / 10 = 0.27, although the mean of clips is 0.55.
        Job("cnn", 0, 0): found(["a", "a", "b"], ["control"] * 2 + ["pathological"], first),
        Job("cnn", 1, 0): found(["c", "d"], ["control", "pathological"], {"clean": [[0.7, 1.0], [0.8, 1.0]]}),
        Job("cnn", 0, 1): found(["a", "b"], ["control", "pathological"], {"clean": [[0.6, 1.0], [0.5, 1.0]]}),
        Job("cnn", 1, 1): found(["c", "d"], ["control", "pathological"], {"clean": [[0.4, 1.0], [0.9, 1.0]]}),
    }
    return PathologyBench(tmp_path, setting, jobs)


def test_soft_votes_and_seeds_by_hand(bench: PathologyBench) -> None:
    assert [round(vote.chance, 3) for vote in bench.votes("cnn", "clean", 0)] == [0.27, 0.6, 0.7, 0.8]
    one = bench.accuracy("cnn", "clean")
    # b of the second seed is a tie, which is not right.
    assert one is not None
    assert (one.mean, one.deviation, one.seeds, one.interval.n) == (0.625, 0.125, 2, 4)
    assert bench.accuracy("cnn", "segments linf 60") is None
    assert bench.accuracy("embedding", "clean") is None
    assert bench.chance == 0.5


def test_a_seed_that_is_half_done_does_not_count(bench: PathologyBench) -> None:
    del bench.jobs[Job("cnn", 1, 1)]
    one = bench.accuracy("cnn", "clean")
    assert one is not None
    assert (one.mean, one.seeds) == (0.75, 1)


def test_the_strongest_attack_is_the_one_that_leaves_least(bench: PathologyBench) -> None:
    rows = {"utterances linf 60": 0.9, "transfer l2 60 16 bits": 0.1, "segments linf 60": 0.0}
    cells = {name: [[share, 1.0]] * 2 for name, share in rows.items()}
    jobs = {Job("mad", fold, 0): found([f"x{fold}", f"y{fold}"], ["control"] * 2, cells) for fold in range(2)}
    quality = {"cnn-f0-s0": {"cells": {"utterances l2 60": {"learned": [0.2, 0.4]}}, "absent": {}}}
    attacked = strongest(replace(bench, jobs=jobs, quality=quality), "mad", 60)
    assert attacked is not None
    # Segments are no waveform. What is transferred is heard as it was made on the CNN.
    assert (attacked.cell, attacked.left.mean) == ("transfer l2 60 16 bits", 0.0)
    assert attacked.heard == pytest.approx({"learned": 0.3})


def test_certificates_by_hand() -> None:
    # All of 1,000 passes right: p >= 0.001^(1/1000) = 0.993116, Phi^-1 of which is 2.4631.
    lower = np.array([0.001 ** (1 / 1000)])
    one = {"a": Speaker(lower, np.ones(1), np.ones(1))}
    assert certified_share(one, 0.01, radius=0.0246) == 1.0
    assert certified_share(one, 0.01, radius=0.0247) == 0.0
    # A length of 1 over 0.02463 are 32.17 dB.
    assert (certified_share(one, 0.01, db=32.2), certified_share(one, 0.01, db=32.1)) == (1.0, 0.0)
    # Two clips, 0.9 and 0.3: the mean is 0.6. At half a sigma Phi(.7816) = .783 and Phi(-1.0244) = .153 stay.
    two = {"a": Speaker(np.array([0.9, 0.3]), np.ones(2), np.ones(2))}
    assert (certified_share(two, 1.0, radius=0.0), certified_share(two, 1.0, radius=0.5)) == (1.0, 0.0)
    # Of other weights: (3 x .783 + .153) / 4 = .625.
    heavy = {"a": Speaker(np.array([0.9, 0.3]), np.array([3.0, 1.0]), np.ones(2))}
    assert certified_share(heavy, 1.0, radius=0.5) == 1.0
    never = {"a": Speaker(np.zeros(1), np.ones(1), np.ones(1))}
    assert certified_share({**one, "b": never["a"]}, 0.01, radius=0.0) == 0.5


def test_share_above() -> None:
    # Bins at 0, 2, 4, 6 and 8 kHz.
    assert share_above([1.0, 1.0, 1.0, 1.0, 4.0], 4000.0) == pytest.approx(5 / 8)


def rate(right: int, n: int = 40) -> Accuracy:
    return Accuracy(right / n, 0.0, 1, clopper_pearson(right, n))


def option(clean: int, left: dict[int, tuple[int, float]], **others: Any) -> Option:
    """left: speakers still right and P(heard), by level."""
    attacked = [
        Attacked(db, f"utterances linf {db}", rate(right), {"learned": heard} if heard >= 0 else {})
        for db, (right, heard) in left.items()
    ]
    return Option("cnn", "this", rate(clean), attacked, 1, 0.5, **others)


def test_verdicts_follow_from_the_numbers() -> None:
    broken = option(32, {60: (4, 0.02), 40: (0, 0.9), 20: (0, 1.0)})
    assert broken.verdict() == (
        "Do not rely on it: an attack at 60 dB, which is not heard (P 0.02), leaves 10 % (clean: 80 %)."
    )
    heard = option(32, {60: (30, 0.02), 40: (8, 0.9), 20: (0, 1.0)}, certified={60: 0.55}, radius=0.1)
    assert heard.verdict() == (
        "Holds against what is not heard: 75 % at 60 dB (clean: 80 %); at 40 dB it breaks (20 %), and that "
        "is heard; 55 % of speakers are proven right at 60 dB, whatever the attack."
    )
    assert option(32, {60: (31, 0.0), 40: (30, 0.6), 20: (28, 1.0)}).verdict() == (
        "Holds: no attack tried leaves less than 70 % (clean: 80 %)."
    )
    assert option(20, {60: (20, 0.0)}).verdict() == (
        "Of no use here: 50 % on clean speech is no better than chance (50 %)."
    )
    assert "nobody measured whether it is heard" in option(32, {60: (0, -1.0)}).verdict()
    # 23 of 40 are within the interval of a coin.
    assert (
        option(23, {60: (22, 0.0)}).verdict().endswith("40 speakers do not settle even that it beats chance.")
    )
    assert recommend([broken, heard]) == (
        "Of these, most is kept under attacks that are not heard by: this (75 %, clean 80 %)."
    )
    assert recommend([broken]) == "None of the options that were attacked holds against what is not heard."


def test_below_chance_counts_only_where_clean_speech_was_above_it(bench: PathologyBench) -> None:
    for found in bench.jobs.values():
        found["cells"]["segments linf 60"] = {"chance": [[0.1, 1.0]] * len(found["clips"]), "snr_db": 60.0}
    rows = {row[0]: row[1:] for row in trends(bench).rows}
    assert rows["CNN, segments: below chance at 60 dB"][0] == "yes"
    for found in bench.jobs.values():
        found["cells"]["clean"]["chance"] = [[0.4, 1.0]] * len(found["clips"])
    told, numbers = {row[0]: row[1:] for row in trends(bench).rows}["CNN, segments: below chance at 60 dB"]
    assert told == "–"
    assert numbers.endswith("clean speech is no better than chance")


def test_reading_needs_jobs(tmp_path: Path) -> None:
    make_setting().save(tmp_path)
    with pytest.raises(InputError, match="expected jobs of the CNN"):
        read_jobs(tmp_path)
    with pytest.raises(InputError, match=r"expected a folder with setting\.json"):
        tabulate(STUDY, tmp_path / "nowhere")


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected no --attack"):
        run_study(STUDY, Choice(attack="pgd"), tmp_path)


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """Six speakers who hum, the pathological ones with a hiss; one clip is too short."""
    source = np.random.default_rng(0)
    rows = ["path,speaker,label"]
    time = np.arange(10_000) / 16_000
    for place in range(6):
        label = ("control", "pathological")[place % 2]
        hum = 0.3 * np.sin(2 * np.pi * (150 + 10 * place) * time)
        sound = hum + (0.05 if place % 2 else 0.001) * source.standard_normal(len(time))
        soundfile.write(tmp_path / f"{place}.wav", sound, 16_000, subtype="PCM_16")
        rows.append(f"{place}.wav,s{place},{label}")
    soundfile.write(tmp_path / "short.wav", np.zeros(1_600), 16_000)
    path = tmp_path / "manifest.csv"
    path.write_text("\n".join([*rows, "short.wav,s0,control"]) + "\n")
    return path


@pytest.mark.slow
def test_from_manifest_to_page(manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = replace(MINI, epochs=1, seeds=1, levels_db=(20, 60), passes=64, votes=2, average=1)
    monkeypatch.setattr("sottovoce.studies.pathology.study.find_plan", lambda name: tiny)
    monkeypatch.setattr(measures, "JUDGES", measures.JUDGES[2:3])
    choice = Choice(data=str(manifest))
    bench, result, page = run_study(STUDY, choice, tmp_path / "out")
    assert bench.unused == {"short": "expected 500 ms or more, one segment, got 100 ms"}
    titles = [sheet.title for sheet in result.sheets]
    assert any("(Table 1)" in title for title in titles)
    assert any("(Table 2)" in title for title in titles)
    assert [one.name for one in result.drawings] == [
        "accuracy",
        "quality",
        "spectra",
        "hardened",
        "certified",
    ]
    text = page.read_text()
    assert "76.6 ± 2.6" in text
    assert "stands in for wav2vec2" in text
    assert "PROXY" not in text
    kept = json.loads((page.parent / "results.json").read_text())
    assert len(kept["values"]["options"]) == 8
    # Whatever is asked again is there already, and the page comes from the files alone.
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "jobs").iterdir()}
    _, again, _ = run_study(STUDY, choice, tmp_path / "out")
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "jobs").iterdir()}
    _, read, _ = tabulate(STUDY, tmp_path / "out")
    assert read.sheets == again.sheets == result.sheets
