"""What a study is: plain data, how its bench is opened, and a function from that bench to results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, final

from sottovoce import __version__
from sottovoce.errors import InputError, UnknownName

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Tell = Callable[[float, str], None]
"""Called with what is in progress and how much of it is done, from 0 to 1."""
LONGEST_NUMBER = 60
"""Letters of a cell that holds numbers, with their intervals and what belongs to them."""


@final
@dataclass(frozen=True, kw_only=True)
class Choice:
    """What a user asks of a study; None leaves it to the study. Which of these there are, the study knows.

    attack: how universal perturbations are fitted. fit: clips to fit them on. clips: how many to judge on.
    batch: clips attacked at once.
    """

    scale: str = "mini"
    data: str | None = None
    model: str | None = None
    attack: str | None = None
    fit: str | None = None
    clips: int | None = None
    batch: int | None = None
    seed: int = 0

    def refuse(self, study: str, *names: str) -> None:
        """Refuse options that would change nothing in this study."""
        for name in names:
            if getattr(self, name) is not None:
                raise InputError(
                    f"study {study} does not use --{name}, got {getattr(self, name)!r}; leave it out."
                )


class Stage(Protocol):
    """What a page needs of the bench that a study worked at. `unused`: why clips could not be used, by id."""

    @property
    def folder(self) -> Path: ...

    @property
    def unused(self) -> dict[str, str]: ...

    def facts(self) -> dict[str, Any]:
        """What the study was run on, as plain data."""
        ...

    def scope(self, study: Study[Any]) -> list[str]:
        """What produced the numbers, and how that differs from the paper."""
        ...


Bench = TypeVar("Bench", bound=Stage)


@final
@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much of a study of universal perturbations is run.

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
            f"{self.sets} perturbations per class, each from at most {self.fit_clips:,} clips, "
            f"{self.epochs} epochs, at most {self.deepfool_steps} DeepFool steps, {valid} per class"
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
class StudySetting:
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
        return default_folder("V", self.scale.name, [self.data, self.model, self.attack, self.seed])


def default_folder(study: str, scale: str, key: Sequence[str | int]) -> Path:
    """A folder that another scale or anything else in the key makes another."""
    return Path("runs") / f"study-{study}-{scale}-{sha256(json.dumps(key).encode()).hexdigest()[:8]}"


@final
@dataclass(frozen=True, kw_only=True)
class StudyTable:
    """A table as it is shown: columns, and rows of text.

    claims: whether it answers what the paper claims: a page begins with it.
    """

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""
    claims: bool = False

    def prose(self, place: int) -> bool:
        """Whether a column is text, aligned left and wrapped; the others are numbers."""
        return place == 0 or any(len(row[place]) > LONGEST_NUMBER for row in self.rows)


@final
@dataclass(frozen=True, kw_only=True)
class StudyFigure:
    """A figure with a file name and a sentence that says what it shows."""

    name: str
    title: str
    figure: Figure


@final
@dataclass(frozen=True, kw_only=True)
class Result:
    """What a study found. `values` holds the same numbers unrounded, for `results.json`.

    seconds: what the work took, where a study keeps parts that it does not do again; None: as long as the
        last run took.
    """

    sheets: list[StudyTable]
    drawings: list[StudyFigure]
    values: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    seconds: float | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    """A sentence on a study's page that says what its numbers mean.

    text: quotes values by name, never by hand: `{accuracy[yes]:.1f}`, `{success[pgd][0.1]:percent}`; see
        `quoted_values`.
    figure: the name of the figure that it explains; None: it stands at the top of the page.
    when: whether the values bear it out; where they do not, the page leaves it out.
    """

    text: str
    figure: str | None = None
    when: Callable[[Mapping[str, Any]], bool] | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Study(Generic[Bench]):
    """One row of a paper's results.

    paper: where in the paper. reports: what the paper found, in one line.
    open: a bench for what a user asks, in a folder of its own or in the one that is given.
    fits: whether it needs perturbations, so that the scale says something about it.
    read: the bench from a folder in which its work was done elsewhere, where that can be.
    readings: what its page says of the numbers.
    """

    id: str
    title: str
    paper: str
    reports: str
    open: Callable[[Choice, Path | None, str, Tell], Bench]
    run: Callable[[Bench], Result]
    fits: bool = True
    read: Callable[[Path], Bench] | None = None
    readings: Sequence[Reading] = ()
