"""Run the plans of a study of recognisers on a machine that has no library for pages.

    python tools/run_plans.py O7 OUT --model whisper:tiny.pt --data librispeech:DIR --scale full

The run folders that it leaves are those that `sottovoce study run` makes its tables from: bring them back,
and give their folder to `sottovoce study table`. Needs the package's dependencies without
those of the report.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from sottovoce.audit.run import run_audit
from sottovoce.studies.asr_plans import Ask, plans_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("study")
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--scale", default="full", choices=["mini", "full"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--clips", type=int)
    parser.add_argument("--only", nargs="*", help="names of plans; all where not given")
    asked = parser.parse_args()
    ask = Ask(
        scale=asked.scale, model=asked.model, data=asked.data, clips=asked.clips, batch=asked.batch, seed=0
    )
    for name, plan in plans_of(asked.study, ask).items():
        if asked.only and name not in asked.only:
            continue
        start = time.monotonic()

        def tell(done: int, note: str, name: str = name, start: float = start) -> None:
            print(f"{name} {time.monotonic() - start:6.1f} s: {note} (+{done})", flush=True)

        run_audit(plan, asked.out / name, advance=tell)


if __name__ == "__main__":
    main()
