"""How well a metric predicts what listeners answer: accuracy, area under the curve, calibration."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

BINS = 10
Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class EarFigures:
    """Over answers on pairs that differ. loss: cross entropy in nats. auc: chance that a pair called
    different lies further apart than one called same. calibration: expected error of P(answer different)."""

    loss: float
    accuracy: float
    auc: float
    calibration: float
    answers: int
    pairs: int

    def to_json(self) -> dict[str, Any]:
        return {
            name: round(value, 5) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }

    def __str__(self) -> str:
        return (
            f"loss {self.loss:.4f}, accuracy {100 * self.accuracy:.1f} %, AUC {self.auc:.3f}, calibration "
            f"error {100 * self.calibration:.1f} %"
        )


def judge(p: ArrayLike, different: ArrayLike, asked: ArrayLike) -> EarFigures:
    """Figures from P(answer different) `(pairs,)` and how many answers were "different", of how many."""
    chance, yes, all_ = (np.asarray(values, dtype=np.float64) for values in (p, different, asked))
    no, total = all_ - yes, all_.sum()
    held = chance.clip(1e-6, 1 - 1e-6)
    right = np.where(chance >= 0.5, yes, no).sum()
    return EarFigures(
        loss=float(-(yes * np.log(held) + no * np.log1p(-held)).sum() / total),
        accuracy=float(right / total),
        auc=area_under_curve(chance, yes, no),
        calibration=calibration_error(chance, yes, all_),
        answers=int(total),
        pairs=len(chance),
    )


def area_under_curve(scores: Floats, yes: Floats, no: Floats) -> float:
    """Of scores with counts of yes and no answers; ties count half. NaN without both answers."""
    if not yes.sum() or not no.sum():
        return float("nan")
    repeats = np.concatenate([np.repeat(scores, yes.astype(int)), np.repeat(scores, no.astype(int))])
    count = int(yes.sum())
    ranks = scipy.stats.rankdata(repeats)[:count].sum()
    return float((ranks - count * (count + 1) / 2) / (count * no.sum()))


def calibration_error(p: Floats, different: Floats, asked: Floats, bins: int = BINS) -> float:
    """Mean distance of P from the share of "different" answers, over equal bins of P, weighted by answers."""
    place = (p * bins).astype(int).clip(0, bins - 1)
    said, answered, given = (
        np.bincount(place, weights=values, minlength=bins) for values in (p * asked, different, asked)
    )
    return float(np.abs(said - answered).sum() / given.sum())
