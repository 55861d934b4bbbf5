"""What Amiri and Kodrasi (2024) print: accuracies over 100 speakers of PC-GITA, means and deviations in %."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple


class Printed(NamedTuple):
    mean: float
    deviation: float

    def __str__(self) -> str:
        return f"{self.mean:g} ± {self.deviation:g}"


TABLE_1 = MappingProxyType({"cnn": Printed(76.6, 2.6), "embedding": Printed(82.6, 3.0)})
TABLE_2 = MappingProxyType(
    {
        "CAFE": (Printed(67.2, 5.0), Printed(1.8, 1.2)),
        "FOODCOURT": (Printed(65.2, 3.2), Printed(2.0, 1.7)),
        "KITCHEN": (Printed(67.4, 3.1), Printed(3.4, 1.0)),
        "LIVINGB": (Printed(70.6, 2.7), Printed(0.2, 0.4)),
        "CITY": (Printed(70.0, 3.3), Printed(1.4, 2.6)),
        "KG": (Printed(67.2, 4.7), Printed(0.8, 0.7)),
    }
)
"""Noisy accuracy and adversarial accuracy at 60 dB."""
SETUP = (
    "100 speakers of PC-GITA, half of them with Parkinson's disease, 55 s of each; 10 folds, 5 seeds; "
    "wav2vec2 base, layer 10; QUT-NOISE"
)
