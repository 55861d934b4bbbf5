"""Results as flat rows: one a cell and metric, and one a trial, for data frames and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sottovoce.auditing.plan.plan_file import Cell, Plan
from sottovoce.auditing.results.summary import Summary, plain
from sottovoce.core.record import Record

SUMMARY_COLUMNS = (
    "target", "defense", "attacker", "attack", "goal", "budget", "metric", "value", "low", "high", "clips",
)  # fmt: skip
_FIELDS = (
    "clip", "status", "reason", "label", "clean_text", "adversarial_text", "achieved", "achieved_unrounded",
    "judged_by", "seconds", "sample_rate", "loaded",
)  # fmt: skip
"""Fields of a record that are columns as they are."""


def summary_rows(plan: Plan, summary: Summary) -> list[dict[str, Any]]:
    """A row a cell and metric, with `SUMMARY_COLUMNS`. clips: those with a value. None: no finite value."""
    return [
        plain(
            {
                **_named(plan, item.cell),
                "metric": name,
                "value": found.value,
                "low": found.low,
                "high": found.high,
                "clips": found.n,
            }
        )
        for item in summary.cells
        for name, found in item.estimates.items()
    ]


@dataclass
class TrialColumns:
    """The columns of a run's trials. Metrics and facts are those of the records that went by.

    A fact of a clip whose name is another column's is called fact_NAME.
    """

    metrics: dict[str, None] = field(default_factory=dict)
    facts: dict[str, None] = field(default_factory=dict)

    def watch(self, records: Iterable[Record]) -> Iterator[Record]:
        """The same records, each noted as it goes by."""
        for record in records:
            self.metrics |= dict.fromkeys(record.parts)
            self.facts |= dict.fromkeys(record.facts)
            yield record

    def names(self) -> list[str]:
        """All columns, in order."""
        return [*SUMMARY_COLUMNS[:6], "cell", *_FIELDS, *self.of_facts().values(), *self.metrics]

    def of_facts(self) -> dict[str, str]:
        """The column of each fact."""
        taken = {*SUMMARY_COLUMNS[:6], "cell", *_FIELDS, *self.metrics}
        return {name: f"fact_{name}" if name in taken else name for name in self.facts}

    def rows(self, plan: Plan, records: Iterable[Record]) -> Iterator[dict[str, Any]]:
        """A row a record: its cell, what was said, what is known of the clip, and every metric's value."""
        cells = {cell.id: _named(plan, cell) for cell in plan.cells()}
        nothing = {"target": plan.model, **dict.fromkeys(SUMMARY_COLUMNS[1:6])}
        facts = self.of_facts()
        for record in records:
            yield plain(
                {
                    **cells.get(record.cell, nothing),
                    "cell": record.cell or None,
                    **{name: getattr(record, name) for name in _FIELDS},
                    **{column: record.facts.get(name) for name, column in facts.items()},
                    **{name: _value(record, name) for name in self.metrics},
                }
            )


def trial_rows(plan: Plan, records: Iterable[Record]) -> list[dict[str, Any]]:
    """A row a record, with all `TrialColumns`: what is None was not measured, or has no finite value."""
    columns = TrialColumns()
    kept = list(columns.watch(records))
    return list(columns.rows(plan, kept))


def _named(plan: Plan, cell: Cell) -> dict[str, Any]:
    return {
        "target": plan.model,
        "defense": cell.defense,
        "attacker": cell.attacker,
        "attack": str(cell.attack),
        "goal": None if cell.clean else str(cell.goal),
        "budget": None if cell.clean else str(cell.budget),
    }


def _value(record: Record, metric: str) -> float | None:
    value, weight = record.parts.get(metric, (0.0, 0.0))
    return value / weight if weight > 0 else None
