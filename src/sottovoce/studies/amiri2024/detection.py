"""A: detection of pathological speech under attack (Amiri and Kodrasi 2024), from training to advice."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sottovoce.data.corpora import open_corpus
from sottovoce.studies.amiri2024 import detection_sheets as sheets
from sottovoce.studies.amiri2024.clinic_options import Option, read_options
from sottovoce.studies.amiri2024.detection_figures import drawings
from sottovoce.studies.amiri2024.heard_share import measure_job, unmeasured
from sottovoce.studies.amiri2024.job_plan import JOBS, JobPlan, find_plan
from sottovoce.studies.amiri2024.job_processes import run_jobs
from sottovoce.studies.amiri2024.job_results import PathologySetup, read_jobs
from sottovoce.studies.amiri2024.jobs import Workshop
from sottovoce.studies.amiri2024.open_study import ENCODERS, open_workshop
from sottovoce.studies.study import Choice, Result, Study, Tell, default_folder
from sottovoce.targets.open_target import find_device

OWN = "proxy"
NOTES = (
    "The radius of the attack is eps = ||x|| 10^(-SNR/20) / sqrt(N), which guarantees the SNR; what the "
    "paper prints does not. PGD takes ten steps of a quarter of it from the clean clip, away from the true "
    "label.",
    "Segments: each half second of the CNN is attacked by itself, as in the paper. Segments overlap, so no "
    "single recording has all of these perturbations. Whole utterances: one waveform for all segments, which "
    "is what an attacker has to find; the paper does not report that.",
    "16 bits: the same examples as 16-bit files. A perturbation below half a step is rounded away, so the "
    "highest SNRs of the paper are out of reach for an attacker who needs a file.",
    "Left open by the paper: momentum (none here), batch size, and how clean and attacked segments mix in "
    "training (half and half).",
)


def open_study(choice: Choice, out: Path | None, device: str, tell: Tell) -> PathologySetup:
    """Do the jobs that are not done yet, then measure what is heard of them."""
    choice.refuse("A", "attack", "fit", "batch")
    plan = find_plan(choice.scale)
    if choice.clips is not None:
        plan = replace(plan, train_clips=choice.clips, test_clips=choice.clips)
    data, encoder = choice.data or OWN, choice.model or ENCODERS[plan.name]
    key: list[str | int] = [data, encoder, choice.clips or 0, choice.seed]
    folder = out or default_folder("A", plan.name, key)
    tell(0.0, "reading the clips")
    device = find_device(device)
    open_shop = partial(_open_shop, data, plan, encoder, choice.seed, folder, device)
    shop = open_shop()
    run_jobs(
        shop,
        open_shop,
        list(shop.setting.jobs()),
        processes=os.cpu_count() or 1 if device == "cpu" else 1,
        tell=lambda done, note: tell(0.95 * done, note),
    )
    examples = unmeasured(folder / JOBS)
    for place, path in enumerate(examples):
        tell(0.95 + 0.05 * place / len(examples), f"listening to {path.stem}")
        measure_job(path)
    return read_jobs(folder)


def _open_shop(data: str, plan: JobPlan, encoder: str, seed: int, folder: Path, device: str) -> Workshop:
    return open_workshop(open_corpus(data), data, plan, encoder, seed, folder, device)


def read_study(folder: Path) -> PathologySetup:
    """From the files of jobs alone. Examples that nobody listened to yet are measured first."""
    for path in unmeasured(folder / JOBS):
        measure_job(path)
    return read_jobs(folder)


def run(bench: PathologySetup) -> Result:
    options = read_options(bench)
    proven = sheets.certificates(bench)
    made = [
        sheets.trends(bench),
        sheets.options_sheet(bench, options),
        sheets.verdicts(options),
        sheets.table_1(bench),
        sheets.table_2(bench),
        sheets.levels(bench, sheets.SERIES, "Speaker-level accuracy under attack, % (Fig. 1)"),
        *([sheets.quality(bench)] if bench.quality else []),
        sheets.places(bench),
        sheets.levels(bench, sheets.HARDENED, "Adversarial training at 60 dB, segments attacked, % (Fig. 4)"),
        *([proven] if proven else []),
    ]
    return Result(
        sheets=sheets.labelled(made, bench.setting.label),
        drawings=drawings(bench),
        values=_values(bench, options),
        notes=[
            *filter(None, [bench.setting.fewer_folds]),
            *NOTES,
            *(f"Not measured: {name}: {why}" for name, why in bench.absent.items()),
        ],
    )


def _values(bench: PathologySetup, options: list[Option]) -> dict[str, Any]:
    """Every accuracy, by kind of job and cell."""
    kinds = dict.fromkeys(job.kind for job in bench.jobs)
    names = {
        kind: dict.fromkeys(name for found in bench.of(kind) for name in found["cells"]) for kind in kinds
    }
    accuracies = {
        kind: {name: one._asdict() for name in cells if (one := bench.accuracy(kind, name)) is not None}
        for kind, cells in names.items()
    }
    advice = [
        {"option": one.title, "verdict": one.verdict(), "certified": one.certified, "radius": one.radius}
        for one in options
    ]
    return {"chance": bench.chance, "accuracy": accuracies, "options": advice}


STUDY = Study(
    id="A",
    title="Detection of pathological speech under attack",
    paper="Amiri and Kodrasi (2024), Tables 1 and 2, Figs. 1 to 4",
    reports="a CNN classifies 76.6 % of speakers correctly and wav2vec2 82.6 %; attacks at 60 dB, which no "
    "measure notices, leave both below chance; training on attacks or on noise does not help",
    open=open_study,
    run=run,
    read=read_study,
)
