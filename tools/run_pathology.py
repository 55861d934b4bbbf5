"""Run the jobs of study A on a machine that has no library for audio files or pages.

    python tools/run_pathology.py clinic.npz OUT --note "who was recorded" --processes 12 --seconds 540
    python tools/run_pathology.py proxy.npz OUT --note "SYNTHETIC PROXY" --encoder whisper:tiny.pt
    python tools/run_pathology.py clinic.npz OUT --note "..." --kinds cnn embedding --list

The pack is one of `tools/pack_pathology.py`. Jobs are files in OUT/jobs: bring OUT back without its models
and give it to `sottovoce study table A OUT`, which also measures what is heard. The same command goes on
where one was stopped. Needs the package's dependencies without those of audio files and of the report.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from sottovoce.data.pack import pack
from sottovoce.studies.amiri2024.job_plan import KINDS, PLANS, Job, JobPlan
from sottovoce.studies.amiri2024.job_processes import run_jobs
from sottovoce.studies.amiri2024.jobs import Workshop
from sottovoce.studies.amiri2024.open_study import ENCODERS, open_workshop


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--note", required=True, help="what the data are; stands on every page")
    parser.add_argument("--scale", default="full", choices=sorted(PLANS))
    parser.add_argument(
        "--encoder", help="recogniser, wav2vec2:FOLDER, whisper:FILE.pt or wav2vec2(model=FOLDER, layer=9)"
    )
    parser.add_argument("--kinds", nargs="*", choices=KINDS, help="all where not given")
    parser.add_argument("--folds", type=int)
    parser.add_argument("--seeds", type=int, help="of the two detectors")
    parser.add_argument("--others", type=int, help="seeds of all else")
    parser.add_argument("--epochs", type=int, help="at most")
    parser.add_argument("--batch", type=int, help="segments of a training step")
    parser.add_argument("--passes", type=int, help="that a certificate counts")
    parser.add_argument("--average", type=int, help="passes that a gradient through noise is the mean of")
    parser.add_argument("--test-clips", type=int, help="of each speaker, at most")
    parser.add_argument("--levels", type=int, nargs="+", help="SNRs in dB")
    parser.add_argument("--norms", nargs="+", choices=("linf", "l2"), help="balls of the options")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=1, help="at once")
    parser.add_argument("--seconds", type=float, help="begin no job after so long")
    parser.add_argument("--list", action="store_true", help="tell the jobs; run nothing")
    return parser.parse_args()


def plan_of(asked: argparse.Namespace) -> JobPlan:
    names = ("folds", "seeds", "others", "epochs", "batch", "passes", "average", "test_clips")
    changes = {name: getattr(asked, name) for name in names if getattr(asked, name)}
    lists = {"levels_db": asked.levels, "norms": asked.norms}
    changes |= {name: tuple(values) for name, values in lists.items() if values}
    return replace(PLANS[asked.scale], **changes)


def open_shop(asked: argparse.Namespace) -> Workshop:
    corpus = replace(pack(str(asked.pack)), note=asked.note)
    encoder = asked.encoder or ENCODERS[asked.scale]
    return open_workshop(
        corpus, asked.pack.stem, plan_of(asked), encoder, asked.seed, asked.out, asked.device
    )


def wanted(shop: Workshop, asked: argparse.Namespace) -> list[Job]:
    return [job for job in shop.setting.jobs() if not asked.kinds or job.kind in asked.kinds]


def main() -> None:
    asked = read_arguments()
    start = time.time()
    until = start + (asked.seconds or math.inf)
    shop = open_shop(asked)
    jobs = wanted(shop, asked)
    done = sum(shop.result(job).exists() for job in jobs)
    print(f"{done} of {len(jobs)} jobs done; {shop.setting.scale}", flush=True)
    if asked.list:
        print("\n".join(job.name for job in jobs if not shop.result(job).exists()))
        return
    seen: set[str] = set()

    def tell(share: float, note: str) -> None:
        if note not in seen:
            seen.add(note)
            print(f"{time.time() - start:6.1f} s: {note}", flush=True)

    open_again = partial(open_shop, asked)
    run_jobs(shop, open_again, jobs, processes=asked.processes, until=until, tell=tell)


if __name__ == "__main__":
    main()
