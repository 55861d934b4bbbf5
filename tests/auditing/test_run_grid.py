from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sottovoce.auditing.plan.plan_file import Plan, read_plan
from sottovoce.auditing.plan.plan_grid import Grid, make_grid
from sottovoce.auditing.run import run_grid as campaign
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.folder_lock import hold
from sottovoce.auditing.run.run_grid import is_grid, run_folders, run_grid
from sottovoce.auditing.run.stop_signal import ASKED
from sottovoce.core.record import EVERY
from sottovoce.errors import InputError, SottovoceError, Stopped

SHARED = {
    "data": "clips", "attacks": ["noise", "fgsm"], "budgets": ["snr(db=-3)"], "probe": 0,
    "metrics": ["success", "snr"], "audio": "none",
}  # fmt: skip


def grid_of(*targets: object, **settings: object) -> Grid:
    return make_grid({**SHARED, "targets": list(targets), **settings})


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]


def test_every_run_has_a_folder_of_its_own(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    grid = grid_of(mean_model, seeds=[0, 1])
    seen: list[str] = []
    folders = run_grid(
        grid,
        tmp_path / "grid",
        started=lambda name, plan: seen.append(f"start {name}"),
        finished=lambda name, folder: seen.append(f"end {name}"),
    )
    names = ["python-mean-model-make_seed-0", "python-mean-model-make_seed-1"]
    assert [folder.path.relative_to(tmp_path).as_posix() for folder in folders] == [
        f"grid/runs/{name}" for name in names
    ]
    assert seen == [f"{word} {name}" for name in names for word in ("start", "end")]
    # 6 clips through 2 cells; the one with the wrong label is in it too.
    assert [len(lines(folder.path)) for folder in folders] == [12, 12]
    assert [folder.plan().seed for folder in folders] == [0, 1]
    assert is_grid(tmp_path / "grid") and not is_grid(folders[0].path)
    assert run_folders(tmp_path / "grid") == [folder.path for folder in folders]
    assert run_folders(folders[0].path) == [folders[0].path]
    # The file of the grid is a plan file with everything filled in.
    kept = make_grid(read_plan(tmp_path / "grid" / "plan.yaml"))
    assert list(kept.plans().values()) == [folder.plan() for folder in folders]


def test_a_run_of_a_grid_is_the_run_of_its_plan(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    (folder,) = run_grid(grid_of(mean_model), tmp_path / "grid")
    alone = run_audit(folder.plan(), tmp_path / "alone")
    assert lines(folder.path) == lines(alone.path)


def test_what_cannot_be_opened_fails_and_the_rest_runs(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    targets = [{"model": "python:mean_model:absent"}, {"model": mean_model, "attacks": ["cw-asr", "noise"]}]
    refused: dict[str, str] = {}
    absent, mean = run_grid(grid_of(*targets), tmp_path / "grid", refused=refused.__setitem__)
    assert refused == {}
    assert {(line["cell"], line["clip"], line["status"]) for line in lines(absent.path)} == {
        ("noise_evade_snr-db--3", EVERY, "failed"),
        ("fgsm_evade_snr-db--3", EVERY, "failed"),
    }
    statuses = [(line["cell"], line["status"]) for line in lines(mean.path)]
    assert statuses.count(("cw-asr_evade_snr-db--3", "failed")) == 1
    assert statuses.count(("noise_evade_snr-db--3", "ok")) == 6


def test_going_on_does_only_what_is_missing(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    grid = grid_of(mean_model, seeds=[0, 1])
    first, second = run_grid(grid, tmp_path / "grid")
    whole = {folder.path.name: sorted(map(str, lines(folder.path))) for folder in (first, second)}
    text = second.records_path.read_text().splitlines(keepends=True)
    second.records_path.write_text("".join(text[:5]) + text[5][:20])
    before = first.records_path.stat().st_mtime_ns
    run_grid(make_grid(read_plan(tmp_path / "grid" / "plan.yaml")), tmp_path / "grid")
    assert first.records_path.stat().st_mtime_ns == before
    assert {folder.path.name: sorted(map(str, lines(folder.path))) for folder in (first, second)} == whole


def test_a_finished_run_outlives_its_model(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    file = (tmp_path / "mean_model.py").rename(tmp_path / "own_model.py")
    grid, name = grid_of("python:own_model:make"), "python-own-model-make"
    (folder,) = run_grid(grid, tmp_path / "grid")
    whole = folder.records_path.read_bytes()
    file.rename(tmp_path / "aside.py")
    del sys.modules["own_model"]
    refused: dict[str, str] = {}
    assert run_grid(grid, tmp_path / "grid", refused=refused.__setitem__) == []
    assert list(refused) == [name] and "No module named 'own_model'" in refused[name]
    (tmp_path / "aside.py").rename(file)
    refused.clear()
    assert len(run_grid(grid, tmp_path / "grid", refused=refused.__setitem__)) == 1
    assert refused == {} and folder.records_path.read_bytes() == whole


def test_clips_that_are_gone_can_come_back(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    grid = grid_of(mean_model)
    (folder,) = run_grid(grid, tmp_path / "grid")
    text = folder.records_path.read_text().splitlines(keepends=True)
    half = "".join(text[:5])
    folder.records_path.write_text(half)
    mean_clips.rename(tmp_path / "clips_")
    refused: dict[str, str] = {}
    run_grid(grid, tmp_path / "grid", refused=refused.__setitem__)
    assert refused == {
        "python-mean-model-make": "unknown corpus 'clips': there is neither a corpus nor a folder of that "
        "name; check the path, or list the corpora with `sottovoce parts corpus`."
    }
    assert folder.records_path.read_text() == half
    (tmp_path / "clips_").rename(mean_clips)
    run_grid(grid, tmp_path / "grid")
    assert sorted(folder.records_path.read_text().splitlines(keepends=True)) == sorted(text)


def test_a_model_that_breaks_fails_alone(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    source = (tmp_path / "mean_model.py").read_text()
    trap = "        if waveforms.shape[1] == 800:\n            [][1]\n        mean = waveforms"
    (tmp_path / "broken_model.py").write_text(source.replace("        mean = waveforms", trap, 1))
    broken, whole = run_grid(grid_of("python:broken_model:make", mean_model), tmp_path / "grid")
    found = {(line["cell"], line["clip"]): line for line in lines(broken.path)}
    assert len(found) == 12
    assert {clip for (_, clip), line in found.items() if line["status"] == "failed"} == {"up/1", "down/1"}
    assert {line["reason"] for line in found.values()} == {"", "IndexError: list index out of range"}
    assert [line["status"] for line in lines(whole.path)] == ["ok"] * 12


def test_what_no_one_foresaw_ends_one_run_of_many(
    mean_model: str, mean_clips: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = campaign.run_audit

    def odd(plan: Plan, *words: object, **more: object) -> object:
        if plan.seed == 0:
            raise LookupError("nobody thought of it")
        return real(plan, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(campaign, "run_audit", odd)
    refused: dict[str, str] = {}
    grid = grid_of(mean_model, seeds=[0, 1])
    (folder,) = run_grid(grid, tmp_path / "grid", refused=refused.__setitem__)
    assert refused == {"python-mean-model-make_seed-0": "LookupError: nobody thought of it"}
    assert folder.path.name == "python-mean-model-make_seed-1" and len(lines(folder.path)) == 12


def test_another_grid_is_refused(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    run_grid(grid_of(mean_model, seeds=[0, 1]), tmp_path / "grid")
    with pytest.raises(InputError, match="another plan"):
        run_grid(grid_of(mean_model, seeds=[0, 2]), tmp_path / "grid")


def test_one_grid_a_folder(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    with hold(tmp_path / "grid"), pytest.raises(SottovoceError, match="in use by another run"):
        run_grid(grid_of(mean_model), tmp_path / "grid")


def test_a_run_that_is_refused_whole_is_passed_over(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    grid = grid_of(mean_model, seeds=[0, 1])
    _, second = run_grid(grid, tmp_path / "grid")
    # The clips change after the first run was done, and before the second goes on.
    text = second.records_path.read_text().splitlines(keepends=True)
    second.records_path.write_text("".join(text[:5]))
    (mean_clips / "up" / "0.wav").unlink()
    refused: dict[str, str] = {}
    run_grid(grid, tmp_path / "grid", refused=refused.__setitem__)
    assert second.path.name in refused


def test_a_signal_at_the_end_of_a_run_stops_before_the_next(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    names: list[str] = []
    grid = grid_of(mean_model, seeds=[0, 1])
    real = campaign.run_audit

    def late(*words: object, **more: object) -> object:
        folder = real(*words, **more)  # type: ignore[arg-type]
        more["advance"](0, ASKED)  # type: ignore[operator]
        return folder

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaign, "run_audit", late)
        with pytest.raises(Stopped):
            run_grid(grid, tmp_path / "grid", finished=lambda name, folder: names.append(name))
    assert names == ["python-mean-model-make_seed-0"]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="folder of a run or of a grid"):
        run_folders(tmp_path)
