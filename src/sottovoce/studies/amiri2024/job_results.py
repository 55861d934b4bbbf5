"""The jobs of study A read back: votes of speakers, accuracies over seeds, spectra, certificates."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from sottovoce.core.record import Record
from sottovoce.core.statistics import Interval, clopper_pearson, ratio_bootstrap
from sottovoce.defenses.sampling_bounds import lower_bound
from sottovoce.errors import InputError, StoreError
from sottovoce.metrics.speaker_votes import SpeakerVote, over_seeds, speaker_votes
from sottovoce.studies.amiri2024.amiri_tables import SETUP
from sottovoce.studies.amiri2024.heard_share import PREFIX
from sottovoce.studies.amiri2024.job_plan import CNN, JOBS, Job, JobSetting
from sottovoce.studies.study import Study
from sottovoce.training.detector.train_detector import FOR_EMBEDDINGS

Floats = NDArray[np.float64]
ALPHA = 0.001
FEW_SPEAKERS = 50


class SpeakerAccuracy(NamedTuple):
    """Of speakers, as a share: mean and deviation over seeds, and the exact interval of the mean."""

    mean: float
    deviation: float
    seeds: int
    interval: Interval


class StrongestAttack(NamedTuple):
    """cells: the attacks that left some speaker least."""

    left: SpeakerAccuracy
    cells: tuple[str, ...]


class CertifiedSpeaker(NamedTuple):
    """What certificates of a speaker are counted from: lower bounds of the chance that a clip's right label
    is said through the noise, weights, and Euclidean lengths, all `(clips,)`."""

    lower: Floats
    weight: Floats
    length: Floats


@final
@dataclass(frozen=True)
class PathologySetup:
    """A folder of jobs. quality: measures by the name of the job; absent: those that could not be had."""

    folder: Path
    setting: JobSetting
    jobs: dict[Job, dict[str, Any]]
    quality: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def unused(self) -> dict[str, str]:
        return self.setting.unused

    @property
    def absent(self) -> dict[str, str]:
        return {name: why for one in self.quality.values() for name, why in one["absent"].items()}

    def facts(self) -> dict[str, Any]:
        return self.setting.to_json()

    def scope(self, study: Study[Any]) -> list[str]:
        known = self.setting
        people = " and ".join(f"{count} {label}" for label, count in known.speakers.items())
        standing = "" if known.encoder.startswith("wav2vec2") else ", in place of wav2vec2"
        lines = [
            f"{known.note}." if known.note else f"Data: {known.data}.",
            f"{people} speakers, {known.clips} clips, {known.minutes:.1f} minutes. "
            f"{'The split of the manifest' if known.split else 'Folds of speakers'}; scale {known.scale}.",
            f"Embeddings: {known.encoder_title}, layer {known.layer} of {known.layers}{standing}. Their head "
            f"learns from the same clips as the CNN, for at most {FOR_EMBEDDINGS.epochs} epochs whatever the "
            "scale.",
            f"The paper: {SETUP}.",
        ]
        if sum(known.speakers.values()) < FEW_SPEAKERS:
            lines.append(f"{sum(known.speakers.values())} speakers: too few to generalise from.")
        missing = Counter(job.kind for job in known.jobs() if job not in self.jobs)
        if missing:
            lines.append(
                f"Not run yet: {', '.join(f'{count} of {kind}' for kind, count in missing.items())}."
            )
        return lines

    @property
    def chance(self) -> float:
        """What always naming the more frequent label gets right."""
        counts = self.setting.speakers.values()
        if not self.setting.split:
            return max(counts) / sum(counts)
        tested = Counter(vote.label for vote in self.votes(CNN, "clean", self.seeds(CNN)[0]))
        return max(tested.values()) / sum(tested.values())

    def of(self, kind: str, seed: int | None = None) -> list[dict[str, Any]]:
        return [found for job, found in self.jobs.items() if job.kind == kind and seed in (None, job.seed)]

    def seeds(self, kind: str) -> list[int]:
        """Those with the most folds: a seed that is half done would count other speakers."""
        folds = Counter(job.seed for job in self.jobs if job.kind == kind)
        return sorted(seed for seed, count in folds.items() if count == max(folds.values()))

    def shared_seeds(self, kinds: Iterable[str]) -> list[int] | None:
        """Those that all of these that were run have: with other ones a comparison is not fair."""
        each = [set(self.seeds(kind)) for kind in set(kinds) if self.of(kind)]
        shared = set.intersection(*each) if each else set()
        return sorted(shared) or None

    def votes(self, kind: str, cell: str, seed: int) -> list[SpeakerVote]:
        """The soft vote of every speaker that was in a test."""
        records = []
        for found in self.of(kind, seed):
            if cell not in found["cells"]:
                return []
            for clip, speaker, label, parts in zip(
                found["clips"],
                found["speakers"],
                found["labels"],
                found["cells"][cell]["chance"],
                strict=True,
            ):
                facts = {"speaker": speaker}
                records.append(
                    Record(
                        cell=cell, clip=clip, status="ok", label=label, facts=facts, parts={"chance": parts}
                    )
                )
        return speaker_votes(records)

    def accuracy(self, kind: str, cell: str, seeds: Sequence[int] | None = None) -> SpeakerAccuracy | None:
        """None where it was not run."""
        return _accuracy(
            [self.votes(kind, cell, seed) for seed in (self.seeds(kind) if seeds is None else seeds)]
        )

    def worst(self, kind: str, cells: Sequence[str]) -> StrongestAttack | None:
        """What is left where each speaker is under the attack that leaves it the least chance of the right
        answer, of equals the first; None where none was run."""
        each, picked = [], dict[str, None]()
        for seed in self.seeds(kind):
            least: dict[str, tuple[SpeakerVote, str]] = {}
            for name in cells:
                for vote in self.votes(kind, name, seed):
                    if vote.speaker not in least or vote.chance < least[vote.speaker][0].chance:
                        least[vote.speaker] = vote, name
            each.append([vote for vote, _ in least.values()])
            picked |= dict.fromkeys(name for _, name in least.values())
        left = _accuracy(each)
        return None if left is None else StrongestAttack(left, tuple(picked))

    def levels(
        self, kind: str, make: Callable[[int], str], seeds: Sequence[int] | None = None
    ) -> dict[int, SpeakerAccuracy]:
        """Accuracies by SNR, of those levels that were run. make: from a level to the name of its cell."""
        found = {db: self.accuracy(kind, make(db), seeds) for db in sorted(self.setting.plan.levels_db)}
        return {db: one for db, one in found.items() if one is not None}

    def least_snr(self, kind: str, cell: str, seeds: Sequence[int] | None = None) -> float | None:
        """The lowest SNR that was measured on any clip; None where nothing was added."""
        found = [
            one["cells"].get(cell, {}).get("snr_db")
            for seed in (self.seeds(kind) if seeds is None else seeds)
            for one in self.of(kind, seed)
        ]
        return min((one for one in found if one is not None), default=None)

    def psd(self, kind: str, how: str) -> tuple[Floats, Floats] | None:
        """Mean densities of clean speech and of what was added at 60 dB, over folds and seeds."""
        rows = [found["spectra"][how] for found in self.of(kind) if how in found.get("spectra", {})]
        if not rows:
            return None
        speech, added = (np.mean([row[name] for row in rows], axis=0) for name in ("speech", "added"))
        return speech, added

    def measured(self, kind: str, cell: str, judge: str) -> Interval | None:
        """The mean of a measure over the clips that were kept, with an interval over folds' clips."""
        values = [
            value
            for name, found in self.quality.items()
            if name.rpartition("-f")[0] == kind
            for value in found["cells"].get(cell, {}).get(judge, [])
            if value is not None
        ]
        if not values:
            return None
        return ratio_bootstrap(np.stack([values, np.ones(len(values))], axis=1))

    def certified(self, kind: str, seed: int) -> dict[str, CertifiedSpeaker]:
        """What is known of each speaker's certificate."""
        rows: dict[str, list[tuple[float, float, float]]] = {}
        for found in self.of(kind, seed):
            for place, one in enumerate(found.get("certificates", [])):
                weight = found["cells"]["clean"]["chance"][place][1]
                bound = lower_bound(one["right"], one["passes"], ALPHA)
                rows.setdefault(found["speakers"][place], []).append((bound, weight, one["length_l2"]))
        return {name: CertifiedSpeaker(*np.array(some).T) for name, some in rows.items()}


def _accuracy(each: Sequence[list[SpeakerVote]]) -> SpeakerAccuracy | None:
    """Of the votes of each seed; None where there are none."""
    known = [votes for votes in each if votes]
    if not known:
        return None
    spread = over_seeds([sum(vote.right for vote in votes) / len(votes) for votes in known])
    n = len(known[0])
    interval = clopper_pearson(round(spread.mean * n), n)._replace(value=spread.mean)
    return SpeakerAccuracy(spread.mean, spread.deviation, spread.n, interval)


def share_above(psd: Iterable[float], hz: float, sample_rate: int = 16_000) -> float:
    """The share of the power of a density, evenly spaced from 0 to half the rate, above a frequency."""
    power = np.asarray(list(psd), dtype=np.float64)
    places = np.linspace(0, sample_rate / 2, len(power))
    return float(power[places > hz].sum() / power.sum())


def certified_share(
    speakers: dict[str, CertifiedSpeaker],
    sigma: float,
    *,
    radius: float | None = None,
    db: float | None = None,
) -> float:
    """The share of speakers whose soft vote provably stays right, whatever is added to their clips.

    radius: of what is added to each clip, L2; or db: its SNR, which gives each clip a radius of its own.

    Where a clip's right label has a chance of at least p under the noise, it keeps Phi(Phi^-1(p) - r/sigma)
    within r (Cohen et al. 2019; it holds for every function into [0, 1]). A speaker is certified if the mean
    of those stays above 1/2.
    """
    right = 0
    for one in speakers.values():
        reach = (
            np.full_like(one.length, radius) if radius is not None else one.length * 10 ** (-(db or 0.0) / 20)
        )
        with np.errstate(divide="ignore"):
            left = ndtr(ndtri(one.lower) - reach / sigma)
        right += bool(np.average(left, weights=one.weight) > 0.5)
    return right / len(speakers)


def read_jobs(folder: Path) -> PathologySetup:
    """A bench from the files of jobs alone, wherever they were run."""
    setting = JobSetting.read(folder)
    jobs = {
        job: _read(path) for job in setting.jobs() if (path := folder / JOBS / f"{job.name}.json").exists()
    }
    if not any(job.kind == CNN for job in jobs):
        raise InputError(
            f"{str(folder / JOBS)!r} has no jobs of the CNN, only {len(jobs)} of other kinds; run those of "
            "the "
            "CNN first."
        )
    files = sorted((folder / JOBS).glob(f"{PREFIX}*.json"))
    return PathologySetup(
        folder, setting, jobs, {path.stem.removeprefix(PREFIX): _read(path) for path in files}
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StoreError(
            f"{path}: not the result of a job: {error}; delete the file and run the job again."
        ) from None
    return found
