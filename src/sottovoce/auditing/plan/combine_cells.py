"""From the lists and the rules of a plan to its cells: defense x attack x goal x budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from sottovoce.auditing.plan.cell import NO_ATTACK, Attacker, Cell, can_search, sight
from sottovoce.auditing.plan.cell_rules import CellRule
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part

if TYPE_CHECKING:
    from sottovoce.auditing.plan.plan_file import Plan

BLACK_BOX = Part.parse("genetic(steps=100, population=10)")
"""For the same number of queries as strong as taori, on words and on sentences, and harder to filter out:
what taori adds lies above 7 kHz."""


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
