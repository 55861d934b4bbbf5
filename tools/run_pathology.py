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
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import torch

from sottovoce.data.pack import pack
from sottovoce.errors import SottovoceError
from sottovoce.studies.pathology_jobs import Workshop, run_job
from sottovoce.studies.pathology_open import ENCODERS, open_workshop
from sottovoce.studies.pathology_plan import JOBS, KINDS, PLANS, Job, Plan

CLAIM, FAILED = ".claim", ".failed"
WAIT_SECONDS = 0.5


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--note", required=True, help="what the data are; stands on every page")
    parser.add_argument("--scale", default="full", choices=sorted(PLANS))
    parser.add_argument("--encoder", help="recogniser, wav2vec2:FOLDER or whisper:FILE.pt")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, help="all where not given")
    parser.add_argument("--folds", type=int)
    parser.add_argument("--seeds", type=int, help="of the two detectors")
    parser.add_argument("--others", type=int, help="seeds of all else")
    parser.add_argument("--epochs", type=int, help="at most")
    parser.add_argument("--batch", type=int, help="segments of a training step")
    parser.add_argument("--passes", type=int, help="that a certificate counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=1, help="at once")
    parser.add_argument("--seconds", type=float, help="begin no job after so long")
    parser.add_argument("--list", action="store_true", help="tell the jobs; run nothing")
    return parser.parse_args()


def plan_of(asked: argparse.Namespace) -> Plan:
    names = ("folds", "seeds", "others", "epochs", "batch", "passes")
    return replace(
        PLANS[asked.scale], **{name: getattr(asked, name) for name in names if getattr(asked, name)}
    )


def open_shop(asked: argparse.Namespace) -> Workshop:
    corpus = replace(pack(str(asked.pack)), note=asked.note)
    encoder = asked.encoder or ENCODERS[asked.scale]
    return open_workshop(
        corpus, asked.pack.stem, plan_of(asked), encoder, asked.seed, asked.out, asked.device
    )


def wanted(shop: Workshop, asked: argparse.Namespace) -> list[Job]:
    return [job for job in shop.setting.jobs() if not asked.kinds or job.kind in asked.kinds]


def claim(shop: Workshop, job: Job) -> bool:
    """Whether this process is the first to want the job."""
    try:
        os.close(os.open(shop.result(job).with_suffix(CLAIM), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def work(asked: argparse.Namespace, number: int, until: float) -> None:
    """Do jobs that nobody else has begun, those that can be done first, until none is left."""
    torch.set_num_threads(1)
    shop = open_shop(asked)
    todo = [job for job in wanted(shop, asked) if not shop.result(job).exists()]
    while todo and time.time() < until:
        todo = [
            job for job in todo if not (job.needs and shop.result(job.needs).with_suffix(FAILED).exists())
        ]
        ready = [job for job in todo if shop.ready(job)]
        if not ready:
            time.sleep(WAIT_SECONDS)
        for job in ready:
            todo.remove(job)
            if claim(shop, job):
                begun = time.time()
                try:
                    run_job(shop, job)
                except (SottovoceError, RuntimeError) as error:
                    shop.result(job).with_suffix(FAILED).write_text(str(error), encoding="utf-8")
                    print(f"{number:2d} {job.name} failed: {error}", flush=True)
                print(f"{number:2d} {job.name} {time.time() - begun:.1f} s", flush=True)
                break


def main() -> None:
    asked = read_arguments()
    until = time.time() + (asked.seconds or float("inf"))
    shop = open_shop(asked)
    jobs = wanted(shop, asked)
    done = sum(shop.result(job).exists() for job in jobs)
    print(f"{done} of {len(jobs)} jobs done; {shop.setting.plan}", flush=True)
    if asked.list:
        print("\n".join(job.name for job in jobs if not shop.result(job).exists()))
        return
    for left in (asked.out / JOBS).iterdir():
        if left.suffix in (CLAIM, FAILED):
            left.unlink()
    if asked.processes == 1:
        work(asked, 0, until)
        return
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work, args=(asked, number, until)) for number in range(asked.processes)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()


if __name__ == "__main__":
    main()
