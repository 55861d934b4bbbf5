"""A claim that is run again: true ones hold, forged ones do not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sottovoce.audit.plan import make_plan
from sottovoce.audit.run import run_audit
from sottovoce.errors import InputError
from sottovoce.leaderboard.check import Line, check_claim, choose_cells
from sottovoce.leaderboard.claim import Claim, parse_claim
from sottovoce.leaderboard.make import make_claims
from sottovoce.leaderboard.read import read_run


@pytest.fixture
def content(mean_model: str, mean_clips: Path, tmp_path: Path) -> dict[str, Any]:
    """A true claim: of six clips five are heard right; -3 dB breaks all of them, 3 dB none."""
    entries = {"model": mean_model, "data": "clips", "attacks": ["noise", "fgsm", "pgd(steps=20)"]}
    plan = make_plan({**entries, "budgets": ["snr(db=-3)", "snr(db=3)"], "probe": 0, "audio": "none"})
    (claim,) = make_claims(read_run(run_audit(plan, tmp_path / "run", device="cpu")))
    found: dict[str, Any] = json.loads(claim.to_json())
    assert found["worst"][0]["success"]["value"] == 1.0
    assert found["worst"][1]["success"]["value"] == 0.0
    return found


def read(content: dict[str, Any]) -> Claim:
    return parse_claim(content, "claim.json")


def by_what(lines: list[Line]) -> dict[str, Line]:
    return {line.what: line for line in lines}


def test_a_true_claim_holds_clip_for_clip(content: dict[str, Any]) -> None:
    verdict = check_claim(read(content), device="cpu")
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
    content["worst"][0]["success"] = {"value": 0.0, "low": 0.0, "high": 0.52, "n": 5}
    letters = content["outcomes"]["success"]["snr(db=-3)"]
    content["outcomes"]["success"]["snr(db=-3)"] = letters.replace("1", "0")
    verdict = check_claim(read(content), device="cpu")
    assert not verdict.holds
    loud = by_what(verdict.lines)["SNR -3 dB"]
    # All five clips fare worse than claimed: 1 in 32 by chance.
    assert (loud.worse, loud.better, loud.p) == (5, 0, pytest.approx(1 / 32))
    assert by_what(verdict.lines)["SNR 3 dB"].holds


def test_a_claim_with_more_success_than_there_is_holds(content: dict[str, Any]) -> None:
    """Who claims to be weaker than they are is not contradicted by a rerun."""
    letters = content["outcomes"]["success"]["snr(db=3)"]
    content["outcomes"]["success"]["snr(db=3)"] = letters.replace("0", "1")
    content["worst"][1]["success"] = {"value": 1.0, "low": 0.4, "high": 1.0, "n": 5}
    verdict = check_claim(read(content), device="cpu")
    assert verdict.holds
    assert by_what(verdict.lines)["SNR 3 dB"].better == 5


def test_a_claim_of_another_clean_accuracy_does_not_hold(content: dict[str, Any]) -> None:
    content["outcomes"]["clean"] = [1 - it for it in content["outcomes"]["clean"]]
    content["clean"]["accuracy"] = {"value": 1 / 6, "low": 0.1, "high": 0.2, "n": 6}
    verdict = check_claim(read(content), device="cpu")
    assert not by_what(verdict.lines)["clean"].holds


def test_listed_clips_must_bear_the_figure(content: dict[str, Any]) -> None:
    """A sample of 6 of 1000 clips, all broken, under a figure of a tenth."""
    content["outcomes"]["of"] = 1000
    content["worst"][0]["success"] = {"value": 0.1, "low": 0.08, "high": 0.12, "n": 1000}
    verdict = check_claim(read(content), device="cpu")
    listed = by_what(verdict.lines)["SNR -3 dB, as listed"]
    assert listed.p == pytest.approx(0.12**5)  # five of five judged clips
    assert not verdict.holds


def test_few_clips_and_few_cells_can_be_asked_for(content: dict[str, Any]) -> None:
    claim = read(content)
    plan = claim.parsed_plan()
    assert [len(cells) for cells in choose_cells(claim, plan, 1).values()] == [1, 1]
    all_of_them = choose_cells(claim, plan, 0)["snr(db=-3)"]
    assert [cell.attack.name for cell in all_of_them] == ["fgsm", "pgd"]
    verdict = check_claim(claim, clips=2, cells=1, seed=3, device="cpu")
    assert by_what(verdict.lines)["clean"].clips == 2
    assert len(verdict.cells) == 2


def test_other_clips_are_told_and_missing_ones_refused(
    content: dict[str, Any], mean_clips: Path, tmp_path: Path
) -> None:
    content["manifest"] = "0" * 32
    assert "manifests differ" in check_claim(read(content), device="cpu").notes[0]
    mean_clips.rename(tmp_path / "moved")
    assert check_claim(read(content), data="moved", device="cpu").notes == []
    content["outcomes"]["clips"][0] = "nobody"
    with pytest.raises(InputError, match="nobody"):
        check_claim(read(content), data="moved", device="cpu")
