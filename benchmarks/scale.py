"""What runs of many trials cost beyond the trials: more processes, going on where a run stopped, and looking
ahead.

    python benchmarks/scale.py workers                  # one process against two, on a cell of about a minute
    python benchmarks/scale.py resume --trials 100000   # a command that has nothing left to do
    python benchmarks/scale.py dry-run --cells 90000    # what a plan of many cells would take

Prints one JSON line a measurement. On a machine that is shared the figures are worth nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

THREADS = "OMP_NUM_THREADS"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("workers", help="one process against several")
    verb.add_argument("--workers", type=int, default=2)
    verb.add_argument("--clips", type=int, default=320)
    verb.add_argument("--steps", type=int, default=50)
    verb.add_argument("--turns", type=int, default=3, help="each side so often, in turns; medians count")
    verb = verbs.add_parser("resume", help="going on with a run that is complete")
    verb.add_argument("--trials", type=int, default=100_000)
    verb = verbs.add_parser("dry-run", help="looking ahead at a plan of many cells")
    verb.add_argument("--cells", type=int, default=90_000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.verb == "workers":
            compare_workers(Path(folder), asked.workers, asked.clips, asked.steps, asked.turns)
        elif asked.verb == "dry-run":
            look_ahead(Path(folder), asked.cells)
        else:
            resume(Path(folder), asked.trials)


def say(**figures: Any) -> None:
    print(json.dumps(figures), flush=True)


def write_clips(folder: Path, count: int) -> Path:
    """A list of so many clips, made of the shipped ones over and over."""
    from sottovoce.data.embedded import embedded

    known = list(embedded())
    lines = [
        f"clip-{number:06d},{known[number % len(known)].path},{known[number % len(known)].label}"
        for number in range(count)
    ]
    path = folder / "clips.csv"
    path.write_text("\n".join(["id,path,label", *lines, ""]))
    return path


def compare_workers(folder: Path, workers: int, clips: int, steps: int, turns: int) -> None:
    """The same cell with one process and with several, each with an equal share of the cores.

    One process is timed with one thread, as each of several has on as many cores, and with all of them.
    """
    data = write_clips(folder, clips)
    sides = {"one, 1 thread": (1, "1"), "one, all cores": (1, None), f"{workers}": (workers, None)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns):
        for name, (number, threads) in sides.items():
            found = time_pool(folder / f"{number}-{threads}-{turn}", data, number, threads, steps)
            seconds[name].append(found["seconds"])
            say(benchmark="workers", side=name, turn=turn, clips=clips, steps=steps, **found)
    median = {name: sorted(found)[len(found) // 2] for name, found in seconds.items()}
    say(
        benchmark="workers",
        workers=workers,
        cores=os.cpu_count(),
        medians=median,
        speedup=median["one, 1 thread"] / median[f"{workers}"],
        speedup_over_all_cores=median["one, all cores"] / median[f"{workers}"],
    )


def time_pool(out: Path, data: Path, workers: int, threads: str | None, steps: int) -> dict[str, float]:
    """Seconds for the cell, in processes that are open already, and seconds until they were."""
    from sottovoce.auditing.engines.pool_engine import PoolEngine
    from sottovoce.auditing.plan.plan_file import make_plan
    from sottovoce.auditing.run.driver import run_audit

    entries = {"data": str(data), "budgets": ["snr(db=40)"], "metrics": ["success", "snr"], "audio": "none"}
    entries |= {"probe": 0, "batch": 16}
    short = make_plan({**entries, "attacks": ["fgsm"], "limit": 16 * 2 * workers})
    whole = make_plan({**entries, "attacks": [f"pgd(steps={steps})"]})
    before = os.environ.pop(THREADS, None)
    if threads is not None:
        os.environ[THREADS] = threads
    try:
        with PoolEngine(workers, ["cpu"]) as pool:
            begun = time.perf_counter()
            run_audit(short, out / "short", engine=pool)
            ready = time.perf_counter()
            run_audit(whole, out / "whole", engine=pool)
            return {"start_seconds": ready - begun, "seconds": time.perf_counter() - ready}
    finally:
        os.environ.pop(THREADS, None)
        if before is not None:
            os.environ[THREADS] = before


def resume(folder: Path, trials: int) -> None:
    """A run of fifty cells with every clip on record, and the command that goes on with it."""
    plan_file, out = folder / "plan.yaml", folder / "run"
    size = record_all(folder, plan_file, out, trials)
    command = [sys.executable, "-c", "from sottovoce.cli.main import main; main()", "audit", str(plan_file)]
    command += ["--out", str(out)]
    for turn in range(3):
        begun = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the command failed: {done.stdout}{done.stderr}")
        say(benchmark="resume", turn=turn, trials=trials, mib=size, seconds=time.perf_counter() - begun)
    time_driver(plan_file, out, trials)


def look_ahead(folder: Path, cells: int) -> None:
    """One model under as many attacks as budgets; then two models with five seeds each, as many cells in all.

    About 20 seconds of each, and 30 of the second, are spent on trying attacks, whatever the number of cells.
    """
    side, each = round(cells**0.5), round((cells / 10) ** 0.5)
    plans = {"one run": grid_entries(side), "2 models x 5 seeds": grid_entries(each)}
    plans["2 models x 5 seeds"] |= {"targets": ["keyword", "keyword(variant=pgd)"], "seeds": [0, 1, 2, 3, 4]}
    for name, entries in plans.items():
        (folder / "plan.yaml").write_text(yaml.safe_dump(entries))
        time_reading(folder / "plan.yaml", name)
        command = [sys.executable, "-c", "from sottovoce.cli.main import main; main()", "audit"]
        command += [str(folder / "plan.yaml"), "--dry-run", "--json", "--out", str(folder / "run")]
        begun, spent = time.perf_counter(), os.times().children_user
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"the command failed: {done.stdout}{done.stderr}")
        say(
            benchmark="dry-run",
            plan=name,
            cells=sum(run["cells"] for run in json.loads(done.stdout)["runs"]),
            seconds=time.perf_counter() - begun,
            cpu_seconds=os.times().children_user - spent,
        )


def grid_entries(side: int) -> dict[str, Any]:
    """A plan of so many attacks and budgets."""
    attacks = [f"pgd(steps={steps})" for steps in range(1, side + 1)]
    budgets = [f"snr(db={10 + level / 10})" for level in range(side)]
    return {"attacks": attacks, "budgets": budgets, "limit": 12, "audio": "none"}


def time_reading(plan_file: Path, name: str) -> None:
    """From the file to all cells, each part built once."""
    from sottovoce.auditing.plan.plan_file import read_plan
    from sottovoce.auditing.plan.plan_grid import make_grid

    begun = time.process_time()
    cells = sum(len(plan.cells()) for plan in make_grid(read_plan(plan_file)).plans().values())
    say(
        benchmark="dry-run",
        part="plans",
        plan=name,
        cells=cells,
        cpu_seconds=time.process_time() - begun,
    )


def time_driver(plan_file: Path, out: Path, trials: int) -> None:
    """Without the command around it: no imports, no report."""
    from sottovoce.auditing.plan.plan_file import make_plan, read_plan
    from sottovoce.auditing.run.driver import run_audit

    begun = time.perf_counter()
    run_audit(make_plan(read_plan(plan_file)), out, device="cpu")
    say(benchmark="resume", part="run_audit", trials=trials, seconds=time.perf_counter() - begun)


def record_all(folder: Path, plan_file: Path, out: Path, trials: int) -> float:
    """Write the run as if it had been done: real records of one clip, copied for every other. MiB written."""
    from sottovoce.auditing.plan.plan_file import make_plan
    from sottovoce.auditing.run.driver import run_audit

    budgets = [f"snr(db={level})" for level in range(15, 65, 5)]
    entries: dict[str, Any] = {"budgets": budgets, "audio": "none", "probe": 0}
    entries["attacks"] = ["noise", "fgsm", "pgd(steps=5)", "pgd(steps=10)", "deepfool(steps=5)"]
    (folder / "one").mkdir()
    single = make_plan({**entries, "data": str(write_clips(folder / "one", 1))})
    models = list(run_audit(single, folder / "one" / "run", device="cpu").records())
    clips = -(-trials // len(models))
    plan = make_plan({**entries, "data": str(write_clips(folder, clips))})
    plan_file.write_text(plan.to_yaml())
    # Begun in earnest, so that the folder is what a run makes, and ended before the first trial.
    lines = [
        replace(model, clip=f"clip-{number:06d}").to_line() + "\n"
        for number in range(clips)
        for model in models
    ]
    begin_folder(plan, out)
    (out / "trials.jsonl").write_text("".join(lines), encoding="utf-8")
    return (out / "trials.jsonl").stat().st_size / 2**20


def begin_folder(plan: Any, out: Path) -> None:
    from sottovoce.auditing.run.driver import run_audit
    from sottovoce.errors import Stopped

    def interrupt(trials: int) -> None:
        raise Stopped("begun")

    try:
        run_audit(plan, out, device="cpu", begin=interrupt)
    except Stopped:
        return


if __name__ == "__main__":
    main()
