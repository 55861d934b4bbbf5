"""How much of study A is run, on what, and which jobs that makes: plain data beside the results."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self, final

from sottovoce import __version__
from sottovoce.core.budget import NormName
from sottovoce.errors import InputError, StoreError, UnknownName

SETTING = "setting.json"
JOBS = "jobs"
CLAIMED_DB = 60
"""Where the paper finds both detectors below chance, trains CNN-A and draws the spectra."""
OPTION_LEVELS_DB = (60, 40, 20)
CNN, EMBEDDING, ADVERSARIAL, LOW_PASS = "cnn", "embedding", "adversarial", "low-pass"
SMOOTHED = ("gaussian", "mad", "gaussian-trained", "mad-trained")
OPTIONS = (*SMOOTHED, LOW_PASS)
"""Defenses beyond the paper; the last three train networks of their own."""
NOISES = ("CAFE", "FOODCOURT", "KITCHEN", "LIVINGB", "CITY", "KG")
"""Those of Table 2."""
DETECTORS = (CNN, EMBEDDING)
KINDS = (*DETECTORS, ADVERSARIAL, *(f"noise-{name}" for name in NOISES), *OPTIONS)
_TOLD = {"digest": "the recordings, their speakers, labels or splits"}
PROXY = "PROXY"
"""Text in the note of a corpus without patients."""


@final
@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """How much is run.

    folds: of speakers. seeds: trainings of the two detectors in each fold. others: the same for all that is
        compared with them.
    speakers: at most, as many of each label as of the other; None: all.
    train_clips, test_clips: of each speaker, at most. seconds: of each clip, from its start.
    batch: segments of a step of training.
    average: passes that a gradient through noise is the mean of. votes: passes that a smoothed detector asks.
    passes: that a certificate counts a clip. norms: balls in which options are attacked.
    examples: attacked clips a fold that are kept for the measures of quality.
    """

    name: str
    folds: int
    seeds: int
    others: int
    levels_db: tuple[int, ...]
    epochs: int
    batch: int
    average: int
    votes: int
    passes: int
    norms: tuple[NormName, ...]
    examples: int
    speakers: int | None = None
    train_clips: int | None = None
    test_clips: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        pairs: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
        }
        return cls(**pairs)

    def __str__(self) -> str:
        cuts = [
            f"{count} {what}"
            for count, what in (
                (self.speakers, "speakers"),
                (self.train_clips, "clips a speaker to train on"),
                (self.test_clips, "to attack"),
                (self.seconds, "s of each clip"),
            )
            if count is not None
        ]
        most = f", at most {', '.join(cuts)}" if cuts else ""
        return (
            f"{self.folds} fold{'s' if self.folds > 1 else ''}, {self.seeds} seeds of the detectors and "
            f"{self.others} of all else, at most {self.epochs} epochs{most}"
        )


PAPER_LEVELS_DB = tuple(range(0, 101, 10))
FULL = JobPlan(
    name="full",
    folds=10,
    seeds=5,
    others=5,
    levels_db=PAPER_LEVELS_DB,
    epochs=100,
    batch=32,
    average=16,
    votes=16,
    passes=1000,
    norms=("linf", "l2"),
    examples=3,
)
"""The paper's numbers (section 4.3)."""
MINI = JobPlan(
    name="mini",
    folds=3,
    seeds=2,
    others=1,
    levels_db=PAPER_LEVELS_DB[::2],
    epochs=5,
    batch=8,
    average=2,
    votes=8,
    passes=128,
    norms=("linf",),
    examples=1,
    speakers=24,
    train_clips=6,
    test_clips=1,
    seconds=1.5,
)
PLANS = {plan.name: plan for plan in (MINI, FULL)}


def find_plan(name: str) -> JobPlan:
    if name not in PLANS:
        raise UnknownName("scale", name, PLANS)
    return PLANS[name]


@final
@dataclass(frozen=True)
class Job:
    """One training and all that is asked of it."""

    kind: str
    fold: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind}-f{self.fold}-s{self.seed}"

    @property
    def needs(self) -> Job | None:
        """The job whose network this one uses: attacks made on the plain CNN are tried on every option."""
        return Job(CNN, self.fold, self.seed) if self.kind in (*OPTIONS, ADVERSARIAL) else None


@final
@dataclass(frozen=True, kw_only=True)
class JobSetting:
    """What a folder of jobs is of.

    data: as typed; note: the corpus's own description. encoder, layer: of the embeddings.
    speakers: by label. split: whether the data said who trains and who is tested; then there is one fold.
    folds: fewer than the plan's where a label has too few speakers. sigma: of the smoothing noise, the same
    for all clips. unused: why clips could not be used, by id. digest: of the clips, who speaks them, their
    labels and splits.
    """

    plan: JobPlan
    data: str
    note: str
    encoder: str
    layer: int
    layers: int
    seed: int
    speakers: dict[str, int]
    clips: int
    minutes: float
    folds: int
    split: bool
    sigma: float
    unused: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    version: str = __version__

    @property
    def proxy(self) -> bool:
        return PROXY in self.note

    @property
    def label(self) -> str:
        """What tables and figures say of the data."""
        return f"{PROXY}: synthetic, no patients" if self.proxy else self.data

    @property
    def encoder_title(self) -> str:
        """The encoder without the folders that it lay in."""
        kind, _, source = self.encoder.partition(":")
        return f"{kind} ({Path(source).name})" if source else kind

    @property
    def scale(self) -> str:
        """How much is run of these data. A split that is given has all of its speakers."""
        most = None if self.split else self.plan.speakers
        return f"{self.plan.name}: {replace(self.plan, folds=self.folds, speakers=most)}"

    @property
    def fewer_folds(self) -> str:
        """Why there are fewer than the plan has, or nothing."""
        if self.split or self.folds == self.plan.folds:
            return ""
        people = " and ".join(f"{count} {label}" for label, count in self.speakers.items())
        return (
            f"{self.folds} folds instead of {self.plan.folds}: there are {people} speakers, and every fold "
            "needs at least one of each label to test."
        )

    def jobs(self) -> Iterator[Job]:
        """All of them, seed by seed; what a job needs comes before it."""
        others = min(self.plan.others, self.plan.seeds)
        for seed in range(self.plan.seeds):
            for kind in KINDS if seed < others else DETECTORS:
                yield from (Job(kind, fold, seed) for fold in range(self.folds))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def save(self, folder: Path) -> None:
        """Start a folder, or continue in one of the same setting."""
        path = folder / SETTING
        text = json.dumps(self.to_json(), indent=1) + "\n"
        if path.exists():
            old, new = json.loads(path.read_text(encoding="utf-8")), json.loads(text)
            changed = [_TOLD.get(name, name) for name in {**old, **new} if old.get(name) != new.get(name)]
            if changed:
                raise StoreError(
                    f"{folder} holds a study with other data, scale or code (changed: {', '.join(changed)}); "
                    "choose "
                    "another folder with --out, or delete this one."
                )
            return
        (folder / JOBS).mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(path)

    @classmethod
    def read(cls, folder: Path) -> Self:
        path = folder / SETTING
        if not path.is_file():
            raise InputError(
                f"{str(folder)!r} has no {SETTING} and {JOBS}/ of study A; name the folder in which its jobs "
                "were run."
            )
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**content, "plan": JobPlan.of(content["plan"])})
