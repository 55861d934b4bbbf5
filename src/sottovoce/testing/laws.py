"""The laws that parts keep, and the error that says which one was broken."""

from __future__ import annotations

from enum import StrEnum

import torch
from torch import Tensor


class Law(StrEnum):
    """The laws that parts keep. A check that fails names one of them.

    >>> print(sv.testing.Law.BUDGET)
    every example is inside its budget
    """

    SHAPE = "results have the documented shape, one row a clip"
    UNCHANGED = "a model under attack is never changed"
    SEEDED = "the same seed gives the same result"
    GLOBAL_RANDOM = "global random state is neither read nor changed"
    GRADIENT = "a finite gradient reaches the waveform"
    LABEL = "a loss depends on its label"
    PADDING = "padding gets no energy and no gradient, and more of it changes nothing"
    ISOLATED = "no clip affects another"
    ALONE = "a clip alone is decided as in any batch, and all else differs by float rounding at most"
    SOUND = "an answer depends on the audio, not on the name of the clip"
    LENT = "clips that a part is given are not changed"
    INPUT = "bad input is a clear error"
    SIGN = "a step up the objective leads toward success"
    SUCCESS = "success is what the goal says it is"
    PROJECTION = "a projection is inside, and leaves what is inside alone"
    CAPABILITY = "a capability agrees with the target that has it"
    BUDGET = "every example is inside its budget"
    GRID = "every example is in [-1, 1], on the 16-bit grid, and judged as saved"
    BEST = "more steps never make an attack worse at its own goal"
    WEAKEST = "an attack for the smallest perturbation fools every clip that 20 steps of PGD fool"
    SAVED = "what is saved is what is loaded"
    PARTS = "the parts of clips add up to the estimate, and a clip without a value is left out"


class ContractError(AssertionError):
    """A part broke a law; `law` says which.

    >>> class Loud(sv.Attack):
    ...     def perturb(self, target, clean, goal, budget, draws):
    ...         clean.waveforms.zero_()  # writes into clips that it was given
    ...         return clean.waveforms
    >>> try:
    ...     sv.testing.check_attack(Loud())
    ... except sv.testing.ContractError as error:
    ...     print(error.law)
    clips that a part is given are not changed
    """

    def __init__(self, law: Law, detail: str) -> None:
        super().__init__(f"law broken: {law.value}. {detail}")
        self.law = law


def require(holds: bool, law: Law, detail: str) -> None:
    """Raise `ContractError` unless a law holds."""
    if not holds:
        raise ContractError(law, detail)


def gap(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, as a share of the largest wanted value, or of 1 if that is smaller."""
    if found.shape != wanted.shape:
        return torch.inf
    if found.numel() == 0:
        return 0.0
    return distance(found, wanted, float(wanted.detach().abs().max().clamp_min(1.0)))


def distance(found: Tensor, wanted: Tensor, scale: float) -> float:
    """The largest difference over `scale`; infinite if only one side is NaN or infinite."""
    found, wanted = found.detach().double(), wanted.detach().double()
    same = (found == wanted) | (found.isnan() & wanted.isnan())
    differences = (found - wanted).abs().nan_to_num(nan=torch.inf).masked_fill(same, 0.0)
    return float(differences.max()) / scale
