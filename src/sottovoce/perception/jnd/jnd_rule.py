"""Just noticeable differences, found by asking where the answer is least certain (Manocha et al. 2020, 2.1).

A listener hears a change of strength rho, 0 to 100, and says "same" or "different". The chance of
"different" is the normal distribution function of (rho - mu) / sigma, and now and then a lapse: mu is the
JND. Everything here is a function of the answers so far; there is no state to keep, lose or restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sottovoce.errors import InputError

LOWEST, HIGHEST = 0.0, 100.0
SIGMAS = (1.5, 40.0)
FACTORS = 16
PUBLISHED_AGREEMENT = 0.883
PUBLISHED_BALANCE = (25_782, 26_130)
"""Answers "same" and "different" (Manocha et al. 2020, section 3.2)."""

Floats = NDArray[np.float64]


class JndTrial(NamedTuple):
    """One answer: the strength that was played, and whether it was called different."""

    strength: float
    different: bool


class Streams(Protocol):
    """Random numbers by name: core.draws.Draws, or anything that gives them in the same way."""

    def generator(self, name: str) -> np.random.Generator: ...


@final
@dataclass(frozen=True, kw_only=True)
class JndRule:
    """How a JND is looked for.

    lapse: share of answers that are random, so that one slip does not count for more than it should.
    mu, mu_spread: the prior of mu, normal. sigma, sigma_factor: that of sigma, normal in its logarithm: a
    median, and the factor of one standard deviation.
    fade: answers after which the priors count half; they go on fading.
    q: how far from mu the next strength is at most, in sigmas; the paper names no figure.
    trials: when to stop. error, least: stop earlier, but not before `least` answers, once the standard error
    of mu is as small; None: never.
    """

    lapse: float = 0.1
    mu: float = 50.0
    mu_spread: float = 25.0
    sigma: float = 8.0
    sigma_factor: float = 1.8
    fade: float = 8.0
    q: float = 0.8
    trials: int = 30
    error: float | None = None
    least: int = 10

    def __post_init__(self) -> None:
        if not 0.0 < self.lapse < 1.0:
            raise InputError(
                f"expected a lapse rate between 0 and 1, got {self.lapse}; 0.05 to 0.1 is usual."
            )
        if min(self.mu_spread, self.sigma, self.sigma_factor - 1.0, self.fade) <= 0.0 or self.q < 0.0:
            raise InputError(
                "expected mu_spread, sigma and fade above 0, sigma_factor above 1 and q of 0 or more, got "
                f"{self}."
            )
        if self.trials < 1 or self.least < 1:
            raise InputError(
                f"expected 1 trial or more, got trials {self.trials} and least {self.least}; raise them."
            )


RULE = JndRule()


@final
@dataclass(frozen=True, kw_only=True)
class JndEstimate:
    """The most likely mu and sigma, and standard errors: the spread of what is still possible.

    reason: why the answers do not determine mu, or "": then it is the best guess at the edge of what was
    asked, and the standard error is no measure of how wrong it may be.
    """

    mu: float
    sigma: float
    mu_error: float
    sigma_error: float
    answers: int
    reason: str = ""

    @property
    def undetermined(self) -> bool:
        return bool(self.reason)


class Balance(NamedTuple):
    """How often each answer was given."""

    same: int
    different: int

    @property
    def share(self) -> float:
        """The share of "same"; near one half where strengths were near the JND. NaN without answers."""
        return self.same / total if (total := self.same + self.different) else float("nan")


@final
@dataclass(frozen=True)
class Jnd:
    """The search for one listener's just noticeable difference along a direction.

    answers: those so far; `add` gives a search with one more.
    rule: the prior, and when to stop.

    >>> jnd = sv.ears.Jnd()
    >>> for strength in range(10, 100, 10):
    ...     jnd = jnd.add(strength, different=strength > 45)
    >>> 40 < jnd.estimate().mu < 50
    True
    """

    answers: tuple[JndTrial, ...] = ()
    rule: JndRule = RULE

    def add(self, strength: float, different: bool) -> Jnd:
        return replace(self, answers=(*self.answers, JndTrial(float(strength), bool(different))))

    def estimate(self) -> JndEstimate:
        return estimate(self.answers, self.rule)

    def next(self, draws: Streams, levels: Sequence[float] | None = None) -> float:
        return next_strength(self.answers, draws, self.rule, levels)

    @property
    def done(self) -> bool:
        return is_done(self.answers, self.rule)


def estimate(answers: Sequence[tuple[float, bool]], rule: JndRule = RULE) -> JndEstimate:
    """Mu and sigma where likelihood times fading priors is highest, in any state of the answers."""
    strengths, different = _columns(answers)
    mus, sigmas = _grid()
    score = _score(mus, sigmas, strengths, different, rule)

    def score_at(mus: Floats, sigmas: Floats) -> Floats:
        return _score(mus, sigmas, strengths, different, rule)

    mu, sigma = _climb(mus, sigmas, score, score_at)
    mu_error, sigma_error = _errors(mus, sigmas, score)
    if mu_error < 1.5:
        # Nearly one point of the grid: look closer.
        near = np.clip(mu + np.linspace(-6.0, 6.0, 81), LOWEST, HIGHEST)[:, None]
        mu_error, sigma_error = _errors(near, sigmas, score_at(near, sigmas))
    return JndEstimate(
        mu=mu,
        sigma=sigma,
        mu_error=mu_error,
        sigma_error=sigma_error,
        answers=len(strengths),
        reason=_reason(strengths, different, mu),
    )


def next_strength(
    answers: Sequence[tuple[float, bool]],
    draws: Streams,
    rule: JndRule = RULE,
    levels: Sequence[float] | None = None,
) -> float:
    """What to play next: mu + q sigma, stronger after more "same" answers, weaker after more "different".

    How far, and to which side when both were given as often, is drawn from a stream of the trial's own.
    levels: the strengths that can be played; None: any.
    """
    found = estimate(answers, rule)
    source = draws.generator(f"trial {len(answers)}")
    size, side = source.random(2)
    given = balance(answers)
    sign = np.sign(given.same - given.different) or (1.0 if side < 0.5 else -1.0)
    strength = float(np.clip(found.mu + sign * size * rule.q * found.sigma, LOWEST, HIGHEST))
    if levels is None:
        return strength
    if not len(levels):
        raise InputError(
            "expected at least one strength that can be played, got none; render some clips first."
        )
    return float(min(levels, key=lambda level: abs(level - strength)))


def is_done(answers: Sequence[tuple[float, bool]], rule: JndRule = RULE) -> bool:
    """Whether no further answer is needed: enough trials, or mu known well enough."""
    if len(answers) >= rule.trials:
        return True
    if rule.error is None or len(answers) < rule.least:
        return False
    found = estimate(answers, rule)
    return not found.undetermined and found.mu_error <= rule.error


def agreement(answers: Sequence[tuple[float, bool]], mu: float) -> float:
    """Share of answers that agree with a JND: "different" above it, "same" at or below it. NaN of none."""
    strengths, different = _columns(answers)
    return float(np.mean((strengths > mu) == different)) if len(strengths) else float("nan")


def balance(answers: Iterable[tuple[float, bool]]) -> Balance:
    """How many answers are "same" and how many "different"."""
    given = [bool(different) for _, different in answers]
    return Balance(len(given) - sum(given), sum(given))


def probability(strength: Floats | float, mu: float, sigma: float, lapse: float = 0.0) -> Floats:
    """P("different") at a strength."""
    chance: Floats = lapse / 2 + (1.0 - lapse) * ndtr((np.asarray(strength) - mu) / sigma)
    return chance


def _columns(answers: Sequence[tuple[float, bool]]) -> tuple[Floats, NDArray[np.bool_]]:
    strengths = np.array([strength for strength, _ in answers], dtype=np.float64)
    bad = ~((strengths >= LOWEST) & (strengths <= HIGHEST))
    if bad.any():
        raise InputError(
            f"expected strengths from {LOWEST:g} to {HIGHEST:g}, got {strengths[bad][0]}; rescale them to "
            "that range."
        )
    return strengths, np.array([different for _, different in answers], dtype=bool)


@lru_cache(maxsize=1)
def _grid() -> tuple[Floats, Floats]:
    """Mus `(mus, 1)` and sigmas `(sigmas,)`: fine enough that the top of the score is in the best cell."""
    return np.linspace(LOWEST, HIGHEST, 101)[:, None], np.geomspace(*SIGMAS, 15)


def _score(
    mus: Floats, sigmas: Floats, strengths: Floats, different: NDArray[np.bool_], rule: JndRule
) -> Floats:
    """Logarithm of likelihood times priors, `(mus, sigmas)`.

    The product over answers h of (1 - h)(1 - c(rho)) + h c(rho), with c after lapses.
    """
    sides = np.where(different, 1.0, -1.0)
    z = (strengths - mus[..., None]) * sides / sigmas[:, None]
    chances = rule.lapse / 2 + (1.0 - rule.lapse) * ndtr(z)
    # A logarithm takes as long as ndtr: of products of a few factors, which cannot underflow, it takes few.
    few = np.multiply.reduceat(chances, np.arange(0, len(strengths), FACTORS), axis=-1)
    likelihood = np.log(few).sum(axis=-1)
    weight = 1.0 / (1.0 + len(strengths) / rule.fade)
    of_mu = ((mus - rule.mu) / rule.mu_spread) ** 2
    of_sigma = (np.log(sigmas / rule.sigma) / np.log(rule.sigma_factor)) ** 2
    total: Floats = likelihood - 0.5 * weight * (of_mu + of_sigma)
    return total


def _errors(mus: Floats, sigmas: Floats, score: Floats) -> tuple[float, float]:
    """Standard deviations of mu and of sigma over the grid, each cell weighted by how likely it is."""
    weights = np.exp(score - score.max())
    weights /= weights.sum()
    spreads = []
    for values in (mus, sigmas):
        mean = (weights * values).sum()
        spreads.append(float(np.sqrt((weights * (values - mean) ** 2).sum())))
    return spreads[0], spreads[1]


def _climb(
    mus: Floats, sigmas: Floats, score: Floats, score_at: Callable[[Floats, Floats], Floats]
) -> tuple[float, float]:
    """The highest point: the best cell of the grid, then ever finer grids around it."""
    row, column = np.unravel_index(int(score.argmax()), score.shape)
    mu, log_sigma = float(mus[row, 0]), float(np.log(sigmas[column]))
    wide, tall = float(mus[1, 0] - mus[0, 0]), float(np.log(sigmas[1] / sigmas[0]))
    steps = np.linspace(-1.0, 1.0, 7)
    for _ in range(8):
        near = np.clip(mu + wide * steps, LOWEST, HIGHEST)[:, None]
        logs = np.clip(log_sigma + tall * steps, *np.log(SIGMAS))
        row, column = np.unravel_index(int(score_at(near, np.exp(logs)).argmax()), (7, 7))
        mu, log_sigma = float(near[row, 0]), float(logs[column])
        # Half, not a third: a ridge that lies across the grid may hold the top outside the best cell.
        wide, tall = wide / 2, tall / 2
    return mu, float(np.exp(log_sigma))


def _reason(strengths: Floats, different: NDArray[np.bool_], mu: float) -> str:
    if not len(strengths):
        return "no answers yet: this is the prior; ask first"
    if different.all():
        return (
            f"all {len(strengths)} answers are 'different', down to a strength of {strengths.min():g}: the "
            "JND is below what was asked; play weaker changes"
        )
    if not different.any():
        return (
            f"all {len(strengths)} answers are 'same', up to a strength of {strengths.max():g}: the JND is "
            "above what was asked; play stronger changes, or check that the listener hears anything"
        )
    if mu in (LOWEST, HIGHEST):
        return f"the most likely JND is at the end of the scale, {mu:g}: it may lie beyond; change the range"
    return ""
