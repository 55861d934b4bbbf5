"""A claim that is run again: true ones hold, forged ones do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.results.summary import Outcomes
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.executor import Executor
from sottovoce.core.record import Record
from sottovoce.data.corpora import open_corpus
from sottovoce.errors import InputError
from sottovoce.leaderboard.claims import check_claim as check
from sottovoce.leaderboard.claims.check_claim import (
    ClaimVerdict,
    Comparison,
    check_claim,
    choose_cells,
    draw_clips,
)
from sottovoce.leaderboard.claims.claim import Claim, Share, parse_claim
from sottovoce.leaderboard.claims.make_claims import make_claims
from sottovoce.leaderboard.run_reading import read_run

OWN = {"model": "python:mean_model:make", "data": "clips"}
"""The words of whoever checks: what a claim itself names is opened only where it comes with sottovoce."""
HIGH_0_OF_5 = 1 - 0.025 ** (1 / 5)
"""The upper end of the exact interval, 0.5218."""


def run(model: str, folder: Path) -> dict[str, Any]:
    entries = {"model": model, "data": "clips", "attacks": ["noise", "fgsm", "pgd(steps=20)"]}
    plan = make_plan({**entries, "budgets": ["snr(db=-3)", "snr(db=3)"], "probe": 0, "audio": "none"})
    (claim,) = make_claims(read_run(run_audit(plan, folder, device="cpu")))
    found: dict[str, Any] = json.loads(claim.to_json())
    return found


@pytest.fixture
def content(mean_model: str, mean_clips: Path, tmp_path: Path) -> dict[str, Any]:
    """A true claim: of six clips five are heard right; -3 dB breaks all of them, 3 dB none."""
    found = run(mean_model, tmp_path / "run")
    assert found["worst"][0]["success"]["value"] == 1.0
    assert found["worst"][1]["success"]["value"] == 0.0
    return found


def read(content: dict[str, Any]) -> Claim:
    return parse_claim(content, "claim.json")


def again(claim: Claim, **settings: Any) -> ClaimVerdict:
    return check_claim(claim, **{**OWN, "device": "cpu", **settings})


def by_what(lines: list[Comparison]) -> dict[str, Comparison]:
    return {line.what: line for line in lines}


def test_a_true_claim_holds_clip_for_clip(content: dict[str, Any]) -> None:
    verdict = again(read(content))
    assert verdict.holds and verdict.notes == []
    lines = by_what(verdict.lines)
    assert list(lines) == ["clean", "SNR -3 dB", "SNR 3 dB"]
    assert [(line.clips, line.worse, line.better) for line in lines.values()] == [
        (6, 0, 0),
        (5, 0, 0),
        (5, 0, 0),
    ]
    assert lines["clean"].found == pytest.approx(5 / 6)
    assert (lines["SNR -3 dB"].found, lines["SNR 3 dB"].found) == (1.0, 0.0)


def test_a_claim_with_less_success_than_there_is_does_not_hold(content: dict[str, Any]) -> None:
    content["worst"][0]["success"] = {"value": 0.0, "low": 0.0, "high": HIGH_0_OF_5, "n": 5}
    letters = content["outcomes"]["success"]["snr(db=-3)"]
    content["outcomes"]["success"]["snr(db=-3)"] = letters.replace("1", "0")
    verdict = again(read(content))
    assert not verdict.holds
    loud = by_what(verdict.lines)["SNR -3 dB"]
    # All five clips fare worse than claimed: 1 in 32 by chance.
    assert (loud.worse, loud.better, loud.p) == (5, 0, pytest.approx(1 / 32))
    assert by_what(verdict.lines)["SNR 3 dB"].holds


def test_a_claim_with_more_success_than_there_is_holds(content: dict[str, Any]) -> None:
    """Who claims to be weaker than they are is not contradicted by a rerun."""
    letters = content["outcomes"]["success"]["snr(db=3)"]
    content["outcomes"]["success"]["snr(db=3)"] = letters.replace("0", "1")
    content["worst"][1]["success"] = {"value": 1.0, "low": 1 - HIGH_0_OF_5, "high": 1.0, "n": 5}
    verdict = again(read(content))
    assert verdict.holds
    assert by_what(verdict.lines)["SNR 3 dB"].better == 5


def test_a_claim_of_another_clean_accuracy_does_not_hold(
    mean_model: str, mean_clips: Path, tmp_path: Path, write_clip: Callable[..., None]
) -> None:
    """Eleven of twelve clips are heard right; the claim says one, 0.2 to 38.5 %."""
    for number in range(3, 9):
        write_clip(mean_clips / "up" / f"{number}.wav", np.full(400, 1000))
    content = run(mean_model, tmp_path / "run")
    content["outcomes"]["clean"] = [1 - it for it in content["outcomes"]["clean"]]
    content["clean"]["accuracy"] = {"value": 1 / 12, "low": 0.0021, "high": 0.3848, "n": 12}
    clean = by_what(again(read(content)).lines)["clean"]
    # Eleven fare otherwise to one side and one to the other: 2 * 13 / 4096. The other test says less.
    assert (clean.better, clean.worse) == (11, 1)
    assert clean.p <= 26 / 4096 and not clean.holds


def without_outcomes(content: dict[str, Any]) -> None:
    content["outcomes"]["success"] = {}
    content["outcomes"]["clean"] = [None] * 6
    for worst in content["worst"]:
        worst["success"] = {"value": 0.0, "low": 0.0, "high": 0.000737, "n": 5000}


def one_clip_more(content: dict[str, Any]) -> None:
    content["clips"] = content["outcomes"]["of"] = 7
    content["worst"][0]["success"] = {"value": 0.0, "low": 0.0, "high": HIGH_0_OF_5, "n": 5}


def any_interval(content: dict[str, Any]) -> None:
    content["worst"][0]["success"] = {"value": 0.0, "low": 0.0, "high": 1.0, "n": 5}


def many_clips(content: dict[str, Any]) -> None:
    content["clips"] = 100_000


def without_the_loud_budget(content: dict[str, Any]) -> None:
    del content["worst"][0]


def more_behind_the_figure(content: dict[str, Any]) -> None:
    content["worst"][0]["success"] = {"value": 1.0, "low": 0.025 ** (1 / 500), "high": 1.0, "n": 500}


def another_goal(content: dict[str, Any]) -> None:
    content["goal"] = "force(text=down)"


@pytest.mark.parametrize(
    ("forge", "field", "reason"),
    [
        (without_outcomes, "clean.accuracy", "expected clips in outcomes that it is computed from, got none"),
        (one_clip_more, "outcomes", "expected all 7 clips, or 1000, or as many as fill 60 kB, got 6"),
        (any_interval, "worst.0.success", r"exact interval of 0 on 5 clips, \[0.0000, 0.5218\]"),
        (many_clips, "clips", "expected as many as in outcomes, 6, got 100000"),
        (without_the_loud_budget, "worst", "a figure at every budget of the plan, got none at SNR -3 dB"),
        (more_behind_the_figure, "worst.0.success.n", "expected the 5 clips .* got 500"),
        (another_goal, "worst.0.cells", "attacks of this plan, defense, goal and budget"),
    ],
)
def test_a_claim_that_its_plan_or_its_clips_contradict_is_refused(
    content: dict[str, Any], forge: Callable[[dict[str, Any]], None], field: str, reason: str
) -> None:
    read(content)
    forge(content)
    with pytest.raises(InputError, match=f"field '{field}': .*{reason}"):
        read(content)


def test_broken_clips_that_are_listed_as_not_judged_count(content: dict[str, Any]) -> None:
    """The claim owns up to one clip, which held; the other five are broken when they run again."""
    cell = "pgd-steps-20_evade_snr-db--3"
    claim = read(content)
    worst = claim.worst[0].model_copy(
        update={"success": Share(value=0.0, low=0.0, high=0.975, n=1)}  # exact, 0 of 1
    )
    table = claim.outcomes.model_copy(update={"success": {"snr(db=-3)": "-----0"}})
    forged = claim.model_copy(update={"worst": (worst,), "outcomes": table})
    found = Outcomes()
    for place, clip in enumerate(table.clips):
        parts = {"success": [float(place < 5), 1.0]}
        found.add(Record(cell=cell, clip=clip, status="ok", parts=parts))
    (line,) = check._lines(forged, worst, [found])
    assert (line.clips, line.worse, line.better) == (6, 5, 0)
    assert line.p == pytest.approx(1 / 32) and not line.holds


def test_a_budget_that_no_clip_can_tell_of_is_not_checked(content: dict[str, Any]) -> None:
    """The clip that is heard wrong before any attack says nothing of attacks."""
    claim = read(content)
    (wrong,) = [clip for clip, right in claim.outcomes.heard().items() if not right]
    seed = next(seed for seed in range(100) if draw_clips(claim, 1, seed) == [wrong])
    verdict = again(claim, clips=1, seed=seed)
    assert [line.what for line in verdict.lines] == ["clean"]
    assert verdict.missing == ["SNR -3 dB", "SNR 3 dB"]
    assert not verdict.holds and not verdict.refuted


def test_what_clips_cannot_tell_is_named(content: dict[str, Any]) -> None:
    content["doubts"] = []
    one = {"value": 1.0, "low": 0.025 ** (1 / 6), "high": 1.0, "n": 6}
    content["certified"] = {
        "defense": "gaussian(sigma=0.1)", "share": one, "sigma": 0.1, "alpha": 0.001, "passes": 100,
    }  # fmt: skip
    none = {"value": 0.0, "low": 0.0, "high": HIGH_0_OF_5, "n": 5}
    content["unheard"] = {"metric": "p-heard", "ear": "an ear", "share": none}
    verdict = again(read(content), cells=1)
    assert verdict.holds
    assert verdict.unchecked == [
        "2 of the plan's attacks (--cells 0 runs all)",
        "clips fooled unheard",
        "certificates",
        "doubts",
    ]
    content["seeds"] = [0, 1]
    for figure in (content["clean"]["accuracy"], *(worst["success"] for worst in content["worst"])):
        figure["seeds"] = [figure["value"]] * 2
    del content["unheard"], content["certified"]
    assert again(read(content), cells=0).unchecked == ["seeds other than 0", "doubts"]


def test_seeds_of_a_plan_share_their_clips(mean_model: str, mean_clips: Path) -> None:
    """Whichever seed, the three clips are those of seed 0."""
    bench = Executor("cpu")
    plans = [make_plan({"model": mean_model, "data": "clips", "limit": 3, "seed": seed}) for seed in range(6)]
    chosen = {tuple(entry.id for entry in bench.corpus(plan)) for plan in plans}
    assert chosen == {tuple(entry.id for entry in open_corpus("clips").limit(3, seed=0))}


def test_few_clips_and_few_cells_can_be_asked_for(content: dict[str, Any]) -> None:
    claim = read(content)
    plan = claim.parsed_plan()
    assert [len(cells) for cells in choose_cells(claim, plan, 1).values()] == [1, 1]
    all_of_them = choose_cells(claim, plan, 0)["snr(db=-3)"]
    assert [cell.attack.name for cell in all_of_them] == ["fgsm", "pgd"]
    verdict = again(claim, clips=2, cells=1, seed=3)
    assert by_what(verdict.lines)["clean"].clips == 2
    assert len(verdict.cells) == 2


def test_other_clips_are_told_and_missing_ones_refused(
    content: dict[str, Any], mean_clips: Path, tmp_path: Path
) -> None:
    mean_clips.rename(tmp_path / "moved")
    assert again(read(content), data="moved").notes == []
    content["manifest"] = "0" * 32
    assert "manifests differ" in again(read(content), data="moved").notes[0]
    content["outcomes"]["clips"][0] = "nobody"
    with pytest.raises(InputError, match="nobody"):
        again(read(content), data="moved")
