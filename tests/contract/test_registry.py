"""Every registered part keeps every law; a new one is covered by being registered."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from sottovoce import registry
from sottovoce.core.attack import Attack
from sottovoce.core.budget import Snr
from sottovoce.core.goal import Goal
from sottovoce.core.target import Target
from sottovoce.core.transform import Averaged, Defended
from sottovoce.core.vote import Voted
from sottovoce.defenses.votes import Majority
from sottovoce.errors import MissingCapability, MissingExtra
from sottovoce.testing import (
    ToyAttention,
    ToyClassifier,
    ToyCtc,
    ToyEndpoint,
    ToyNoise,
    ToyScorer,
    ToyTransducer,
    check_attack,
    check_budget,
    check_goal,
    check_metric,
    check_target,
    check_transform,
    check_universal,
    clips_for,
    toy_random,
)
from sottovoce.testing.checks.check_attack import default_goals

# What a part cannot be built without. A new part that asks for more needs a line here.
SETTINGS: dict[str, dict[str, Any]] = {
    "linf": {"eps": 0.01},
    "l2": {"eps": 0.5},
    "snr": {"db": 20.0},
    "dbmax": {"db": -20.0},
    "audible": {"p": 0.25, "ear": "masking"},
    "force": {"text": "west"},
    "force-nearest": {"choices": ["west", "south"]},
    "prefix": {"word": "bad"},
    "language": {"code": "bb"},
}
# Counts that would make a test slow; the laws hold at any of them.
AT_MOST = {
    "steps": 8,
    "binary_search": 2,
    "population": 8,
    "elite": 2,
    "epochs": 2,
    "deepfool_steps": 10,
    "masking_steps": 8,
    "window_samples": 40,
    "passes": 3,
}
# Targets that ask for a model of the user's own; they have tests of their own.
OPEN_TARGETS = {
    "api",
    "deepspeech2",
    "dropout",
    "huggingface",
    "python",
    "several",
    "speechbrain",
    "transfer",
    "whisper",
}
# Attacks that ask for a run of the user's own; they have tests of their own.
OPEN_ATTACKS = {"replay", "replay-noise"}

# Transforms for rates that the toys' 1000 Hz is below; they have tests of their own.
HIGH_RATE = {"mp3", "resample"}

TOYS: dict[str, Any] = {
    "classifier": ToyClassifier,
    "ctc": ToyCtc,
    "attention": ToyAttention,
    "transducer": ToyTransducer,
    "scores": ToyScorer,
    "answers": ToyEndpoint,
    "random": toy_random,
    "random-answers": lambda: Voted(Defended(ToyEndpoint(), (ToyNoise(),)), Majority(passes=3)),
    "defended-ctc": lambda: Defended(ToyCtc(), (ToyNoise(),)),
    "voted": lambda: Averaged(Voted(toy_random(), Majority(passes=3)), passes=2),
    "voted-ctc": lambda: Voted(Defended(ToyCtc(), (ToyNoise(),)), Majority(passes=3)),
    "averaged": lambda: Averaged(toy_random(), passes=3),
    "averaged-transducer": lambda: Averaged(Defended(ToyTransducer(), (ToyNoise(),)), passes=2),
}


def build(kind: str, name: str) -> Any:
    part = registry.build(kind, name, SETTINGS.get(name) if kind in ("budget", "goal") else None)
    if not is_dataclass(part):
        return part
    lower = {item.name: AT_MOST[item.name] for item in fields(part) if item.name in AT_MOST}
    return replace(part, **{key: min(most, getattr(part, key)) for key, most in lower.items()})


def goals_for(attack: Attack, target: Target) -> list[Goal]:
    """Of the usual goals, those that the attack can reach for."""
    return [goal for goal in default_goals(target, clips_for(target)) if isinstance(goal, attack.goals)]


def powerless(attack: Attack, target: Target) -> bool:
    try:
        attack.check(target, goals_for(attack, target)[0], Snr(20.0))
    except MissingCapability:
        return True
    return False


@pytest.mark.parametrize("toy", TOYS)
def test_toys_keep_the_laws_of_targets(toy: str) -> None:
    check_target(TOYS[toy]())


@pytest.mark.parametrize("name", sorted(set(registry.names("target")) - OPEN_TARGETS))
def test_targets(name: str) -> None:
    check_target(build("target", name))


@pytest.mark.parametrize("toy", TOYS)
@pytest.mark.parametrize("name", sorted(set(registry.names("attack")) - OPEN_ATTACKS))
def test_attacks(name: str, toy: str) -> None:
    attack, target = build("attack", name), TOYS[toy]()
    if powerless(attack, target):
        # An attack that cannot run says so before any work.
        with pytest.raises(MissingCapability):
            attack(target, clips_for(target), goals_for(attack, target)[0], Snr(20.0), draws=None)
        return
    check_attack(attack, target, None if toy == "classifier" else [Snr(20.0)])


@pytest.mark.parametrize("name", registry.names("universal"))
def test_universal_attacks(name: str) -> None:
    check_universal(build("universal", name))


@pytest.mark.parametrize("name", registry.names("transform"))
def test_transforms(name: str) -> None:
    check_transform(build("transform", name))


@pytest.mark.parametrize("name", sorted(set(registry.names("transform")) - HIGH_RATE))
def test_defended_targets(name: str) -> None:
    check_target(Defended(ToyClassifier(), (build("transform", name),)))


@pytest.mark.parametrize("toy", ["random", "defended-ctc"])
@pytest.mark.parametrize("name", registry.names("vote"))
def test_votes(name: str, toy: str) -> None:
    vote, target = build("vote", name), TOYS[toy]()
    if name == "rover" and target.says == "class":
        with pytest.raises(MissingCapability):
            Voted(target, vote)
        return
    check_target(Voted(target, vote))


@pytest.mark.parametrize("name", registry.names("budget"))
def test_budgets(name: str) -> None:
    check_budget(build("budget", name))


@pytest.mark.parametrize("budget", [Snr(0.0), Snr(40.0), Snr(90.0), Snr(20.0, "linf")], ids=str)
def test_ratios_asked_for_are_ratios_measured(budget: Snr) -> None:
    check_budget(budget)


@pytest.mark.parametrize("name", registry.names("goal"))
def test_goals(name: str) -> None:
    check_goal(build("goal", name))


@pytest.mark.parametrize("name", registry.names("metric"))
def test_metrics(name: str) -> None:
    try:
        check_metric(build("metric", name))
    except MissingExtra as error:
        pytest.skip(str(error))
