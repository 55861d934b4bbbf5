"""Running a study by its id."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from sottovoce import registry
from sottovoce.errors import InputError
from sottovoce.studies.olivier2023.runs.certificate_setup import read_certificates
from sottovoce.studies.olivier2023.runs.recogniser_plans import PLANS
from sottovoce.studies.olivier2023.runs.recogniser_setup import read_runs
from sottovoce.studies.study import Bench, Choice, Result, Stage, Study, Tell
from sottovoce.studies.study_page import write

CERTIFICATES = "O16"
"""Its plans are of certificates, not of attacks."""


def find_study(name: str) -> Study[Any]:
    """A study by its id; v2 is as good as V2."""
    known = name.upper() if name.upper() in registry.names("study") else name
    study: Study[Any] = registry.find("study", known)
    return study


def run_study(
    study: Study[Bench],
    choice: Choice,
    out: Path | None = None,
    *,
    device: str = "auto",
    tell: Tell = lambda done, note: None,
) -> tuple[Bench, Result, Path]:
    """Run a study and write its page; what the folder holds already is not made again."""
    began = time.monotonic()
    bench = study.open(choice, out, device, tell)
    result = study.run(bench)
    return bench, result, write(study, bench, result, scale=choice.scale, seconds=time.monotonic() - began)


def tabulate(study: Study[Any], folder: Path) -> tuple[Stage, Result, Path]:
    """The page of a study of plans, from runs that are there already; it goes into their folder."""
    if study.read is not None:
        made: Stage = study.read(folder)
        result = study.run(made)
        return made, result, write(study, made, result)
    known = [*PLANS, CERTIFICATES]
    if study.id not in known:
        raise InputError(
            f"`study table` works with {', '.join(known)}, not with {study.id}; type: sottovoce study run "
            f"{study.id}."
        )
    bench: Stage = read_certificates(folder) if study.id == CERTIFICATES else read_runs(study.id, folder)
    result = study.run(bench)
    return bench, result, write(study, bench, result)
