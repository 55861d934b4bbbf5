"""The laws by name, and the error that says which one was broken."""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor


class Law(StrEnum):
    """What holds for every part. A check that fails names one of these."""

    SHAPE = "results have the documented shape, one row a clip"
    UNCHANGED = "a model under attack is never changed"
    SEEDED = "the same seed gives the same result"
    GLOBAL_RANDOM = "global random state is neither read nor changed"
    GRADIENT = "a finite gradient reaches the waveform"
    LABEL = "a loss follows its label"
    PADDING = "padding gets no energy and no gradient, and more of it changes nothing"
    ISOLATED = "no item sees another"
    ALONE = "an item alone is decided as in any batch, and all else differs by float rounding at most"
    SOUND = "an answer follows the sound, not the name of the clip"
    LENT = "what a part is handed comes back as it was"
    INPUT = "bad input is a clear error"
    SIGN = "a step up the objective leads toward success"
    SUCCESS = "success is what the goal says it is"
    PROJECTION = "a projection is inside, and leaves what is inside alone"
    POWER = "a power agrees with the target that offers it"
    BUDGET = "every example is inside its budget"
    GRID = "every example is in [-1, 1], on the 16-bit grid, and judged as saved"
    BEST = "more steps never make an attack worse at its own goal"
    WEAKEST = "an attack for the smallest perturbation fools every clip that 20 steps of PGD fool"
    SAVED = "what is saved is what is loaded"
    PARTS = "the parts of clips add up to the estimate, and a clip without a value is left out"


class ContractError(AssertionError):
    """A part broke a law of sottovoce."""

    def __init__(self, law: Law, detail: str) -> None:
        super().__init__(f"law broken: {law.value}. {detail}")
        self.law = law


def require(holds: bool, law: Law, detail: str) -> None:
    if not holds:
        raise ContractError(law, detail)


def gap(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, as a share of the largest wanted value (or of 1 where all are smaller)."""
    if found.shape != wanted.shape:
        return torch.inf
    if found.numel() == 0:
        return 0.0
    return distance(found, wanted, float(wanted.detach().abs().max().clamp_min(1.0)))


def distance(found: Tensor, wanted: Tensor, scale: float) -> float:
    """The largest difference over `scale`; infinite where one side alone is NaN or infinite."""
    found, wanted = found.detach().double(), wanted.detach().double()
    same = (found == wanted) | (found.isnan() & wanted.isnan())
    differences = (found - wanted).abs().nan_to_num(nan=torch.inf).masked_fill(same, 0.0)
    return float(differences.max()) / scale
