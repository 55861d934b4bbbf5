"""What stands behind a figure: which attacks, and how many passes of the model they take."""

from __future__ import annotations

from functools import cache
from math import prod

from sottovoce import registry
from sottovoce.audit.defense import Defense
from sottovoce.audit.parts import Part
from sottovoce.audit.plan import PASSES, Attacker, Plan, attack_kind, sight
from sottovoce.audit.work import HEARINGS

ROUNDS = ("steps", "masking_steps", "epochs")
"""Settings of attacks that count passes one after the other."""
FACTORS = ("restarts", "binary_search", "population", "deepfool_steps")
"""Settings that say how often each of those is taken."""


@cache
def budget_title(budget: str) -> str:
    """As sottovoce says it: what a claim calls a budget is someone else's word."""
    return str(Part.parse(budget).build("budget"))


def full_settings(attack: Part) -> dict[str, object]:
    """All settings of an attack, those that are not named as well."""
    return {**registry.defaults(attack_kind(attack.name), attack.name), **attack.settings}


def count_passes(plan: Plan, defense: Defense, attack: Part, attacker: Attacker) -> int:
    """Passes of the model that an attack takes on one clip, by its settings: some stop earlier, and some take
    a few more on the way.

    Gradients and scores of a random target are means over several. A search by decisions asks for votes.
    """
    known = full_settings(attack)
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
