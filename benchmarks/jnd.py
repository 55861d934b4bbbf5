"""The adaptive search for a JND beside QUEST+ and random strengths, on simulated listeners.

python benchmarks/jnd.py --listeners 100        # prints a section for benchmarks/perception.md
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from sottovoce.core.draws import Draws
from sottovoce.perception.jnd.jnd_rule import Jnd
from sottovoce.studies.manocha2020 import jnd_rivals as rivals

SHOWN = (5, 10, 15, 20, 30)
LAPSES = (0.02, 0.1)


def measure(way: rivals.Way, count: int, lapse: float, seed: int) -> list[float]:
    """RMSE of mu after each trial."""
    squares = []
    for number in range(count):
        listener = rivals.make_listener(number, lapse=lapse, seed=seed)
        found = way(listener, Draws(seed).turn("search", number), rivals.TRIALS)
        squares.append([(mu - listener.mu) ** 2 for mu in found])
    return np.sqrt(np.mean(squares, axis=0)).tolist()


def time_next(repeats: int = 50) -> float:
    """Median milliseconds of processor time to choose the next strength after 29 answers."""
    search: Jnd = rivals.search_adaptively(rivals.make_listener(0), Draws(0), 29)
    spent = []
    for _ in range(repeats):
        start = time.process_time()
        search.next(Draws(0))
        spent.append(1000 * (time.process_time() - start))
    return float(np.median(spent))


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--listeners", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("## JND\n")
    print(
        f"RMSE of mu over {options.listeners} simulated listeners (mu 15 to 85, sigma 3 to 12, strengths "
        "from 0 to 100), by trials.\nQUEST+ is the package questplus, told the rate of lapses.\n"
    )
    print("| lapses | strengths chosen by |" + "".join(f" {trials} |" for trials in SHOWN))
    print("|---:|---|" + "---:|" * len(SHOWN))
    for lapse in LAPSES:
        ways: dict[str, rivals.Way] = {"our rule": rivals.adaptive, "random": rivals.at_random}
        if rivals.has_quest_plus():
            ways["QUEST+"] = lambda one, draws, trials, rate=lapse: rivals.quest_plus(  # type: ignore[misc]
                one, draws, trials, lapse=rate
            )
        last = {}
        for name, way in ways.items():
            row = measure(way, options.listeners, lapse, options.seed)
            last[name] = row[-1]
            cells = "".join(f" {row[trials - 1]:.2f} |" for trials in SHOWN)
            print(f"| {lapse:.0%} | {name} |{cells}", flush=True)
        ratios = ", ".join(
            f"{last['our rule'] / last[name]:.2f} of {name}" for name in last if name != "our rule"
        )
        print(f"| {lapse:.0%} | ours after 30 trials: {ratios} |" + " |" * len(SHOWN))
    print(f"\nThe next strength after 29 answers takes {time_next():.1f} ms of processor time (goal 5 ms).")


if __name__ == "__main__":
    main()
