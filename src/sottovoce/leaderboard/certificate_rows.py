"""Certificates for the rows of a leaderboard: from the folders that `sottovoce certify` writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sottovoce import registry
from sottovoce.auditing.certificates.certify_folder import CertifyFolder, read_curve
from sottovoce.auditing.certificates.certify_run import CertifyPlan
from sottovoce.core.files.yaml_reader import read_yaml
from sottovoce.defenses.defense_text import parts_of
from sottovoce.errors import InputError
from sottovoce.leaderboard.claims.claim import Certified, Claim, Level, Share, as_figure

PLAN = "certify.yaml"


@dataclass(frozen=True)
class CertificateSummary:
    """A folder of certificates, added up."""

    path: Path
    plan: CertifyPlan
    found: Certified

    def fits(self, claim: Claim) -> bool:
        """Whether they are about this very row: its model, clips and transforms. The vote may differ: what is
        certified is what most noisy passes say."""
        same = self.plan.model == claim.target and self.plan.data == claim.data
        return same and transforms(self.plan.defense) == transforms(claim.defense)


def read_certificates(path: Path) -> CertificateSummary | None:
    """None where no clip has one yet."""
    try:
        plan = CertifyPlan(**read_yaml(path / PLAN, "a plan of certificates", "model: keyword"))
    except TypeError as error:
        raise InputError(f"{path / PLAN}: not a plan of certificates: {error}; check it.") from None
    records = list(CertifyFolder(path).records())
    curve = read_curve(records, sigma=plan.sigma, radii=[0.0])
    share = as_figure(curve.radii[0].right, Share)
    if share is None:
        return None
    levels = [(point.level, as_figure(point.right, Share)) for point in curve.snrs]
    kept = tuple(Level(snr_db=level, right=right) for level, right in levels if right is not None)
    found = Certified(
        defense=plan.defense,
        share=share,
        sigma=plan.sigma,
        alpha=plan.alpha,
        passes=plan.passes,
        levels=kept,
    )
    return CertificateSummary(path, plan, found)


def attach(
    claims: Sequence[Claim], certificates: Sequence[CertificateSummary]
) -> tuple[list[Claim], list[str]]:
    """Rows with the certificates that are about them, and what is said of those that are about none."""
    notes = [
        f"certificates of {each.plan.model} behind {each.plan.defense} on {each.plan.data} match no row "
        f"({100 * each.found.share.value:.0f} % of {each.found.share.n} clips are certified and right)"
        for each in certificates
        if not any(each.fits(claim) for claim in claims)
    ]
    rows = []
    for claim in claims:
        own = [each.found for each in certificates if each.fits(claim)]
        # Of several, such as with more passes, the one that proves most.
        best = max(own, key=lambda found: found.share.value, default=None)
        rows.append(claim if best is None else claim.model_copy(update={"certified": best}))
    return rows, notes


def transforms(defense: str) -> list[str]:
    """The transforms in front of the model, without the vote."""
    votes = registry.names("vote")
    return [str(part) for part in parts_of(defense) if part.name not in votes]
