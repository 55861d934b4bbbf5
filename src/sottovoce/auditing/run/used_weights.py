"""Which files of weights a run uses, and their digests, so that figures of different ones never mix."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from sottovoce import registry
from sottovoce.auditing.plan.cell import distinct
from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.core.files.weight_files import digest_files, noting_files
from sottovoce.core.metric import Metric
from sottovoce.core.target import Target
from sottovoce.defenses.defense_text import Defense
from sottovoce.errors import SottovoceError
from sottovoce.targets.open_target import files_of


def digest_plan(plan: Plan, target: Target, metrics: Iterable[Metric]) -> dict[str, str]:
    """The digests of what a plan's model, defenses, budgets and metrics are read from, by the file's name."""
    cells = [cell for cell in plan.cells() if not cell.clean]
    budgets = [part.build("budget") for part in distinct(cell.budget for cell in cells)]
    ears = [getattr(part, "ear", "") for part in (*budgets, *metrics)]
    return digest_weights(target, plan.every_defense, [ear for ear in ears if ear])


def digest_weights(target: Target, defenses: Iterable[str], ears: Iterable[str] = ()) -> dict[str, str]:
    """target: as `open_target` gave it; of one that was made by hand no file is known."""
    with noting_files() as files:
        for defense in defenses:
            # One that cannot be built is the failure of its cells.
            with suppress(SottovoceError):
                Defense.parse(defense)
        for ear in dict.fromkeys(ears):
            # An ear without weights gives no figure.
            with suppress(SottovoceError):
                registry.build("ear", ear)
    return digest_files(files | files_of(target))
