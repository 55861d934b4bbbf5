"""What Ray costs: one plan, with cells of about ten seconds, by two local processes and by Ray on two CPUs.

    python benchmarks/scale_ray.py --seconds 10 --cells 4 --rounds 3

Each engine runs a small plan first, so that starting processes and opening the model are not counted; that
is printed apart. The overhead is the ratio of the medians, less one; the goal is 10 % at the most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sottovoce.auditing.engines.engine import Engine
from sottovoce.auditing.engines.pool_engine import PoolEngine
from sottovoce.auditing.engines.ray_engine import RayEngine
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.run.driver import run_audit

ENGINES: dict[str, Callable[[int], Engine]] = {
    "pool": lambda workers: PoolEngine(workers, devices=["cpu"]),
    "ray": lambda workers: RayEngine(workers=workers, device="cpu"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cells", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0, help="of one cell, on all workers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args()
    steps = find_steps(options.seconds, options.workers, options.batch)
    plan = make(options.cells, steps, options.batch)
    taken: dict[str, list[float]] = {name: [] for name in ENGINES}
    starts: dict[str, list[float]] = {name: [] for name in ENGINES}
    for _ in range(options.rounds):
        for name, engine in ENGINES.items():
            start, run = measure(engine, options.workers, plan)
            starts[name].append(start)
            taken[name].append(run)
    middle = {name: statistics.median(times) for name, times in taken.items()}
    print(
        json.dumps(
            {
                "cores": os.cpu_count(),
                "workers": options.workers,
                "cells": options.cells,
                "pgd_steps": steps,
                "seconds_a_cell": round(middle["pool"] / options.cells, 2),
                "start_seconds": {name: round(statistics.median(times), 1) for name, times in starts.items()},
                "run_seconds": {name: [round(one, 2) for one in times] for name, times in taken.items()},
                "ray_overhead": round(middle["ray"] / middle["pool"] - 1, 4),
            },
            indent=1,
        )
    )


def make(cells: int, steps: int, batch: int) -> Plan:
    """Projected gradient on the shipped words, a budget a cell."""
    budgets = [f"snr(db={20 + 5 * number})" for number in range(cells)]
    settings = {
        "budgets": budgets,
        "batch": batch,
        "audio": "none",
        "probe": 0,
        "metrics": ["success", "snr"],
    }
    return make_plan({"model": "keyword", "attacks": [f"pgd(steps={steps})"], **settings})


def find_steps(seconds: float, workers: int, batch: int) -> int:
    """Steps with which a cell takes about so long; two lengths are tried, so that what is fixed drops out."""
    times = {}
    with PoolEngine(workers, devices=["cpu"]) as engine, tempfile.TemporaryDirectory() as place:
        for steps in (1, 10, 60):
            began = time.perf_counter()
            run_audit(make(1, steps, batch), Path(place, str(steps)), engine=engine)
            times[steps] = time.perf_counter() - began
    each = max((times[60] - times[10]) / 50, 1e-4)
    return max(10, round(10 + (seconds - times[10]) / each))


def measure(make_engine: Callable[[int], Engine], workers: int, plan: Plan) -> tuple[float, float]:
    """Seconds until the engine has done a first small plan, and of the plan itself."""
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        with make_engine(workers) as engine:
            run_audit(make(1, 1, plan.batch), Path(place, "first"), engine=engine)
            ready = time.perf_counter()
            run_audit(plan, Path(place, "run"), engine=engine)
            return ready - began, time.perf_counter() - ready


if __name__ == "__main__":
    main()
