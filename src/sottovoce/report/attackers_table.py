"""Defended targets under each of three attackers, under the strongest, and clip by clip under the worst."""

from __future__ import annotations

from dataclasses import dataclass

from sottovoce.report.report_tables import Panel
from sottovoce.report.shown_words import FORMS, ShownNumber, attack_title, form_title, show


@dataclass(frozen=True)
class AttackersAtBudget:
    """A target at one budget: the strongest attack of each attacker, of all, and clip by clip."""

    budget: str
    attackers: list[tuple[str, ShownNumber]]
    """The attack and its figure; "" and a dash where there is none."""
    strongest: str
    figure: ShownNumber
    per_clip: ShownNumber


def make_attacker_tables(panels: list[Panel]) -> list[tuple[str, list[AttackersAtBudget]]]:
    """Three attackers apart, panel by panel and at every budget; empty where nothing is defended."""
    if not any(panel.defended for panel in panels):
        return []
    return [(panel.title, _at_budgets(panel)) for panel in panels if panel.found]


def _at_budgets(panel: Panel) -> list[AttackersAtBudget]:
    return [
        AttackersAtBudget(
            budget=budget,
            attackers=[_of_attacker(panel, budget, attacker) for attacker in FORMS if attacker != "plain"],
            strongest=form_title(found.item.cell),
            figure=show(found.item.estimates[panel.lead], "%"),
            per_clip=show(found.per_clip.get(panel.lead), "%"),
        )
        for budget, found in panel.found.items()
    ]


def _of_attacker(panel: Panel, budget: str, attacker: str) -> tuple[str, ShownNumber]:
    best = panel.best(budget, attacker)
    if best is None:
        return "", ShownNumber("", "", "no defense" if not panel.defended else "not run")
    return attack_title(best.cell.attack), show(best.estimates[panel.lead], "%")
