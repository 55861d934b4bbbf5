"""`attacks: none`: clean accuracy or WER, and nothing else."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from sottovoce.auditing.checks.sanity import examine
from sottovoce.auditing.estimate.run_estimate import estimate
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.plan.plan_grid import make_grid
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.driver import run_audit
from sottovoce.cli.summary_table import grid_table, summary_table
from sottovoce.core.attack import listen
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError
from sottovoce.leaderboard.claims.make_claims import make_claims
from sottovoce.leaderboard.run_reading import read_run
from sottovoce.leaderboard.static_site import write_site
from sottovoce.report.report_page import write_report
from sottovoce.targets.open_target import open_target
from sottovoce.testing import ToyClassifier

# Of the six clips five are heard right: Clopper-Pearson from 0.3588 to 0.9958, as SciPy's binomtest has it.
FIVE_OF_SIX = {"value": 5 / 6, "low": 0.3587654, "high": 0.9957893, "n": 6, "method": "Clopper-Pearson 95%"}


def make(model: str, **settings: object) -> Plan:
    return make_plan({"model": model, "data": "clips", "attacks": ["none"]} | settings)


def shown(table: object) -> str:
    file = io.StringIO()
    Console(file=file, width=120).print(table)
    return file.getvalue()


def test_a_plan_of_no_attack_has_one_cell_a_defense() -> None:
    plan = make_plan(
        {"attacks": ["none"], "defenses": ["none", "quantise(bits=8)"], "budgets": ["snr(db=9)"]}
    )
    assert plan.clean
    assert [cell.id for cell in plan.cells()] == ["clean", "quantise-bits-8_clean"]
    assert [(str(cell.goal), str(cell.budget), cell.attacker) for cell in plan.cells()] == [
        ("none", "none", "plain")
    ] * 2
    # What has no meaning is no part of the plan, nor of its id.
    assert plan == make_plan({"attacks": ["none"], "defenses": ["none", "quantise(bits=8)"]})
    assert not make_plan({}).clean


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attacks": ["none", "pgd"]}, "'attacks': expected none alone, got other attacks beside it"),
        ({"attacks": ["none"], "include": [{"attack": "pgd"}]}, "expected none alone"),
        ({"attacks": ["pgd"], "include": [{"attack": "none"}]}, "expected attacks in a rule of 'include'"),
        ({"attacks": ["none"], "metrics": ["success"]}, "'metrics': expected metrics of clean clips"),
        ({"attacks": ["none(steps=3)"]}, "steps"),
    ],
)
def test_no_attack_stands_alone(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(settings)
    assert message in str(caught.value)


@pytest.mark.parametrize("preset", ["quick", "standard", "paper"])
def test_a_preset_adds_no_attack_to_none(preset: str) -> None:
    grid = make_grid({"model": "recogniser", "preset": preset, "attacks": "none"})
    ((_, plan),) = grid.plans(lambda model: "words").items()
    assert [cell.id for cell in plan.cells()] == ["clean"]


def test_the_records_hold_what_was_heard_and_no_success(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = make(mean_model)
    folder = run_audit(plan, tmp_path / "run")
    found = {record.clip: record for record in folder.records()}
    assert len(found) == 6
    wrong = found["down/0"]
    assert (wrong.cell, wrong.status, wrong.label, wrong.clean_text) == ("clean", "ok", "down", "up")
    assert (wrong.adversarial_text, wrong.achieved, wrong.achieved_unrounded) == ("", None, None)
    parts = [{name: list(pair) for name, pair in each.parts.items()} for each in (wrong, found["up/1"])]
    assert parts == [{"clean-accuracy": [0.0, 1.0]}, {"clean-accuracy": [1.0, 1.0]}]
    assert wrong.audio == {}
    assert not (folder.path / "audio").exists()
    assert list(folder.probes()) == []


def test_the_summary_is_one_figure_with_its_interval(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    plan = make(mean_model, defenses=["none", "quantise(bits=8)"])
    folder = run_audit(plan, tmp_path / "run")
    summary = summarise(plan, folder.records())
    content = summary.to_json()
    assert content["clean"] == [
        {"defense": "none", "metrics": {"clean-accuracy": pytest.approx(FIVE_OF_SIX)}},
        {"defense": "quantise(bits=8)", "metrics": {"clean-accuracy": pytest.approx(FIVE_OF_SIX)}},
    ]
    assert [list(cell["metrics"]) for cell in content["cells"]] == [["clean-accuracy"]] * 2
    assert (content["strongest"], content["failed"]) == ([], [])
    table = shown(summary_table(plan, summary))
    assert "on clean clips in %, with 95 % intervals; nothing was attacked" in table
    assert [line.split() for line in table.splitlines() if "[" in line] == [
        ["no", "defense", "83", "[36,100]", "6"],
        ["quantise(bits=8)", "83", "[36,100]", "6"],
    ]
    # Six clips are few, and that is all that can be doubted.
    assert [check.kind for check in examine(plan, summary) if not check.passed] == ["few-clips"]


def test_the_report_speaks_of_no_attack(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    folder = run_audit(make(mean_model), tmp_path / "run")
    page = write_report(folder).read_text(encoding="utf-8")
    assert "Clean clips, no attack · run" in page
    assert '<b title="n = 6, Clopper-Pearson 95%">83.3\N{NO-BREAK SPACE}%</b>' in page
    assert "Nothing was attacked: these figures do not show how robust the model is." in page
    assert "Clean accuracy by class" in page
    for word in ("SNR", "attack success", "What was attacked", "white noise"):
        assert word not in page, word


def test_a_run_without_attacks_claims_nothing(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    folder = run_audit(make(mean_model), tmp_path / "run")
    assert make_claims(read_run(folder)) == []
    with pytest.raises(InputError, match="attacked nothing and is left out"):
        write_site([folder.path], tmp_path / "site")


def test_a_dry_run_counts_one_pass_a_clip(mean_model: str, mean_clips: Path) -> None:
    plan = make(mean_model, defenses=["none", "quantise(bits=8)"])
    found = estimate("run", plan, open_target(mean_model, "cpu"), Path("nowhere"), device="cpu")
    assert (found.cells, found.trials, found.unfit) == (2, 12, ())
    # One forward, none back; no probes.
    totals = [line.total for line in found.lines]
    assert [(total.forward, total.backward) for total in totals] == [(6.0, 0.0)] * 2
    assert found.probes.forward == 0
    assert [line.attack for line in found.lines] == ["none", "none"]


def test_a_recogniser_gives_its_word_error_rate(tmp_path: Path) -> None:
    plan = make_plan({"model": "recogniser", "attacks": ["none"], "limit": 2, "batch": 2})
    folder = run_audit(plan, tmp_path / "run")
    (found,) = summarise(plan, folder.records()).clean.values()
    assert list(found) == ["clean-wer", "clean-cer"]
    assert found["clean-wer"].n == 2
    records = list(folder.records())
    assert all(set(record.parts) == {"clean-wer", "clean-cer"} for record in records)
    table = shown(summary_table(plan, summarise(plan, records)))
    assert "clean WER" in table and "clean CER" in table


def test_clips_are_heard_as_an_attack_hears_them_before(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    """In the same order, with the same draws and on the same grid."""
    noisy = {"defenses": ["gaussian(sigma=0.05)"], "attackers": ["adaptive"]}
    clean = run_audit(make(mean_model, **noisy), tmp_path / "clean")
    attacked = run_audit(
        make(mean_model, attacks=["noise"], budgets=["snr(db=3)"], probe=0, **noisy), tmp_path / "attacked"
    )
    said = [{record.clip: record.clean_text for record in run.records()} for run in (clean, attacked)]
    assert said[0] == said[1]


def test_listening_is_a_trial_whose_examples_are_the_clips() -> None:
    target = ToyClassifier()
    batch = AudioBatch.of([[0.25] * 400, [-0.1] * 300], target.sample_rate)
    trial = listen(target, batch, draws=Draws(0), labels=("north", "south"))
    assert trial.adversarial is trial.clean
    assert trial.achieved == (False, False)
    assert trial.clean_texts == trial.adversarial_texts == trial.references
    assert float(trial.delta.abs().max()) == 0.0


@pytest.fixture
def attacked(mean_model: str, mean_clips: Path, tmp_path: Path) -> tuple[Plan, object]:
    """A run that asks for success alone."""
    plan = make(mean_model, attacks=["noise", "fgsm"], budgets=["snr(db=-3)"], metrics=["success"], probe=0)
    return plan, summarise(plan, run_audit(plan, tmp_path / "run").records())


def test_every_table_of_a_classifier_shows_its_clean_accuracy(attacked: tuple[Plan, object]) -> None:
    plan, summary = attacked
    title = shown(summary_table(plan, summary)).splitlines()[0]  # type: ignore[arg-type]
    assert title.endswith("in %, with 95 % intervals; clean accuracy 83 [36,100]")
    rows = shown(grid_table({"one": (plan, summary)})).splitlines()  # type: ignore[dict-item]
    assert rows[2].split() == ["run", "defense", "of", "clean", "SNR", "-3", "dB"]
    assert rows[4].split()[:5] == ["one", "none", "success", "83", "[36,100]"]
    assert rows[-1] == "clean: accuracy of a classifier, WER of a recogniser, before any attack"


def test_every_json_of_a_classifier_has_its_clean_accuracy(attacked: tuple[Plan, object]) -> None:
    _, summary = attacked
    content = summary.to_json()  # type: ignore[attr-defined]
    assert content["clean"] == [
        {"defense": "none", "metrics": {"clean-accuracy": pytest.approx(FIVE_OF_SIX)}}
    ]


def test_runs_with_and_without_attacks_stand_in_one_table(
    mean_model: str, mean_clips: Path, tmp_path: Path, attacked: tuple[Plan, object]
) -> None:
    plan = make(mean_model)
    summary = summarise(plan, run_audit(plan, tmp_path / "clean").records())
    rows = shown(grid_table({"one": attacked, "two": (plan, summary)})).splitlines()  # type: ignore[dict-item]
    assert rows[5].split() == ["two", "none", "clean", "83", "[36,100]", "–"]
    alone = shown(grid_table({"two": (plan, summary)}))
    assert "Clean accuracy or WER in %, with 95 % intervals; nothing was attacked" in alone


def test_clips_count_once_whichever_cells_they_met(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    """Cells of a forced class pass over the clips that say it already: together they met all six."""
    plan = make(
        mean_model, attacks=["noise"], budgets=["snr(db=-3)"], probe=0,
        goals=["force(text=up)", "force(text=down)"],
    )  # fmt: skip
    summary = summarise(plan, run_audit(plan, tmp_path / "run").records())
    assert [item.clips for item in summary.cells] == [3, 3]
    assert summary.clean["none"]["clean-accuracy"].n == 6
    assert summary.clean["none"]["clean-accuracy"].value == pytest.approx(5 / 6)
