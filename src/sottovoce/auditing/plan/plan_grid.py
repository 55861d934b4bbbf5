"""A plan file of several models, corpora or seeds: a plan for each, from the entries that they share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import sha256
from itertools import product
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from sottovoce import __version__
from sottovoce.auditing.plan.cell_rules import CellRule
from sottovoce.auditing.plan.entry_errors import mistake
from sottovoce.auditing.plan.plan_file import NO_ATTACK, Plan, can_search, complete, read_entries
from sottovoce.auditing.plan.plan_presets import PRESETS, Preset, fill
from sottovoce.core.files.yaml_reader import at_entry, naming_lines, refuse_truth
from sottovoce.errors import InputError, UnknownName
from sottovoce.registry.part_text import Part
from sottovoce.targets.open_target import Kind, Kinds, kind_of

LONGEST_NAME = 60
_LISTS = ("defenses", "attackers", "attacks", "goals", "budgets", "metrics", "exclude", "include")
_OWN = ("targets", "seeds", "preset")


@dataclass(frozen=True)
class GridRun:
    """One plan of a grid as written, before presets and rules are applied.

    own: the entries of its own target. target: which target of the grid it is.
    """

    entries: dict[str, Any]
    own: frozenset[str] = field(default=frozenset(), compare=False)
    target: int = field(default=0, compare=False)

    @property
    def facts(self) -> dict[str, str]:
        """The keys of a whole run that a rule can match."""
        return {key: str(self.entries[key]) for key in ("model", "data", "seed")}


class Grid(BaseModel):
    """What a plan file says. `targets` and `shared` are plans of which only what was said counts.

    data, seeds: each target is run on every corpus with every seed, unless it names its own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    targets: tuple[Plan, ...] = Field((Plan(model="keyword"),), min_length=1)
    data: tuple[str, ...] = Field(("embedded",), min_length=1)
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    preset: Preset | None = None
    exclude: tuple[CellRule, ...] = ()
    include: tuple[CellRule, ...] = ()
    shared: Plan = Plan()

    @field_validator("seeds", mode="before")
    @classmethod
    def _no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        return refuse_truth(int, value)

    @property
    def single(self) -> bool:
        """Whether it is one plan and no more."""
        return len(self.runs()) == 1

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(target.model for target in self.targets))

    def runs(self) -> list[GridRun]:
        """Every target on its corpora with its seeds, but for those that are excluded whole."""
        found = [run for number, target in enumerate(self.targets) for run in self._of(target, number)]
        whole = [rule for rule in self.exclude if rule.runs]
        for rule in whole:
            rule.refuse("exclude", [run.facts for run in found])
        kept = [run for run in found if not any(rule.matches(run.facts) for rule in whole)]
        if not kept:
            raise InputError("expected at least one run, but 'exclude' drops them all: narrow its rules.")
        for place, run in enumerate(kept):
            if run in kept[:place]:
                raise InputError(
                    f"expected every target once, got {run.facts['model']!r} twice with the same entries; "
                    "drop one."
                )
        return kept

    def _of(self, target: Plan, number: int) -> Iterator[GridRun]:
        said = {**_said(self.shared), **_said(target)}
        corpora = [target.data] if "data" in target.model_fields_set else self.data
        seeds = [target.seed] if "seed" in target.model_fields_set else self.seeds
        for data, seed in product(corpora, seeds):
            yield GridRun({**said, "data": data, "seed": seed}, frozenset(target.model_fields_set), number)

    def plans(self, kinds: Kinds = kind_of) -> dict[str, Plan]:
        """One plan a run, by the name of its folder, in order, everything filled in.

        kinds: asked only where it matters, and of each model once.
        """
        kinds = cache(kinds)
        runs = self.runs()
        plans = [self._plan(run, kinds) for run in runs]
        self._check_rules(runs, plans)
        kept = [self._ruled(run, plan) for run, plan in zip(runs, plans, strict=True)]
        found = [plan for plan in kept if plan is not None]
        if not found:
            raise InputError("expected at least one cell, but 'exclude' drops them all: narrow its rules.")
        for plan in found:
            plan.check()
        return dict(zip(_names(found), found, strict=True))

    def _plan(self, run: GridRun, kinds: Kinds) -> Plan:
        """A run with what the preset fills in, its rules left to `_ruled`."""
        return read_entries(complete(run.entries, partial(self._usual, run), kinds))

    def _usual(self, run: GridRun, kind: Kind) -> dict[str, Any]:
        """What the preset fills in. Of its attacks those stay that can search every budget that is named."""
        filled = Plan.usual(kind) if self.preset is None else fill(self.preset, kind)
        if NO_ATTACK in run.entries.get("attacks", ()):
            # The cells that a preset adds are attacks.
            filled.pop("include", None)
        if self.preset is not None and "budgets" in run.entries:
            budgets = [Part.parse(str(budget)) for budget in run.entries["budgets"]]
            filled["attacks"] = [
                attack
                for attack in filled["attacks"]
                if all(can_search(Part.parse(attack), budget) for budget in budgets)
            ]
        return filled

    def _check_rules(self, runs: list[GridRun], plans: list[Plan]) -> None:
        """Refuse a rule that matches nothing anywhere: it is probably mistyped."""
        if not self.exclude and not self.include:
            return
        cells = [facts for run, plan in zip(runs, plans, strict=True) for facts in _facts(run, plan)]
        for rule in self.exclude:
            if not rule.runs:
                rule.refuse("exclude", cells)
        for rule in self.include:
            rule.for_runs().refuse("include", [run.facts for run in runs])

    def _ruled(self, run: GridRun, plan: Plan) -> Plan | None:
        """A plan with the rules that are about it; None where nothing of it is left."""
        if not self.exclude and not self.include:
            return plan
        own = [rule for rule in self.exclude if any(rule.matches(facts) for facts in _facts(run, plan))]
        more = [rule for rule in self.include if rule.matches(run.facts)]
        ruled = plan.model_copy(
            update={
                "exclude": (*plan.exclude, *(rule.for_cells() for rule in own)),
                "include": (*plan.include, *(rule.for_cells() for rule in more)),
            }
        )
        left = any(not any(rule.matches(facts) for rule in own) for facts in _facts(run, plan))
        return ruled if left or ruled.include else None

    def resolved(self, kinds: Kinds) -> Grid:
        """The same runs with everything filled in, so that no preset and no model is needed to read it."""
        plans = self.plans(kinds).values()
        return Grid(targets=tuple(read_entries(plan.written()) for plan in plans))

    def to_yaml(self) -> str:
        """As a plan file."""
        content: dict[str, Any] = {"preset": self.preset} if self.preset else {}
        content["targets"] = [_plain(target) for target in self.targets]
        content |= {"data": list(self.data), "seeds": list(self.seeds)} | _plain(self.shared)
        rules = {"exclude": self.exclude, "include": self.include}
        content |= {key: [rule.plain() for rule in some] for key, some in rules.items() if some}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)

    @property
    def run_id(self) -> str:
        """A hash of the grid and the version of the code."""
        return sha256(f"{__version__}\n{self.to_yaml()}".encode()).hexdigest()[:10]


def make_grid(settings: Mapping[str, Any]) -> Grid:
    """A checked grid from the entries of a plan file; mistakes become one clear sentence.

    What depends on the kind of model, such as whether a rule matches, is checked by `Grid.plans`.
    """
    with naming_lines(settings):
        return _make_grid(dict(settings))


def _make_grid(entries: dict[str, Any]) -> Grid:
    for name in entries:
        if name not in Plan.model_fields and name not in _OWN:
            with at_entry(str(name)):
                raise UnknownName("plan entry", str(name), [*Plan.model_fields, *_OWN])
    for one, many in (("model", "targets"), ("seed", "seeds")):
        if one in entries and many in entries:
            raise InputError(f"expected {one!r} or {many!r} in a plan, got both; keep one of them.")
    if entries.get("preset") not in (None, *PRESETS):
        raise UnknownName("preset", str(entries["preset"]), PRESETS)
    one_of_many = "targets" in entries
    targets = listed(entries.pop("targets", entries.pop("model", "keyword")))
    seeds = listed(entries.pop("seeds", entries.pop("seed", 0)))
    own = {key: entries.pop(key) for key in ("preset",) if key in entries}
    own |= {key: listed(entries.pop(key)) for key in ("data", "exclude", "include") if key in entries}
    try:
        grid = Grid(
            targets=tuple(
                _target(entry, *(("targets", number) if one_of_many else ()))
                for number, entry in enumerate(targets)
            ),
            seeds=tuple(seeds),
            shared=_entries(entries),
            **own,
        )
    except ValidationError as error:
        raise mistake(error, "plan entry", Grid.model_fields) from None
    for run in grid.runs():
        _check_run(run, grid)
    return grid


def _check_run(run: GridRun, grid: Grid) -> None:
    """Look at what was said of a run, but for its rules: they are about cells that are not known yet."""
    said = {key: value for key, value in run.entries.items() if key not in ("exclude", "include")}
    try:
        plan = read_entries(said)
        if plan.attacks or not (grid.include or run.entries.get("include")):
            plan.check()
    except InputError as error:
        if error.place and error.place[0] in run.own:
            error.place = ("targets", run.target, *error.place)
        raise


def listed(value: Any) -> list[Any]:
    """One value as a list of one."""
    return list(value) if isinstance(value, list | tuple) else [value]


def _entries(settings: Mapping[str, Any], where: str = "plan entry") -> Plan:
    """Entries of a plan, of which only those that were said count."""
    plain = {key: listed(value) if key in _LISTS else value for key, value in settings.items()}
    return read_entries(plain, where)


def _target(entry: Any, *place: str | int) -> Plan:
    with at_entry(*place):
        return _read_target(entry)


def _read_target(entry: Any) -> Plan:
    if not isinstance(entry, Mapping):
        return _entries({"model": entry}, "target")
    if "model" not in entry:
        unknown = [str(key) for key in entry if key not in Plan.model_fields]
        if unknown:
            raise UnknownName("entry of a target:", unknown[0], Plan.model_fields)
        raise InputError(
            f"expected a target with a model, got {dict(entry)}; write for example {{model: keyword, batch: "
            "8}."
        )
    return _entries(entry, f"entry of target {entry['model']!r}:")


def _said(plan: Plan) -> dict[str, Any]:
    return {key: getattr(plan, key) for key in Plan.model_fields if key in plan.model_fields_set}


def _plain(plan: Plan) -> dict[str, Any]:
    """What was said, as plain data; of what is at its default, no more than a plan's own file has."""
    return {key: value for key, value in plan.written().items() if key in plan.model_fields_set}


def _facts(run: GridRun, plan: Plan) -> list[dict[str, str]]:
    # A plan may be made of what 'include' adds alone, which is not in it yet.
    return [run.facts | cell.facts for cell in (plan.cells() if plan.attacks or plan.include else ())]


def _names(plans: list[Plan]) -> list[str]:
    """A short name for the folder of each: its model, and of corpus and seed what tells it from others."""
    names: list[str] = []
    for plan in plans:
        twins = [other for other in plans if other.model == plan.model]
        words = [plan.model]
        words += [plan.data] if len({other.data for other in twins}) > 1 else []
        words += [f"seed-{plan.seed}"] if len({other.seed for other in twins}) > 1 else []
        name = "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", word).strip("-.") for word in words)
        if len(name) > LONGEST_NAME:
            name = f"{name[: LONGEST_NAME - 9]}-{sha256(name.encode()).hexdigest()[:8]}"
        same = sum(taken == name or taken.startswith(f"{name}_run-") for taken in names)
        names.append(f"{name}_run-{same + 1}" if same else name)
    return names
