"""Tasks: pieces of a plan that any process can do, and what comes back of them.

A task is plain data and names its clips by id, so that it can be done here, in another process or on another
machine, with the same result. Whoever does it writes nothing: the driver alone writes to the run's folder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.run.repeatability import Repeated
from sottovoce.core.record import Record
from sottovoce.errors import SottovoceError

Sound = tuple[str, bytes]
"""A path in the run's folder, and the audio file that belongs there."""


@final
@dataclass(frozen=True)
class AttackTask:
    """Some clips through one cell.

    cell: its id. clips: their ids, as many as are attacked at once.
    perturbation: what a universal attack found, as the content of its file.
    run: which run asks; a process sends the clean sound of a clip once a run.
    steady: whether the plan's model answers the same clips alike, as far as is known.
    answers: the file for the answers of a service, where the model is one.
    """

    plan: Plan
    cell: str
    clips: tuple[str, ...]
    perturbation: bytes | None = None
    run: str = ""
    steady: bool = True
    answers: str = ""


@final
@dataclass(frozen=True)
class FitTask:
    """A universal attack fitted for one cell."""

    plan: Plan
    cell: str
    steady: bool = True
    answers: str = ""


@final
@dataclass(frozen=True)
class ProbeTask:
    """Some clips through one cell with other steps and passes; see `sottovoce.auditing.checks.probes`.

    name: what its records call the cell. steps: None for an attack that knows none.
    slopes: whether the lengths of gradients are recorded too.
    """

    plan: Plan
    cell: str
    clips: tuple[str, ...]
    name: str
    steps: int | None
    passes: int
    slopes: bool = False
    steady: bool = True
    answers: str = ""


@final
@dataclass(frozen=True)
class RepeatTask:
    """Four clips decoded twice: the first of these that can be used. See `repeatability`."""

    plan: Plan
    clips: tuple[str, ...]
    steady: bool = True
    answers: str = ""
    cell: str = "repeat"


ClipTask = AttackTask | ProbeTask | RepeatTask
Task = AttackTask | FitTask | ProbeTask | RepeatTask


@final
@dataclass(frozen=True)
class FinishedTask:
    """A finished task.

    perturbation: what was fitted, as the content of its file.
    reason: why nothing could be fitted, where that is so.
    repeated: the outcome of decoding clips twice.
    """

    task: Task
    records: tuple[Record, ...] = ()
    sounds: tuple[Sound, ...] = ()
    perturbation: bytes | None = None
    reason: str = ""
    repeated: Repeated | None = None


@final
@dataclass(frozen=True)
class LostTask:
    """A task whose worker died."""

    task: Task
    reason: str


class Unopened(SottovoceError):
    """A worker cannot open what a plan names, though the driver could."""


def halves(task: ClipTask) -> list[ClipTask]:
    """A task of several clips as two of half as many."""
    middle = len(task.clips) // 2
    return [replace(task, clips=task.clips[:middle]), replace(task, clips=task.clips[middle:])]
