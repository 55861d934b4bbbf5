"""Whole runs on the model of `conftest`, whose breaking point is 0 dB by hand."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce import registry
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.results.summary import by_group, summarise
from sottovoce.auditing.run.driver import LOADING, run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import EVERY, Record
from sottovoce.errors import InputError, PartExit, StoreError

WriteClip = Callable[..., None]


def mean_plan(model: str, clips: Path, **settings: object) -> Plan:
    base = {"model": model, "data": str(clips), "attacks": ["pgd"], "budgets": ["snr(db=3)", "snr(db=-3)"]}
    return make_plan(base | settings)


def rows(folder: RunFolder) -> dict[tuple[str, str], Record]:
    return {record.key: record for record in folder.records()}


def test_success_begins_where_it_must(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = mean_plan(mean_model, mean_clips)
    summary = summarise(plan, run_audit(plan, tmp_path / "run").records())
    quiet, loud = summary.cells
    assert (quiet.clips, loud.clips) == (6, 6)
    # One clip of the six carries the wrong label: five were heard right, and success counts those.
    assert quiet.estimates["clean-accuracy"].value == pytest.approx(5 / 6)
    assert (quiet.estimates["success"].value, quiet.estimates["success"].n) == (0.0, 5)
    assert (loud.estimates["success"].value, loud.estimates["success"].n) == (1.0, 5)
    # Clopper-Pearson for 5 of 5: the lower bound is 0.025^(1/5).
    assert loud.estimates["success"].low == pytest.approx(0.025 ** (1 / 5))
    assert loud.estimates["fooling-ratio"].value == 1.0
    assert loud.estimates["accuracy"].value == pytest.approx(1 / 6)
    assert loud.estimates["snr"].value == pytest.approx(-3.0, abs=0.05)


def test_saved_examples_are_the_ones_that_were_judged(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    folder = run_audit(mean_plan(mean_model, mean_clips), tmp_path / "run")
    for record in folder.records():
        clean, _ = soundfile.read(folder.path / record.audio["clean"], dtype="int16")
        adversarial, rate = soundfile.read(folder.path / record.audio["adversarial"], dtype="int16")
        assert rate == 8000
        assert record.adversarial_text == ("up" if adversarial.mean() > 0 else "down")
        delta = adversarial.astype(float) - clean
        measured = 10 * math.log10((clean.astype(float) ** 2).sum() / (delta**2).sum())
        asked = {"pgd_evade_snr-db-3": 3.0, "pgd_evade_snr-db--3": -3.0}[record.cell]
        assert measured >= asked - 1e-9
        assert record.parts["snr"][0] == pytest.approx(measured, abs=1e-6)


def test_a_second_run_goes_on_and_counts_no_clip_twice(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = mean_plan(mean_model, mean_clips)
    folder = run_audit(plan, tmp_path / "run")
    whole = rows(folder)
    lines = folder.records_path.read_bytes().splitlines(keepends=True)
    # A kill in the middle of a line: five records and a torn sixth.
    folder.records_path.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    again = list(run_audit(plan, tmp_path / "run").records())
    assert len(again) == len(whole) == 12
    for record in again:
        twin = whole[record.key]
        assert record.adversarial_text == twin.adversarial_text
        assert record.parts["snr"][0] == pytest.approx(twin.parts["snr"][0], abs=1e-3)


def test_batches_do_not_matter(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    outcomes = []
    for size in (1, 4):
        plan = mean_plan(mean_model, mean_clips, batch=size, attacks=["noise", "pgd(random_start=true)"])
        found = rows(run_audit(plan, tmp_path / f"run{size}"))
        outcomes.append({key: (item.adversarial_text, item.parts["snr"][0]) for key, item in found.items()})
    assert outcomes[0].keys() == outcomes[1].keys()
    for key, (text, snr) in outcomes[0].items():
        assert outcomes[1][key] == (text, pytest.approx(snr, abs=1e-4))


def test_another_plan_is_refused(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    run_audit(mean_plan(mean_model, mean_clips), tmp_path / "run")
    with pytest.raises(InputError, match="another plan"):
        run_audit(mean_plan(mean_model, mean_clips, seed=1), tmp_path / "run")


def test_a_folder_with_other_things_is_refused(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not empty"):
        run_audit(mean_plan(mean_model, mean_clips), tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"


def test_an_output_that_cannot_be_written_is_refused(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(InputError, match="cannot write to"):
        run_audit(mean_plan(mean_model, mean_clips), tmp_path / "file" / "run")


def test_bad_clips_are_recorded_and_the_run_goes_on(
    mean_model: str, mean_clips: Path, tmp_path: Path, write_clip: WriteClip
) -> None:
    (mean_clips / "up" / "noise.wav").write_bytes(b"this is no audio")
    write_clip(mean_clips / "up" / "empty.wav", np.zeros(0))
    write_clip(mean_clips / "up" / "short.wav", np.full(24, 1000))  # 3 ms
    soundfile.write(mean_clips / "up" / "nan.wav", np.full(400, np.nan), 8000, subtype="FLOAT")
    plan = mean_plan(mean_model, mean_clips)
    folder = run_audit(plan, tmp_path / "run")
    failed = {record.clip: record for record in folder.records() if record.status == "failed"}
    assert set(failed) == {"up/noise", "up/empty", "up/short", "up/nan"}
    assert all(record.cell == LOADING and not record.parts for record in failed.values())
    assert "libsndfile" in failed["up/noise"].reason
    assert "zero length" in failed["up/empty"].reason
    assert "at least 160 samples" in failed["up/short"].reason
    assert "NaN" in failed["up/nan"].reason
    summary = summarise(plan, folder.records())
    assert len(summary.failures) == 4
    assert [cell.clips for cell in summary.cells] == [6, 6]


def test_resampling_is_recorded(mean_model: str, tmp_path: Path, write_clip: WriteClip) -> None:
    write_clip(tmp_path / "clips" / "up" / "a.wav", np.full((1600, 2), 2000), rate=16000)
    folder = run_audit(mean_plan(mean_model, tmp_path / "clips"), tmp_path / "run")
    record = next(folder.records())
    assert "resampled from 16000 Hz" in record.loaded
    assert "mixed down from 2 channels" in record.loaded
    assert record.seconds == pytest.approx(0.1)


def test_forcing_what_is_said_already_is_skipped(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = mean_plan(mean_model, mean_clips, goals=["force(text=up)"], budgets=["snr(db=-6)"])
    summary = summarise(plan, run_audit(plan, tmp_path / "run").records())
    (cell,) = summary.cells
    assert (cell.clips, cell.skipped) == (3, 3)
    # Of the three clips labelled "down" one was heard "up" before: it is not counted.
    assert (cell.estimates["success"].value, cell.estimates["success"].n) == (1.0, 2)


def test_universal_attacks_are_judged_on_clips_they_have_not_seen(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = mean_plan(mean_model, mean_clips, attacks=["uap"], budgets=["l2(eps=0.5)"])
    folder = run_audit(plan, tmp_path / "run")
    assert sorted(record.clip for record in folder.records()) == ["down/1", "up/1"]
    assert folder.perturbation_path("uap_evade_l2-eps-0.5").exists()
    kept = folder.perturbation_path("uap_evade_l2-eps-0.5").stat().st_mtime_ns
    folder.records_path.unlink()
    run_audit(plan, tmp_path / "run")
    assert folder.perturbation_path("uap_evade_l2-eps-0.5").stat().st_mtime_ns == kept


def test_a_full_disk_loses_nothing(
    mean_model: str, mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = mean_plan(mean_model, mean_clips, batch=2, audio="none")
    run_audit(plan, tmp_path / "whole")
    written = 0

    def full_after_three(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written > 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("sottovoce.core.record.os.fsync", full_after_three)
    with pytest.raises(StoreError, match=r"No space left.*safe"):
        run_audit(plan, tmp_path / "run")
    kept = RunFolder(tmp_path / "run").records_path.read_bytes()
    assert kept.endswith(b"\n")
    assert all(json.loads(line) for line in kept.splitlines())
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    again = run_audit(plan, tmp_path / "run")
    whole = RunFolder(tmp_path / "whole").records_path.read_bytes()
    assert sorted(again.records_path.read_bytes().splitlines()) == sorted(whole.splitlines())


def test_a_clip_that_breaks_the_model_is_the_only_one_that_fails(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    source = (tmp_path / "mean_model.py").read_text()
    trap = "        if waveforms.shape[1] == 800:\n            raise RuntimeError('no clip of 800')\n"
    (tmp_path / "mean_model.py").write_text(
        source.replace("        mean = waveforms", trap + "        mean = waveforms", 1)
    )
    folder = run_audit(mean_plan(mean_model, mean_clips, budgets=["snr(db=-3)"]), tmp_path / "run")
    status = {record.clip: record.status for record in folder.records()}
    assert status == {
        "down/0": "ok", "down/1": "failed", "down/2": "ok", "up/0": "ok", "up/1": "failed", "up/2": "ok",
    }  # fmt: skip


# What a model may do to some clips, and the reason that their records give.
NO_BEST = "clip '{clip}': expected scores with a finite best one, got "
TRAPS = {
    "nan": ("mean = mean * float('nan')", NO_BEST + "NaN, "),
    "infinity": ("mean = mean.abs() * float('inf')", NO_BEST + "infinity, "),
    "exit": ("raise SystemExit(3)", "expected an answer or an error from the model, attack or metric, got "
             "SystemExit: 3, which ends the program; "),
    "panic": ("raise BaseException('index out of range')", "expected an answer or an error from the model, "
              "attack or metric, got BaseException: index out of range, "),
}  # fmt: skip


def set_trap(folder: Path, trap: str, samples: int = 800) -> None:
    """The model of `conftest`, broken for clips of one length."""
    source = (folder / "mean_model.py").read_text()
    line = "        mean = waveforms.mean(dim=1, keepdim=True)\n"
    assert line in source
    added = f"        if waveforms.shape[1] == {samples}:\n            {TRAPS[trap][0]}\n"
    (folder / "mean_model.py").write_text(source.replace(line, line + added))


@pytest.mark.parametrize("trap", TRAPS)
def test_scores_without_a_best_and_exits_are_the_failure_of_their_clip(
    mean_model: str, mean_clips: Path, tmp_path: Path, trap: str
) -> None:
    plan = mean_plan(mean_model, mean_clips, budgets=["snr(db=-3)"], probe=2)
    set_trap(tmp_path, trap)
    folder = run_audit(plan, tmp_path / "run")
    found = {record.clip: record for record in folder.records()}
    assert {clip for clip, record in found.items() if record.status == "failed"} == {"up/1", "down/1"}
    for clip in ("up/1", "down/1"):
        assert found[clip].reason.startswith(TRAPS[trap][1].format(clip=clip))
    # The others are what they are without them: fooled at -3 dB, but for the one that was wrong before.
    assert found["up/0"].achieved and found["down/2"].achieved
    assert len(list(folder.probes())) > 0


def test_a_model_that_exits_while_it_is_opened_is_a_clear_error(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    (tmp_path / "mean_model.py").write_text("raise SystemExit('usage: train.py [options]')")
    plan = mean_plan(mean_model, mean_clips, budgets=["snr(db=-3)"])
    with pytest.raises(
        PartExit, match=r"got SystemExit: usage: train\.py \[options\], which ends the program"
    ):
        run_audit(plan, tmp_path / "run")
    folder = run_audit(plan, tmp_path / "kept", keep_going=True)
    (record,) = folder.records()
    assert (record.status, record.clip) == ("failed", EVERY) and "usage: train.py" in record.reason


def test_a_universal_attack_whose_fit_exits_is_a_failed_cell(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = mean_plan(mean_model, mean_clips, attacks=["uap", "noise"], budgets=["l2(eps=2)"])
    # The fit takes the first and the third clip of each class, which has 400 samples.
    set_trap(tmp_path, "exit", samples=400)
    folder = run_audit(plan, tmp_path / "run", keep_going=True)
    (whole,) = [record for record in folder.records() if record.clip == EVERY]
    assert whole.cell.startswith("uap") and "got SystemExit: 3" in whole.reason
    assert any(record.status == "ok" for record in folder.records())


def test_ctrl_c_stops_a_run(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    source = (tmp_path / "mean_model.py").read_text()
    (tmp_path / "mean_model.py").write_text(
        source.replace(
            "        mean = waveforms", "        raise KeyboardInterrupt\n        mean = waveforms", 1
        )
    )
    with pytest.raises(KeyboardInterrupt):
        run_audit(mean_plan(mean_model, mean_clips), tmp_path / "run")


WRITING_METRIC = """
import torch

from sottovoce.core.metric import Metric


class Writing(Metric):
    name, title = "writing", "writing"

    def measure(self, trial):
        trial.clean.waveforms.mul_(0.01)
        trial.adversarial.waveforms.zero_()
        return torch.ones(len(trial.clean), 2, dtype=torch.float64)
"""


def test_what_a_metric_writes_reaches_no_other_figure_and_no_file(
    mean_model: str, mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "writing_metric.py").write_text(WRITING_METRIC)
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.names("metric")  # plugins first, so that the copy has them
    monkeypatch.setattr(registry, "_PARTS", copy.deepcopy(registry._PARTS))
    registry._PARTS["metric"] |= {"writing": "writing_metric:Writing"}
    honest, other = (
        run_audit(
            mean_plan(mean_model, mean_clips, budgets=["snr(db=-3)"], metrics=metrics), tmp_path / metrics[0]
        )
        for metrics in (["snr", "success"], ["writing", "snr", "success"])
    )
    expected = {record.clip: record for record in honest.records()}
    for record in other.records():
        assert record.parts["snr"] == expected[record.clip].parts["snr"]
        assert record.facts == expected[record.clip].facts
        files = [soundfile.read(run.path / record.audio["adversarial"])[0] for run in (honest, other)]
        assert np.array_equal(*files) and files[0].any()


def test_classes_add_up_apart(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = mean_plan(mean_model, mean_clips, budgets=["snr(db=-3)"])
    found = by_group(
        run_audit(plan, tmp_path / "run").records(), "clean-accuracy", lambda record: record.label
    )
    assert {name: (item.value, item.n) for name, item in found.items()} == {
        "up": (1.0, 3),
        "down": (pytest.approx(2 / 3), 3),
    }


@pytest.mark.parametrize("name", ["../../escape", "/etc/escape", "a b", "ä/<b>"])
def test_odd_ids_stay_in_the_folder(
    mean_model: str, tmp_path: Path, write_clip: WriteClip, name: str
) -> None:
    write_clip(tmp_path / "a.wav", np.full(400, 1000))
    (tmp_path / "list.csv").write_text(f'id,path,label\n"{name}",a.wav,up\n')
    folder = run_audit(mean_plan(mean_model, tmp_path / "list.csv"), tmp_path / "runs" / "deep" / "run")
    for record in folder.records():
        # A path from the top on would be one of this machine.
        assert record.clip == {"/etc/escape": "escape"}.get(name, name)
        for file in record.audio.values():
            path = (folder.path / file).resolve()
            assert path.is_relative_to(folder.path.resolve() / "audio")
            assert path.exists()
