"""The report and the printed table of a defended run, on records whose every figure is known by hand."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console
from scipy import stats

from sottovoce.auditing.checks.sanity import examine
from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.cli.summary_table import list_doubts, summary_table
from sottovoce.core.record import Record
from sottovoce.report.charts import make_series
from sottovoce.report.report_page import write_report
from sottovoce.report.report_tables import make_panels

BEHIND = "quantise-bits-6"
OUTCOMES = {
    # Eight clips, all heard right before; x is a clip that broke.
    "noise_evade_snr-db-20": "oooooooo",
    "pgd_evade_snr-db-20": "xxxxxxxx",
    f"{BEHIND}_noise_evade_snr-db-20": "oooooooo",
    f"{BEHIND}_pgd_evade_snr-db-20": "xooooooo",
    f"{BEHIND}_pgd_evade_snr-db-20_transfer": "xxxxxxoo",
    f"{BEHIND}_genetic-steps-9_evade_snr-db-20": "oooooxxo",
}
ABOUT = {"run": "abc123", "started": "", "device": "cpu", "machine": "Linux", "versions": {}}


def make_records() -> list[Record]:
    return [
        Record(
            cell=cell,
            clip=str(place),
            status="ok",
            label="yes",
            clean_text="yes",
            adversarial_text="no" if letter == "x" else "yes",
            achieved=letter == "x",
            achieved_unrounded=letter == "x",
            parts={
                "success": [float(letter == "x"), 1.0],
                "clean-accuracy": [1.0, 1.0],
                "snr": [20.0, 1.0],
            },
        )
        for cell, letters in OUTCOMES.items()
        for place, letter in enumerate(letters)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    plan = make_plan(
        {
            "attacks": ["noise", "pgd"], "budgets": ["snr(db=20)"], "defenses": ["none", "quantise(bits=6)"],
            "black_box": "genetic(steps=9)",
        }
    )  # fmt: skip
    made = RunFolder(tmp_path_factory.mktemp("runs") / "run")
    made.prepare(plan, ABOUT)
    with made.writer() as writer:
        writer.write(make_records())
    write_report(made)
    return made


@pytest.fixture(scope="module")
def text(folder: RunFolder) -> str:
    """The words of the report outside scripts and tags."""
    page = folder.report_path.read_text(encoding="utf-8")
    body = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def exact(successes: int) -> str:
    low, high = stats.binomtest(successes, 8).proportion_ci(method="exact")
    return f"[{100 * low:.1f}, {100 * high:.1f}]"


def test_the_verdict_names_the_strongest_attacker(text: str) -> None:
    assert f"pgd at SNR 20 dB changes 100 % {exact(8)} of the decisions that were right" in text
    assert (
        f"Behind quantise(bits=6) at SNR 20 dB: 75 % {exact(6)} under the strongest attack, pgd, "
        f"transferred. An attacker who knows the defense reaches 12.5 % {exact(1)}, one who knows only the "
        f"bare model reaches 75 % {exact(6)}, one who sees only answers reaches 25 % {exact(2)}. "
        # Six by the transferred attack, and a seventh by the black box.
        f"With the worst of these 3 attacks for each clip, it is 87.5 % {exact(7)}."
    ) in text


def test_three_attackers_stand_side_by_side(text: str) -> None:
    assert "budget adaptive transferred black box strongest clip by clip" in text
    assert f"no defense SNR 20 dB – – – 100 % {exact(8)} pgd 100 % {exact(8)}" in text
    assert (
        f"quantise(bits=6) SNR 20 dB 12.5 % {exact(1)} pgd 75 % {exact(6)} pgd "
        f"25 % {exact(2)} genetic(steps=9) 75 % {exact(6)} pgd, transferred 87.5 % {exact(7)}"
    ) in text


def test_every_form_has_its_row_and_all_have_one_together(text: str) -> None:
    for title in ("pgd, adaptive", "pgd, transferred", "genetic(steps=9), black box"):
        assert f"{title} SNR 20 dB" in text
    assert f"any of them, clip by clip SNR 20 dB 87.5 % {exact(7)}" in text
    assert "pgd, transferred SNR 20 dB strongest" in text


def test_forms_of_an_attack_share_a_colour_and_differ_in_dash(folder: RunFolder) -> None:
    plan = folder.plan()
    series = make_series(make_panels(plan, summarise(plan, folder.records())))
    assert [(item.name, item.colour, item.shape, item.dash) for item in series] == [
        ("pgd", "var(--c1)", "circle", ()),
        ("pgd, adaptive", "var(--c1)", "circle", ()),
        ("pgd, transferred", "var(--c1)", "circle", (2, 3)),
        ("genetic(steps=9), black box", "var(--c2)", "square", ()),
        ("white noise", "var(--noise)", "circle", (6, 5)),
    ]


def test_doubts_have_their_figures_and_what_to_do(text: str) -> None:
    # Five clips fare worse when transferred, none when adaptive: one half to the fifth is 0.03125.
    assert "Knowing the defense makes the attack weaker in 1 of 1 comparison" in text
    assert (
        "quantise(bits=6) · pgd, adaptive · evade · SNR 20 dB: 12.5 %, but pgd, transferred 75 %; of 8 clips "
        "5 fare worse under the latter and 0 under the former, p = 0.031"
    ) in text
    assert "Next: check that every part of the defense passes on a useful gradient" in text
    # Two clips against one: no more than chance.
    assert "No black-box attack beats the gradient attacks" in text
    assert "Every defense was attacked in three ways" in text


def test_the_terminal_shows_a_table_a_defense(folder: RunFolder) -> None:
    file = io.StringIO()
    plan = folder.plan()
    summary = summarise(plan, folder.records())
    console = Console(file=file, width=80)
    console.print(summary_table(plan, summary))
    for line in list_doubts(plan, summary, examine(plan, summary, folder.probes())):
        console.print(line, soft_wrap=True)
    shown = file.getvalue()
    bare, defended = shown.split("behind quantise(bits=6)")
    assert re.search(
        r"no defense; clean accuracy 100 \[63,100\]\n.*pgd +100 \[63,100\]", bare, flags=re.DOTALL
    )
    assert re.search(r"pgd +adaptive +12 \[0,53\]", defended)
    assert re.search(r"pgd +transferred +75 \[35,97\]", defended)
    assert re.search(r"genetic\(steps=9\) +black box +25 \[3,65\]", defended)
    assert re.search(r"any +88 \[47,100\]", defended)
    assert "any: each clip under the attack that harmed it most, without noise" in defended
    # One attack alone on the bare model has no row of all together.
    assert "any " not in bare
    assert "doubt: Knowing the defense makes the attack weaker in 1 of 1 comparison" in shown
    assert "p = 0.031" in shown and "next: check that" in shown
    assert "doubt: Few clips" in shown


def test_a_run_of_one_defense_alone_is_judged_on_it(tmp_path: Path) -> None:
    plan = make_plan(
        {
            "attacks": ["noise", "pgd"], "budgets": ["snr(db=20)"], "defenses": ["quantise(bits=6)"],
            "black_box": "genetic(steps=9)",
        }
    )  # fmt: skip
    made = RunFolder(tmp_path / "run")
    made.prepare(plan, ABOUT)
    with made.writer() as writer:
        writer.write([record for record in make_records() if record.cell.startswith(BEHIND)])
    page = write_report(made).read_text(encoding="utf-8")
    assert "keyword behind quantise(bits=6) on 8 clips" in page
    assert "pgd, transferred at SNR 20 dB changes " in page
