"""The leaderboard of a million records: seconds, and the most memory that its processes held at once.

    python benchmarks/leaderboard.py [--records 1000000] [--targets 12] [--words] [--keep FOLDER]

Records of a real run (the shipped keyword spotter, or with --words the shipped recogniser, on a few clips)
are copied with other clips' names and other outcomes, so that each line is as long and as full as a real one.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson
import yaml

from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.run.driver import run_audit

BUDGETS = [f"snr(db={db})" for db in (20, 30, 40, 50, 60)]
ATTACKS = ["noise", "fgsm", "pgd(steps=2)", "pgd(steps=3)"]
CLIPS = 8
BLOCK = 2000


def sample(folder: Path, words: bool) -> Plan:
    """A short run whose records are copied."""
    settings = {"model": "recogniser" if words else "keyword", "attacks": ATTACKS, "budgets": BUDGETS}
    plan = make_plan({**settings, "limit": CLIPS, "batch": CLIPS, "probe": 0, "audio": "none"})
    run_audit(plan, folder, device="cpu")
    return plan


def multiply(source: Path, target: Path, model: str, clips: int, seed: int) -> int:
    """A run of as many clips as asked for, every record a copy of one of the source's in the same cell."""
    target.mkdir(parents=True)
    shutil.copyfile(source / "about.json", target / "about.json")
    # A model that is never opened: the leaderboard reads records alone.
    entries = yaml.safe_load((source / "plan.yaml").read_text(encoding="utf-8"))
    (target / "plan.yaml").write_text(make_plan({**entries, "model": model}).to_yaml(), encoding="utf-8")
    lines = [orjson.loads(line) for line in (source / "trials.jsonl").read_bytes().splitlines()]
    rng = np.random.default_rng(seed)
    count = 0
    with (target / "trials.jsonl").open("wb", buffering=1 << 22) as file:
        for first in range(0, clips, BLOCK):
            for number in range(first, min(first + BLOCK, clips)):
                # Cut where the clip's name and its success stand, so that a copy is two joins of bytes.
                for before, middle, after in _templates(lines, number % CLIPS):
                    broken = b"1.0" if rng.random() < 0.4 else b"0.0"
                    file.write(before + b"clip-%06d" % number + middle + broken + after)
                    count += 1
    return count


_CUT: dict[int, list[tuple[bytes, bytes, bytes]]] = {}


def _templates(lines: list[dict[str, object]], clip: int) -> list[tuple[bytes, bytes, bytes]]:
    if clip not in _CUT:
        names = list(dict.fromkeys(str(line["clip"]) for line in lines))
        found = []
        for line in lines:
            if line["clip"] == names[clip]:
                parts = {**line["parts"], "success": [0.123454321, 1.0]}  # type: ignore[dict-item]
                sounds = {"clean": "audio/clean/a.flac", "adversarial": f"audio/{line['cell']}/a.flac"}
                text = orjson.dumps({**line, "clip": "CLIP", "parts": parts, "audio": sounds}) + b"\n"
                before, rest = text.split(b"CLIP", 1)
                middle, after = rest.split(b"0.123454321", 1)
                found.append((before, middle, after))
        _CUT[clip] = found
    return _CUT[clip]


def measure(runs: Path, out: Path) -> tuple[float, float, float]:
    """Seconds by the clock and of the processors, and GiB: the most that all its processes held together."""
    verb = "from sottovoce.cli.leaderboard import app; app()"
    command = [sys.executable, "-c", verb, str(runs), "--out", str(out)]
    start = time.perf_counter()
    child = subprocess.Popen(command)
    most = 0
    while child.poll() is None:
        most = max(most, sum(_resident(pid) for pid in _family(child.pid)))
        time.sleep(0.05)
    if child.returncode:
        sys.exit(child.returncode)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, most / 2**30


def _family(pid: int) -> list[int]:
    try:
        below = [
            int(word)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for word in (task / "children").read_text().split()
        ]
    except OSError:
        return [pid]
    return [pid, *(each for child in below for each in _family(child))]


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--records", type=int, default=1_000_000)
    options.add_argument("--targets", type=int, default=12)
    options.add_argument("--words", action="store_true")
    options.add_argument("--keep", type=Path)
    chosen = options.parse_args()
    place = Path(tempfile.mkdtemp(prefix="sottovoce-leaderboard-"))
    try:
        runs = chosen.keep or place / "runs"
        if not runs.exists():
            plan = sample(place / "sample", chosen.words)
            clips = -(-chosen.records // (chosen.targets * len(plan.cells())))
            start = time.perf_counter()
            for number in range(chosen.targets):
                multiply(
                    place / "sample", runs / f"target-{number}", f"python:targets:m{number}", clips, number
                )
            print(f"made in {time.perf_counter() - start:.1f} s")
        lines = sum(file.read_bytes().count(b"\n") for file in runs.glob("*/trials.jsonl"))
        size = sum(file.stat().st_size for file in runs.glob("*/trials.jsonl"))
        seconds, used, gib = measure(runs, place / "site")
        words = f"{seconds:.1f} s ({used:.1f} s of processor time), {gib:.2f} GiB"
        print(f"{lines:,} records of {size / lines:.0f} bytes: {words}")
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
