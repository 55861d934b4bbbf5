from __future__ import annotations

from typing import get_args

import pytest

from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.plan.plan_grid import make_grid
from sottovoce.auditing.plan.plan_presets import PRESETS, Preset, fill, guess
from sottovoce.auditing.run.run_cell import assemble
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Says, Target
from sottovoce.errors import UnknownName
from sottovoce.targets.open_target import Kind, look_at
from sottovoce.targets.zoo.keyword_cnn import keyword
from sottovoce.targets.zoo.recogniser_targets import recogniser
from sottovoce.testing import ToyEndpoint, ToyScorer


def plan_of(preset: Preset, says: Kind, **settings: object) -> Plan:
    (plan,) = make_grid({"preset": preset, **settings}).plans(lambda model: says).values()
    return plan


def test_there_are_three() -> None:
    assert PRESETS == get_args(Preset) == ("quick", "standard", "paper")
    with pytest.raises(UnknownName, match="did you mean 'paper'"):
        fill("papr", "class")  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("says", ["class", "words"])
def test_every_cell_of_a_preset_goes_together_with_its_kind_of_model(preset: Preset, says: Says) -> None:
    model = "keyword" if says == "class" else "recogniser"
    plan = plan_of(preset, says, model=model, defenses=["none", "gaussian(sigma=0.01)"])
    target = keyword("cpu") if says == "class" else recogniser("cpu")
    for cell in plan.cells():
        assemble(plan, cell, target)


class Mute(Target):
    """A classifier that gives answers alone."""

    sample_rate = 1000

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return ["north"] * len(batch)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (ToyEndpoint(), "words, no gradient"),
        (ToyScorer(), "class, no gradient"),
        (Mute(), "class, no gradient"),
    ],
)
def test_every_cell_of_a_preset_runs_without_a_gradient(preset: Preset, target: Target, kind: Kind) -> None:
    assert look_at(target) == kind
    plan = plan_of(preset, kind, model="python:mine:make", defenses=["none", "gaussian(sigma=0.01)"])
    for cell in plan.cells():
        assemble(plan, cell, target)
    usual = make_plan({"model": "python:mine:make"}, lambda model: kind)
    assert [assemble(usual, cell, target).cell for cell in usual.cells()] == usual.cells()


def test_standard_has_the_attacks_that_a_claim_must_stand() -> None:
    plan = plan_of("standard", "class")
    assert [part.name for part in plan.attacks] == ["noise", "fgsm", "pgd", "apgd", "deepfool", "genetic"]
    assert [str(part) for part in plan.budgets] == [f"snr(db={db})" for db in (20, 30, 40, 50, 60)]
    assert "deepfool" not in [part.name for part in plan_of("standard", "words").attacks]
    assert len(plan_of("standard", "words").budgets) == 5


def test_paper_takes_the_steps_of_the_papers() -> None:
    assert "pgd(steps=200)" in [str(part) for part in plan_of("paper", "class").attacks]
    words = plan_of("paper", "words")
    forced = [cell for cell in words.cells() if cell.attack.name == "cw-asr"]
    assert [(cell.goal.name, cell.attack.settings["steps"]) for cell in forced] == [("force", 5000)]


def test_what_is_said_is_kept() -> None:
    plan = plan_of("quick", "class", attacks=["cw"], limit=7)
    assert ([str(part) for part in plan.attacks], plan.limit) == (["cw"], 7)
    assert len(plan.budgets) == 2


def test_attacks_of_a_preset_that_cannot_search_a_budget_stay_away() -> None:
    names = [part.name for part in plan_of("standard", "class", budgets=["audible(p=0.25)"]).attacks]
    assert names == ["noise", "fgsm", "pgd", "apgd"]


@pytest.mark.parametrize(
    ("model", "says"),
    [("whisper:nowhere.pt", "words"), ("whisper(model=x)", "words"), ("python:mine:make", "class")],
)
def test_a_model_that_cannot_be_opened_is_guessed_by_its_name(model: str, says: Says) -> None:
    assert guess(model) == says
