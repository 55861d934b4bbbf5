"""Cells that will not run on a target, why, and the rule that leaves them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import final

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.run.run_cell import CellParts, assemble
from sottovoce.core.target import Target
from sottovoce.errors import SottovoceError

KEYS = ("attack", "goal", "budget", "defense", "attacker")


@final
@dataclass(frozen=True)
class Unfit:
    """Cells that will not run, why the first of them, and the rule that would leave them out."""

    cells: tuple[str, ...]
    reason: str
    exclude: dict[str, str]


def assemble_all(plan: Plan, target: Target) -> tuple[list[CellParts], list[Unfit]]:
    """The cells that go together with the target, and those that do not."""
    works: list[CellParts] = []
    reasons: dict[str, str] = {}
    cells = {cell.id: cell for cell in plan.cells()}
    for name, cell in cells.items():
        try:
            works.append(assemble(plan, cell, target))
        except SottovoceError as error:
            reasons[name] = str(error)
    if not reasons:
        return works, []
    rules = Rules(work.cell.facts for work in works)
    groups: dict[str, tuple[dict[str, str], str, list[str]]] = {}
    for name, reason in reasons.items():
        rule = rules.suggest(cells[name].facts)
        groups.setdefault(str(rule), (rule, reason, []))[2].append(name)
    return works, [Unfit(tuple(names), reason, rule) for rule, reason, names in groups.values()]


@final
class Rules:
    """Finds rules that match some cells and none of the good ones."""

    def __init__(self, good: Iterable[Mapping[str, str]]) -> None:
        self._good = list(good)
        self._taken: dict[tuple[str, ...], set[tuple[str, ...]]] = {}

    def suggest(self, bad: Mapping[str, str]) -> dict[str, str]:
        """The shortest rule that matches a cell and none of the good ones."""
        for count in range(1, len(KEYS)):
            for some in combinations(KEYS, count):
                if tuple(bad[key] for key in some) not in self._values(some):
                    return {key: bad[key] for key in some}
        return dict(bad)

    def _values(self, some: tuple[str, ...]) -> set[tuple[str, ...]]:
        """What the good cells have in these keys."""
        if some not in self._taken:
            self._taken[some] = {tuple(facts[key] for key in some) for facts in self._good}
        return self._taken[some]


def suggest(bad: Mapping[str, str], good: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The shortest rule that matches a cell and none of the good ones."""
    return Rules(good).suggest(bad)
