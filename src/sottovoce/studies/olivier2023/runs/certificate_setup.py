"""Where the study of certificates is at work: plans of certificates, run here or read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from sottovoce import __version__
from sottovoce.auditing.certificates.certify_folder import CertifiedClip, CertifyFolder
from sottovoce.auditing.certificates.certify_run import CertifyPlan, run_certify
from sottovoce.core.files.yaml_reader import read_yaml
from sottovoce.defenses.defense_text import Defense
from sottovoce.defenses.randomised_smoothing import Gaussian
from sottovoce.errors import InputError
from sottovoce.studies.ask import Ask
from sottovoce.studies.olivier2023.defense_tables import SETUP
from sottovoce.studies.olivier2023.runs.certificate_plans import names_of_certificates, o16
from sottovoce.studies.olivier2023.runs.recogniser_setup import FEW_CLIPS, RUNS, Bar
from sottovoce.studies.study import Choice, Study, Tell, default_folder, find_scale
from sottovoce.targets.open_target import find_device


@final
@dataclass(frozen=True)
class CertifyRun:
    """A plan that was run. records: of all clips, those that failed among them."""

    plan: CertifyPlan
    records: list[CertifiedClip]

    @property
    def sigma(self) -> float:
        first = Defense.parse(self.plan.defense).transforms[0]
        if not isinstance(first, Gaussian) or first.sigma is None:
            raise InputError(
                f"expected a defense that starts with Gaussian noise of a fixed sigma, got "
                f"{self.plan.defense!r}; run "
                "the certificates again."
            )
        return first.sigma


@final
@dataclass(frozen=True)
class CertifySetup:
    """The runs of the study, by the names of its plans; one that was not run is not there."""

    folder: Path
    runs: Mapping[str, CertifyRun]

    @property
    def unused(self) -> dict[str, str]:
        return {
            record.clip: record.reason
            for run in self.runs.values()
            for record in run.records
            if record.status == "failed"
        }

    def facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "plans": {name: asdict(run.plan) for name, run in self.runs.items()},
        }

    def scope(self, study: Study[Any]) -> list[str]:
        plans = [run.plan for run in self.runs.values()]
        models, data = (
            ", ".join(dict.fromkeys(getattr(plan, entry) for plan in plans)) for entry in ("model", "data")
        )
        counts = {name: len(run.records) for name, run in self.runs.items()}
        lines = [
            f"Model {models}, data {data}, seed {', '.join(sorted({str(plan.seed) for plan in plans}))}.",
            f"The paper: {SETUP['O16']}. Models, data, sigmas and passes are our choice.",
            f"Clips: {', '.join(f'{name} {count}' for name, count in counts.items())}.",
        ]
        if counts and min(counts.values()) < FEW_CLIPS:
            lines.append(f"Only {min(counts.values())} clips in places: too few to generalise from.")
        absent = [name for name in names_of_certificates() if name not in counts]
        return lines + ([f"Not run: {', '.join(absent)}."] if absent else [])


def open_certificates(choice: Choice, out: Path | None, device: str, tell: Tell) -> CertifySetup:
    """Run what is not yet recorded."""
    choice.refuse("O16", "attack", "fit", "model", "batch")
    ask = Ask(
        scale="full" if find_scale(choice.scale).name == "full" else "mini",
        model="",
        data=choice.data or "embedded",
        clips=choice.clips,
        seed=choice.seed,
    )
    plans = o16(ask)
    folder = out or default_folder("O16", ask.scale, [plan.run_id for plan in plans.values()])
    device = find_device(device)
    for place, (name, plan) in enumerate(plans.items()):
        bar = Bar(place / len(plans), 1 / len(plans), name, tell)
        run_certify(plan, folder / RUNS / name, device=device, begin=bar.begin, advance=bar.advance)
    return read_certificates(folder)


def read_certificates(folder: Path) -> CertifySetup:
    """A bench from folders of certificates, wherever they were made: `folder/plans/NAME`, `folder/NAME`."""
    runs = {}
    for name in names_of_certificates():
        for place in (folder / RUNS / name, folder / name):
            if (place / "certify.yaml").exists() and name not in runs:
                settings = read_yaml(place / "certify.yaml", "a plan of certificates", "model: keyword")
                runs[name] = CertifyRun(CertifyPlan(**settings), list(CertifyFolder(place).records()))
    if not runs:
        raise InputError(
            f"{str(folder)!r} has no certificates of {', '.join(names_of_certificates())}, which study O16 "
            "shows; "
            "name the folder that holds them."
        )
    return CertifySetup(folder, runs)
