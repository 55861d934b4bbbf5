"""A cell: one combination of a plan's grid, which every clip goes through."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, Literal

from sottovoce import registry
from sottovoce.auditing.plan.cell_rules import CELL
from sottovoce.core.attack import Attack
from sottovoce.core.budget import Ball
from sottovoce.core.target import Sight
from sottovoce.core.universal_attack import UniversalAttack
from sottovoce.defenses.defense_text import NO_DEFENSE, Defense
from sottovoce.errors import UnknownName
from sottovoce.registry.part_text import Part

LONGEST_ID = 200
NO_ATTACK = Part("none")
"""No attack: clean clips only. It is the only attack of its plan; its one cell per defense has no goal and
no budget."""
Attacker = Literal["plain", "adaptive", "transfer", "black-box"]
"""What an attack knows of a defense. adaptive: all of it, and goes through it. transfer: nothing; it attacks
the bare model, and what it finds is tried on the defended one. black-box: what the defended target answers,
scores or decisions, and no gradient. plain: there is no defense, or nothing of it to know."""


@dataclass(frozen=True)
class Cell:
    """One combination of the grid. `id` names it in records and files.

    alike: whether another cell of its plan has the same letters in its id, which leaves out what a name of a
        file may not have; texts to force may differ in just that.
    """

    defense: str
    attack: Part
    goal: Part
    budget: Part
    attacker: Attacker = "plain"
    alike: bool = False

    @property
    def clean(self) -> bool:
        """Whether nothing is attacked."""
        return self.attack == NO_ATTACK

    @cached_property
    def text(self) -> str:
        """Everything that distinguishes it from other cells. Spaces in a defense mean nothing."""
        return f"{''.join(self.defense.split())} {self.attack} {self.goal} {self.budget} {self.attacker}"

    @cached_property
    def id(self) -> str:
        words = ["clean"] if self.clean else [str(self.attack), str(self.goal), str(self.budget)]
        if self.defense != NO_DEFENSE:
            words.insert(0, self.defense)
        if self.attacker == "transfer":
            words.append(self.attacker)
        name = "_".join(file_name(word) for word in words)
        # A name of a folder may have 255 letters; a text to force can be longer than that.
        if not self.alike and len(name) <= LONGEST_ID:
            return name
        whole = self.text if self.alike else name
        return f"{name[: LONGEST_ID - 9]}-{sha256(whole.encode()).hexdigest()[:8]}"

    @property
    def facts(self) -> dict[str, str]:
        """The keys of a cell that a rule can match."""
        return {name: str(getattr(self, name)) for name in CELL}

    @property
    def budget_title(self) -> str:
        return "" if self.clean else str(self.budget.build("budget"))

    @property
    def universal(self) -> bool:
        return self.attack.name in registry.names("universal")

    @property
    def sees(self) -> Sight:
        """What its attack looks at in the target."""
        return sight(self.attack)


@lru_cache(maxsize=4096)
def file_name(text: str) -> str:
    """A text without what the name of a file may not have."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-")


def attack_kind(name: str) -> Literal["attack", "universal"]:
    """Per-clip and universal attacks share one list of names for users; an unknown one names them all."""
    single, universal = registry.names("attack"), registry.names("universal")
    if name not in single and name not in universal:
        raise UnknownName("attack", name, [*single, *universal])
    return "universal" if name in universal else "attack"


def sight(attack: Part) -> Sight:
    """What an attack looks at in a target; a universal one, as it is fitted."""
    found: type[Attack | UniversalAttack] = registry.find(attack_kind(attack.name), attack.name)
    return found.sees


def can_search(attack: Part, budget: Part) -> bool:
    """Whether an attack on single clips works inside a kind of budget."""
    built, room = attack.build("attack"), budget.build("budget")
    return isinstance(room, built.budgets) and not (isinstance(room, Ball) and room.norm not in built.norms)


def distinct(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Each once, in order."""
    return tuple({str(part): part for part in parts}.values())


BUILDERS: dict[str, Callable[[Any], Any]] = {
    "goals": lambda goal: goal.build("goal"),
    "budgets": lambda budget: budget.build("budget"),
    "attacks": lambda attack: attack.build(attack_kind(attack.name)),
    "defenses": Defense.parse,
    "metrics": lambda name: registry.find("metric", name),
}
"""How an item of each list of a plan is built."""
