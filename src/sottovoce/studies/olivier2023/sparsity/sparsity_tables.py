"""What Olivier's thesis (2023) reports of adversarial sparsity: Tables 4.1 to 4.3 and B.1 as printed.

Images: CIFAR-10 at L2 0.5 and L-infinity 8/255, which captions print as 0.03, and ImageNet at L2 1.0. L2
sparsity is an angle in radians; L-infinity sparsity a number of free coordinates of 3,072.
"""

from __future__ import annotations

from typing import NamedTuple


class ModelSparsity(NamedTuple):
    """A row of Tables 4.1 and B.1 in one norm: accuracies in %, clean and under AutoPGD, and sparsity."""

    clean: float
    attacked: float
    sparsity: float


class ModelRow(NamedTuple):
    """A row of Table 4.1; None where the table has no such model."""

    model: str
    defense: str
    l2: ModelSparsity | None
    linf: ModelSparsity | None


class DefenseSparsity(NamedTuple):
    """A row of Tables 4.2 and 4.3: accuracy in %, and the sparsity in both norms."""

    accuracy: float
    l2: float
    linf: float


def _row(model: str, defense: str, *values: float) -> ModelRow:
    return ModelRow(model, defense, ModelSparsity(*values[:3]), ModelSparsity(*values[3:]))


TABLE_4_1: tuple[ModelRow, ...] = (
    _row("R-18", "none", 88, 0, 0.180, 88, 0, 56.8),
    _row("R-18", "Madry et al. 2018, 1 step", 90, 62.1, 0.559, 90.73, 40.08, 229),
    _row("R-18", "Madry et al. 2018", 88.8, 67.3, 0.553, 80.97, 47.19, 277),
    _row("R-18", "Madry et al. 2018, without augmentation", 82.8, 60.2, 0.532, 73.96, 43.02, 273),
    _row("WR-70-16", "Rebuffi et al. 2021, with data", 95.74, 82.3, 0.581, 94.16, 62.91, 213),
    _row("WR-70-16", "Gowal et al. 2020, with data", 94.74, 80.5, 0.590, 91.17, 62.5, 215),
    _row("WR-70-16", "Rebuffi et al. 2021", 92.41, 80.4, 0.545, 89.16, 65.83, 202),
    _row("WR-28-10", "Rebuffi et al. 2021", 91.79, 78.8, 0.529, 89.58, 61.66, 209),
    _row("R-18", "Sehwag et al. 2021", 89.5, 73.4, 0.539, 87.08, 52.08, 231),
    _row("R-18", "Rade and Moosavi 2021", 90.5, 76.2, 0.515, 92.08, 57.5, 209),
    ModelRow("WR-34-10", "Augustin et al. 2020", ModelSparsity(92.23, 76.3, 0.525), None),
    ModelRow("R-50", "Augustin et al. 2020", ModelSparsity(91.08, 72.9, 0.572), None),
    ModelRow("WR-34-R", "Huang et al. 2021", None, ModelSparsity(89.58, 57.5, 227)),
    ModelRow("WR-34-R", "Huang et al. 2021, EMA", None, ModelSparsity(89.17, 57.5, 230)),
)

TABLE_4_2 = {
    "none": DefenseSparsity(88, 0.180, 56.8),
    "JPEG": DefenseSparsity(77.1, 0.161, 80.9),
    "FS": DefenseSparsity(87.8, 0.178, 60.1),
    "SPS": DefenseSparsity(74, 0.147, 77.7),
    "FS+SPS": DefenseSparsity(74.5, 0.174, 86.6),
}
"""Defenses that are held for broken. FS: feature squeezing; SPS: spatial smoothing."""

TABLE_4_3 = {
    "none": DefenseSparsity(88.0, 0.180, 56.8),
    "Crop+Resize": DefenseSparsity(93.7, 0.225, 64.0),
    "Cutmix": DefenseSparsity(94.58, 0.185, 50.8),
    "50% Cutmix": DefenseSparsity(95.83, 0.202, 57.0),
    "Mixup": DefenseSparsity(93.75, 0.157, 71.1),
    "50% Mixup": DefenseSparsity(92.5, 0.202, 69.4),
    "Cutout": DefenseSparsity(94.16, 0.225, 62.2),
    "50% Cutout": DefenseSparsity(93.75, 0.225, 62.6),
    "Ricap": DefenseSparsity(92.2, 0.272, 105),
    "50% Ricap": DefenseSparsity(91.67, 0.253, 83.6),
}

TABLE_B_1 = {
    "ResNet-50, none": ModelSparsity(87.8, 0, 0.194),
    "ResNet-18, Salman et al. 2020a": ModelSparsity(52.9, 39.5, 0.426),
    "ResNet-50, Salman et al. 2020a": ModelSparsity(64.0, 53.4, 0.415),
}
VIT_SPARSITY = 0.183
SPREAD_OVER_DIRECTIONS = 0.022
PRECISION_AT_EER = 67.0
"""Section 4.6.2, in %: the plain model's sparsity as a predictor of what a robust model gets right."""
ERRORS = (
    "L-infinity: the public code does not clamp the free coordinates to the radius, so that an attacker "
    "there has up to 5.6 times as much: every printed L-infinity sparsity is too small.",
    "L-infinity: a robust input counts as n there, and is left out in L2: two conventions in one table.",
    "Both searches return the last midpoint of a bisection, which need not be a success.",
    "Section 4.6.1: 1.96 x 0.022 / 10 is 0.004, not 0.002.",
    "Section 4.7: the pair 0.123 and 0.089 lies outside the range 0.165 to 0.196 of the same models.",
    "Equation 4.9 lacks a factor of 1/2 in the share of a cap; equations 4.14 to 4.17 miss the cap's edge.",
)
