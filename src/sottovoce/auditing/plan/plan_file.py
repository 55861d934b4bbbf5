"""A plan: a grid of cells, defense x attack x goal x budget, on one model and one set of clips.

Behind a defense every attack that follows gradients comes in two forms, and a search by scores joins them:
a defense is as strong as it is under the strongest of the three, and no one knows beforehand which that is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from sottovoce import __version__, registry
from sottovoce.auditing.plan.cell import (
    BLACK_BOX,
    BUILDERS,
    NO_ATTACK,
    Attacker,
    Cell,
    can_search,
    distinct,
    joining,
    listed_cells,
    ruled_cells,
    sight,
)
from sottovoce.auditing.plan.cell_rules import CELL, RUN, CellRule
from sottovoce.auditing.plan.entry_errors import mistake
from sottovoce.core.files.yaml_reader import Entries, at_entry, naming_lines, read_yaml, refuse_truth
from sottovoce.core.target import Target
from sottovoce.data.audio_file import LONGEST_SECONDS
from sottovoce.data.labels import Unlabelled
from sottovoce.defenses.defense_text import NO_DEFENSE, Defense
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part
from sottovoce.targets.open_target import Kind, Kinds, guess, kind_of

__all__ = [
    "BLACK_BOX", "FIRST_FORMAT", "NO_ATTACK", "PASSES", "Attacker", "Cell", "Plan", "can_search",
    "complete", "make_plan", "read_entries", "read_plan", "sight",
]  # fmt: skip

PASSES = 16
"""Passes of a random target that a gradient is averaged over, where the plan does not say."""
FIRST_FORMAT = frozenset(
    {
        "model", "data", "fit", "limit", "defenses", "average", "attackers", "black_box", "attacks", "goals",
        "budgets", "metrics", "seed", "bits", "batch", "audio", "probe",
    }
)  # fmt: skip
"""Entries that every plan file has had from the first. Others are written where they are not at their
default: so a plan that does not use them reads as it did before there were any, and keeps its run id."""


def _parts(*texts: str) -> tuple[Part, ...]:
    return tuple(Part.parse(text) for text in texts)


class Plan(BaseModel):
    """What an audit runs, as plain data: every field has a default that works without a network.

    Its cells and its checks are worked out once; a copy with other entries works out its own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field("keyword", description="what to attack: name or name:argument")
    data: str = Field(
        "embedded",
        description="clips: embedded (those shipped for the kind of model), strings, prompts, sounds, "
        "librispeech:DIR, speechcommands:DIR, audiomnist:DIR, urbansound8k:DIR, esc50:DIR, pack:FILE, "
        "folder:DIR, csv:FILE or a path",
    )
    fit: str | None = Field(
        None, description="clips to fit universal attacks on; default: every other clip of data"
    )
    limit: int | None = Field(
        None, ge=1, description="largest number of clips, taken evenly over classes or speakers"
    )
    labels: Unlabelled = Field(
        "refuse",
        description="clips whose label is not a class of the model: refuse to run, or skip them",
    )
    longest: float = Field(
        LONGEST_SECONDS, gt=0, description="seconds of the longest clip; a longer one is recorded as failed"
    )
    defenses: tuple[str, ...] = Field(
        (NO_DEFENSE,), description="transforms before the model and a vote over its answers, joined by +"
    )
    average: int | None = Field(
        None,
        ge=1,
        description=f"passes a gradient is averaged over; none: {PASSES} where the target is random, else 1",
    )
    attackers: tuple[Literal["adaptive", "transfer", "black-box"], ...] = Field(
        ("adaptive", "transfer", "black-box"),
        min_length=1,
        description="who attacks a defended target: through the defense, from the bare model, by its scores",
    )
    black_box: Part | None = Field(
        None,
        description="the black-box attack on defended targets; none: a genetic search, unless an attack of "
        "the list sees scores",
    )
    attacks: tuple[Part, ...] = _parts("noise", "fgsm", "pgd", "deepfool")
    goals: tuple[Part, ...] = _parts("evade")
    budgets: tuple[Part, ...] = _parts(*(f"snr(db={db})" for db in (20, 30, 40, 50, 60)))
    metrics: tuple[str, ...] = Field((), description="names of metrics; none: all of them")
    seed: int = 0
    bits: int | None = Field(16, ge=2, le=24, description="grid of the saved examples; null keeps floats")
    batch: int = Field(32, ge=1, description="clips attacked at once")
    audio: Literal["all", "none"] = "all"
    probe: int = Field(
        8,
        ge=0,
        description="clips on which the strongest attack is tried again with more steps and passes; 0: none",
    )
    exclude: tuple[CellRule, ...] = Field((), description="rules about cells to drop; see docs/plans.md")
    include: tuple[CellRule, ...] = Field((), description="rules about cells to add to what is left")
    gpu_share: float = Field(
        1.0, ge=0.0, le=1.0, description="how much of a GPU one worker on this model asks a cluster for"
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth(cls, value: Any, info: ValidationInfo) -> Any:
        return refuse_truth(cls.model_fields[info.field_name or ""].annotation, value)

    @model_validator(mode="after")
    def _without_attack(self) -> Plan:
        if self.clean:
            object.__setattr__(self, "goals", ())
            object.__setattr__(self, "budgets", ())
        return self

    @property
    def clean(self) -> bool:
        """Whether nothing is attacked."""
        return NO_ATTACK in self.attacks

    @staticmethod
    def usual(kind: Kind) -> dict[str, Any]:
        """Entries that suit a kind of model better than the defaults: recognisers have no class scores, a
        step on sentences costs a hundred times as much as on words, and few steps must be longer ones. Where
        there is no gradient, attacks do without."""
        if kind == "class":
            return {}
        if kind == "class, no gradient":
            return {"attacks": ["noise", "kenansville", str(BLACK_BOX)]}
        if kind == "words, no gradient":
            return {
                "attacks": ["noise", "kenansville", "genetic(steps=10, population=10)"],
                "budgets": ["snr(db=30)", "snr(db=40)"],
                "batch": 8,
            }
        return {
            "attacks": ["noise", "fgsm", "pgd(step=0.25)"],
            "budgets": ["snr(db=30)", "snr(db=40)"],
            "batch": 8,
        }

    def cells(self) -> list[Cell]:
        """The grid in order, less what `exclude` drops, and then what `include` adds."""
        return list(self._cells)

    @cached_property
    def _cells(self) -> tuple[Cell, ...]:
        return ruled_cells(self, self._listed)

    @cached_property
    def _listed(self) -> list[Cell]:
        return listed_cells(self)

    @property
    def every_defense(self) -> tuple[str, ...]:
        """Those listed, and those that only `include` names."""
        return tuple(dict.fromkeys([*self.defenses, *(cell.defense for cell in self.cells())]))

    @property
    def every_goal(self) -> tuple[Part, ...]:
        """Those listed, and those that only `include` names."""
        return distinct([*self.goals, *(cell.goal for cell in self.cells() if not cell.clean)])

    def joining(self, defense: str) -> Part | None:
        """The black-box attack that joins those of the list; none where one of them will do."""
        return joining(self, defense)

    def passes(self, target: Target) -> int:
        """Passes of a target that a gradient is averaged over."""
        return self.average or (PASSES if target.random else 1)

    def check(self) -> None:
        """Build every part once, so that a bad plan stops before any work."""
        return self._checked

    @cached_property
    def _checked(self) -> None:
        for rule in (*self.exclude, *self.include):
            if any(getattr(rule, key) for key in RUN):
                raise InputError(
                    f"expected rules about {', '.join(CELL)} in a plan of one model, got {rule}; drop the "
                    "other keys."
                )
        self._check_lists()
        for rule in self.exclude:
            rule.refuse("exclude", [cell.facts for cell in self._listed])
        for entry in ("attacks", "budgets", "goals"):
            # Those that only `include` names, too.
            parts = (getattr(cell, entry.removesuffix("s")) for cell in self._cells if not cell.clean)
            for part in distinct(parts):
                BUILDERS[entry](part)
        for defense in self.every_defense:
            Defense.parse(defense)

    def _check_lists(self) -> None:
        """Build the parts that the entries name. Errors name the entry."""
        for entry, build in BUILDERS.items():
            for number, item in enumerate(getattr(self, entry)):
                with at_entry(entry, number):
                    if item != NO_ATTACK:
                        build(item)
        if self.black_box is not None:
            with at_entry("black_box"):
                BUILDERS["attacks"](self.black_box)
                if sight(self.black_box) not in ("scores", "decisions"):
                    raise InputError(
                        "plan entry 'black_box': expected an attack that sees scores or decisions alone, got "
                        f"{self.black_box}; genetic and taori do."
                    )

        for name in self.metrics if self.clean else ():
            if not registry.find("metric", name).before:
                raise InputError(
                    f"plan entry 'metrics': expected metrics of clean clips with attacks: {NO_ATTACK}, got "
                    f"{name}; name clean-accuracy, clean-wer, clean-cer or clean-chance, or drop the entry."
                )

    def written(self) -> dict[str, Any]:
        """The entries as a plan file has them."""
        content = self.model_dump(mode="json")
        known = type(self).model_fields
        return {
            name: value
            for name, value in content.items()
            if name in FIRST_FORMAT
            or getattr(self, name) != known[name].get_default(call_default_factory=True)
        }

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.written(), sort_keys=False, allow_unicode=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = super().model_copy(update=update, deep=deep)
        _forget(copied.__dict__)
        return copied

    def __getstate__(self) -> dict[Any, Any]:
        """What is sent to another process: it works the cells out itself."""
        state = super().__getstate__()
        return {**state, "__dict__": _forget(dict(state["__dict__"]))}

    @property
    def run_id(self) -> str:
        """A hash of the resolved plan and the version of the code."""
        return sha256(f"{__version__}\n{self.to_yaml()}".encode()).hexdigest()[:10]


def _forget(content: dict[str, Any]) -> dict[str, Any]:
    """The entries alone, without what was computed from them."""
    for name in ("_cells", "_listed", "_checked"):
        content.pop(name, None)
    return content


def make_plan(settings: Mapping[str, Any], kinds: Kinds | None = None) -> Plan:
    """A checked plan, with the defaults that suit the kind of its model; mistakes become one clear sentence.

    kinds: what a model says. None: where its name does not tell, and attacks or budgets are left open, the
        model is opened; for the size of a batch alone it is not.
    """
    if kinds is None:
        kinds = guess if {"attacks", "budgets"} <= set(settings) else kind_of
    with naming_lines(settings):
        plan = read_entries(complete(settings, Plan.usual, kinds))
        plan.check()
    return plan


def complete(
    entries: Mapping[str, Any], usual: Callable[[Kind], Mapping[str, Any]], kinds: Kinds
) -> dict[str, Any]:
    """Entries with what suits the kind of their model, where they do not say. kinds: asked if need be."""
    wanted = {key for kind in get_args(Kind) for key in usual(kind)}
    if wanted <= set(entries):
        return dict(entries)
    return {**usual(kinds(str(entries.get("model", Plan().model)))), **entries}


def read_entries(settings: Mapping[str, Any], where: str = "plan entry") -> Plan:
    """A plan with entries of the right kind, its parts and rules not looked at yet. where: for messages."""
    try:
        return Plan.model_validate(dict(settings))
    except ValidationError as error:
        raise mistake(error, where, Plan.model_fields) from None


def read_plan(path: Path) -> Entries:
    """The entries of a plan file, not yet checked, so that command-line options can be laid over them."""
    return read_yaml(path, "a plan", "model: keyword")
