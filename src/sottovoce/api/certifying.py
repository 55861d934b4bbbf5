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
    """Certified radii, as `certify` returns them.

    folder: where they are kept.
    plan: what was run.
    rows: a flat dict for each clip, with its certified L2 radius.
    curve: the share of clips that are certified at each radius, with intervals.

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
    """Certify a model behind Gaussian noise, clip by clip (Cohen et al. 2019). Returns `Certificates`.

    The same as `sottovoce certify`, with its options as arguments. For each clip it gives an L2 radius. No
    perturbation inside it, found by whatever attack, changes the class that the smoothed model gives; for a
    recogniser, more than half of the noisy passes stay below the word error rate `wer`. An interrupted run
    continues when the same call is made again.

    model, data, limit, labels, longest: as for `audit`.
    sigma: standard deviation of the noise. Default 0.01; more noise certifies larger radii of a worse model.
    defense: more than the noise, in place of `sigma`, such as "gaussian(sigma=0.02)+asnr".
    passes: noisy passes that are counted; 10,000 and more for large radii.
    select: passes that choose the class or the transcript to certify. Default 100.
    alpha: probability with which a radius may be too large.
    wer: for recognisers: the word error rate to stay below, against the chosen transcript. Default 0.25.
    radius, tolerance: stop a clip early, once this radius is certified or out of reach, or once more passes
        would add less than this to it.
    seed: of the noise. batch: noisy copies in one forward pass. device: "cpu", "cuda", "mps" or "auto".
    out: the folder of the results. Default: runs/certify-<model>-<id of the plan>.
    retry_failed: try failed clips again. progress: show a bar on standard error.

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
            "defense: gaussian(sigma=...)."
        )
    noise = CertifyPlan.defense if sigma is None else f"gaussian(sigma={sigma})"
    defense = defense or noise
    if select is None:
        select = vote_passes(defense) or CertifyPlan.select
    return CertifyPlan(defense=defense, select=select, **others)


def default_folder(plan: CertifyPlan) -> Path:
    """The default folder for certificates."""
    return Path("runs") / f"certify-{re.split('[:(]', plan.model)[0]}-{plan.run_id}"


def _read(plan: CertifyPlan, folder: CertifyFolder) -> Certificates:
    records = list(folder.records())
    rows = [asdict(record) for record in records]
    return Certificates(folder.path, plan, rows, read_curve(records, sigma=plan.sigma))
