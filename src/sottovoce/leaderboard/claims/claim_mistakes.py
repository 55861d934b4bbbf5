"""Mistakes in a claim whose fields are valid: figures that contradict its plan or its own list of clips."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import scipy

from sottovoce.auditing.plan.plan_file import Cell
from sottovoce.core.statistics import clopper_pearson
from sottovoce.defenses.defense_text import Defense
from sottovoce.errors import SottovoceError
from sottovoce.leaderboard.claims.strangers import Mistake, find_strange
from sottovoce.registry.part_text import Part

if TYPE_CHECKING:
    from sottovoce.leaderboard.claims.claim import Claim, Figure, Table

MOST_CLIPS = 1000
"""A claim lists all its clips up to these, and of more a sample."""
SHORTEST_SAMPLE = 60_000
"""Bytes of a list that is shorter because its names are long. A handful of clips can be picked to please."""
RARE = 0.001
"""A sample less likely than this under random drawing contradicts the figure. A true claim is made once and
read many times, so this is stricter than the tests of a check."""


def find_mistakes(claim: Claim, *, trust: bool = False) -> Iterator[Mistake]:
    """Fields whose values do not go together, or name what is not there. trust: take parts of plugins."""
    # First of all: what follows builds the parts that the claim names.
    strange = next(find_strange(claim, trust=trust), None)
    if strange is not None:
        yield strange
        return
    try:
        plan = claim.parsed_plan()
        cells = {cell.id: cell for cell in plan.cells()}
    except SottovoceError as error:
        yield "plan", str(error).rstrip(".")
        return
    try:
        Defense.parse(claim.defense)
    except SottovoceError as error:
        yield "defense", str(error).rstrip(".")
    try:
        Part.parse(claim.goal).build("goal")
    except SottovoceError as error:
        yield "goal", str(error).rstrip(".")
    if plan.model != claim.target:
        yield "target", f"expected the plan's model {plan.model!r}, got {claim.target!r}"
    own = {name: cell for name, cell in cells.items() if attacks(claim, cell)}
    yield from _left_out(claim, own)
    for place, worst in enumerate(claim.worst):
        for rival in worst.cells:
            if rival.cell not in own or str(own[rival.cell].budget) != worst.budget:
                yield (
                    f"worst.{place}.cells",
                    f"expected attacks of this plan, defense, goal and budget, got {rival.cell!r}",
                )
    yield from _short(claim)
    yield from _unborne(claim)


def attacks(claim: Claim, cell: Cell) -> bool:
    """Whether a cell of the plan is an attack on the row of the claim."""
    return (cell.defense, str(cell.goal)) == (claim.defense, claim.goal) and cell.sees != "nothing"


def first_seed(figure: Figure) -> float:
    """The value of the seed whose clips are listed."""
    return figure.seeds[0] if figure.seeds else figure.value


def _left_out(claim: Claim, own: dict[str, Cell]) -> Iterator[Mistake]:
    """Budgets of the plan without a figure: perhaps those that would look bad."""
    told = [worst.budget for worst in claim.worst]
    missing = {str(cell.budget): cell.budget_title for cell in own.values() if str(cell.budget) not in told}
    if missing:
        yield (
            "worst",
            f"expected a figure at every budget of the plan, got none at {', '.join(missing.values())} (was "
            "the run finished?)",
        )
    if len(set(told)) < len(told):
        yield "worst", "expected every budget once"


def _short(claim: Claim) -> Iterator[Mistake]:
    table = claim.outcomes
    if claim.clips != table.of:
        yield "clips", f"expected as many as in outcomes, {table.of}, got {claim.clips}"
    if table.complete or len(table.clips) >= MOST_CLIPS:
        return
    if len(table.model_dump_json()) < SHORTEST_SAMPLE:
        yield (
            "outcomes",
            f"expected all {table.of} clips, or {MOST_CLIPS}, or as many as fill {SHORTEST_SAMPLE // 1000} "
            f"kB, got {len(table.clips)}",
        )


def _unborne(claim: Claim) -> Iterator[Mistake]:
    """Figures that the clips listed do not add up to."""
    table, heard = claim.outcomes, claim.outcomes.heard()
    if claim.clean.wer is not None:
        yield from _told("clean.wer", claim, claim.clean.wer, _worded(table, heard))
    elif claim.clean.accuracy is not None:
        yield from _told("clean.accuracy", claim, claim.clean.accuracy, _counted(heard))
    for place, worst in enumerate(claim.worst):
        if worst.success is not None:
            rows = _counted(table.broken(worst.budget))
            yield from _told(f"worst.{place}.success", claim, worst.success, rows)
        if worst.wer is not None:
            rows = _worded(table, table.wrong(worst.budget))
            yield from _told(f"worst.{place}.wer", claim, worst.wer, rows)


Rows = Sequence[tuple[int, int]]
"""Of each clip what counts, and of how many: errors and words, or 1 and 1."""


def _counted(found: Mapping[str, int | bool]) -> Rows:
    return [(int(it), 1) for it in found.values()]


def _worded(table: Table, errors: Mapping[str, int]) -> Rows:
    words = dict(zip(table.clips, table.words or (), strict=False))
    return [(it, count) for clip, it in errors.items() if (count := words.get(clip)) is not None]


def _told(field: str, claim: Claim, figure: Figure, rows: Rows) -> Iterator[Mistake]:
    """What is wrong with a figure, beside the clips it rests on."""
    if len(figure.seeds) != (len(claim.seeds) if len(claim.seeds) > 1 else 0):
        yield field, f"expected a value of each of the {len(claim.seeds)} seeds, got {len(figure.seeds)}"
        return
    total = sum(weight for _, weight in rows)
    if not total:
        yield field, "expected clips in outcomes that it is computed from, got none"
        return
    told, rate = first_seed(figure), sum(it for it, _ in rows) / total
    if claim.outcomes.complete:
        borne = math.isclose(rate, told, abs_tol=1e-4)
    else:
        borne = _bear_errors(rows, told) if field.endswith("wer") else _bear_rate(rows, told, figure.n)
    if not borne:
        yield field, f"expected what the clips in outcomes add up to, {rate:.4g}, got {told:.4g}"
    if not _spans(figure, rows if claim.outcomes.complete and not field.endswith("wer") else ()):
        yield field, "expected an interval that spans those of all seeds"
    # Over several seeds n is the smallest of theirs.
    few, many = figure.n < len(rows) and not figure.seeds, figure.n > len(rows) and claim.outcomes.complete
    if few or many:
        yield f"{field}.n", f"expected the {len(rows)} clips that outcomes has values of, got {figure.n}"


def _spans(figure: Figure, rows: Rows) -> bool:
    """Whether an interval holds the values of all seeds, and the exact one of the seed with these clips."""
    if not figure.seeds or figure.low is None or figure.high is None:
        return True
    ends = [*figure.seeds]
    if rows:
        _, low, high, _ = clopper_pearson(sum(it for it, _ in rows), len(rows))
        ends += [low, high]
    return figure.low <= min(ends) + 1e-3 and max(ends) <= figure.high + 1e-3


def _bear_rate(rows: Rows, told: float, n: int) -> bool:
    """Whether clips drawn blindly of `n` can be had with this rate among all of them."""
    n = max(n, len(rows))
    drawn, count = scipy.stats.hypergeom(n, round(told * n), len(rows)), sum(it for it, _ in rows)
    return float(min(drawn.sf(count - 1), drawn.cdf(count))) > RARE


def _bear_errors(rows: Rows, told: float) -> bool:
    """Whether an error rate is not too low for the clips listed: by the spread among them, and by what clips
    of a kind that is too rare to be listed could change."""
    parts = np.array(rows, dtype=np.float64)
    words = parts[:, 1].sum()
    rate = parts[:, 0].sum() / words
    spread = math.sqrt(((parts[:, 0] - rate * parts[:, 1]) ** 2).sum()) / words
    unseen = -math.log(RARE) / len(rows) * max(rate, 1.0)
    return bool(rate - told <= scipy.stats.norm.isf(RARE) * spread + unseen)
