"""The plans of the studies of defenses: cells counted by hand, sizes as the thesis has them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sottovoce.auditing.certificates.certify_run import CertifyPlan
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.studies.ask import Ask
from sottovoce.studies.olivier2023.runs.certificate_plans import o16
from sottovoce.studies.olivier2023.runs.recogniser_plans import names_of, plans_of

TOOL = Path(__file__).parents[2] / "tools" / "run_plans.py"


def plans(study: str, **more: Any) -> dict[str, Plan]:
    return plans_of(study, Ask(**{"scale": "full", "model": "recogniser", "data": "strings", **more}))


def budgets(plan: Plan) -> list[str]:
    return [str(budget) for budget in plan.budgets]


def test_noisy_clips() -> None:
    found = plans("O13")
    # No noise, and five deviations of eight rows that are not trained on noise; three rows that are.
    assert len(found["natural"].cells()) == 1 + 5 * 8
    assert len(found["natural-trained"].cells()) == 1 + 5 * 3
    assert found["natural-trained"].model == "recogniser(variant=noisy)"
    assert {
        "none",
        "gaussian(sigma=0.01)",
        "gaussian(sigma=0.02)+majority(passes=100)",
        "gaussian(sigma=0.045)+average(passes=100)",
        "gaussian(sigma=0.063)+asnr+rover(passes=16)",
        "gaussian(sigma=0.15)+rover(passes=32)",
    } <= set(found["natural"].defenses)
    assert found["votes"].defenses[-1] == "gaussian(sigma=0.15)+rover(passes=48)"
    assert len(found["votes"].cells()) == 7


def test_the_thesis_s_deviations_on_its_recordings() -> None:
    found = plans("O13", data="librispeech:DIR")
    assert len(found["natural"].cells()) == 1 + 2 * 8
    assert found["pgd"].defenses == (
        "none",
        "gaussian(sigma=0.01)+asnr+rover(passes=16)",
        "gaussian(sigma=0.02)+asnr+rover(passes=16)",
    )
    assert plans("O14", data="librispeech:DIR")["smoothed"].defenses == (
        "gaussian(sigma=0.02)+asnr+rover(passes=8)",
    )


def test_pgd_behind_defenses() -> None:
    found = plans("O13")
    levels = [f"snr(db={db})" for db in (35, 30, 25, 20, 15, 10)]
    named = [name for name in found if name.startswith("pgd")]
    assert named == ["pgd", "pgd-mp3", "pgd-trained", "pgd-parts", "pgd-parts-trained"]
    for name in named:
        assert budgets(found[name]) == levels
        # None: 16 passes where a defense is random.
        assert (found[name].average, found[name].attackers) == (None, ("adaptive",))
        assert [str(attack) for attack in found[name].attacks] == ["pgd(steps=50, step=0.283)"]
    # Bare and two deviations; MP3; bare and two; three parts of two; one of two: each at six sizes.
    assert [len(found[name].cells()) for name in named] == [18, 6, 18, 36, 12]
    assert found["pgd-trained"].model == "recogniser(variant=noisy)"
    assert found["pgd-trained"].defenses[1:] == (
        "gaussian(sigma=0.045)+rover(passes=16)",
        "gaussian(sigma=0.063)+rover(passes=16)",
    )


def test_attacks_that_know_less() -> None:
    found = plans("O13")
    for name in ("one-pass", "one-pass-trained", "transfer", "transfer-trained"):
        assert found[name].average == 1 and len(found[name].cells()) == 6
    assert {cell.attacker for cell in found["one-pass"].cells()} == {"adaptive"}
    assert {cell.attacker for cell in found["transfer"].cells()} == {"transfer"}


def test_texts_are_forced_without_a_bound() -> None:
    plan = plans("O13")["cw"]
    assert str(plan.attacks[0]).startswith("cw-asr(steps=1000, learning_rate=0.1, c=0.02, eps=0.3, ")
    assert budgets(plan) == ["linf(eps=0.3)"] and len(plan.cells()) == 3
    assert "really short test string" in str(plan.goals[0])


def test_models_that_sottovoce_does_not_train() -> None:
    found = plans("O13", model="whisper:tiny", data="prompts")
    assert not [name for name in found if name.endswith("-trained")]
    assert not [text for text in found["natural"].defenses if "average" in text]


def test_fewer_steps_are_longer_ones() -> None:
    steps = [str(plans("O14", steps=count)["bare"].attacks[0]) for count in (10, 20, 50, 80)]
    assert steps == [
        # 2 / sqrt(steps): in a ball steps lead every way.
        "pgd(steps=10, step=0.632)",
        "pgd(steps=20, step=0.447)",
        "pgd(steps=50, step=0.283)",
        "pgd(steps=50, step=0.283)",
    ]


def test_speakers_need_their_clips() -> None:
    without = plans("O15", data="sounds")
    assert list(without) == ["sound-plain", "sound-gaussian", "sound-mad", "recogniser"]
    found = plans("O15", data="audiomnist:DIR")
    assert [name for name in found if name not in without] == [
        "speaker-plain",
        "speaker-lowpass",
        "speaker-biquad",
        "speaker-gaussian",
        "speaker-adversarial",
        "speaker-mad",
        "speaker-plain-l2",
        "speaker-lowpass-l2",
        "speaker-biquad-l2",
        "speaker-gaussian-l2",
        "speaker-adversarial-l2",
        "speaker-mad-l2",
        "plain-to-lowpass",
        "lowpass-to-plain",
        "lowpass-to-biquad",
        "spectra-plain",
        "spectra-gaussian",
        "spectra-mad",
    ]
    assert names_of("O15") == list(found)


def test_sizes_of_section_7_5_are_doubled() -> None:
    found = plans("O15", data="audiomnist:DIR")
    # eps .003 and L2 1 on [0, 1]; sigma .1 and .15; eps .02 on sounds.
    assert budgets(found["speaker-mad"]) == ["linf(eps=0.006)"]
    assert budgets(found["speaker-mad-l2"]) == ["l2(eps=2.0)"]
    assert found["speaker-mad-l2"].defenses == found["speaker-mad"].defenses
    assert found["speaker-gaussian"].defenses == ("gaussian(sigma=0.2)+majority(passes=16)",)
    assert found["speaker-mad"].defenses == ("mad(sigma=0.3)+majority(passes=16)",)
    assert found["speaker-lowpass"].defenses == ("lowpass(share=0.05)",)
    assert found["speaker-biquad"].model == "speaker(variant=biquad)"
    assert budgets(found["sound-mad"]) == ["linf(eps=0.04)"]
    assert found["spectra-mad"].audio == "all"


def test_classifiers_of_section_7_5_are_held_against_a_second_attack() -> None:
    full, mini = (plans("O15", data="audiomnist:DIR", scale=scale) for scale in ("full", "mini"))
    attacks = {name: [str(attack) for attack in plan.attacks] for name, plan in full.items()}
    assert attacks["speaker-adversarial"] == ["pgd(steps=20, step=0.125)", "apgd(steps=100)"]
    assert attacks["sound-mad"] == attacks["speaker-adversarial"]
    # In the ball a step is 2 / sqrt(20) of the radius.
    assert attacks["speaker-adversarial-l2"] == ["pgd(steps=20, step=0.447)", "apgd(steps=100)"]
    assert attacks["plain-to-lowpass"] == attacks["spectra-mad"] == ["pgd(steps=20, step=0.125)"]
    assert str(mini["speaker-adversarial"].attacks[1]) == "apgd(steps=20)"


def test_speech_recognition_of_section_7_5() -> None:
    plan = plans("O15", data="sounds")["recogniser"]
    assert budgets(plan) == ["snr(db=30)"]
    assert plan.defenses == (
        "none",
        "gaussian(sigma=0.01)+asnr+rover(passes=16)",
        "mad(sigma=0.01)+asnr+rover(passes=16)",
        "mad(sigma=0.015)+asnr+rover(passes=16)",
        "gaussian(sigma=0.045)+asnr+rover(passes=16)",
        "mad(sigma=0.045)+asnr+rover(passes=16)",
        "mad(sigma=0.0675)+asnr+rover(passes=16)",
    )


def test_adversarial_training() -> None:
    found = plans("O18", data="embedded")
    assert list(found) == [
        *(f"keyword-{variant}" for variant in ("plain", "fgsm", "pgd", "mixed")),
        *(f"recogniser-{variant}" for variant in ("plain", "pgd")),
    ]
    assert [str(attack) for attack in found["keyword-pgd"].attacks] == [
        "fgsm",
        "pgd(steps=20, step=0.125)",
        "pgd(steps=100, step=0.1)",
        "apgd(steps=100)",
    ]
    # Four attacks at five radii, or at four SNRs.
    assert [len(plan.cells()) for plan in found.values()] == [20, 20, 20, 20, 16, 16]
    assert found["recogniser-pgd"].data == "strings"
    # With few steps two attacks would be one.
    assert len(plans("O18", steps=10)["keyword-pgd"].attacks) == 3


def test_certificates() -> None:
    found = o16(Ask(scale="full", model="", data="embedded"))
    assert list(found) == [
        *(f"keyword-{sigma}" for sigma in ("0.01", "0.02", "0.05")),
        *(f"recogniser-{sigma}" for sigma in ("0.02", "0.063", "0.15")),
        *(f"trained-{sigma}" for sigma in ("0.02", "0.063", "0.15")),
    ]
    one = found["trained-0.063"]
    assert (one.defense, one.wer, one.passes) == ("gaussian(sigma=0.063)+rover", 0.25, 10_000)
    assert found["keyword-0.05"].passes == 100_000 and found["keyword-0.05"].wer is None
    assert {plan.passes for plan in o16(Ask(scale="full", model="", data="embedded"), 500).values()} == {500}
    assert all(isinstance(plan, CertifyPlan) for plan in found.values())


@pytest.mark.parametrize("study", ["O13", "O14", "O15", "O18"])
@pytest.mark.parametrize("scale", ["mini", "full"])
def test_every_plan_is_sound_and_survives_its_file(study: str, scale: str) -> None:
    for plan in plans(study, scale=scale, data="audiomnist:DIR").values():
        assert make_plan(plan.model_dump(mode="json")) == plan


@pytest.mark.slow
def test_the_tool_counts_what_plans_cost() -> None:
    command = [sys.executable, str(TOOL), "O13", "nowhere", "--data", "strings", "--list", "--only", "pgd"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # 50 steps at six sizes, on the bare model and twice on 16 passes.
    assert "18 cells, 9,900 passes with a gradient a clip" in shown
