"""Certified radii: `certify`."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from sottovoce.api.object_texts import defense_text
from sottovoce.api.open_parts import device_of, model_text
from sottovoce.api.progress import shown
from sottovoce.auditing.certificates.certify_folder import CertifiedCurve, CertifyFolder, read_curve
from sottovoce.auditing.certificates.certify_run import CertifyPlan, run_certify, vote_passes
from sottovoce.auditing.run import driver as runs
from sottovoce.core.target import Target
from sottovoce.core.transform import Transform
from sottovoce.core.vote import Vote
from sottovoce.data.audio_file import LONGEST_SECONDS
from sottovoce.defenses.defense_text import Defense
from sottovoce.errors import InputError
from sottovoce.targets.open_target import find_device


@final
@dataclass(frozen=True)
class Certificates:
    """How far a smoothed model provably stands: `rows`, a flat dict a clip, and the `curve` over clips.

    >>> import sottovoce as sv
    >>> found = sv.certify("keyword", sigma=0.01, limit=2, passes=50, select=10, out="runs/certified")
    >>> len(found.rows), found.curve.clips
    (2, 2)
    """

    folder: Path
    plan: CertifyPlan
    rows: list[dict[str, Any]]
    curve: CertifiedCurve


def certify(
    model: str | Target = "keyword",
    data: str = "embedded",
    *,
    limit: int | None = None,
    labels: str = "refuse",
    longest: float = LONGEST_SECONDS,
    sigma: float | None = None,
    defense: str | Transform | Defense | list[Transform | Vote] | None = None,
    passes: int = 1000,
    select: int | None = None,
    alpha: float = 0.001,
    wer: float | None = None,
    radius: float | None = None,
    tolerance: float | None = None,
    seed: int = 0,
    batch: int | None = None,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    retry_failed: bool = False,
    progress: bool = False,
) -> Certificates:
    """Certify what a model says behind Gaussian noise, clip by clip: what `sottovoce certify` does.

    Every argument means what the option of the same name means. For a classifier the claim is that it keeps
    its class under every perturbation inside the radius; for a recogniser, that more than half of the noisy
    passes stay below a word error rate of `wer`.

    model, data: texts as of `audit`; the model may be what `sv.open_model` gave.
    limit, labels, longest: which clips; as of `audit`.
    sigma: the standard deviation of the noise; None: 0.01. defense: more than the noise, in place of `sigma`.
    passes: noisy passes that are counted. select: passes that elect what is certified.
    alpha: how likely a radius may be too large. radius, tolerance: when a clip is stopped early.
    seed: of the noise. batch: noisy copies at once; the result does not depend on it.
    device: "auto", "cpu", "cuda" or "mps".
    out: the folder of the results; None: runs/certify-<model>-<id of the plan>. The same call goes on there.
    retry_failed: do again what is recorded as failed. progress: show a bar on standard error.

    Returns `Certificates`: `rows`, one a clip, and `curve`, how many clips are certified at which radius.

    >>> import sottovoce as sv
    >>> found = sv.certify("keyword", "embedded", sigma=0.01, limit=2, passes=50, select=10)
    >>> [row["status"] for row in found.rows]
    ['ok', 'ok']
    """
    target = model if isinstance(model, Target) else None
    plan = make_certify_plan(
        model=model_text(model) if isinstance(model, Target) else model,
        data=data, limit=limit, sigma=sigma, defense=None if defense is None else defense_text(defense),
        wer=wer, passes=passes, select=select, alpha=alpha, radius=radius, tolerance=tolerance, seed=seed,
        labels=labels, longest=longest,
    )  # fmt: skip
    device = device_of(target) if target is not None and device == "auto" else find_device(device)
    target = runs.open_target(plan.model, device) if target is None else target
    plan = plan.resolved(target)
    folder = Path(out).expanduser() if out is not None else default_folder(plan)
    with shown(progress) as (begin, advance):
        found = run_certify(
            plan, folder, device=device, batch=batch, target=target, retry_failed=retry_failed, begin=begin,
            advance=advance,
        )  # fmt: skip
    return _read(plan, found)


def make_certify_plan(
    *, sigma: float | None, defense: str | None, select: int | None, **others: Any
) -> CertifyPlan:
    """A plan from what a user gives. others: fields of the plan."""
    if sigma is not None and defense is not None:
        raise InputError(
            f"expected --sigma or --defense, got both ({sigma} and {defense!r}); write the sigma into the "
            "defense."
        )
    noise = CertifyPlan.defense if sigma is None else f"gaussian(sigma={sigma})"
    defense = defense or noise
    if select is None:
        select = vote_passes(defense) or CertifyPlan.select
    return CertifyPlan(defense=defense, select=select, **others)


def default_folder(plan: CertifyPlan) -> Path:
    """Where certificates go unless another folder is named."""
    return Path("runs") / f"certify-{re.split('[:(]', plan.model)[0]}-{plan.run_id}"


def _read(plan: CertifyPlan, folder: CertifyFolder) -> Certificates:
    records = list(folder.records())
    rows = [asdict(record) for record in records]
    return Certificates(folder.path, plan, rows, read_curve(records, sigma=plan.sigma))
