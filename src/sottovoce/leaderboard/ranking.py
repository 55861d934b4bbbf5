"""Ranking: only rows that met the same attacks on the same clips are ranked, the rest is listed separately.

A target that was attacked less looks better, so ranking rows with different attacks would put the least
tested first. Two rows are alike if they have the same clips, goal, budgets, grid and version of sottovoce,
and met the same attacks at every budget:

- with the same settings; of an attack that came with several numbers of steps, the most count;
- behind a defense in both forms, through it and from the bare model, and all that have a defense with the
  same black box that joins there. Bare models are ranked with the defended ones that met the strongest one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sottovoce.auditing.plan.plan_file import BLACK_BOX, Plan, can_search, read_entries
from sottovoce.defenses.defense_text import NO_DEFENSE
from sottovoce.leaderboard.attacks_behind import canonical, without_steps
from sottovoce.leaderboard.claims.claim import Claim, Worst
from sottovoce.leaderboard.merged_rows import BoardRow, clips_key, ground_key
from sottovoce.registry.part_text import Part, attack_kind

FORMS = {"adaptive", "transfer"}
"""In which an attack that follows gradients meets a defense."""
MOST_NAMED = 3


@dataclass(frozen=True)
class Heat:
    """Rows that are alike, the least broken first, and their places; equals share one."""

    rows: tuple[BoardRow, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Apart:
    """A row that is not ranked, and why."""

    row: BoardRow
    reason: str


@dataclass(frozen=True)
class Met:
    """An attack that a row met at a budget.

    kind: its settings but for the steps. form: the only one in which it came, "" for all there are.
    words: as shown. joined: whether it is the black box that joins behind a defense; without a kind it
    should have, and did not.
    """

    budget: str
    kind: str
    form: str
    steps: int
    words: str
    joined: bool = False

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.budget, self.kind, self.form, self.steps

    def covers(self, other: Met) -> bool:
        """Whether whoever met this one met the other as well, or a weaker form of it."""
        same = (self.budget, self.kind) == (other.budget, other.kind)
        return same and self.form in ("", other.form) and self.steps >= other.steps


@dataclass(frozen=True)
class RankedRow:
    """A row and what it is compared by."""

    row: BoardRow
    clips: object
    ground: object
    budgets: frozenset[str]
    met: tuple[Met, ...]

    @classmethod
    def of(cls, row: BoardRow) -> RankedRow:
        met = tuple(find_met(row))
        budgets = frozenset(each.budget for each in met)
        return cls(row, clips_key(row.claim), ground_key(row.claim), budgets, met)

    @property
    def key(self) -> object:
        """The same for rows that are alike, but for the black box that joins."""
        listed = frozenset(met.key for met in self.met if not met.joined)
        return self.ground, listed, id(self.row) if self.row.sample else 0

    @property
    def box(self) -> frozenset[tuple[str, str, str, int]]:
        """The black box that joined, by budget; empty for a bare model."""
        return frozenset(met.key for met in self.met if met.joined)

    @property
    def strength(self) -> tuple[bool, int]:
        """Of the black box: whether it joined at every budget where it should, and its steps."""
        joined = [met for met in self.met if met.joined]
        return bool(joined) and all(met.kind for met in joined), sum(met.steps for met in joined)

    def covers(self, wanted: Met) -> bool:
        return any(met.covers(wanted) for met in self.met)


def rank_rows(rows: Sequence[BoardRow]) -> tuple[list[Heat], list[Apart]]:
    """Heats of two rows or more, the largest first; and all other rows, by name."""
    every = [RankedRow.of(row) for row in rows]
    groups: dict[object, list[RankedRow]] = {}
    for known in every:
        groups.setdefault(known.key, []).append(known)
    alike = [members for found in groups.values() for members in _by_box(found)]
    heats = [_heat([known.row for known in members]) for members in alike if len(members) > 1]
    alone = [members[0] for members in alike if len(members) == 1]
    apart = [Apart(known.row, _reason(known, every)) for known in alone]
    return (
        sorted(heats, key=lambda heat: -len(heat.rows)),
        sorted(apart, key=lambda each: (each.row.claim.target, each.row.claim.defense)),
    )


def _by_box(members: Sequence[RankedRow]) -> list[list[RankedRow]]:
    """Rows that are alike but for the black box behind defenses, by that; bare models with the strongest."""
    bare = [known for known in members if not known.box]
    groups: dict[object, list[RankedRow]] = {}
    for known in members:
        if known.box:
            groups.setdefault(known.box, []).append(known)
    found = sorted(groups.values(), key=lambda group: group[0].strength, reverse=True)
    if bare and found and found[0][0].strength[0]:
        return [[*bare, *found[0]], *found[1:]]
    return [bare, *found] if bare else found


def _heat(rows: Sequence[BoardRow]) -> Heat:
    ordered = sorted(rows, key=lambda row: row.mean)
    values = [round(row.mean, 9) for row in ordered]
    return Heat(tuple(ordered), tuple(values.index(value) + 1 for value in values))


def find_met(row: BoardRow) -> list[Met]:
    """What a row met, less what something else that it met covers."""
    found = {
        met.key: met
        for entry in row.entries
        for worst in entry.claim.worst
        for met in _met(entry.claim, read_entries(entry.claim.plan), worst)
    }
    every = list(found.values())
    return [met for met in every if not any(other is not met and other.covers(met) for other in every)]


def _met(claim: Claim, plan: Plan, worst: Worst) -> Iterator[Met]:
    defended = claim.defense != NO_DEFENSE
    forms: dict[str, set[str]] = {}
    for rival in worst.cells:
        forms.setdefault(rival.attack, set()).add(rival.attacker)
    budget = canonical("budget", worst.budget)
    box = plan.joining(claim.defense) if defended else None
    usual = plan.black_box or BLACK_BOX
    if defended and {"black-box"} not in forms.values() and can_search(usual, Part.parse(worst.budget)):
        yield Met(budget, "", "", 0, str(usual), joined=True)
    for attack, came in forms.items():
        kind, steps = without_steps(attack)
        how = "" if plan.average is None else f", averaged over {plan.average}"
        if plan.fit is not None and attack_kind(Part.parse(attack).name) == "universal":
            how += f", fitted on {plan.fit}"
        joined = attack == str(box)
        if joined:
            how += ", behind defenses"
        form = next(iter(came)) if came < FORMS else ""
        words = f"{attack}{how}" + (f", {form} alone" if form else "")
        yield Met(budget, f"{kind}{how}", form, steps, words, joined)


def _reason(known: RankedRow, every: Sequence[RankedRow]) -> str:
    """Why no other row is like this one, by those that share most with it."""
    unmet = next((met.words for met in known.met if not met.kind), None)
    if unmet is not None:
        return f"its defense met no black-box attack: not {unmet}"
    if known.row.sample:
        return "its clips are a sample, which cannot be combined with other runs of this target"
    if len(every) == 1:
        return "the only row"
    near = [other for other in every if other is not known and other.clips == known.clips]
    if not near:
        return "no other row uses the same clips"
    near = [other for other in near if other.ground == known.ground]
    if not near:
        return "no other row on these clips has the same goal, grid and version of sottovoce"
    near = [other for other in near if other.budgets == known.budgets]
    if not near:
        return "no other row on these clips has the same budgets"
    # A bare model meets no black box that joins, and is not asked for one.
    wanted = [met for other in near for met in other.met if met.kind and (known.box or not met.joined)]
    missing = list(dict.fromkeys(met.words for met in wanted if not known.covers(met)))
    if not missing:
        return "met more attacks than any other row on these clips"
    own = [met for met in known.met if not met.joined or any(other.box for other in near)]
    less = all(any(other.covers(met) for other in near) for met in own)
    how = "met fewer attacks" if less else "met different attacks"
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return f"{how} than others on these clips: not {'; '.join(missing[:MOST_NAMED])}{more}"
