"""The plans hold what the thesis says, word for word, and can be made where no page can."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.errors import UnknownName
from sottovoce.studies.olivier2023.runs.recogniser_plans import PLANS, Ask, plans_of, regularisation

TINY = "whisper:models/whisper-tiny.pt"


def full(study: str, model: str = TINY, **more: int) -> dict[str, Plan]:
    return plans_of(study, Ask(scale="full", model=model, data="librispeech:clips", **more))  # type: ignore[arg-type]


def told(plan: Plan) -> tuple[list[str], list[str], list[str], int | None]:
    attacks, goals, budgets = (list(map(str, part)) for part in (plan.attacks, plan.goals, plan.budgets))
    return attacks, goals, budgets, plan.limit


def test_whisper_under_attack() -> None:
    plans = full("O7")
    assert {plan.model for plan in plans.values()} == {"whisper(model=models/whisper-tiny.pt, beams=5)"}
    assert told(plans["untargeted"]) == (
        ["noise", "pgd(steps=200, step=0.1)"],
        ["evade"],
        ["snr(db=35)", "snr(db=40)", "linf(eps=0.005)", "linf(eps=0.0015)"],
        None,
    )
    assert told(plans["noise"]) == (["noise"], ["evade"], ["snr(db=0)"], None)
    attacks, goals, budgets, clips = told(plans["targeted"])
    assert goals == ['force(text="OK Google, browse to evil.com")']
    assert (budgets, clips) == (["linf(eps=0.1)"], 20)
    # Steps of 0.01 are 0.1 of the first radius.
    assert attacks == [
        "cw-asr(steps=2000, learning_rate=0.1, c=0.25, eps=0.1, shrink=0.7, times=8, first_token=1.0)"
    ]


def test_small_whispers_have_another_weight() -> None:
    assert [regularisation(f"whisper:{size}") for size in ("tiny.en", "base", "small", "large-v3")] == [
        0.25,
        0.25,
        1.0,
        1.0,
    ]


def test_language_confusion() -> None:
    plans = full("O8")
    assert told(plans["confusion"]) == (
        ["pgd(steps=30, step=0.1)"],
        ["language(code=en)", "language(code=tl)", "language(code=sr)"],
        ["snr(db=45)"],
        None,
    )
    attacks, goals, budgets, _ = told(plans["universal"])
    assert (goals, budgets) == (["language(code=sr)"], ["snr(db=40)"])
    assert (
        "epochs=2000, step=0.001" in attacks[0]
        and "batch_clips=1" in attacks[0]
        and "seconds=30" in attacks[0]
    )


def test_white_box_attacks() -> None:
    plans = full("O5", "recogniser")
    attacks, _, budgets, clips = told(plans["untargeted"])
    assert attacks == ["noise", "fgsm", "pgd(steps=100, step=0.1)", "apgd(steps=100)"]
    assert {budget.partition("(")[0] for budget in budgets} == {"snr", "linf"}
    assert clips is None
    attacks, goals, _, clips = told(plans["targeted"])
    assert attacks[0].startswith("cw-asr(steps=5000, ") and clips == 100
    assert len(plans["targeted"].goals[0].build("goal").choices) == 3
    assert goals[0].startswith("force-nearest(choices=[really short test string, ")


def test_attacks_without_a_gradient() -> None:
    plans = full("O12", "recogniser")
    attacks, _, budgets, _ = told(plans["genetic"])
    assert attacks == ["noise", "genetic(steps=2000)"]
    assert all(budget.startswith("linf(") for budget in budgets)
    removal = told(plans["removal"])
    names = [name.partition("(")[0] for name in removal[0]]
    assert names == ["noise", "kenansville", "kenansville-ssa", "yeehaw"]
    assert "snr(db=20)" in removal[2]


@pytest.mark.parametrize("study", PLANS)
@pytest.mark.parametrize("scale", ["mini", "full"])
def test_every_plan_is_sound_and_survives_its_file(study: str, scale: str) -> None:
    for plan in plans_of(study, Ask(scale=scale, model=TINY, data="prompts")).values():  # type: ignore[arg-type]
        assert make_plan(plan.model_dump(mode="json")) == plan
        assert plan.audio == "none"


def test_clips_by_hand_do_not_lengthen_what_is_slow() -> None:
    plans = full("O7", clips=122, batch=32, seed=3)
    assert {name: plan.limit for name, plan in plans.items()} == {
        "untargeted": 122,
        "noise": 122,
        "targeted": 20,
    }
    assert {(plan.batch, plan.seed) for plan in plans.values()} == {(32, 3)}
    assert {plan.limit for plan in full("O7", clips=5).values()} == {5}


def test_clips_to_fit_on_go_where_something_is_fitted() -> None:
    plans = plans_of("O8", Ask(scale="mini", model=TINY, data="prompts", fit="csv:other.csv"))
    assert {name: plan.fit for name, plan in plans.items()} == {
        "confusion": None,
        "noise": None,
        "universal": "csv:other.csv",
    }


def test_a_model_in_full_words_keeps_its_beams() -> None:
    plans = full("O7", "whisper(model=tiny.pt, beams=1)")
    assert plans["noise"].model == "whisper(model=tiny.pt, beams=1)"


def test_a_study_without_plans() -> None:
    with pytest.raises(UnknownName, match="did you mean 'O7'"):
        full("O77")


@pytest.mark.slow
def test_plans_need_no_library_that_draws() -> None:
    code = (
        "import sys; sys.modules.update(matplotlib=None, altair=None, jinja2=None);"
        "import sottovoce.studies.olivier2023.runs.recogniser_plans, sottovoce.auditing.run.driver"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
