"""Intervals of runs whose clips name their speakers."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.results.summary import by_group, summarise
from sottovoce.core.record import Record
from sottovoce.core.statistics import ratio_bootstrap
from sottovoce.report.heard_section import tell_heard
from sottovoce.report.report_page import list_methods
from sottovoce.report.report_tables import make_panels
from sottovoce.report.trial_columns import Judged
from sottovoce.report.verdict import say_wer

SPEAKERS = "aabbccddeeff"
LEVELS = [10.0, 11.0, 20.0, 22.0, 30.0, 31.0, 15.0, 14.0, 26.0, 25.0, 18.0, 19.0]


def records(speakers: str) -> list[Record]:
    """Clips at some SNR, two of each speaker, who is not known where the letter is a space."""
    return [
        Record(
            cell="pgd_evade_snr-db-20",
            clip=str(number),
            status="ok",
            achieved=True,
            achieved_unrounded=True,
            facts={"speaker": speaker} if speaker != " " else {},
            parts={"snr": [level, 1.0], "success": [1.0, 1.0]},
        )
        for number, (speaker, level) in enumerate(zip(speakers, LEVELS, strict=True))
    ]


def test_the_sentence_on_hearing_writes_numbers_one_way() -> None:
    plan = make_plan({"attacks": ["pgd"], "budgets": ["snr(db=20)"]})
    parts = {"success": [1.0, 1.0], "p-heard": [0.1, 1.0]}
    many = [
        Record(cell="pgd_evade_snr-db-20", clip=str(number), status="ok", achieved=True, parts=parts)
        for number in range(2000)
    ]
    summary = summarise(plan, many)
    (line,) = tell_heard(summary, make_panels(plan, summary))
    assert line.startswith("2\N{NO-BREAK SPACE}000 of 2\N{NO-BREAK SPACE}000 clips can be fooled")


def test_a_recogniser_is_summed_up_by_its_errors_before_and_after() -> None:
    plan = make_plan({"model": "recogniser", "attacks": ["pgd"], "budgets": ["snr(db=20)"]})
    counts = [(1, 3, 4), (0, 2, 6)]
    judged = [
        Record(
            cell="pgd_evade_snr-db-20",
            clip=str(number),
            status="ok",
            achieved=True,
            judged_by="errors",
            parts={"success": [1.0, 1.0], "clean-wer": [before, words], "wer": [after, words]},
        )
        for number, (before, after, words) in enumerate(counts)
    ]
    (line,) = say_wer(make_panels(plan, summarise(plan, judged)))
    # 1 of 10 words, then 5 of 10.
    assert (
        re.sub(r" \[[^]]*\]", "", line)
        == "WER: 10\N{NO-BREAK SPACE}% before, 50\N{NO-BREAK SPACE}% under pgd at SNR 20 dB."
    )


def test_speakers_are_resampled_where_all_are_known() -> None:
    plan = make_plan({"attacks": ["pgd"], "budgets": ["snr(db=20)"]})
    summary = summarise(plan, records(SPEAKERS))
    found = summary.cells[0].estimates
    parts = np.array([[level, 1.0] for level in LEVELS])
    expected = ratio_bootstrap(parts, groups=list(SPEAKERS))
    assert (found["snr"].value, found["snr"].n) == (pytest.approx(sum(LEVELS) / 12), 12)
    assert (found["snr"].low, found["snr"].high) == (expected.low, expected.high)
    assert found["snr"].method == "bootstrap over speakers 95%"
    assert found["success"].method == "Clopper-Pearson 95%"
    explained = dict(list_methods(summary))
    assert "over speakers" in explained["bootstrap over speakers 95%"]
    assert by_group(records(SPEAKERS), "snr", lambda record: record.cell) == {
        "pgd_evade_snr-db-20": found["snr"]
    }


def test_clips_are_resampled_where_one_speaker_is_not_known() -> None:
    plan = make_plan({"attacks": ["pgd"], "budgets": ["snr(db=20)"]})
    summary = summarise(plan, records(SPEAKERS[:-1] + " "))
    assert summary.cells[0].estimates["snr"].method == "bootstrap 95%"
    assert "over clips" in dict(list_methods(summary))["bootstrap 95%"]


def test_a_part_of_a_report_knows_its_speakers() -> None:
    judged = Judged()
    for record in records(SPEAKERS):
        judged.add(record)
    every = judged.estimate("snr", np.ones(12, dtype=bool))
    assert every is not None and every.method == "bootstrap over speakers 95%"
    # Eight clips of four speakers.
    some = judged.estimate("snr", np.arange(12) < 8)
    assert some is not None and (some.n, some.method) == (8, "bootstrap 95%")


def outcome(cell: str, clip: str, errors: int, words: int, changed: bool = True) -> Record:
    parts = {"success": [float(changed), 1.0], "wer": [float(errors), float(words)], "snr": [20.0, 1.0]}
    return Record(
        cell=cell, clip=clip, status="ok", achieved=changed, achieved_unrounded=changed, parts=parts
    )


def test_each_clip_counts_under_the_attack_that_did_it_most_harm() -> None:
    plan = make_plan(
        {
            "attacks": ["noise", "pgd"], "budgets": ["snr(db=20)"], "defenses": ["quantise"],
            "black_box": "genetic(steps=9)",
        }
    )  # fmt: skip
    behind = "quantise_{}_evade_snr-db-20"
    errors = {
        # Clips of 10 and of 2 words, and one of 4 that the universal fit, say, left out elsewhere.
        behind.format("noise"): {"a": (10, 10, True), "b": (0, 2, False), "c": (0, 4, False)},
        behind.format("pgd"): {"a": (4, 10, True), "b": (1, 2, True), "c": (0, 4, False)},
        behind.format("pgd") + "_transfer": {"a": (6, 10, True), "b": (0, 2, False)},
        behind.format("genetic-steps-9"): {"a": (0, 10, False), "b": (0, 2, False), "c": (1, 4, True)},
    }
    found = summarise(
        plan, [outcome(cell, clip, *rest) for cell, clips in errors.items() for clip, rest in clips.items()]
    )
    (group,) = found.groups
    assert group.lead == "wer" and group.strongest is not None
    # Transferred 6 of 12 words, adaptive 5 of 16: the strongest single attack is the transferred one.
    assert group.strongest.item.cell.id == behind.format("pgd") + "_transfer"
    assert group.strongest.item.estimates["wer"].value == pytest.approx(6 / 12)
    # Noise is no attack. Clip by clip: 6 of 10, 1 of 2 and 1 of 4 words, and every transcript changed.
    assert group.strongest.attacks == 3
    assert group.strongest.per_clip["wer"].value == pytest.approx(8 / 16)
    assert (group.strongest.per_clip["success"].value, group.strongest.per_clip["success"].n) == (1.0, 3)
    (shown,) = found.to_json()["strongest"]
    assert (shown["cell"], shown["attacker"], shown["attacks"]) == (
        "quantise_pgd_evade_snr-db-20_transfer",
        "transfer",
        3,
    )
    assert shown["metrics"]["wer"]["value"] == 0.5 and shown["per_clip"]["success"]["n"] == 3


def test_a_broken_clip_is_broken_whichever_attack_broke_it() -> None:
    plan = make_plan({"attacks": ["noise", "fgsm", "pgd"], "budgets": ["snr(db=20)"]})
    outcomes = {"noise": "ooox", "fgsm": "oxo.", "pgd": "xoo."}
    records = [
        Record(
            cell=f"{attack}_evade_snr-db-20",
            clip=str(place),
            status="ok",
            parts={"success": [float("nan") if letter == "." else float(letter == "x"), 1.0]},
        )
        for attack, letters in outcomes.items()
        for place, letter in enumerate(letters)
    ]
    (group,) = summarise(plan, records).groups
    assert group.strongest is not None
    # One of three each, and two of three together; the fourth clip was heard wrong before.
    assert (group.strongest.per_clip["success"].value, group.strongest.per_clip["success"].n) == (
        pytest.approx(2 / 3),
        3,
    )


def test_noise_alone_is_no_attack() -> None:
    plan = make_plan({"attacks": ["noise"], "budgets": ["snr(db=20)"]})
    (group,) = summarise(plan, [outcome("noise_evade_snr-db-20", "a", 1, 2)]).groups
    assert group.strongest is None and group.noise is not None


NAMES = (
    "wer", "snr", "success", "cer", "l2", "linf", "db-max", "fooling-ratio", "pesq", "stoi", "clean-wer",
    "accuracy",
)  # fmt: skip


def test_metrics_come_in_the_order_of_the_records() -> None:
    """Not in that of a set, which is another in every process."""
    plan = make_plan({"attacks": ["pgd"], "budgets": ["snr(db=20)"]})
    cell = "pgd_evade_snr-db-20"
    parts = {name: [1.0, 1.0] for name in NAMES}
    made = [Record(cell=cell, clip=str(number), status="ok", parts=parts) for number in range(2)]
    assert list(summarise(plan, made).to_json()["cells"][0]["metrics"]) == list(NAMES)
    judged = Judged()
    for record in made:
        judged.add(record)
    assert list(judged._parts) == list(NAMES)
