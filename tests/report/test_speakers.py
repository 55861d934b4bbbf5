"""Votes of speakers in the report, the printed tables and the JSON of an audit."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.results.summary import Summary, summarise
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.cli.audit_run import _to_json
from sottovoce.cli.summary_table import speaker_table
from sottovoce.core.record import Record
from sottovoce.report.report_page import write_report
from sottovoce.report.speaker_table import tell_speakers

CELL = "pgd_evade_snr-db-20"
ABOUT = {"run": "abc123", "started": "", "device": "cpu", "machine": "Linux", "versions": {}}
CHANCES = {
    # Before and under attack. Ann keeps one clip of two and by the mean, 0.55, herself.
    "ann": [("control", 0.9, 0.7), ("control", 0.8, 0.4)],
    "bob": [("pathological", 0.9, 0.6), ("pathological", 0.9, 0.2)],
    "cay": [("pathological", 0.6, 0.1), ("pathological", 0.3, 0.1)],
}
OTHER = {"control": "pathological", "pathological": "control"}


def make_records() -> Iterator[Record]:
    for speaker, clips in CHANCES.items():
        for take, (label, before, after) in enumerate(clips):
            yield Record(
                cell=CELL,
                clip=f"{speaker}-{take}",
                status="ok",
                label=label,
                clean_text=label if before > 0.5 else OTHER[label],
                adversarial_text=label if after > 0.5 else OTHER[label],
                achieved=after < 0.5,
                facts={"speaker": speaker},
                parts={
                    "success": [float(after < 0.5), 1.0],
                    "clean-chance": [before, 1.0],
                    "chance": [after, 1.0],
                },
            )


@pytest.fixture
def plan() -> Plan:
    return make_plan({"model": "detector", "attacks": ["pgd"], "budgets": ["snr(db=20)"]})


def run(folder: Path, plan: Plan, records: list[Record]) -> tuple[RunFolder, Summary, str]:
    """The folder of a run, what it adds up to, and the words of its report."""
    made = RunFolder(folder / "run")
    made.prepare(plan, ABOUT)
    with made.writer() as writer:
        writer.write(records)
    page = write_report(made).read_text(encoding="utf-8")
    body = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return made, summarise(plan, made.records()), " ".join(re.sub(r"<[^>]*>", " ", body).split())


def printed(plan: Plan, summary: Summary, folder: RunFolder) -> str:
    told = tell_speakers(summary, folder.records())
    assert told is not None
    console = Console(file=io.StringIO(), width=160)
    console.print(speaker_table(plan, summary, told))
    return " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]


def test_speakers_are_told_by_the_votes_of_their_clips(tmp_path: Path, plan: Plan) -> None:
    folder, summary, text = run(tmp_path, plan, list(make_records()))
    # Clean: all but Cay (0.45) are right; under attack Ann alone (0.55), for Bob has 0.4 and Cay 0.1.
    # Clopper-Pearson for 2 of 3 is [9.4, 99.2], for 1 of 3 [0.8, 90.6].
    assert "attack budget speakers, clean speakers, attacked" in text
    assert "pgd SNR 20 dB 66.7 % [9.4, 99.2] 33.3 % [0.8, 90.6]" in text
    shown = printed(plan, summary, folder)
    assert "classifies correctly under attack in %" in shown
    assert "clean 67 [9,99]" in shown
    assert "pgd 33 [1,91]" in shown
    found = _to_json(folder, summary)["speakers"][CELL]
    assert {name: (round(one["value"], 3), one["n"]) for name, one in found.items()} == {
        "clean": (0.667, 3),
        "attacked": (0.333, 3),
    }


def test_without_probabilities_it_says_what_to_ask_for(tmp_path: Path, plan: Plan) -> None:
    bare = [replace(one, parts={"success": one.parts["success"]}) for one in make_records()]
    folder, summary, text = run(tmp_path, plan, bare)
    assert "the records hold no probabilities" in text
    assert "add chance and clean-chance to --metrics" in printed(plan, summary, folder)
    assert _to_json(folder, summary)["speakers"] == {}


def first_clips(records: list[Record]) -> list[Record]:
    return [one for one in records if one.clip.endswith("-0")]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(first_clips, id="one clip a speaker"),
        pytest.param(lambda all: [replace(one, facts={}) for one in all], id="no speakers"),
        pytest.param(lambda all: [replace(all[0], label="pathological"), *all[1:]], id="one of both labels"),
        pytest.param(lambda all: [replace(all[0], adversarial_text="yes"), *all[1:]], id="a third answer"),
        pytest.param(lambda all: all[:2], id="one label"),
    ],
)
def test_where_speakers_are_not_what_is_told(
    plan: Plan, change: Callable[[list[Record]], list[Record]]
) -> None:
    records = change(list(make_records()))
    assert tell_speakers(summarise(plan, records), records) is None
