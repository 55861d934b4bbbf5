"""The fast reader gives what the summary of an audit gives."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sottovoce.auditing.checks.sanity import examine
from sottovoce.auditing.results.heard_curve import heard_to_json
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import Record
from sottovoce.errors import InputError, StoreError
from sottovoce.leaderboard.claims.make_claims import make_claims
from sottovoce.leaderboard.run_reading import read_run
from sottovoce.report.trial_columns import Trials

CELLS = [f"{attack}_evade_snr-db-{db}" for attack in ("noise", "fgsm", "pgd-steps-5") for db in (20, 40)]


def test_the_worst_case_is_any_attack_clip_by_clip_without_noise(four: Path) -> None:
    found = read_run(RunFolder(four))
    loud, quiet = (group.strongest for group in found.summary.groups)
    assert loud is not None and quiet is not None
    success = loud.per_clip["success"]
    assert (success.value, success.n) == (0.75, 4)
    assert (success.low, success.high) == pytest.approx(
        (0.19412, 0.99369), abs=1e-5
    )  # Clopper-Pearson, 3 of 4
    assert quiet.per_clip["success"].value == 0.25
    clean = found.clean["none"].estimate("clean-accuracy")
    assert clean is not None and (clean.value, clean.n) == (0.8, 5)
    assert found.trials == 30


def random_records(rng: np.random.Generator, words: bool) -> list[Record]:
    """Clips of seven speakers with values, without, with infinite ones, failures and second tries."""
    records = []
    for number in range(40):
        for cell in CELLS:
            clip, roll = f"clip-{number}", rng.random()
            if roll < 0.05:
                records.append(Record(cell=cell, clip=clip, status="failed", reason="too short", label="yes"))
            if roll < 0.02 or roll > 0.98:
                continue
            if roll > 0.95:
                records.append(Record(cell=cell, clip=clip, status="skipped", reason="already says it"))
                continue
            broken = float(rng.random() < 0.4)
            parts: dict[str, list[float]] = {
                "success": [math.nan if rng.random() < 0.1 else broken, 1.0],
                "snr": [math.inf if rng.random() < 0.05 else rng.normal(30, 2), 1.0],
                "p-heard": [math.nan if rng.random() < 0.1 else rng.random(), 1.0],
                "stoi": [rng.random(), 1.0],
            }
            if rng.random() < 0.9:
                parts["p-heard-masking"] = [rng.random(), 1.0]
            errors = float(rng.integers(0, 9))
            parts |= {"wer": [errors, 6.0], "clean-wer": [errors // 4, 6.0]} if words else {}
            parts |= {} if words else {"clean-accuracy": [float(rng.random() < 0.8), 1.0]}
            unscored = {"p-heard": "too short"} if math.isnan(parts["p-heard"][0]) else {}
            facts = {"speaker": f"speaker-{number % 7}"}
            same = {"cell": cell, "clip": clip, "status": "ok", "label": "yes", "facts": facts}
            rounded = {"achieved": bool(broken), "achieved_unrounded": rng.random() < 0.5}
            records.append(Record(**same, **rounded, parts=parts, unscored=unscored))
            if rng.random() < 0.05:
                records.append(records[-1])
    return records


@pytest.mark.parametrize("words", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_as_the_summary_of_an_audit(
    words: bool, seed: int, tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    folder = RunFolder(write_run(tmp_path / "run", random_records(np.random.default_rng(seed), words)))
    plan, found = folder.plan(), read_run(folder)
    trials = Trials(plan)
    wanted = summarise(plan, trials.watch(folder.records()))
    for mine, theirs in zip(found.summary.groups, wanted.groups, strict=True):
        assert mine.strongest is not None and theirs.strongest is not None
        assert mine.strongest.per_clip == theirs.strongest.per_clip
        assert mine.strongest.item.cell == theirs.strongest.item.cell
        assert mine.strongest.attacks == theirs.strongest.attacks == 2
    for one, other in zip(found.summary.cells, wanted.cells, strict=True):
        assert (one.clips, one.failed, one.skipped, one.lost_by_rounding) == (
            other.clips, other.failed, other.skipped, other.lost_by_rounding,
        )  # fmt: skip
        for name, estimate in one.estimates.items():
            assert estimate.value == pytest.approx(other.estimates[name].value)
            assert estimate.n == other.estimates[name].n
    clean = "clean-wer" if words else "clean-accuracy"
    assert found.clean["none"].estimate(clean) == trials.clean(clean, "none")
    assert [check.to_json() for check in examine(plan, found.summary)] == [
        check.to_json() for check in examine(plan, wanted)
    ]
    assert heard_to_json(found.summary) == heard_to_json(wanted)
    assert {(record.clip, record.reason) for record in found.summary.failures} == {
        (record.clip, record.reason) for record in wanted.failures
    }


def test_a_clip_that_failed_and_was_tried_again_counts_once(
    tmp_path: Path, write_run: Callable[..., Path], make_record: Callable[..., Record]
) -> None:
    cell = "fgsm_evade_snr-db-20"
    failed = Record(cell=cell, clip="a", status="failed", reason="no memory")
    records = [failed, make_record(cell, "b", broken=False), make_record(cell, "a", broken=True)]
    found = read_run(RunFolder(write_run(tmp_path / "run", records)))
    (item,) = found.summary.cells
    assert (item.clips, item.failed, found.failed) == (2, 0, set())
    assert item.estimates["success"].value == 0.5


def test_a_torn_line_is_dropped_and_a_bad_one_named(four: Path) -> None:
    path = four / "trials.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"cell": "fgsm')
    assert read_run(RunFolder(four)).trials == 30
    path.write_bytes(whole + b"[1, 2]\n")
    with pytest.raises(StoreError, match=r"trials\.jsonl, line 31: expected a record"):
        read_run(RunFolder(four))


DAMAGED = [
    ({"parts": None}, "parts"),
    ({"parts": {}, "clip": 3}, "clip"),
    ({"parts": {}, "cell": ["a"]}, "cell"),
    ({"parts": {"success": [1]}}, "parts.success.1"),
    ({"parts": {"success": ["a", 1]}}, "parts.success.0"),
    ({"parts": {}, "facts": None}, "facts"),
]


@pytest.mark.parametrize(("entries", "field"), DAMAGED)
def test_a_damaged_record_is_named_with_its_line(four: Path, entries: dict[str, object], field: str) -> None:
    line = {"cell": "fgsm_evade_snr-db-20", "clip": "z", "status": "ok", **entries}
    with (four / "trials.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    named = rf"four/trials\.jsonl, line 31, field '{field}': expected "
    with pytest.raises(StoreError, match=named):
        read_run(RunFolder(four))
    with pytest.raises(StoreError, match=named):
        summarise(RunFolder(four).plan(), RunFolder(four).records())


@pytest.mark.parametrize("text", [None, '{"run": "0123', "[1]"])
def test_a_run_without_a_whole_about_is_named(four: Path, text: str | None) -> None:
    (four / "about.json").unlink()
    if text is not None:
        (four / "about.json").write_text(text)
    with pytest.raises(StoreError, match=r"four/about\.json: expected what is known of the run"):
        make_claims(read_run(RunFolder(four)))


def test_a_bad_plan_is_refused_with_its_run(four: Path) -> None:
    (four / "plan.yaml").write_text("attacks: [pgdd]\n")
    with pytest.raises(InputError, match=r"four/plan\.yaml: .*did you mean 'pgd'"):
        read_run(RunFolder(four))


def test_records_of_a_later_schema_are_refused(four: Path) -> None:
    path = four / "trials.jsonl"
    path.write_text(path.read_text() + '{"schema": 99, "cell": "c", "clip": "d", "status": "ok"}\n')
    with pytest.raises(StoreError, match=r"line 31, field 'schema': .*schema 99"):
        read_run(RunFolder(four))
