"""Certifying a corpus: records, resume after a kill, bad clips, and the curve worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import yaml

from sottovoce.auditing.certificates import certify_folder as store
from sottovoce.auditing.certificates import certify_run as module
from sottovoce.auditing.certificates.certify_folder import CertifiedClip, CertifyFolder, read_curve
from sottovoce.auditing.certificates.certify_run import CertifyPlan, run_certify
from sottovoce.auditing.run.folder_lock import hold
from sottovoce.errors import InputError, MissingCapability, StoreError

# Clips are constant at 1000, 2000, 3000 of 32768 in 400, 800, 640 samples: 0.61, 1.7 and 2.3 away from zero.
# That is far beyond what 128 passes at sigma 0.1 can certify: 0.001^(1/128) = 0.947464 gives 1.620742 sigma.
BEST = 0.1620742


def plan_for(model: str, **changes: object) -> CertifyPlan:
    settings = {
        "model": model,
        "data": "clips",
        "defense": "gaussian(sigma=0.1)",
        "passes": 128,
        "select": 20,
    }
    return CertifyPlan(**{**settings, **changes})  # type: ignore[arg-type]


def test_a_run_records_every_clip(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    folder = run_certify(plan_for(mean_model), tmp_path / "run", device="cpu")
    records = {record.clip: record for record in folder.records()}
    assert sorted(records) == ["down/0", "down/1", "down/2", "up/0", "up/1", "up/2"]
    clip = records["up/1"]
    assert (clip.status, clip.label, clip.elected, clip.right) == ("ok", "up", "up", True)
    assert (clip.successes, clip.passes, clip.stop) == (128, 128, "end")
    assert clip.radius == pytest.approx(BEST, abs=1e-6)
    length = 2000 / 32768 * math.sqrt(800)
    assert clip.length_l2 == pytest.approx(length)
    assert clip.snr_db == pytest.approx(20 * math.log10(length / BEST), abs=1e-4)
    assert records["down/0"].elected == "up"
    assert records["down/0"].right is False
    kept = yaml.safe_load((tmp_path / "run" / "certify.yaml").read_text())
    assert kept["passes"] == 128
    assert kept["defense"] == "gaussian(sigma=0.1)"


def test_a_killed_run_goes_on_and_ends_the_same(
    mean_model: str, mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_for(mean_model, passes=640, defense="gaussian(sigma=1.0)")
    whole = list(run_certify(plan, tmp_path / "whole", device="cpu").records())
    monkeypatch.setattr(module, "SAVE_SECONDS", 0.0)
    spent = 0

    def kill(done: int, note: str) -> None:
        nonlocal spent
        spent += done
        if spent >= 640 * 2 + 320:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_certify(plan, tmp_path / "cut", device="cpu", advance=kill)
    cut = CertifyFolder(tmp_path / "cut")
    assert [record.clip for record in cut.records()] == [record.clip for record in whole[:2]]
    known = cut.progress()
    assert known["clip"] == whole[2].clip
    assert known["passes"] == 320
    told: list[int] = []
    run_certify(plan, tmp_path / "cut", device="cpu", advance=lambda done, note: told.append(done))
    assert list(cut.records()) == whole
    assert told[0] == 320  # of the clip under way, not counted again
    assert sum(told) == 640 * 4
    assert cut.progress() == {}


@pytest.mark.parametrize(
    "left",
    [
        "",
        '{"clip": "down/0", "elec',
        "[1]",
        '{"clip": "down/0", "elected": "up", "passes": 64, "lower": 0.0}',
        '{"clip": "down/0", "elected": "up", "successes": null, "passes": 64, "lower": 0.0}',
    ],
)
def test_a_damaged_note_of_progress_counts_as_none(
    left: str, mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = plan_for(mean_model)
    CertifyFolder(tmp_path / "run").prepare(plan.to_yaml(), {})
    (tmp_path / "run" / "progress.json").write_text(left)
    folder = run_certify(plan, tmp_path / "run", device="cpu")
    records = list(folder.records())
    assert len(records) == 6
    assert {(record.status, record.successes, record.passes) for record in records} == {("ok", 128, 128)}


def test_progress_is_on_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(store.os, "fsync", lambda file: done.append("sync"))
    replace = store.os.replace
    monkeypatch.setattr(store.os, "replace", lambda *paths: (done.append("replace"), replace(*paths)))
    known = {"clip": "a", "elected": "up", "successes": 60, "passes": 64, "lower": 0.5}
    CertifyFolder(tmp_path).save_progress(known)
    assert done == ["sync", "replace"]
    assert CertifyFolder(tmp_path).progress() == known


def test_what_failed_is_kept_or_tried_again(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan, file = plan_for(mean_model), mean_clips / "up" / "1.wav"
    good = file.read_bytes()
    file.write_bytes(b"no audio")
    folder = run_certify(plan, tmp_path / "run", device="cpu")
    failed = ["up/1"]
    assert [record.clip for record in folder.records() if record.status == "failed"] == failed
    file.write_bytes(good)
    run_certify(plan, tmp_path / "run", device="cpu")
    assert [record.clip for record in folder.records() if record.status == "failed"] == failed
    begun: list[int] = []
    run_certify(plan, tmp_path / "run", device="cpu", retry_failed=True, begin=begun.append)
    assert begun == [128]
    records = {record.clip: record for record in folder.records()}
    assert len(records) == len(list(folder.records())) == 6
    assert (records["up/1"].status, records["up/1"].successes) == ("ok", 128)
    # The old line is still there, and nobody counts it.
    assert len(folder.records_path.read_text().splitlines()) == 7


def test_two_runs_in_one_folder_are_refused(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    with hold(tmp_path / "run"), pytest.raises(StoreError, match="is in use by another run"):
        run_certify(plan_for(mean_model), tmp_path / "run", device="cpu")
    folder = run_certify(plan_for(mean_model), tmp_path / "run", device="cpu")
    assert len(list(folder.records())) == 6
    assert not (tmp_path / "run" / ".lock").exists()


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_too_little_memory_ends_the_run_and_records_nothing(
    error: Exception, mean_model: str, mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crowded(*args: object, **settings: object) -> None:
        raise error

    monkeypatch.setattr(module, "certify", crowded)
    with pytest.raises(InputError, match=r"out of memory on a batch .*smaller --batch"):
        run_certify(plan_for(mean_model), tmp_path / "run", device="cpu")
    assert list(CertifyFolder(tmp_path / "run").records()) == []


def test_a_torn_line_is_certified_again(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_for(mean_model)
    folder = run_certify(plan, tmp_path / "run", device="cpu")
    whole = folder.records_path.read_bytes()
    folder.records_path.write_bytes(whole[:-20])
    run_certify(plan, tmp_path / "run", device="cpu")
    assert folder.records_path.read_bytes() == whole


def test_a_bad_clip_is_recorded_as_failed(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    (mean_clips / "up" / "broken.wav").write_bytes(b"no audio")
    told: list[int] = []
    begun: list[int] = []
    folder = run_certify(
        plan_for(mean_model),
        tmp_path / "run",
        device="cpu",
        begin=begun.append,
        advance=lambda done, note: told.append(done),
    )
    records = {record.clip: record for record in folder.records()}
    assert len(records) == 7
    assert records["up/broken"].status == "failed"
    assert "libsndfile" in records["up/broken"].reason
    assert records["up/broken"].radius is None
    assert begun == [7 * 128]
    assert sum(told) == 7 * 128


@pytest.mark.parametrize(
    ("trap", "reason"),
    [
        (
            "return torch.full((len(waveforms), 2), torch.nan)",
            "clip 'up/1': expected scores with a finite best",
        ),
        ("raise SystemExit(3)", "got SystemExit: 3, which ends the program"),
    ],
    ids=["nan", "exit"],
)
def test_scores_without_a_best_and_exits_are_the_failure_of_their_clip(
    mean_model: str, mean_clips: Path, tmp_path: Path, trap: str, reason: str
) -> None:
    source = (tmp_path / "mean_model.py").read_text()
    added = f"        if waveforms.shape[1] == 800:\n            {trap}\n        mean = waveforms"
    (tmp_path / "mean_model.py").write_text(source.replace("        mean = waveforms", added, 1))
    folder = run_certify(plan_for(mean_model), tmp_path / "run", device="cpu")
    records = {record.clip: record for record in folder.records()}
    assert {name for name, record in records.items() if record.status == "failed"} == {"up/1", "down/1"}
    assert reason in records["up/1"].reason
    assert records["up/0"].radius == pytest.approx(BEST, abs=1e-6)


def test_other_settings_and_other_folders_are_refused(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    run_certify(plan_for(mean_model, limit=1), tmp_path / "run", device="cpu")
    with pytest.raises(InputError, match="holds a run of another plan; choose another folder"):
        run_certify(plan_for(mean_model, limit=1, alpha=0.01), tmp_path / "run", device="cpu")
    with pytest.raises(InputError, match="is not the folder of a run and is not empty"):
        run_certify(plan_for(mean_model, limit=1), tmp_path / "clips", device="cpu")


def test_the_batch_is_no_part_of_the_plan(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_for(mean_model, defense="gaussian(sigma=1.0)")
    one = run_certify(plan, tmp_path / "one", device="cpu", batch=16)
    two = run_certify(plan, tmp_path / "two", device="cpu", batch=128)
    assert list(one.records()) == list(two.records())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"defense": "none"}, "begins with gaussian"),
        ({"defense": "quantise(bits=8)"}, "begins with gaussian"),
        ({"defense": "gaussian(snr_db=20)"}, "follows the clip"),
        ({"defense": "gaussian(sigma=0)"}, "sigma: expected a number above 0"),
        ({"alpha": 2.0}, "alpha: expected a number between"),
        ({"passes": 0}, "passes: expected 1 or more"),
        ({"radius": 10.0}, "128 passes at sigma 0.1 can certify at most"),
        ({"defense": "gaussian+majority(passes=3)"}, "vote of 20 passes.*or select from 3"),
        ({"defense": "gaussian+one"}, "one takes a single pass, got 20"),
    ],
)
def test_bad_plans_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_for("keyword", **wrong)


def test_a_plan_that_does_not_suit_the_model_stops_before_any_work(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="expected none for a classifier"):
        run_certify(plan_for(mean_model, wer=0.5), tmp_path / "run", device="cpu")
    with pytest.raises(MissingCapability, match="majority"):
        run_certify(plan_for(mean_model, defense="gaussian+rover"), tmp_path / "run", device="cpu")
    with pytest.raises(InputError, match="draws random numbers of its own"):
        run_certify(plan_for(mean_model, defense="gaussian+gaussian"), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_embedded_recogniser_is_certified(tmp_path: Path) -> None:
    plan = CertifyPlan(
        model="recogniser", limit=1, passes=64, select=8, defense="gaussian(sigma=0.001)+quantise(bits=16)"
    )
    record = next(run_certify(plan, tmp_path / "run", device="cpu").records())
    assert record.status == "ok"
    assert record.elected == record.label
    assert (record.errors, record.words) == (0, len(record.label.split()))
    assert record.right is True
    assert record.radius is not None
    # At best 0.001^(1/64) = 0.897687: 1.268484 sigma.
    assert record.radius <= 0.001268485
    assert yaml.safe_load((tmp_path / "run" / "certify.yaml").read_text())["wer"] == 0.25


def made(clip: str, radius: float | None, right: bool, *, errors: int | None = None) -> CertifiedClip:
    snr = None if radius is None else 20 * math.log10(1.0 / radius)
    words = None if errors is None else 4
    return CertifiedClip(
        clip=clip, status="ok", radius=radius, snr_db=snr, right=right, passes=10, errors=errors, words=words
    )


def test_the_curve_by_hand() -> None:
    records = [
        made("a", 0.1, True),  # 20 dB
        made("b", 0.01, True),  # 40 dB
        made("c", 0.1, False),
        made("d", None, True),
        CertifiedClip(clip="e", status="failed", reason="broken"),
    ]
    curve = read_curve(records, sigma=0.05, radii=[0.0, 0.01, 0.05, 0.2], snrs=[10.0, 20.0, 39.0, 41.0])
    assert curve.clips == 4
    assert [record.clip for record in curve.failed] == ["e"]
    assert [point.certified.value for point in curve.radii] == [0.75, 0.75, 0.5, 0.0]
    assert [point.right.value for point in curve.radii] == [0.5, 0.5, 0.25, 0.0]
    assert [point.certified.value for point in curve.snrs] == [0.0, 0.5, 0.5, 0.75]
    assert curve.abstained.value == 0.25
    assert curve.elected.value == 0.75
    # Clopper-Pearson for 2 of 4, from a table: 0.0676 to 0.9324.
    assert curve.radii[2].certified.low == pytest.approx(0.0676, abs=1e-4)
    assert curve.radii[2].certified.high == pytest.approx(0.9324, abs=1e-4)
    assert curve.passes == 40
    assert json.loads(json.dumps(curve.to_json(), allow_nan=False))["radii"][0]["certified"]["n"] == 4


def test_levels_are_round_and_span_what_was_found() -> None:
    curve = read_curve([made("a", 0.11, True), made("b", 0.01, True)], sigma=0.04)
    assert [point.level for point in curve.radii] == pytest.approx([0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12])
    assert [point.level for point in curve.snrs] == [15.0, 20.0, 25.0, 30.0, 35.0, 40.0]
    assert curve.radii[-1].certified.value == 0.0
    assert curve.snrs[-1].certified.value == 1.0


def test_transcripts_are_scored_by_words() -> None:
    curve = read_curve([made("a", 0.1, True, errors=0), made("b", None, False, errors=2)], sigma=0.05)
    assert curve.elected.value == 0.25  # 2 errors in 8 words


def test_nothing_certified_is_no_error() -> None:
    curve = read_curve([made("a", None, False)], sigma=0.05)
    assert [point.level for point in curve.radii] == [0.0]
    assert curve.radii[0].certified.value == 0.0
    assert curve.snrs == ()
    assert read_curve([], sigma=0.05).clips == 0
