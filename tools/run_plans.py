"""Run the plans of a study on a machine that has no library for pages.

    python tools/run_plans.py O7 OUT --model whisper:tiny.pt --data librispeech:DIR --scale full
    python tools/run_plans.py O13 OUT --model recogniser --data strings --only pgd cw --steps 50 --seconds 540
    python tools/run_plans.py O13 OUT --model recogniser --data strings --list

The run folders that it leaves are those that `sottovoce study run` makes its tables from: bring them back,
and give their folder to `sottovoce study table`. The same command goes on where one was stopped. Needs the
package's dependencies without those of the report.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.studies.ask import Ask
from sottovoce.studies.olivier2023.runs.recogniser_plans import plans_of

CERTIFICATES = "O16"


class TimeIsUp(Exception):
    """Raised between two batches, when everything that was found is on disk."""


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="recogniser")
    parser.add_argument("--data", required=True)
    parser.add_argument("--scale", default="full", choices=["mini", "full"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--clips", type=int)
    parser.add_argument("--steps", type=int, help="of attacks on defended models, at most")
    parser.add_argument("--passes", type=int, help="that O16 counts a clip, at most")
    parser.add_argument("--only", nargs="*", help="names of plans; all where not given")
    parser.add_argument("--seconds", type=float, help="stop between two batches after so long")
    parser.add_argument("--list", action="store_true", help="tell the plans and what they cost; run nothing")
    return parser.parse_args()


def main() -> None:
    asked = read_arguments()
    ask = Ask(
        scale=asked.scale,
        model=asked.model,
        data=asked.data,
        clips=asked.clips,
        steps=asked.steps,
        batch=asked.batch,
        seed=0,
    )
    start = time.monotonic()
    runs = certificates(ask, asked) if asked.study == CERTIFICATES else audits(ask, asked)
    for name, run in runs.items():
        if asked.only and name not in asked.only:
            continue

        def tell(done: int, note: str, name: str = name) -> None:
            spent = time.monotonic() - start
            print(f"{name} {spent:6.1f} s: {note} (+{done})", flush=True)
            if asked.seconds is not None and spent > asked.seconds:
                raise TimeIsUp

        try:
            run(tell)
        except TimeIsUp:
            print("stopped: give the same command again to go on", flush=True)
            return


def audits(ask: Ask, asked: argparse.Namespace) -> dict[str, Callable[..., object]]:
    """How each plan is run, told as it goes."""

    def start(name: str, plan: Plan) -> Callable[..., object]:
        if asked.list:
            return lambda tell: print(f"{name}: {plan.model} on {plan.data}, {cost(plan)}")
        return lambda tell: run_audit(plan, asked.out / name, advance=tell)

    return {name: start(name, plan) for name, plan in plans_of(asked.study, ask).items()}


def certificates(ask: Ask, asked: argparse.Namespace) -> dict[str, Callable[..., object]]:
    from sottovoce.auditing.certificates.certify_run import CertifyPlan, run_certify
    from sottovoce.studies.olivier2023.runs.certificate_plans import o16

    def start(name: str, plan: CertifyPlan) -> Callable[..., object]:
        if asked.list:
            return lambda tell: print(f"{name}: {plan.model} on {plan.data}, {plan.passes:,} passes a clip")
        return lambda tell: run_certify(plan, asked.out / name, advance=tell)

    return {name: start(name, plan) for name, plan in o16(ask, asked.passes).items()}


def cost(plan: Plan) -> str:
    """Passes a clip with a gradient: steps of every cell, times those that one gradient is the mean of."""
    from sottovoce.defenses.defense_text import Defense

    passes = 0
    for cell in plan.cells():
        noisy = any(part.random for part in Defense.parse(cell.defense).transforms)
        mean = plan.average or (16 if noisy and cell.attacker != "transfer" else 1)
        steps = {"noise": 0, "fgsm": 1}.get(cell.attack.name, int(cell.attack.settings.get("steps", 1)))
        passes += steps * mean
    return f"{len(plan.cells())} cells, {passes:,} passes with a gradient a clip, {plan.limit or 'all'} clips"


if __name__ == "__main__":
    main()
