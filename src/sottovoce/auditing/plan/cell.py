"""Cells: defense x attack x goal x budget, from the lists and the rules of a plan. Every clip goes through
each cell."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

from sottovoce import registry
from sottovoce.auditing.plan.cell_rules import CELL, CellRule
from sottovoce.core.attack import Attack
from sottovoce.core.budget import Ball
from sottovoce.core.target import Sight
from sottovoce.core.universal_attack import UniversalAttack
from sottovoce.defenses.defense_text import NO_DEFENSE, Defense
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part, attack_kind

if TYPE_CHECKING:
    from sottovoce.auditing.plan.plan_file import Plan

LONGEST_ID = 200
NO_ATTACK = Part("none")
"""No attack: clean clips only. It is the only attack of its plan; its one cell per defense has no goal and
no budget."""
BLACK_BOX = Part.parse("genetic(steps=100, population=10)")
"""For the same number of queries as strong as taori, on words and on sentences, and harder to filter out:
what taori adds lies above 7 kHz."""
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


def listed_cells(plan: Plan) -> list[Cell]:
    """What the lists of a plan make, in order."""
    if plan.clean and (len(plan.attacks) > 1 or plan.include):
        raise InputError(
            f"plan entry 'attacks': expected {NO_ATTACK} alone, got other attacks beside it; leave it out: "
            "clean figures are measured with every attack."
        )
    cells = [cell for defense in plan.defenses for cell in behind(plan, defense)]
    for text, times in Counter(cell.text for cell in cells).items():
        if times > 1:
            raise InputError(f"expected every cell once, got {text!r} twice; drop the repeated entry.")
    return cells


def ruled_cells(plan: Plan, listed: Sequence[Cell]) -> tuple[Cell, ...]:
    """Those listed, less what `exclude` drops, and then what `include` adds."""
    cells = [cell for cell in listed if not _excluded(plan, cell)]
    cells += _added(plan, cells)
    if not cells:
        raise InputError(
            "expected at least one cell, but 'exclude' drops them all: narrow its rules."
            if listed
            else "expected at least one defense, attack, goal and budget, got an empty list; name one."
        )
    times = Counter(cell.id for cell in cells)
    return tuple(replace(cell, alike=True) if times[cell.id] > 1 else cell for cell in cells)


def behind(plan: Plan, defense: str) -> Iterator[Cell]:
    """All cells of one defense: each attack in all its forms, then the black box that joins them."""
    if plan.clean:
        yield Cell(defense, attack=NO_ATTACK, goal=NO_ATTACK, budget=NO_ATTACK)
        return
    for attack in plan.attacks:
        for attacker in _forms(plan, defense, attack):
            for goal, budget in product(plan.goals, plan.budgets):
                yield Cell(defense, attack, goal, budget, attacker)
    box = joining(plan, defense)
    if box is None:
        return
    # A black box that was named is refused where it cannot search; the default one is left out.
    budgets = [one for one in plan.budgets if plan.black_box is not None or can_search(box, one)]
    for goal, budget in product(plan.goals, budgets):
        yield Cell(defense, box, goal, budget, "black-box")


def joining(plan: Plan, defense: str) -> Part | None:
    """The black-box attack that joins those of the list; none where one of them will do."""
    if defense == NO_DEFENSE or "black-box" not in plan.attackers:
        return None
    if plan.black_box is None:
        listed = any(sight(attack) == "scores" for attack in plan.attacks)
        return None if listed else BLACK_BOX
    return None if plan.black_box in plan.attacks else plan.black_box


def _forms(plan: Plan, defense: str, attack: Part) -> tuple[Attacker, ...]:
    sees = sight(attack)
    if defense == NO_DEFENSE or sees == "nothing":
        return ("plain",)
    if sees != "gradient":
        return ("black-box",)
    return tuple(attacker for attacker in plan.attackers if attacker != "black-box")


def _excluded(plan: Plan, cell: Cell) -> bool:
    # To write a cell out takes longer than to make it.
    facts = cell.facts if plan.exclude else {}
    return any(rule.matches(facts) for rule in plan.exclude)


def _added(plan: Plan, cells: Sequence[Cell]) -> list[Cell]:
    """Cells that the rules of `include` describe and that are not listed yet."""
    seen, found = {cell.text for cell in cells}, list[Cell]()
    for rule in plan.include:
        new = [cell for cell in _meant(plan, rule) if cell.text not in seen]
        if not new:
            raise InputError(
                f"expected a rule of 'include' to add a cell, got {rule}, which adds none; drop it."
            )
        seen |= {cell.text for cell in new}
        found += new
    return found


def _meant(plan: Plan, rule: CellRule) -> Iterator[Cell]:
    """The values that a rule names; for a key that it does not name, the plan's own list."""
    goals = [Part.parse(text) for text in rule.choices("goal", map(str, plan.goals))]
    budgets = [Part.parse(text) for text in rule.choices("budget", map(str, plan.budgets))]
    for defense in rule.choices("defense", plan.defenses):
        for text in rule.choices("attack", map(str, plan.attacks)):
            attack = Part.parse(text)
            if attack == NO_ATTACK:
                raise InputError(f"expected attacks in a rule of 'include', got {rule}; drop it.")
            for attacker, goal, budget in product(_forms(plan, defense, attack), goals, budgets):
                cell = Cell(defense, attack, goal, budget, attacker)
                if rule.matches({"attacker": attacker}):
                    yield cell
