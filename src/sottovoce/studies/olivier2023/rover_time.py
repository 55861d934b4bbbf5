"""How long a vote by ROVER takes, without the model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sottovoce.core.draws import Draws

WORDS, WRONG, VOCABULARY = 20, 0.2, 500


def time_rover(counts: Iterable[int], *, repeats: int = 5) -> dict[int, float]:
    """Milliseconds of one vote, the median of some, by the number of hypotheses: of 20 words with each fifth
    one wrong, which is what a noisy recogniser says."""
    # Numba compiles on import; only who asks for times should wait for it.
    from sottovoce.defenses.rover import rover

    source = Draws(0).generator("rover")
    truth = source.integers(VOCABULARY, size=WORDS)
    found = {}
    for count in counts:
        heard = np.where(
            source.random((count, WORDS)) < WRONG, source.integers(VOCABULARY, size=(count, WORDS)), truth
        )
        hypotheses = [[f"word{number}" for number in row] for row in heard.tolist()]
        rover(hypotheses)
        found[count] = 1000 * float(np.median([_seconds(rover, hypotheses) for _ in range(repeats)]))
    return found


def _seconds(work: Callable[..., Any], *given: Any) -> float:
    start = time.perf_counter()
    work(*given)
    return time.perf_counter() - start
