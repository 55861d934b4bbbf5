"""Study A from files of jobs that were written by hand, and once from beginning to end."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from sottovoce.core.batch import AudioBatch
from sottovoce.core.statistics import clopper_pearson
from sottovoce.data.folds import Split
from sottovoce.errors import InputError, StoreError
from sottovoce.studies.amiri2024 import detector_attacks as attacks
from sottovoce.studies.amiri2024 import heard_share as measures
from sottovoce.studies.amiri2024 import jobs
from sottovoce.studies.amiri2024.clinic_options import Option, StrongestAtSnr, strongest
from sottovoce.studies.amiri2024.detection import STUDY
from sottovoce.studies.amiri2024.detection_figures import drawings
from sottovoce.studies.amiri2024.detection_material import DetectionMaterial
from sottovoce.studies.amiri2024.detection_sheets import HARDENED, levels, recommend, trends
from sottovoce.studies.amiri2024.detector_attacks import read_examples
from sottovoce.studies.amiri2024.heard_share import measure_job
from sottovoce.studies.amiri2024.job_plan import FULL, MINI, Job, JobPlan, JobSetting
from sottovoce.studies.amiri2024.job_results import (
    CertifiedSpeaker,
    PathologySetup,
    SpeakerAccuracy,
    certified_share,
    read_jobs,
    share_above,
)
from sottovoce.studies.amiri2024.jobs import Workshop, run_job
from sottovoce.studies.run_study import run_study, tabulate
from sottovoce.studies.study import Choice
from sottovoce.targets.zoo.detector_networks import EmbeddingHead, SegmentCnn
from sottovoce.training.detector.detector_embeddings import Embeddings
from sottovoce.training.detector.detector_material import Utterances
from sottovoce.training.detector.train_detector import DetectorRecipe, Epoch, TrainedDetector
from sottovoce.training.sources import hold_clips


def make_setting(plan: JobPlan = MINI, **others: object) -> JobSetting:
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
    return JobSetting(**{**known, **others})  # type: ignore[arg-type]


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
    assert JobSetting.read(tmp_path) == setting
    with pytest.raises(StoreError, match="holds a study with other data"):
        replace(setting, data="another").save(tmp_path)
    with pytest.raises(InputError, match=r"has no setting\.json and jobs/"):
        JobSetting.read(tmp_path / "empty")


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
def bench(tmp_path: Path) -> PathologySetup:
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
    return PathologySetup(tmp_path, setting, jobs)


def test_soft_votes_and_seeds_by_hand(bench: PathologySetup) -> None:
    assert [round(vote.chance, 3) for vote in bench.votes("cnn", "clean", 0)] == [0.27, 0.6, 0.7, 0.8]
    one = bench.accuracy("cnn", "clean")
    # b of the second seed is a tie, which is not right.
    assert one is not None
    assert (one.mean, one.deviation, one.seeds, one.interval.n) == (0.625, 0.125, 2, 4)
    assert bench.accuracy("cnn", "segments linf 60") is None
    assert bench.accuracy("embedding", "clean") is None
    assert bench.chance == 0.5


def test_a_seed_that_is_half_done_does_not_count(bench: PathologySetup) -> None:
    del bench.jobs[Job("cnn", 1, 1)]
    one = bench.accuracy("cnn", "clean")
    assert one is not None
    assert (one.mean, one.seeds) == (0.75, 1)


def test_the_strongest_attacker_picks_for_each_speaker_and_may_be_quieter(bench: PathologySetup) -> None:
    left = {
        "utterances linf 60": [0.2, 0.9, 0.95, 0.95],
        "transfer l2 60 16 bits": [0.8, 0.4, 0.9, 0.9],
        # Found by itself, this is no better than what a tighter bound allowed, but for the third speaker.
        "utterances linf 40": [0.7, 0.8, 0.3, 0.9],
        "segments linf 60": [0.0, 0.0, 0.0, 0.0],
    }
    cells = {name: [[share, 1.0] for share in shares] for name, shares in left.items()}
    jobs = {Job("mad", 0, 0): found(["a", "b", "c", "d"], ["control"] * 4, cells)}
    quality = {
        "mad-f0-s0": {
            "cells": {"utterances linf 60": {"learned": [0.1]}, "utterances linf 40": {"learned": [0.8]}},
            "absent": {},
        },
        "cnn-f0-s0": {"cells": {"utterances l2 60": {"learned": [0.2, 0.4]}}, "absent": {}},
    }
    known = replace(bench, jobs=jobs, quality=quality)
    attacked = strongest(known, "mad", 60)
    assert attacked is not None
    # a falls to the first attack and b to the second; each alone leaves three. Segments are no waveform.
    assert (attacked.left.mean, attacked.left.interval.n) == (0.5, 4)
    assert attacked.cells == ("utterances linf 60", "transfer l2 60 16 bits")
    # The louder of the two, heard as it was made on the CNN: (0.2 + 0.4) / 2.
    assert attacked.heard == pytest.approx({"learned": 0.3})
    louder = strongest(known, "mad", 40)
    assert louder is not None
    # a and b stay broken, c falls now: only d is left.
    assert (louder.left.mean, louder.heard) == (0.25, pytest.approx({"learned": 0.8}))
    assert strongest(known, "mad", 20) is None
    # What nobody listened to is not said to be unheard.
    del quality["cnn-f0-s0"]
    unheard = strongest(known, "mad", 60)
    assert unheard is not None
    assert (unheard.heard, unheard.audible) == ({}, None)


def test_fig_4_has_the_seeds_of_its_table_and_clean_speech_of_both(bench: PathologySetup) -> None:
    people = {fold: bench.jobs[Job("cnn", fold, 1)] for fold in range(2)}
    for (fold, seed), shares in {
        (0, 0): (0.1, 0.1, 0.1),
        (1, 0): (0.1, 0.6),
        (0, 1): (0.1, 0.1),
        (1, 1): (0.1, 0.1),
    }.items():
        cells = bench.jobs[Job("cnn", fold, seed)]["cells"]
        cells["segments linf 60"] = {"chance": [[share, 1.0] for share in shares], "snr_db": 60.25 + fold}
    for fold, (clean, attacked) in enumerate([((0.9, 0.9), (0.9, 0.1)), ((0.9, 0.1), (0.9, 0.1))]):
        rows = {"clean": clean, "segments linf 60": attacked}
        cells = {name: [[share, 1.0] for share in shares] for name, shares in rows.items()}
        bench.jobs[Job("adversarial", fold, 0)] = found(
            people[fold]["speakers"], people[fold]["labels"], cells
        )
    # Of the CNN's two seeds CNN-A has the first: 3 of 4 right on clean speech, 1 of 4 under attack.
    sheet = levels(bench, HARDENED, "Fig. 4")
    assert sheet.columns == ("SNR", "CNN", "CNN-A", "least SNR, dB")
    assert [row for row in sheet.rows if "–" not in row[1]] == [
        ("clean", "75.0", "75.0", "–"),
        ("60 dB", "25.0", "50.0", "60.25"),
    ]
    (figure,) = (one.figure for one in drawings(bench) if one.name == "hardened")
    lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].get_lines()}
    assert lines == {
        "CNN": [25.0],
        "CNN-A": [50.0],
        "chance, 50 %": [50.0, 50.0],
        "CNN, clean": [75.0, 75.0],
        "paper: CNN, clean": [76.6, 76.6],
        "CNN-A, clean": [75.0, 75.0],
    }


def test_certificates_by_hand() -> None:
    # All of 1,000 passes right: p >= 0.001^(1/1000) = 0.993116, Phi^-1 of which is 2.4631.
    lower = np.array([0.001 ** (1 / 1000)])
    one = {"a": CertifiedSpeaker(lower, np.ones(1), np.ones(1))}
    assert certified_share(one, 0.01, radius=0.0246) == 1.0
    assert certified_share(one, 0.01, radius=0.0247) == 0.0
    # A length of 1 over 0.02463 are 32.17 dB.
    assert (certified_share(one, 0.01, db=32.2), certified_share(one, 0.01, db=32.1)) == (1.0, 0.0)
    # Two clips, 0.9 and 0.3: the mean is 0.6. At half a sigma Phi(.7816) = .783 and Phi(-1.0244) = .153 stay.
    two = {"a": CertifiedSpeaker(np.array([0.9, 0.3]), np.ones(2), np.ones(2))}
    assert (certified_share(two, 1.0, radius=0.0), certified_share(two, 1.0, radius=0.5)) == (1.0, 0.0)
    # Of other weights: (3 x .783 + .153) / 4 = .625.
    heavy = {"a": CertifiedSpeaker(np.array([0.9, 0.3]), np.array([3.0, 1.0]), np.ones(2))}
    assert certified_share(heavy, 1.0, radius=0.5) == 1.0
    never = {"a": CertifiedSpeaker(np.zeros(1), np.ones(1), np.ones(1))}
    assert certified_share({**one, "b": never["a"]}, 0.01, radius=0.0) == 0.5


def test_share_above() -> None:
    # Bins at 0, 2, 4, 6 and 8 kHz.
    assert share_above([1.0, 1.0, 1.0, 1.0, 4.0], 4000.0) == pytest.approx(5 / 8)


def rate(right: int, n: int = 40) -> SpeakerAccuracy:
    return SpeakerAccuracy(right / n, 0.0, 1, clopper_pearson(right, n))


def option(clean: int, left: dict[int, tuple[int, float]], **others: Any) -> Option:
    """left: speakers still right and P(heard), by level."""
    attacked = [
        StrongestAtSnr(db, (f"utterances linf {db}",), rate(right), {"learned": heard} if heard >= 0 else {})
        for db, (right, heard) in left.items()
    ]
    return Option("cnn", "this", rate(clean), attacked, 1, 0.5, **others)


def test_verdicts_follow_from_the_numbers() -> None:
    broken = option(32, {60: (4, 0.02), 40: (0, 0.9), 20: (0, 1.0)})
    assert broken.verdict() == (
        "Not robust: an attack at 60 dB, which is not heard (P 0.02), leaves 10 % (clean: 80 %)."
    )
    heard = option(32, {60: (30, 0.02), 40: (8, 0.9), 20: (0, 1.0)}, certified={60: 0.55}, radius=0.1)
    assert heard.verdict() == (
        "Robust against inaudible attacks: 75 % at 60 dB (clean: 80 %); at 40 dB it breaks (20 %), which is "
        "audible; 55 % of speakers are certified at 60 dB, whatever the attack."
    )
    assert option(32, {60: (31, 0.0), 40: (30, 0.6), 20: (28, 1.0)}).verdict() == (
        "Robust: no attack tried leaves less than 70 % (clean: 80 %)."
    )
    assert option(20, {60: (20, 0.0)}).verdict() == (
        "Not usable here: 50 % on clean speech is no better than chance (50 %)."
    )
    assert "audibility not measured" in option(32, {60: (0, -1.0)}).verdict()
    # 23 of 40 are within the interval of a coin.
    assert (
        option(23, {60: (22, 0.0)})
        .verdict()
        .endswith("40 speakers are too few to show that it beats chance.")
    )
    assert recommend([broken, heard]) == (
        "Most robust of these against inaudible attacks: this (75 %, clean 80 %)."
    )
    assert (
        recommend([broken]) == "None of the options that were attacked is robust against inaudible attacks."
    )


def test_below_chance_counts_only_where_clean_speech_was_above_it(bench: PathologySetup) -> None:
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
    with pytest.raises(InputError, match="has no jobs of the CNN"):
        read_jobs(tmp_path)
    with pytest.raises(InputError, match=r"has no setting\.json and jobs/"):
        tabulate(STUDY, tmp_path / "nowhere")


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not use --attack"):
        run_study(STUDY, Choice(attack="pgd"), tmp_path)


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """One fold: two speakers learn, two validate and two are tested. Each has two clips of half a second, of
    which the plan takes the first."""
    source = np.random.default_rng(0)
    ids = [f"{name}{take}" for name in ("c0-", "p0-", "c1-", "p1-", "c2-", "p2-") for take in range(2)]
    sounds = [(3000 * source.standard_normal(8_000)).astype(np.int16) for _ in ids]
    labels = ["control" if name.startswith("c") else "pathological" for name in ids]
    utterances = Utterances(hold_clips(sounds, labels, ids, 16_000), tuple(name[:2] for name in ids))
    plan = replace(MINI, folds=1, seeds=1, epochs=1, levels_db=(60,), norms=("linf", "l2"), train_clips=1)
    split = Split(*(frozenset({f"c{number}", f"p{number}"}) for number in range(3)))
    setting = make_setting(plan, folds=1)
    setting.save(tmp_path)
    return Workshop(setting, DetectionMaterial(utterances, (split,), False, {}, plan), tmp_path, "cpu")


class Crest:
    """An ear that tells the balls apart: in L-infinity all samples move as far as they may, in L2 a few have
    most of it."""

    id, title, kind = "learned", "P(heard)", "ear"

    def measure(self, clean: AudioBatch, heard: AudioBatch) -> SimpleNamespace:
        added = (heard.waveforms - clean.waveforms).abs()
        crest = added.amax(dim=1) / added.square().mean(dim=1).sqrt()
        return SimpleNamespace(values=None, heard=np.where(crest < 2.0, 0.2, 0.4), reasons={})


def untrained(module: Any) -> TrainedDetector[Any]:
    return TrainedDetector(module.requires_grad_(False).eval(), (Epoch(0.7, 0.7, 0.5, 0.1, 0.0),))


def test_each_attack_is_heard_as_itself(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "JUDGES", (Crest(),))
    monkeypatch.setattr(jobs, "OPTION_LEVELS_DB", (60,))
    monkeypatch.setattr(attacks, "STEPS", 2)
    monkeypatch.setattr(jobs, "train_detector", lambda *parts, **options: untrained(SegmentCnn()))
    path = run_job(shop, Job("cnn", 0, 0))
    assert read_examples(path.with_suffix(".npz")).keys() == {"utterances linf 60", "utterances l2 60"}
    measure_job(path.with_suffix(".npz"))
    bench = read_jobs(shop.folder)
    # As if the one ball did most, then as if the other did.
    for norm, heard in (("linf", 0.2), ("l2", 0.4)):
        for name, one in bench.jobs[Job("cnn", 0, 0)]["cells"].items():
            one["chance"] = [[0.1 if name == f"utterances {norm} 60" else 0.9, 1.0]] * len(one["chance"])
        attacked = strongest(bench, "cnn", 60)
        assert attacked is not None
        assert (attacked.cells, attacked.heard) == ((f"utterances {norm} 60",), {"learned": heard})


def test_the_head_learns_from_the_clips_of_the_plan(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def train(*parts: Embeddings, recipe: DetectorRecipe, **options: Any) -> TrainedDetector[EmbeddingHead]:
        seen.append(([part.ids for part in parts], recipe.epochs))
        return untrained(EmbeddingHead(parts[0].vectors.shape[1]))

    monkeypatch.setattr(jobs, "train_embeddings", train)
    shop.train_head(Job("embedding", 0, 0))
    assert seen == [([("c0-0", "p0-0"), ("c1-0", "p1-0")], 100)]


def test_the_page_states_the_epochs_of_the_head(bench: PathologySetup) -> None:
    assert (
        "Their head learns from the same clips as the CNN, for at most 100 epochs whatever the scale."
        in " ".join(bench.scope(STUDY))
    )


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
    monkeypatch.setattr("sottovoce.studies.amiri2024.detection.find_plan", lambda name: tiny)
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
    assert "in place of wav2vec2" in text
    assert "PROXY" not in text
    kept = json.loads((page.parent / "results.json").read_text())
    assert len(kept["values"]["options"]) == 8
    # Whatever is asked again is there already, and the page comes from the files alone.
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "jobs").iterdir()}
    _, again, _ = run_study(STUDY, choice, tmp_path / "out")
    assert times == {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "jobs").iterdir()}
    _, read, _ = tabulate(STUDY, tmp_path / "out")
    assert read.sheets == again.sheets == result.sheets
