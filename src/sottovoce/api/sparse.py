"""Adversarial sparsity: `sparsity`."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from sottovoce.api.object_texts import defense_text
from sottovoce.api.open_parts import device_of, model_text
from sottovoce.api.progress import shown
from sottovoce.api.settings import parse_snr
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.auditing.sparsity.sparsity_folder import (
    FOLDER,
    SparsityFolder,
    SparsityRow,
    tabulate,
)
from sottovoce.auditing.sparsity.sparsity_run import SparsityPlan, run_sparsity
from sottovoce.core.target import Target
from sottovoce.data.audio_file import LONGEST_SECONDS
from sottovoce.errors import InputError
from sottovoce.registry.part_text import split_list
from sottovoce.targets.open_target import find_device, open_target

Radii = str | float | Sequence[float]
Texts = str | Sequence[str]


@final
@dataclass(frozen=True)
class Sparsity:
    """How far from random directions the nearest perturbations that fool a model lie.

    rows: a flat dict a clip, defense and radius. table: what they amount to, a row a defense and radius.

    >>> import sottovoce as sv
    >>> found = sv.sparsity("keyword", limit=2, snr=30, directions=2, passes=10, out="runs/sparse")
    >>> len(found.rows), found.table[0].setting.title
    (2, 'SNR 30 dB')
    """

    folder: Path
    plan: SparsityPlan
    rows: list[dict[str, Any]]
    table: list[SparsityRow]


def sparsity(
    model: str | Target = "keyword",
    data: str = "embedded",
    *,
    limit: int | None = None,
    labels: str = "refuse",
    longest: float = LONGEST_SECONDS,
    snr: Radii | None = None,
    linf: Radii | None = None,
    l2: Radii | None = None,
    defenses: Texts | None = None,
    goal: str = "evade",
    directions: int = 4,
    passes: int = 40,
    wer: float | None = None,
    average: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    retry_failed: bool = False,
    progress: bool = False,
) -> Sparsity:
    """How rare the perturbations are that fool a model: what `sottovoce sparsity` does.

    Every argument means what the option of the same name means. A random direction is drawn on the sphere of
    the radius, and the nearest perturbation of this length that fools the model is looked for. Sparsity is
    the angle between them in radians, the mean over a few directions; in L-infinity, how many samples must
    be free to change. It tells models apart where success rates are all 100 %. A clip that nothing fools has
    none.

    snr: radii in dB: 30, "15:45:10" or [15, 25]. linf, l2: other radii, as amplitudes.
    directions: a clip. passes: with a gradient, for one attack on each clip and again for each direction.
    wer: of a recogniser, the WER from which on a transcript counts as wrong; None: 0.5.
    out: the folder of the results; None: runs/sparsity-<model>-<id of the plan>. Of the folder of an audit of
        the same model, the folder `sparsity` inside is taken, and the report gets a section.

    >>> import sottovoce as sv
    >>> found = sv.sparsity("keyword", limit=2, snr=[25, 35], directions=2, passes=10)
    >>> [round(row.success.value) for row in found.table]
    [1, 1]
    """
    target = model if isinstance(model, Target) else None
    plan = make_sparsity_plan(
        model=model_text(model) if isinstance(model, Target) else model,
        data=data, limit=limit, labels=labels, longest=longest, snr=snr, linf=linf, l2=l2,
        defenses=None if defenses is None else tuple(map(defense_text, _texts(defenses))),
        goal=goal, directions=directions, passes=passes, wer=wer, average=average, seed=seed,
    )  # fmt: skip
    device = device_of(target) if target is not None and device == "auto" else find_device(device)
    target = open_target(plan.model, device) if target is None else target
    plan = plan.resolved(target)
    folder = place_of(None if out is None else Path(out).expanduser(), plan)
    with shown(progress) as (begin, advance):
        found = run_sparsity(
            plan, folder, device=device, batch=batch, target=target, retry_failed=retry_failed, begin=begin,
            advance=advance,
        )  # fmt: skip
    show_in_report(found.path)
    return _read(plan, found)


def make_sparsity_plan(
    *,
    snr: Radii | None,
    linf: Radii | None,
    l2: Radii | None,
    defenses: Sequence[str] | None,
    **others: Any,
) -> SparsityPlan:
    """A plan from what a user gives. others: fields of the plan."""
    budgets = [
        *(parse_snr(_text(snr)) if snr is not None else []),
        *(f"linf(eps={radius:g})" for radius in _numbers("linf", linf)),
        *(f"l2(eps={radius:g})" for radius in _numbers("l2", l2)),
    ]
    given: dict[str, Any] = {"budgets": tuple(budgets)} if budgets else {}
    given |= {"defenses": tuple(defenses)} if defenses is not None else {}
    return SparsityPlan(**given, **others)


def _text(radii: Radii) -> str:
    return radii if isinstance(radii, str) else ",".join(f"{one:g}" for one in _several(radii))


def _numbers(name: str, radii: Radii | None) -> list[float]:
    if not isinstance(radii, str):
        return [] if radii is None else _several(radii)
    try:
        return [float(item) for item in radii.split(",") if item.strip()]
    except ValueError:
        raise InputError(
            f"expected amplitudes such as 0.002,0.004 for --{name}, got {radii!r}; write numbers."
        ) from None


def _several(radii: float | Sequence[float]) -> list[float]:
    return list(radii) if isinstance(radii, Sequence) else [radii]


def _texts(defenses: Texts) -> Sequence[str]:
    return split_list(defenses) if isinstance(defenses, str) else defenses


def place_of(out: Path | None, plan: SparsityPlan) -> Path:
    """Where the results go. Inside the folder of an audit, `sparsity`; of one of another model, an error."""
    if out is None:
        return Path("runs") / f"sparsity-{re.split('[:(]', plan.model)[0]}-{plan.run_id}"
    if not (out / "plan.yaml").exists():
        return out
    audited = RunFolder(out).plan().model
    if audited != plan.model:
        raise InputError(
            f"expected the model of the audit in {out}, which is {audited}, got {plan.model}; choose another "
            "folder with --out."
        )
    return out / FOLDER


def show_in_report(folder: Path) -> Path | None:
    """Write the report of the audit that a folder of sparsity lies in anew; None where it lies in none."""
    run = RunFolder(folder.parent)
    if folder.name != FOLDER or not run.records_path.exists():
        return None
    from sottovoce.report.report_page import write_report

    return write_report(run)


def _read(plan: SparsityPlan, folder: SparsityFolder) -> Sparsity:
    records = list(folder.records())
    rows = [asdict(record) for record in records]
    return Sparsity(folder.path, plan, rows, tabulate(plan.settings(), records))
