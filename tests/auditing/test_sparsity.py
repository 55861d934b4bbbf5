"""Sparsity of a corpus: records worked out by hand, resume after a kill, bad clips, and the table."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from sottovoce.api.sparse import sparsity
from sottovoce.auditing.run.folder_lock import hold
from sottovoce.auditing.sparsity.search import Nearest
from sottovoce.auditing.sparsity.sparsity_folder import Setting, SparseClip, SparsityFolder, tabulate
from sottovoce.auditing.sparsity.sparsity_run import (
    SparsityPlan,
    read_sparsity_plan,
    run_sparsity,
    share_finds,
)
from sottovoce.core.batch import PASS
from sottovoce.core.draws import Draws
from sottovoce.core.sphere import Caps
from sottovoce.errors import InputError, StoreError

# The model goes by the sign of the mean: a plane. Clips are constant at 1000, 2000 and 3000 of 32768 in 400,
# 800 and 640 samples: 0.610352, 1.726335 and 2.316121 away from it. One of those labelled down says up.
DISTANCE = {"up/0": 0.610352, "up/1": 1.726335, "up/2": 2.316121, "down/1": 1.726335, "down/2": 2.316121}
LENGTH = {"up/0": 400, "up/1": 800, "up/2": 640, "down/1": 800, "down/2": 640}


def plan_for(model: str, **changes: object) -> SparsityPlan:
    settings: dict[str, object] = {"model": model, "data": "clips", "budgets": ("l2(eps=2)",), **changes}
    return SparsityPlan(**settings)  # type: ignore[arg-type]


def expected(clip: str, eps: float, seed: int = 0) -> list[float]:
    """The exact angle in each direction: that to the model's normal, less arccos(d / eps)."""
    away = 1.0 if clip.startswith("down") else -1.0
    found = []
    for turn in range(4):
        draws = Draws(seed).turn("sparsity", "direction")
        u = torch.from_numpy(
            draws.generator(f"{clip}{PASS}{turn}").standard_normal(LENGTH[clip], dtype="float32")
        ).double()
        cosine = away * float(u.sum()) / float(u.norm()) / math.sqrt(len(u))
        found.append(max(0.0, math.acos(cosine) - math.acos(DISTANCE[clip] / eps)))
    return found


def test_a_linear_model_has_the_sparsity_that_geometry_gives(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    folder = run_sparsity(plan_for(mean_model), tmp_path / "run", device="cpu")
    records = {record.clip: record for record in folder.records()}
    assert sorted(records) == ["down/0", "down/1", "down/2", "up/0", "up/1", "up/2"]
    for clip in ("up/0", "up/1", "down/1"):
        record = records[clip]
        assert (record.status, record.right, record.fooled, record.norm) == ("ok", True, True, "l2")
        assert record.eps == pytest.approx(2.0)
        assert record.sizes == pytest.approx(expected(clip, 2.0), abs=0.01)
        assert record.sparsity == pytest.approx(sum(record.sizes) / 4)
        assert record.reach == pytest.approx(1.0, abs=1e-4)
        assert (record.passes, record.clipped, record.held) == (200, 0.0, None)
    # What it says to this clip is wrong to begin with: nothing is looked for.
    wrong = records["down/0"]
    assert (wrong.status, wrong.said, wrong.right, wrong.fooled, wrong.sparsity) == (
        "ok", "up", False, None, None,
    )  # fmt: skip
    # No perturbation of this length turns it: it has no value, and no pi instead.
    robust = records["up/2"]
    assert (robust.status, robust.right, robust.fooled) == ("ok", True, False)
    assert (robust.sparsity, robust.sizes) == (None, ())
    assert robust.most == math.pi
    (row,) = tabulate(plan_for(mean_model).settings(), folder.records())
    assert (row.clips, row.wrong, row.robust) == (5, 1, 2)
    assert row.success.value == 0.6
    assert row.residual.n == 3
    values = [record.sparsity or math.pi for record in folder.records() if record.right]
    assert row.counted.value == pytest.approx(sum(values) / 5)
    assert json.loads(folder.records_path.read_text().splitlines()[0]).keys() >= {"sparsity", "sizes"}


def test_free_samples_of_a_linear_model(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    # To turn a mean of m by vertices of eps, a share of (1 + m / eps) / 2 of the samples must point right.
    # Half of the fixed ones do, so about m / eps of the samples must be free.
    plan = plan_for(mean_model, budgets=("linf(eps=0.1)",))
    records = {r.clip: r for r in run_sparsity(plan, tmp_path / "run", device="cpu").records()}
    for clip, size in LENGTH.items():
        level = {"0": 1000, "1": 2000, "2": 3000}[clip[-1]] / 32768
        found = records[clip].sparsity
        assert found is not None
        assert found / size == pytest.approx(level / 0.1, abs=2.5 / math.sqrt(size))
        assert records[clip].dimensions == size
        # 0.1 is 3276.8 steps of the grid, of which 3276 fit.
        assert records[clip].reach == pytest.approx(3276 / 3276.8, abs=1e-6)


def test_the_batch_and_the_company_change_nothing(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_for(mean_model, passes=12, directions=2)
    one = run_sparsity(plan, tmp_path / "one", device="cpu", batch=1)
    two = run_sparsity(plan, tmp_path / "two", device="cpu", batch=8)
    first, second = ({record.clip: record for record in each.records()} for each in (one, two))
    assert first.keys() == second.keys()
    for clip, record in first.items():
        assert replace(record, sizes=(), sparsity=None, reach=None) == replace(
            second[clip], sizes=(), sparsity=None, reach=None
        )
        assert record.sizes == pytest.approx(second[clip].sizes, abs=1e-4)


def test_another_seed_has_other_directions(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_for(mean_model, seed=1, limit=2, passes=30)
    records = run_sparsity(plan, tmp_path / "run", device="cpu").records()
    found = [record for record in records if record.fooled]
    assert found
    for record in found:
        assert record.sizes == pytest.approx(expected(record.clip, 2.0, seed=1), abs=0.02)


def test_a_killed_run_goes_on_and_ends_the_same(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_for(mean_model, budgets=("l2(eps=2)", "linf(eps=0.1)"), passes=10, directions=1)
    whole = list(run_sparsity(plan, tmp_path / "whole", device="cpu", batch=2).records())
    assert len(whole) == 12
    spent = 0

    def kill(done: int, note: str) -> None:
        nonlocal spent
        spent += done
        if spent >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sparsity(plan, tmp_path / "cut", device="cpu", batch=2, advance=kill)
    cut = SparsityFolder(tmp_path / "cut")
    assert list(cut.records()) == whole[:6]
    told: list[int] = []
    run_sparsity(plan, tmp_path / "cut", device="cpu", batch=2, advance=lambda done, note: told.append(done))
    assert list(cut.records()) == whole
    assert sum(told) == 12
    # A torn line, left by a kill while it was written, is made again.
    lines = cut.records_path.read_bytes()
    cut.records_path.write_bytes(lines[:-20])
    run_sparsity(plan, tmp_path / "cut", device="cpu", batch=2)
    assert list(cut.records()) == whole


def test_what_failed_is_kept_or_tried_again(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan, file = plan_for(mean_model, passes=10, directions=1), mean_clips / "up" / "1.wav"
    good = file.read_bytes()
    file.write_bytes(b"no audio")
    folder = run_sparsity(plan, tmp_path / "run", device="cpu")
    (failed,) = [record for record in folder.records() if record.status == "failed"]
    assert failed.clip == "up/1"
    assert "libsndfile" in failed.reason
    assert failed.sparsity is None
    file.write_bytes(good)
    run_sparsity(plan, tmp_path / "run", device="cpu")
    assert len([record for record in folder.records() if record.status == "failed"]) == 1
    run_sparsity(plan, tmp_path / "run", device="cpu", retry_failed=True)
    assert [record.status for record in folder.records()] == ["ok"] * 6


def test_a_clip_that_breaks_the_model_fails_alone(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    source = (tmp_path / "mean_model.py").read_text()
    trap = "        if waveforms.shape[1] == 800:\n            return 0.0 * waveforms[:, :2] + torch.nan\n"
    (tmp_path / "mean_model.py").write_text(
        source.replace("        mean = waveforms", f"{trap}        mean = waveforms", 1)
    )
    plan = plan_for(mean_model, passes=10, directions=1)
    records = {r.clip: r for r in run_sparsity(plan, tmp_path / "run", device="cpu").records()}
    assert {clip for clip, record in records.items() if record.status == "failed"} == {"up/1", "down/1"}
    assert "finite best" in records["up/1"].reason
    assert records["up/0"].fooled


def test_a_random_target_is_fooled_most_of_the_time(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    # Noise of 0.05 moves the mean of 400 samples by 0.05 / 20 = 0.0025, where it is 0.0305. The boundary is
    # where it was, and a perturbation that fools more than half of the passes lies beyond it.
    plan = plan_for(mean_model, defenses=("gaussian(sigma=0.05)",), average=2, directions=2)
    records = {r.clip: r for r in run_sparsity(plan, tmp_path / "run", device="cpu").records()}
    found = records["up/0"]
    assert found.held is not None
    assert found.held >= 0.25  # 0.5 at the boundary, of 16 passes
    assert found.sizes == pytest.approx(expected("up/0", 2.0)[:2], abs=0.05)
    assert found.passes == 240
    assert found.hearings is not None
    assert found.hearings > 120


def test_a_direction_that_fools_by_itself_is_at_zero(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    # A random direction of length 20 moves the mean of 400 samples by a deviation of 20 / 400 = 0.05 either
    # way, more than the 0.0305 that it has: about a quarter of them fool.
    plan = plan_for(mean_model, budgets=("l2(eps=20)",), directions=12, passes=10)
    found = {r.clip: r for r in run_sparsity(plan, tmp_path / "run", device="cpu").records()}["up/0"]
    assert found.at_once == sum(size == 0.0 for size in found.sizes)
    assert 1 <= (found.at_once or 0) <= 11
    assert found.clipped
    assert found.clipped > 0


def test_a_text_to_force(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_for(mean_model, goal="force(text=down)", directions=1)
    records = {r.clip: r for r in run_sparsity(plan, tmp_path / "run", device="cpu").records()}
    assert (records["down/1"].status, records["down/1"].reason) == ("skipped", "already says it")
    assert records["up/0"].right is None
    assert records["up/0"].sizes == pytest.approx(expected("up/0", 2.0)[:1], abs=0.02)
    # It says up to this one, whatever its label.
    assert records["down/0"].fooled


def test_a_folder_holds_its_plan(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_for(mean_model, passes=10, directions=1, limit=1)
    run_sparsity(plan, tmp_path / "run", device="cpu")
    assert read_sparsity_plan(tmp_path / "run") == plan
    kept = yaml.safe_load((tmp_path / "run" / "sparsity.yaml").read_text())
    assert (kept["budgets"], kept["directions"]) == (["l2(eps=2)"], 1)
    with pytest.raises(InputError, match="with another plan; choose another folder"):
        run_sparsity(replace(plan, seed=1), tmp_path / "run", device="cpu")
    with hold(tmp_path / "run"), pytest.raises(StoreError, match="no other run is at work"):
        run_sparsity(plan, tmp_path / "run", device="cpu")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"budgets": ("audible(p=0.25)",)}, "no common length; name one of these"),
        ({"budgets": ()}, "a radius and a defense at least"),
        ({"budgets": ("snr(db=30)", "snr(db=30)")}, "got the same twice"),
        ({"directions": 0}, "--directions from 1 to 1,000, got 0; 4 is usual"),
        ({"passes": 9}, "--passes from 10"),
        ({"average": 0}, "--average from 1"),
        ({"wer": 1.5}, "--wer above 0, up to 1"),
        ({"longest": 0}, "--longest above 0"),
        ({"defenses": ("nonsense",)}, "unknown defense"),
        ({"goal": "force"}, "text"),
    ],
)
def test_bad_plans_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_for("keyword", **wrong)


def test_what_does_not_suit_the_model_stops_before_any_work(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    for wrong, message in (
        (plan_for(mean_model, wer=0.5), "speech recogniser alone"),
        (plan_for(mean_model, goal="force(text=left)"), "unknown class 'left'"),
        (plan_for(mean_model, defenses=("majority",)), "noise before a vote"),
    ):
        with pytest.raises(InputError, match=message):
            run_sparsity(wrong, tmp_path / "run", device="cpu")
    with pytest.raises(InputError, match="--batch of 1 clip or more"):
        run_sparsity(plan_for(mean_model), tmp_path / "run", device="cpu", batch=0)
    assert not (tmp_path / "run").exists()


def test_a_radius_below_a_step_fails(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = plan_for(mean_model, budgets=("linf(eps=0.00002)",), limit=1)
    (record,) = run_sparsity(plan, tmp_path / "run", device="cpu").records()
    assert record.status == "failed"
    assert record.reason.startswith(f"clip '{record.clip}': expected a radius of a 16-bit step")


def test_finds_are_shared_between_the_directions_of_a_clip() -> None:
    # Two clips of two directions each, the axes. Of the first, one run found something, straight along it.
    u = torch.eye(2).repeat(2, 1)[[0, 2, 1, 3]]
    sets = Caps(u, torch.ones(4))
    delta = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.6, 0.8]])
    size = torch.tensor([0.0, math.inf, math.inf, math.inf], dtype=torch.float64)
    found = share_finds(Nearest(delta, size, torch.zeros(4, dtype=torch.bool)), sets, [0, 1, 0, 1])
    assert found.size.tolist() == pytest.approx([0.0, math.inf, math.pi / 2, math.inf])
    assert found.delta[2].tolist() == [1.0, 0.0]


def made(clip: str, sizes: tuple[float, ...] | None, **others: object) -> SparseClip:
    known: dict[str, object] = {
        "cell": "a", "clip": clip, "status": "ok", "right": True, "norm": "linf", "dimensions": 200,
        "fooled": sizes is not None, "sizes": sizes or (), "passes": 60, "at_once": 0,
        "sparsity": sum(sizes) / len(sizes) if sizes else None, **others,
    }  # fmt: skip
    return SparseClip(**known)  # type: ignore[arg-type]


def test_the_table_by_hand() -> None:
    setting = Setting(cell="a", defense="none", budget="linf(eps=0.1)", title="Linf 0.1", norm="linf")
    records = [
        made("1", (10.0, 30.0), clipped=0.5),
        made("2", (60.0, 60.0), at_once=1, held=0.75),
        made("3", None),
        made("4", None, right=False, fooled=None),
        SparseClip(cell="a", clip="5", status="failed", reason="broken"),
        SparseClip(cell="", clip="6", status="skipped", reason="no class"),
    ]
    (row,) = tabulate([setting], records)
    assert (row.clips, row.wrong, row.robust, row.failed, row.skipped) == (3, 1, 1, 1, 1)
    assert row.residual.value == 40.0  # of 20 and 60
    assert row.counted.value == pytest.approx(280 / 3)  # and 200
    assert row.share == pytest.approx(0.2)
    assert row.spread == pytest.approx(math.sqrt(200) / 2)  # of 14.142 and 0
    assert (row.at_once, row.clipped, row.held, row.passes) == (1, 1, 0.75, 60.0)
    # Clopper-Pearson for 2 of 3, from a table: 0.0943 to 0.9916.
    assert (row.success.low, row.success.high) == pytest.approx((0.0943, 0.9916), abs=1e-4)
    assert json.loads(json.dumps(row.to_json(), allow_nan=False))["residual"]["n"] == 2


def test_of_no_clips_nothing_is_known() -> None:
    (row,) = tabulate(SparsityPlan(budgets=("snr(db=30)",)).settings(), [])
    assert row.residual.n == 0
    assert math.isnan(row.spread)
    assert row.to_json()["residual"]["value"] is None


@pytest.mark.slow
def test_a_recogniser_is_judged_by_its_transcript(tmp_path: Path) -> None:
    found = sparsity(
        "recogniser", limit=1, snr=15, passes=10, directions=2, wer=0.25, device="cpu", out=tmp_path / "run"
    )
    (row,) = found.rows
    assert row["right"] is True
    assert row["hearings"] >= 30
    assert row["fooled"] is True
    assert all(0 <= size <= math.pi for size in row["sizes"])
