"""A plan: a grid of cells, defense x attack x goal x budget, on one model and one set of clips.

Behind a defense every attack that follows gradients comes in two forms, and a search by scores joins them:
a defense is as strong as it is under the strongest of the three, and no one knows beforehand which that is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sottovoce import __version__, registry
from sottovoce.audit.defense import NO_DEFENSE, Defense
from sottovoce.audit.entries import mistake, read_file
from sottovoce.audit.parts import Part
from sottovoce.audit.rule import CELL, RUN, Rule
from sottovoce.core.attack import Attack, Sight
from sottovoce.core.budget import Ball
from sottovoce.core.target import Says, Target
from sottovoce.data.audio_file import LONGEST_SECONDS
from sottovoce.data.labels import Unlabelled
from sottovoce.errors import InputError, UnknownName

LONGEST_ID = 200
NO_ATTACK = Part("none")
"""Clips are heard as they are. It stands alone, and its one cell a defense has no goal and no budget."""
PASSES = 16
"""Passes of a random target that a gradient is averaged over, where the plan does not say."""
Attacker = Literal["plain", "adaptive", "transfer", "black-box"]
"""What an attack knows of a defense. adaptive: all of it, and goes through it. transfer: nothing; it attacks
the bare model, and what it finds is tried on the defended one. black-box: what the defended target answers,
scores or decisions, and no gradient. plain: there is no defense, or nothing of it to know."""


BLACK_BOX = Part.parse("genetic(steps=100, population=10)")
"""For the same number of queries as strong as taori, on words and on sentences, and harder to filter out:
what taori adds lies above 7 kHz."""


def _parts(*texts: str) -> tuple[Part, ...]:
    return tuple(Part.parse(text) for text in texts)


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

    @property
    def text(self) -> str:
        """All that tells it from other cells. A defense may be written with spaces, which mean nothing."""
        return f"{''.join(self.defense.split())} {self.attack} {self.goal} {self.budget} {self.attacker}"

    @property
    def id(self) -> str:
        words = ["clean"] if self.clean else [str(self.attack), str(self.goal), str(self.budget)]
        if self.defense != NO_DEFENSE:
            words.insert(0, self.defense)
        if self.attacker == "transfer":
            words.append(self.attacker)
        name = "_".join(re.sub(r"[^A-Za-z0-9.-]+", "-", word).strip("-") for word in words)
        # A name of a folder may have 255 letters; a text to force can be longer than that.
        if not self.alike and len(name) <= LONGEST_ID:
            return name
        whole = self.text if self.alike else name
        return f"{name[: LONGEST_ID - 9]}-{sha256(whole.encode()).hexdigest()[:8]}"

    @property
    def facts(self) -> dict[str, str]:
        """What a rule can ask of it."""
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


class Plan(BaseModel):
    """What an audit runs, as plain data: every field has a default that works without a network."""

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
        None, ge=1, description="at most so many clips, evenly over classes or speakers"
    )
    labels: Unlabelled = Field(
        "refuse",
        description="clips whose label is no class of the model: refuse to run, or skip them",
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
    exclude: tuple[Rule, ...] = Field((), description="rules about cells to drop; see docs/plans.md")
    include: tuple[Rule, ...] = Field((), description="rules about cells to add to what is left")
    gpu_share: float = Field(
        1.0, ge=0.0, le=1.0, description="how much of a GPU one worker on this model asks a cluster for"
    )

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
    def usual(says: Says) -> dict[str, Any]:
        """Entries that suit a kind of model better than the defaults: recognisers have no class scores, a
        step on sentences costs a hundred times as much as on words, and few steps must be longer ones."""
        if says == "class":
            return {}
        return {
            "attacks": ["noise", "fgsm", "pgd(step=0.25)"],
            "budgets": ["snr(db=30)", "snr(db=40)"],
            "batch": 8,
        }

    def cells(self) -> list[Cell]:
        """The grid in order, less what `exclude` drops, and then what `include` adds."""
        listed = self._listed()
        cells = [cell for cell in listed if not self._excluded(cell)]
        cells += self._added(cells)
        if not cells:
            raise InputError(
                "expected at least one cell, got none: every one is excluded; mend the rules."
                if listed
                else "expected at least one defense, attack, goal and budget, got an empty list; name one."
            )
        times = Counter(cell.id for cell in cells)
        return [replace(cell, alike=True) if times[cell.id] > 1 else cell for cell in cells]

    def _excluded(self, cell: Cell) -> bool:
        # To write a cell out takes longer than to make it.
        facts = cell.facts if self.exclude else {}
        return any(rule.matches(facts) for rule in self.exclude)

    def _listed(self) -> list[Cell]:
        if self.clean and (len(self.attacks) > 1 or self.include):
            raise InputError(
                f"plan entry 'attacks': expected {NO_ATTACK} alone, got other attacks beside it; drop it: an "
                "attack tells the clean figures as well."
            )
        cells = [cell for defense in self.defenses for cell in self._behind(defense)]
        for text, times in Counter(cell.text for cell in cells).items():
            if times > 1:
                raise InputError(f"expected every cell once, got {text!r} twice; drop the repeated entry.")
        return cells

    def _added(self, cells: list[Cell]) -> list[Cell]:
        """Cells that the rules of `include` stand for and that are not there yet."""
        seen, found = {cell.text for cell in cells}, []
        for rule in self.include:
            new = [cell for cell in self._meant(rule) if cell.text not in seen]
            if not new:
                raise InputError(
                    f"expected a rule of 'include' to add a cell, got {rule}, which adds none; drop it."
                )
            seen |= {cell.text for cell in new}
            found += new
        return found

    def _meant(self, rule: Rule) -> Iterator[Cell]:
        """What a rule stands for; where it does not name a key, the plan's own list of it."""
        goals = [Part.parse(text) for text in rule.choices("goal", map(str, self.goals))]
        budgets = [Part.parse(text) for text in rule.choices("budget", map(str, self.budgets))]
        for defense in rule.choices("defense", self.defenses):
            for text in rule.choices("attack", map(str, self.attacks)):
                attack = Part.parse(text)
                if attack == NO_ATTACK:
                    raise InputError(f"expected attacks in a rule of 'include', got {rule}; drop it.")
                for attacker, goal, budget in product(self._forms(defense, attack), goals, budgets):
                    cell = Cell(defense, attack, goal, budget, attacker)
                    if rule.matches({"attacker": attacker}):
                        yield cell

    @property
    def every_defense(self) -> tuple[str, ...]:
        """Those listed, and those that only `include` names."""
        return tuple(dict.fromkeys([*self.defenses, *(cell.defense for cell in self.cells())]))

    @property
    def every_goal(self) -> tuple[Part, ...]:
        """Those listed, and those that only `include` names."""
        cells = [cell for cell in self.cells() if not cell.clean]
        named = {str(goal): goal for goal in (*self.goals, *(cell.goal for cell in cells))}
        return tuple(named.values())

    def _behind(self, defense: str) -> Iterator[Cell]:
        """All cells of one defense: each attack in all its forms, then the black box that joins them."""
        if self.clean:
            yield Cell(defense, attack=NO_ATTACK, goal=NO_ATTACK, budget=NO_ATTACK)
            return
        for attack in self.attacks:
            for attacker in self._forms(defense, attack):
                for goal, budget in product(self.goals, self.budgets):
                    yield Cell(defense, attack, goal, budget, attacker)
        box = self.joining(defense)
        if box is None:
            return
        for goal, budget in product(self.goals, self.budgets):
            # One that was asked for by name is refused where it cannot search; this one stays away.
            if self.black_box is not None or can_search(box, budget):
                yield Cell(defense, box, goal, budget, "black-box")

    def _forms(self, defense: str, attack: Part) -> tuple[Attacker, ...]:
        sees = sight(attack)
        if defense == NO_DEFENSE or sees == "nothing":
            return ("plain",)
        if sees != "gradient":
            return ("black-box",)
        return tuple(attacker for attacker in self.attackers if attacker != "black-box")

    def joining(self, defense: str) -> Part | None:
        """The black-box attack that joins those of the list; none where one of them will do."""
        if defense == NO_DEFENSE or "black-box" not in self.attackers:
            return None
        if self.black_box is None:
            listed = any(sight(attack) == "scores" for attack in self.attacks)
            return None if listed else BLACK_BOX
        return None if self.black_box in self.attacks else self.black_box

    def passes(self, target: Target) -> int:
        """Passes of a target that a gradient is averaged over."""
        return self.average or (PASSES if target.random else 1)

    def check(self) -> None:
        """Build every part once, so that a bad plan stops before any work."""
        for rule in (*self.exclude, *self.include):
            if any(getattr(rule, key) for key in RUN):
                raise InputError(
                    f"expected rules about {', '.join(CELL)} in a plan of one model, got {rule}; drop the "
                    "other keys."
                )
        for rule in self.exclude:
            rule.refuse("exclude", [cell.facts for cell in self._listed()])
        for cell in self.cells():
            if cell.clean:
                continue
            cell.goal.build("goal")
            cell.budget.build("budget")
            cell.attack.build(attack_kind(cell.attack.name))
        for defense in self.every_defense:
            Defense.parse(defense)
        if self.black_box is not None and sight(self.black_box) not in ("scores", "decisions"):
            raise InputError(
                "plan entry 'black_box': expected an attack that sees scores or decisions alone, got "
                f"{self.black_box}; genetic and taori do."
            )
        for name in self.metrics:
            if not registry.find("metric", name).before and self.clean:
                raise InputError(
                    f"plan entry 'metrics': expected those of clean clips beside attacks: {NO_ATTACK}, got "
                    f"{name}; name clean-accuracy, clean-wer, clean-cer or clean-chance, or drop the entry."
                )

    def to_yaml(self) -> str:
        content = self.model_dump(mode="json")
        # A plan that does not use them reads as it did before there were any, and so keeps its run id.
        for name in ("exclude", "include", "gpu_share", "labels", "longest"):
            if getattr(self, name) == Plan.model_fields[name].default:
                del content[name]
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)

    @property
    def run_id(self) -> str:
        """A hash of the resolved plan and the version of the code."""
        return sha256(f"{__version__}\n{self.to_yaml()}".encode()).hexdigest()[:10]


def make_plan(settings: dict[str, Any]) -> Plan:
    """A checked plan; mistakes become one clear sentence."""
    plan = read_entries(settings)
    plan.check()
    return plan


def read_entries(settings: dict[str, Any], where: str = "plan entry") -> Plan:
    """A plan with entries of the right kind, its parts and rules not looked at yet. where: for messages."""
    try:
        return Plan.model_validate(dict(settings))
    except ValidationError as error:
        raise mistake(error, where, Plan.model_fields) from None


def read_plan(path: Path) -> dict[str, Any]:
    """The entries of a plan file, not yet checked, so that command-line options can be laid over them."""
    return read_file(path, "a plan", "model: keyword")


def attack_kind(name: str) -> Literal["attack", "universal"]:
    """Per-clip and universal attacks share one list of names for users; an unknown one names them all."""
    single, universal = registry.names("attack"), registry.names("universal")
    if name not in single and name not in universal:
        raise UnknownName("attack", name, [*single, *universal])
    return "universal" if name in universal else "attack"


def sight(attack: Part) -> Sight:
    """What an attack looks at in a target. Universal attacks follow gradients."""
    found: type = registry.find(attack_kind(attack.name), attack.name)
    return found.sees if issubclass(found, Attack) else "gradient"


def can_search(attack: Part, budget: Part) -> bool:
    """Whether an attack on single clips works inside a kind of budget."""
    built, room = attack.build("attack"), budget.build("budget")
    return isinstance(room, built.budgets) and not (isinstance(room, Ball) and room.norm not in built.norms)
