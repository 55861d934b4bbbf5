"""Yeehaw: remove the weakest bins of the spectrum and clip the strongest, without a gradient.

Abdullah et al. (2023), "Attacks as Defenses: Designing Robust Audio CAPTCHAs Using Attacks on Automatic
Speech Recognition Systems"; the attack is named Yeehaw Junction. The two steps and their shares of the budget
follow the account that the robust_speech library gives of it. Here a clipped bin keeps its phase, and the
energy that counts is the perturbation's, so that the measured SNR is the requested one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.attacks.kenansville import Reduce, Removal, one_sided
from sottovoce.core.files.settings_check import limits


@final
@dataclass(frozen=True, kw_only=True)
class Yeehaw(Removal):
    """Yeehaw (Abdullah et al. 2023): remove the weakest frequency bins and clip the strongest.

    Needs only the model's answers. A small part of the budget removes the weakest bins, as `kenansville`
    does; the rest clips the strongest. Meant for recognisers. The other settings are those of `kenansville`.

    removal_db: how far below the budget the energy of the removed bins is, in decibels.

    >>> model = sv.testing.ToyCtc()  # a toy recogniser
    >>> attack = sv.attacks.Yeehaw(steps=2)
    >>> sv.attack(model, sv.testing.clips_for(model), attack, budget="snr(db=0)").achieved
    (True, True, True, True)
    """

    name: ClassVar[str] = "yeehaw"
    removal_db: float = field(default=20.0, metadata=limits(at_least=0))

    def reducer(self, clip: Tensor) -> Reduce:
        spectrum, weights = one_sided(clip)
        magnitudes = spectrum.abs()
        order = (weights * magnitudes.square()).argsort(stable=True)
        total = (weights * magnitudes.square())[order].cumsum(dim=0)

        def reduce(radius: float) -> Tensor:
            share = radius**2 * 10.0 ** (-self.removal_db / 10.0)
            count = int(torch.searchsorted(total, share, right=True))
            kept = magnitudes.clone()
            kept[order[:count]] = 0.0
            spent = float(total[count - 1]) if count else 0.0
            level = clip_level(kept, weights, radius**2 - spent)
            gain = (level / kept.clamp_min(torch.finfo(kept.dtype).tiny)).clamp(max=1.0)
            gain[order[:count]] = 0.0
            delta: Tensor = torch.fft.irfft(spectrum * (gain - 1.0), n=len(clip))
            return delta

        return reduce


def clip_level(magnitudes: Tensor, weights: Tensor, energy: float) -> float:
    """The magnitude c at which clipping costs `energy`: sum of w (a - c)^2 over the bins with a > c.

    Over the k largest this is quadratic in c, W c^2 - 2 M c + Q, with the sums of w, w a and w a^2; the cost
    at each magnitude gives k, the number that are clipped. Zero if even silence costs less.
    """
    falling, order = magnitudes.sort(descending=True)
    weight = weights[order]
    sums = [(weight * falling**power).cumsum(dim=0) for power in range(3)]
    following = torch.nn.functional.pad(falling[1:], (0, 1))
    cost = sums[0] * following.square() - 2.0 * sums[1] * following + sums[2]
    # Rounding may make the cost dip between two equal magnitudes.
    count = int(torch.searchsorted(cost.cummax(dim=0).values, energy))
    if count == len(cost):
        return 0.0
    total, first, second = (float(part[count]) for part in sums)
    root = math.sqrt(max(first**2 - total * (second - energy), 0.0))
    return max((first - root) / total, 0.0)
