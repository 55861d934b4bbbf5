"""Runs as tables for papers: figures that are known by hand, and letters that LaTeX and Markdown read."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.cli.main import app
from sottovoce.core.record import Record
from sottovoce.report.table_formats import TextTable, to_latex, to_markdown

KEPT = Path(__file__).parents[1] / "fixtures" / "run-0.1.0"
PLAN: dict[str, Any] = {
    "model": "python:nobody:makes",
    "attacks": ["noise", "fgsm", "pgd(steps=5)"],
    "budgets": ["snr(db=20)", "snr(db=40)"],
    "probe": 0,
}
CELLS = {
    "noise_evade_snr-db-20": "0000",
    "fgsm_evade_snr-db-20": "1100",
    "pgd-steps-5_evade_snr-db-20": "0110",
    "pgd-steps-5_evade_snr-db-40": "0001",
}


def run_of(folder: Path, cells: Mapping[str, str], **plan: Any) -> Path:
    """Clips a to d: 1 is a success, x is a failure."""
    folder.mkdir(parents=True)
    (folder / "plan.yaml").write_text(make_plan({**PLAN, **plan}).to_yaml())
    records = [
        Record(cell=cell, clip=clip, status="failed", reason="too short")
        if letter == "x"
        else Record(
            cell=cell,
            clip=clip,
            status="ok",
            achieved=letter == "1",
            parts={"success": (float(letter), 1.0), "snr": (-20.0 if letter == "1" else math.inf, 1.0)},
        )
        for cell, letters in cells.items()
        for clip, letter in zip("abcd", letters, strict=False)
    ]
    (folder / "trials.jsonl").write_text("".join(record.to_line() + "\n" for record in records))
    return folder


def test_markdown_is_aligned_and_has_the_worst_case(tmp_path: Path) -> None:
    text = sv.read_run(run_of(tmp_path / "one", CELLS)).table()
    # Clopper-Pearson of 0, 1, 2 and 3 of 4. Noise at 40 dB was not run.
    assert text.splitlines() == [
        "attack success in %; 95 % intervals by Clopper-Pearson; 4 clips a value; any: each clip under the "
        "attack that did it most harm.",
        "",
        "| target              | defense | attack       | goal  |         SNR 20 dB |        SNR 40 dB |",
        "| :------------------ | :------ | :----------- | :---- | ----------------: | ---------------: |",
        "| python:nobody:makes | none    | noise        | evade |   0.0 [0.0, 60.2] |                – |",
        "| python:nobody:makes | none    | fgsm         | evade |  50.0 [6.8, 93.2] |                – |",
        "| python:nobody:makes | none    | pgd(steps=5) | evade |  50.0 [6.8, 93.2] | 25.0 [0.6, 80.6] |",
        "| python:nobody:makes | none    | any          | evade | 75.0 [19.4, 99.4] |                – |",
    ]


def test_latex_is_a_tabular_with_booktabs(tmp_path: Path) -> None:
    cells = {"pgd-steps-5_evade_snr-db-20": "0110"}
    text = sv.read_run(run_of(tmp_path / "one", cells, defenses=["none", "quantise(bits=8)"])).table("latex")
    assert text.splitlines() == [
        "% attack success in %; 95 % intervals by Clopper-Pearson; 4 clips a value.",
        r"% Needs \usepackage{booktabs}.",
        r"\begin{tabular}{llllr}",
        r"\toprule",
        r"target              & defense & attack       & goal  &        SNR 20 dB \\",
        r"\midrule",
        r"python:nobody:makes & none    & pgd(steps=5) & evade & 50.0 [6.8, 93.2] \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_csv_has_the_rows_of_the_summary_and_of_the_worst_case(tmp_path: Path) -> None:
    run = sv.read_run(run_of(tmp_path / "one", CELLS))
    rows = list(csv.DictReader(io.StringIO(run.table("csv", "success"), newline="")))
    wanted = [row for row in run.summary() if row["metric"] == "success"]
    assert list(rows[0]) == list(wanted[0])
    assert [row for row in rows if row["attack"] != "any"] == [
        {name: str(value) for name, value in row.items()} for row in wanted
    ]
    (worst,) = [row for row in rows if row["attack"] == "any"]
    assert (worst["budget"], worst["value"], worst["clips"], worst["attacker"]) == (
        "snr(db=20)", "0.75", "4", "",
    )  # fmt: skip


def test_several_metrics_have_a_column_and_their_own_units(tmp_path: Path) -> None:
    text = sv.read_run(run_of(tmp_path / "one", CELLS)).table("latex", "success,snr")
    assert "goal  & metric " in text
    assert r"& attack success in \% &" in text
    # Two clips of -20 dB each: a mean without a spread. Where nothing was changed there is none.
    assert r"& SNR in dB            & $-$20.0 [$-$20.0, $-$20.0] &" in text
    (noise,) = [line for line in text.splitlines() if "noise" in line and "SNR in dB" in line]
    assert noise.split("&")[-2].strip() == "--"


def test_seeds_are_told_apart_and_models_are_not(tmp_path: Path) -> None:
    one = run_of(tmp_path / "one", CELLS)
    seed = run_of(tmp_path / "two", CELLS, seed=1)
    other = run_of(tmp_path / "three", CELLS, model="python:somebody:else")
    done = CliRunner().invoke(app, ["table", str(one), str(seed), str(one)])
    assert done.exit_code == 0, done.output
    assert [line.split("|")[1].strip() for line in done.output.splitlines()[4:]] == ["one"] * 4 + ["two"] * 4
    done = CliRunner().invoke(app, ["table", str(one), str(other), "--format", "latex"])
    assert "run" not in done.output.splitlines()[4].split()
    assert done.output.count(r"\midrule") == 2
    done = CliRunner().invoke(app, ["table", str(one), str(other), "--format", "csv"])
    assert done.output.startswith("run,target,")


def test_the_ending_of_the_file_chooses_the_format(tmp_path: Path) -> None:
    one = run_of(tmp_path / "one", CELLS)
    for name, start in (("a.tex", "% attack"), ("a.csv", "target,"), ("a.md", "attack"), ("a.txt", "attack")):
        done = CliRunner().invoke(app, ["table", str(one), "--out", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
        assert (tmp_path / name).read_text().startswith(start)


def test_clean_runs_have_one_column(tmp_path: Path) -> None:
    folder = tmp_path / "clean"
    folder.mkdir()
    plan = make_plan({"model": "python:nobody:makes", "attacks": ["none"], "goals": [], "budgets": []})
    (cell,) = plan.cells()
    (folder / "plan.yaml").write_text(plan.to_yaml())
    made = [
        Record(cell=cell.id, clip=clip, status="ok", parts={"clean-accuracy": (float(clip != "a"), 1.0)})
        for clip in "abcd"
    ]
    (folder / "trials.jsonl").write_text("".join(record.to_line() + "\n" for record in made))
    lines = sv.read_run(folder).table().splitlines()
    assert lines[0].startswith("clean accuracy in %")
    assert [cell.strip() for cell in lines[-1].split("|")][1:-1] == [
        "python:nobody:makes", "none", "none", "", "75.0 [19.4, 99.4]",
    ]  # fmt: skip
    assert lines[2].split("|")[-2].strip() == "clean"


@pytest.mark.parametrize("name", ["classifier", "recogniser", "grid"])
@pytest.mark.parametrize("form", ["md", "latex", "csv"])
def test_runs_of_earlier_versions_have_tables(name: str, form: str) -> None:
    done = CliRunner().invoke(app, ["table", str(KEPT / name), "--format", form])
    assert done.exit_code == 0, done.output
    assert "pgd(steps=" in done.output


def test_a_recogniser_is_shown_by_its_word_errors() -> None:
    text = sv.read_run(KEPT / "recogniser").table()
    assert text.startswith("WER under attack in %")
    # 3 of 7 words.
    assert "| 42.9 [" in text


def test_letters_with_a_meaning_are_escaped() -> None:
    odd = 'a_b{c}\\d & 50 % #1 $x^2 ~ <a|b> "q" x--y\nz'
    table = TextTable(
        "caption\nof 5 %", ["target"], ["SNR 20 dB"], [[odd, "1"], ["[a]", "2"]], frozenset({1})
    )
    latex = to_latex(table).splitlines()
    assert latex[0] == "% caption of 5 %"
    assert (
        r"a\_b\{c\}\textbackslash{}d \& 50 \% \#1 \$x\textasciicircum{}2 \textasciitilde{} "
        r"\textless{}a\textbar{}b\textgreater{} \symbol{34}q\symbol{34} x-{}-y z & " in latex[6]
    )
    # After the end of a row a bracket would be its option.
    assert latex[7] == r"\midrule" and latex[8].startswith("{[}a]")
    markdown = to_markdown(table).splitlines()
    assert r"| a\_b{c}\\d & 50 % #1 $x^2 \~ \<a\|b> " in markdown[4]
    assert len({len(line) for line in markdown[2:]}) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "html"], "format expected one of md, latex, csv, got 'html'."),
        (["--metric", "pesq"], "metric expected one that was measured in {run} (success, snr), got pesq."),
        (["--metric", "snrr"], "unknown metric 'snrr': did you mean 'snr'?"),
        (["--out", "."], "--out expected a file that can be written, got '.' (Is a directory)"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], message: str, tmp_path: Path) -> None:
    run = run_of(tmp_path / "one", CELLS)
    done = CliRunner().invoke(app, ["table", str(run), *words])
    assert message.format(run=run) in str(done.exception)


def test_what_has_no_figures_is_told(tmp_path: Path) -> None:
    failed = run_of(tmp_path / "failed", {"fgsm_evade_snr-db-20": "xx"})
    for run, message in (
        (failed, "expected a run with figures, got none in"),
        (run_of(tmp_path / "empty", {}), "nothing is on record, or all clips failed"),
        (tmp_path / "absent", "is not the folder of a run or of a grid"),
    ):
        with pytest.raises(sv.errors.InputError, match=message):
            sv.Run(run).table()
