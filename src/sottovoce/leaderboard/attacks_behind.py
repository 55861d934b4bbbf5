"""What a figure is based on: which attacks, and how many passes of the model they take."""

from __future__ import annotations

from dataclasses import MISSING
from functools import cache
from math import prod
from typing import Any

from sottovoce import registry
from sottovoce.auditing.plan.plan_file import PASSES, Attacker, Plan, sight
from sottovoce.auditing.run.run_cell import HEARINGS
from sottovoce.defenses.defense_text import Defense
from sottovoce.registry.part_text import Part, attack_kind

ROUNDS = ("steps", "masking_steps", "epochs")
"""Settings of attacks that count passes one after the other."""
FACTORS = ("restarts", "binary_search", "population", "deepfool_steps")
"""Settings that say how often each of those is taken."""


@cache
def budget_title(budget: str) -> str:
    """As sottovoce says it: what a claim calls a budget is someone else's word."""
    return str(Part.parse(budget).build("budget"))


@cache
def canonical(kind: str, text: str) -> str:
    """The same for parts that are the same: with all settings, in one order, whole numbers or not."""
    part = Part.parse(text)
    return _written(part.name, full_settings(attack_kind(part.name) if kind == "attack" else kind, part))


@cache
def without_steps(attack: str) -> tuple[str, int]:
    """An attack but for its number of steps, and that number; 0 where it has none."""
    part = Part.parse(attack)
    known = full_settings(attack_kind(part.name), part)
    steps = known.pop("steps", 0)
    return _written(part.name, known), steps


def _written(name: str, settings: dict[str, Any]) -> str:
    return str(Part(name, {key: _plain(settings[key]) for key in sorted(settings)}))


def full_settings(kind: str, part: Part) -> dict[str, Any]:
    """All settings of a part, those that are not named as well."""
    known = {**registry.defaults(kind, part.name), **part.settings}
    return {key: value for key, value in known.items() if value is not MISSING}


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def count_passes(plan: Plan, defense: Defense, attack: Part, attacker: Attacker) -> int:
    """Passes of the model that an attack takes on one clip, by its settings: some stop earlier, and some take
    a few more on the way.

    Gradients and scores of a random target are means over several. A search by decisions asks for votes.
    """
    known = full_settings(attack_kind(attack.name), attack)
    rounds = sum(count for name in ROUNDS if isinstance(count := known.get(name), int)) or 1
    factors = prod(count for name in FACTORS if isinstance(count := known.get(name), int))
    return rounds * factors * _times(plan, defense, attack, attacker)


def _times(plan: Plan, defense: Defense, attack: Part, attacker: Attacker) -> int:
    """Passes that one look at the target takes, of a model that is not random by itself."""
    sees = sight(attack)
    if sees == "nothing":
        return 1
    if sees == "decisions":
        return votes(defense)
    random = attacker != "transfer" and any(transform.random for transform in defense.transforms)
    passes = plan.average or (PASSES if random else 1)
    return min(passes, HEARINGS) if sees == "scores" else passes


def votes(defense: Defense) -> int:
    """Passes that one answer of a defended target takes."""
    return 1 if defense.vote is None else int(getattr(defense.vote, "passes", 1))
