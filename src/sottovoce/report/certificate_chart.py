"""The curve of certificates: the share of clips certified against the radius, and against its SNR."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sottovoce.auditing.certificates.certify_folder import CertifiedClip, CurvePoint, read_curve

INK, SOFT, CERTIFIED, RIGHT = "#1f2933", "#9aa5b1", "#9aa5b1", "#0b7285"
LEVELS = 200


def draw_certificates(records: Sequence[CertifiedClip], *, sigma: float, right: str) -> Figure:
    """Two panels with 95 % bands. right: what a certified clip that is right is called."""
    sound = [record for record in records if record.status == "ok"]
    radii = [record.radius for record in sound if record.radius is not None]
    snrs = [record.snr_db for record in sound if record.snr_db is not None]
    curve = read_curve(
        records,
        sigma=sigma,
        radii=np.linspace(0.0, 1.05 * max(radii, default=sigma), LEVELS).tolist(),
        snrs=np.linspace(min(snrs, default=20.0) - 2, max(snrs, default=60.0) + 2, LEVELS).tolist(),
    )
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, other = figure.subplots(1, 2, sharey=True)
    _shares(left, curve.radii, right)
    _shares(other, curve.snrs, right)
    left.set(xlabel="radius (L2)", ylabel="clips, %", ylim=(-3, 103))
    # Louder perturbations to the right, as in the other panel.
    other.set(xlabel="SNR of the perturbation, dB")
    other.invert_xaxis()
    left.legend(frameon=False, loc="lower left")
    return figure


def write_certificates(records: Sequence[CertifiedClip], path: Path, *, sigma: float, right: str) -> Path:
    """The same as a PNG."""
    draw_certificates(records, sigma=sigma, right=right).savefig(path, dpi=144)
    return path


def _shares(axes: Axes, points: Sequence[CurvePoint], right: str) -> None:
    levels = [point.level for point in points]
    series = (
        ("certified", CERTIFIED, [point.certified for point in points]),
        (right, RIGHT, [point.right for point in points]),
    )
    for name, colour, found in series:
        value, low, high = (
            100 * np.array([getattr(each, side) for each in found]) for side in ("value", "low", "high")
        )
        axes.fill_between(levels, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(levels, value, color=colour, linewidth=1.6, label=name)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=SOFT, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
