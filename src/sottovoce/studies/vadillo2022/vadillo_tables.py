"""What Vadillo and Santana report: Tables 1 and 2, as printed, and the facts of sections 3 and 4."""

from __future__ import annotations

from typing import NamedTuple

BOUND_L2 = 0.1
OVERSHOOT = 0.1
ACCEPTED_DB = -32.0
"""Distortion that earlier work takes for acceptable (section 4.1)."""
HIGH_DB = -20.0
"""Above this the background is said to be highly detectable (section 4.3)."""


class Fooling(NamedTuple):
    """A row of Table 1: fooling ratios in per cent. `max` is of the best on its own training set."""

    max_train: float
    max_valid: float
    mean_train: float
    mean_valid: float


class DistortionRow(NamedTuple):
    """A row of Table 2: mean dB_x,max(v), and the per cent of validation clips below -32 dB."""

    mean_db: float
    below_percent: float


TABLE_1 = {
    "silence": Fooling(23.80, 19.46, 22.24, 19.61),
    "unknown": Fooling(72.70, 73.06, 70.58, 73.51),
    "yes": Fooling(74.50, 74.36, 68.26, 66.40),
    "no": Fooling(86.50, 83.77, 81.48, 79.40),
    "up": Fooling(84.20, 75.45, 82.20, 74.73),
    "down": Fooling(71.50, 65.55, 68.06, 64.51),
    "left": Fooling(52.30, 49.73, 42.20, 40.59),
    "right": Fooling(68.70, 63.82, 60.62, 56.47),
    "on": Fooling(76.00, 75.65, 54.42, 53.28),
    "off": Fooling(80.10, 73.48, 75.18, 70.85),
    "stop": Fooling(61.40, 61.82, 56.92, 57.30),
    "go": Fooling(87.80, 80.06, 86.24, 80.90),
}

TABLE_2 = {
    "silence": DistortionRow(-29.52, 48.04),
    "unknown": DistortionRow(-41.35, 90.20),
    "yes": DistortionRow(-40.58, 90.45),
    "no": DistortionRow(-42.56, 93.09),
    "up": DistortionRow(-40.24, 89.18),
    "down": DistortionRow(-40.63, 90.64),
    "left": DistortionRow(-48.10, 99.03),
    "right": DistortionRow(-43.30, 95.20),
    "on": DistortionRow(-46.31, 96.21),
    "off": DistortionRow(-42.01, 94.03),
    "stop": DistortionRow(-43.92, 96.11),
    "go": DistortionRow(-41.88, 93.28),
}

ARCHITECTURE = {
    "input": "audio waveform, 16 kHz, one second",
    "features": "MFCC features of successive intervals, a two-dimensional image",
    "convolutional layers": "2, with ReLU",
    "fully connected layers": "1",
    "output": "softmax over 12 classes",
    "parameters": "not given",
    "accuracy": "not given",
}
"""Section 3.1. The paper's text gives no accuracy of its model."""
