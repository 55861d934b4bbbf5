"""Simulated listeners of known JNDs, and other ways to look for them: QUEST+ and random strengths.

QUEST+ (Watson 2017) is the package `questplus`; it plays what it expects to learn most from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from sottovoce.core.draws import Draws
from sottovoce.errors import MissingExtra
from sottovoce.perception.jnd.jnd_rule import Jnd
from sottovoce.perception.jnd.simulated_listeners import PREFIX, Listener, PsychometricListener

TRIALS = 30
MUS, SIGMAS = (15.0, 85.0), (3.0, 12.0)

Way = Callable[[Listener, Draws, int], list[float]]
"""The estimate of mu after each trial with a listener."""


def make_listener(number: int, *, lapse: float = 0.1, seed: int = 0) -> PsychometricListener:
    """One of many simulated listeners: mu uniform from 15 to 85, sigma log-uniform from 3 to 12."""
    source = Draws(seed).turn("listener").generator(str(number))
    return PsychometricListener(
        mu=float(source.uniform(*MUS)),
        sigma=float(np.exp(source.uniform(*np.log(SIGMAS)))),
        lapse=lapse,
        seed=seed,
        name=f"{PREFIX}{number}",
    )


def search_adaptively(listener: Listener, draws: Draws, trials: int = TRIALS) -> Jnd:
    search = Jnd()
    for trial in range(trials):
        strength = search.next(draws)
        search = search.add(strength, listener.answer(strength, trial))
    return search


def search_at_random(listener: Listener, draws: Draws, trials: int = TRIALS) -> Jnd:
    """Uniform strengths; the estimate from the answers is the same as ours."""
    search = Jnd()
    for trial, strength in enumerate((100.0 * draws.generator("random").random(trials)).tolist()):
        search = search.add(strength, listener.answer(strength, trial))
    return search


def adaptive(listener: Listener, draws: Draws, trials: int = TRIALS) -> list[float]:
    return _along(search_adaptively(listener, draws, trials))


def at_random(listener: Listener, draws: Draws, trials: int = TRIALS) -> list[float]:
    return _along(search_at_random(listener, draws, trials))


def quest_plus(listener: Listener, draws: Draws, trials: int = TRIALS, *, lapse: float = 0.1) -> list[float]:
    """QUEST+ is given the lapse rate; its estimate is the mean of its posterior."""
    search = deepcopy(_quest(lapse))
    found = []
    for trial in range(trials):
        stimulus = search.next_stim
        different = listener.answer(stimulus["intensity"], trial)
        search.update(stim=stimulus, outcome={"response": int(different)})
        found.append(float(search.param_estimate["mean"]))
    return found


def rmse(found: Sequence[float], wanted: Sequence[float]) -> float:
    return float(np.sqrt(np.mean((np.asarray(found) - np.asarray(wanted)) ** 2)))


def has_quest_plus() -> bool:
    return find_spec("questplus") is not None


def _along(search: Jnd) -> list[float]:
    return [Jnd(search.answers[: n + 1], search.rule).estimate().mu for n in range(len(search.answers))]


@lru_cache(maxsize=2)
def _quest(lapse: float) -> Any:
    if not has_quest_plus():
        raise MissingExtra(
            "QUEST+ needs the package questplus, which is not installed; type: pip install questplus."
        )
    from questplus import QuestPlus

    return QuestPlus(
        stim_domain={"intensity": np.arange(0.0, 101.0, 2.5)},
        param_domain={
            "mean": np.arange(0.0, 101.0, 2.0),
            "sd": np.geomspace(2.0, 20.0, 7),
            "lower_asymptote": np.array([lapse / 2]),
            "lapse_rate": np.array([lapse / 2]),
        },
        outcome_domain={"response": [1, 0]},
        func="norm_cdf",
        stim_scale="linear",
    )
