"""Study O1 in small: what it keeps, areas worked out by hand, and a run that goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.core.statistics import Interval, clopper_pearson
from sottovoce.errors import DamagedFile, InputError
from sottovoce.studies.olivier2023.accidental import rxor_runs
from sottovoce.studies.olivier2023.accidental.accidental_robustness_rxor import STUDY
from sottovoce.studies.olivier2023.accidental.kept_parts import KeptParts
from sottovoce.studies.olivier2023.accidental.network_batch import Design
from sottovoce.studies.olivier2023.accidental.rxor_areas import (
    area,
    difference,
    oracle,
    oracle_area,
    weights,
)
from sottovoce.studies.olivier2023.accidental.rxor_runs import RxorFound, open_bench
from sottovoce.studies.run_study import run_study
from sottovoce.studies.study import Choice


def quiet(done: float, note: str) -> None:
    """Nobody is told."""


def test_trapezoid_by_hand() -> None:
    """Of .4 .3 .2 .1 .05: half of the gaps on both sides, over .35."""
    assert weights((0.4, 0.3, 0.2, 0.1, 0.05)).tolist() == pytest.approx(
        [0.05 / 0.35, 0.1 / 0.35, 0.1 / 0.35, 0.075 / 0.35, 0.025 / 0.35]
    )


def test_areas_by_hand() -> None:
    """Half of 100 networks are robust at .4 alone, half at all: (1 / 7 + 1) / 2 = 4 / 7, deviation 3 / 7."""
    flags = np.array([[True] + [False] * 4] * 50 + [[True] * 5] * 50)
    found = area(flags)
    assert found.value == pytest.approx(4 / 7) and found.n == 100
    assert found.high - found.value == pytest.approx(1.959964 * (3 / 7) / 99**0.5)
    few = area(flags[:3])
    assert few.value == pytest.approx(1 / 7) and np.isnan(few.low)
    assert np.isnan(area(flags[:0]).value)


def test_the_upper_bound_that_is_none() -> None:
    """P* of counts 50, 100, 20, 0, 0 of 1,000, seen from the first; its area by the weights."""
    valid = [clopper_pearson(count, 1000) for count in (50, 100, 20, 0, 0)]
    assert oracle(valid, 0) == pytest.approx([1.0, 2.0, 0.4, 0.0, 0.0])
    assert oracle_area(valid, 0).value == pytest.approx((0.05 + 0.2 + 0.04) / 0.35)
    assert np.isnan(oracle_area(valid, 4).value) and np.isnan(oracle(valid, 4)[0])


def test_differences() -> None:
    gap = difference(Interval(0.5, 0.2, 0.8, 40), Interval(0.1, -0.3, 0.5, 50))
    assert gap == pytest.approx((0.4, -0.1, 0.9, 40))
    assert np.isnan(difference(Interval(0.5, np.nan, np.nan, 3), gap).low)


def test_exact_robustness_of_margins() -> None:
    """A margin of .25 is robust at .4 and .3, not at .2; one of exactly .3 is wrong at .3."""
    found = RxorFound(4, np.array([0.25, 0.3]), np.zeros((2, 5), dtype=bool), np.zeros((0, 9)))
    assert found.exact.tolist() == [[True, True, False, False, False], [True, False, False, False, False]]
    assert found.valid.value == 0.5


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process, so that nothing waits for others to start; and a grid of one design."""
    monkeypatch.setattr(rxor_runs.os, "cpu_count", lambda: 1)


@pytest.mark.slow
def test_the_study_and_going_on(tmp_path: Path, small: None) -> None:
    choice = Choice(clips=60)
    _, result, page = run_study(STUDY, choice, tmp_path)
    facts = json.loads((page.parent / "results.json").read_text("utf-8"))
    claims: dict[str, Any] = {row[0]: row for row in facts["tables"][0]["rows"]}
    assert len(claims) == len(facts["tables"][0]["rows"]) > 25
    designs = facts["values"]["designs"]
    assert [designs[f"MLP-{name}-ReLU"]["parameters"] for name in ("6", "3_3", "9", "3_3_3")] == [
        18, 18, 27, 27,
    ]  # fmt: skip
    assert designs["MLP-9-ReLUBN"]["judged"] == "grid" and designs["MLP-9-ReLU"]["judged"] == "exact"
    six = designs["MLP-6-ReLU"]["trained_at"]["0.4"]
    assert six["valid"]["n"] == 60 and six["exact"]["0.2"]["value"] <= six["sampled"]["0.2"]["value"]
    assert {one["name"] for one in facts["figures"]} == {"robustness", "decisions", "flattery", "areas"}
    # Whoever goes on does nothing again, and gets the same.
    parts = sorted((tmp_path / "parts").iterdir())
    parts[7].unlink()
    before = {path: path.stat().st_mtime_ns for path in parts if path.exists()}
    again = run_study(STUDY, choice, tmp_path)[1]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for one, other in zip(again.sheets, result.sheets, strict=True):
        assert one.rows == other.rows
    assert json.dumps(again.values, default=str) == json.dumps(result.values, default=str)


def test_a_cell_is_the_same_however_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = rxor_runs.RxorJob(Design(widths=(3,)), 0.4, rxor_runs.Training(), 600)
    bench = open_bench(Choice(clips=600), tmp_path, "cpu", quiet)
    whole = rxor_runs._run(job, bench.draws)
    monkeypatch.setattr(rxor_runs, "AT_ONCE", 130)
    cut = rxor_runs._run(job, bench.draws)
    assert len(whole["margins"]) > 30
    assert np.allclose(whole["margins"], cut["margins"], atol=1e-4)
    assert np.array_equal(whole["passed"], cut["passed"])


def test_options(tmp_path: Path) -> None:
    bench = open_bench(Choice(clips=7, batch=10, fit="sgd(rate=0.5)", scale="full"), tmp_path, "cpu", quiet)
    assert (bench.count, bench.training.batch, bench.training.rate, bench.grid_count) == (7, 10, 0.5, 7)
    assert open_bench(Choice(scale="full"), tmp_path / "other", "cpu", quiet).count == 25_000
    with pytest.raises(InputError, match="where networks was another"):
        open_bench(Choice(clips=8, batch=10, fit="sgd(rate=0.5)", scale="full"), tmp_path, "cpu", quiet)
    with pytest.raises(InputError, match="O1 does not use --data"):
        open_bench(Choice(data="strokes"), tmp_path, "cpu", quiet)
    with pytest.raises(InputError, match=r"sgd\(batch=5000\): expected at most 1,000"):
        open_bench(Choice(batch=5000), tmp_path, "cpu", quiet)


def test_parts_that_were_damaged(tmp_path: Path) -> None:
    parts = KeptParts(tmp_path, {"seed": 0})
    told: list[tuple[int, str]] = []
    jobs = {"one": lambda: {"a": np.arange(3)}, "two": lambda: {"a": np.arange(4)}}
    parts.make(jobs, 1, lambda done, name: told.append((done, name)))
    assert told == [(0, ""), (1, "one"), (2, "two")] and parts.read("two")["a"].tolist() == [0, 1, 2, 3]
    assert list(parts.seconds) == ["two"]
    (tmp_path / "parts" / "one.npz").write_bytes(b"PK")
    with pytest.raises(DamagedFile, match="delete the file, and it is made again"):
        parts.read("one")
    (tmp_path / "setting.json").write_text("{", encoding="utf-8")
    with pytest.raises(DamagedFile, match="expected a setting"):
        KeptParts(tmp_path, {"seed": 0})
