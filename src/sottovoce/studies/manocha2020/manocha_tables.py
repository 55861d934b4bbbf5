"""What Manocha et al. (2020) report of their learned metric: Table 2."""

from __future__ import annotations

from typing import NamedTuple


class CorrelationRow(NamedTuple):
    """Spearman and Pearson correlation with opinions, and 2AFC accuracy in per cent."""

    voco_spearman: float
    voco_pearson: float
    fftnet_spearman: float
    fftnet_pearson: float
    fftnet_2afc: float
    bwe_spearman: float
    bwe_pearson: float
    bwe_2afc: float
    simulated_2afc: float


TABLE_2 = {
    "dpam-pre": CorrelationRow(0.60, 0.90, 0.37, 0.32, 77.3, 0.00, 0.23, 70.5, 83.9),
    "dpam-lin": CorrelationRow(0.30, 0.45, 0.40, 0.29, 77.0, 0.48, 0.36, 76.6, 83.6),
    "dpam-fin": CorrelationRow(0.46, 0.71, 0.45, 0.30, 73.5, 0.50, 0.66, 86.0, 80.3),
    "dpam-scratch": CorrelationRow(0.71, 0.94, 0.63, 0.59, 70.0, 0.61, 0.47, 87.68, 71.78),
    "mse": CorrelationRow(0.18, 0.80, 0.18, 0.15, 66.0, 0.00, 0.26, 49.0, 43.0),
    "pesq": CorrelationRow(0.43, 0.85, 0.49, 0.56, 88.57, 0.21, 0.18, 38.1, 86.1),
    "visqol": CorrelationRow(0.50, 0.75, 0.02, 0.35, 79.0, 0.13, 0.09, 44.4, 84.2),
}
"""By judge. What the paper calls "ours" is DPAM here."""
SETUP = (
    "opinions of three listening tests (VoCo, FFTnet, bandwidth extension), averaged by speaker and "
    "condition, and triplets of two-alternative choices"
)
