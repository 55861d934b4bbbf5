"""How many clips an audit gets through in a second: the figures behind docs/cost.md.

Each cell is an audit of its own, metrics included, without saved audio and without probes. It is run twice on
the same device, the first time on a few clips to load and compile, and the second is timed:

    python benchmarks/throughput.py --words pack:words.npz --clips 616 --strings-clips 24 --batch 128

Prints one JSON line a cell.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.targets.open_target import find_device, open_target

SIGNAL = ("success", "clean-accuracy", "accuracy", "snr", "wer", "clean-wer")
HEARD = (*SIGNAL, "p-heard", "p-heard-masking")
CELLS: dict[str, tuple[dict[str, Any], ...]] = {
    "keyword": (
        {"attacks": ["fgsm"]},
        {"attacks": ["pgd(steps=100)"]},
        {
            "attacks": ["pgd(steps=100)"],
            "defenses": ["gaussian(sigma=0.02)+majority(passes=8)"],
            "attackers": ["adaptive"],
        },
        {"attacks": ["genetic(steps=100, population=10)"]},
    ),
    "recogniser": (
        {"attacks": ["fgsm"]},
        {"attacks": ["pgd(steps=100)"]},
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--words", default="embedded", help="clips for the keyword spotter")
    parser.add_argument("--strings", default="strings", help="clips for the recogniser")
    parser.add_argument("--clips", type=int, default=60)
    parser.add_argument("--strings-clips", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    device = find_device(asked.device)
    for model, cells in CELLS.items():
        spoken = model == "recogniser"
        data, clips = (asked.strings, asked.strings_clips) if spoken else (asked.words, asked.clips)
        target = open_target(model, device)
        for entries in cells:
            for metrics in (SIGNAL, HEARD):
                plan: dict[str, Any] = {
                    "model": model, "data": data, "budgets": ["snr(db=40)"], "metrics": list(metrics),
                    "audio": "none", "probe": 0, "batch": asked.batch, **entries,
                }  # fmt: skip
                plan["metrics"] = [name for name in metrics if ("wer" in name) <= spoken]
                _time(plan, 4, device, target)
                seconds, done = _time(plan, clips, device, target)
                print(
                    json.dumps(
                        {
                            "model": model, **entries, "heard": metrics is HEARD, "device": _named(device),
                            "batch": asked.batch, "clips": done, "seconds": round(seconds, 3),
                            "clips_per_second": round(done / seconds, 3),
                        }
                    ),
                    flush=True,
                )  # fmt: skip


def _time(plan: dict[str, Any], clips: int, device: str, target: Any) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        run = run_audit(
            make_plan({**plan, "limit": clips}), Path(folder, "run"), device=device, target=target
        )
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        statuses = [record.status for record in run.records()]
    if set(statuses) != {"ok"}:
        raise SystemExit(f"expected every clip to be attacked, got {set(statuses)}: {plan}")
    return seconds, len(statuses)


def _named(device: str) -> str:
    return torch.cuda.get_device_name() if device.startswith("cuda") else device


if __name__ == "__main__":
    main()
