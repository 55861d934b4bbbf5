"""What a study is: plain data, a scale, and a function from a bench to results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from matplotlib.figure import Figure

from sottovoce import __version__
from sottovoce.errors import UnknownName

if TYPE_CHECKING:
    from sottovoce.studies.bench import Bench

Tell = Callable[[float, str], None]
"""Told what is under way and how much of that is done, from 0 to 1."""


@final
@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of a study is run.

    sets: perturbations a class, each from a set of its own.
    fit_clips: clips in such a set, at most.
    valid_clips: clips a class that a perturbation is judged on, at most; None: all there are.
    """

    name: str
    sets: int
    fit_clips: int
    valid_clips: int | None
    epochs: int
    deepfool_steps: int

    def __str__(self) -> str:
        valid = "all validation clips" if self.valid_clips is None else f"{self.valid_clips} validation clips"
        return (
            f"{self.sets} perturbations a class, each from at most {self.fit_clips:,} clips, "
            f"{self.epochs} epochs, at most {self.deepfool_steps} DeepFool steps, {valid} a class"
        )


FULL = Scale(name="full", sets=5, fit_clips=1000, valid_clips=None, epochs=5, deepfool_steps=100)
"""The paper's numbers (section 3.2)."""
MINI = Scale(name="mini", sets=2, fit_clips=40, valid_clips=50, epochs=2, deepfool_steps=10)
SCALES = {scale.name: scale for scale in (MINI, FULL)}


def find_scale(name: str) -> Scale:
    if name not in SCALES:
        raise UnknownName("scale", name, SCALES)
    return SCALES[name]


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a study is run on. Studies of one paper that share a setting share their folder and their fits.

    attack: how perturbations are fitted; uap-hc is the paper's, uap the one that it is made from.
    """

    scale: Scale = MINI
    data: str = "embedded"
    model: str = "keyword"
    attack: str = "uap-hc"
    seed: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "version": __version__}

    @property
    def folder(self) -> Path:
        """Where the results go unless a user says otherwise."""
        key = sha256(json.dumps([self.data, self.model, self.attack, self.seed]).encode()).hexdigest()[:8]
        return Path("runs") / f"study-V-{self.scale.name}-{key}"


@final
@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table as it is shown: columns, and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure with a file name and a sentence that says what it shows."""

    name: str
    title: str
    figure: Figure


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """What a study found. `values` holds the same numbers unrounded, for `results.json`."""

    sheets: list[Sheet]
    drawings: list[Drawing]
    values: dict[str, Any]
    notes: list[str] = field(default_factory=list)


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """One row of a paper's results.

    paper: where it stands there. reports: what the paper found, in one line.
    fits: whether it needs perturbations, so that the scale says something about it.
    """

    id: str
    title: str
    paper: str
    reports: str
    run: Callable[[Bench], Result]
    fits: bool = True
