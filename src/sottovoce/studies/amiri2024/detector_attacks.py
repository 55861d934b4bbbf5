"""Attacks of study A on the test clips of a fold, and what is left of the decisions: plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.attack import climb, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import SILENCE, NormName, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Goal
from sottovoce.core.quantisation import on_grid
from sottovoce.core.target import Scores, Target
from sottovoce.core.transform import Averaged
from sottovoce.core.vote import Passes
from sottovoce.errors import InputError
from sottovoce.metrics.signal_distortion import snr_db
from sottovoce.studies.amiri2024.job_plan import JobPlan
from sottovoce.targets.zoo.detector_networks import HOP, SAMPLE_RATE, SEGMENT
from sottovoce.targets.zoo.detector_targets import SegmentDetector, segment_rows, segments_of
from sottovoce.training.detector.train_detector import STEP, STEPS
from sottovoce.training.sources import FULL_SCALE, ClipsInMemory, Labelled

Cell = dict[str, Any]
"""`chance`: of each clip, the chance of its right label times a weight, and the weight; `snr_db`: the least
that was reached, silent clips left out; None where nothing was added."""
Pairs = list[tuple[AudioBatch, AudioBatch]]
"""Clean clips and attacked ones, batch by batch."""
BITS = 16
SLACK_DB = 0.05
"""Tolerance of rounding, in dB of the requested SNR."""
WELCH = 512
"""Samples of a piece of Welch's estimate: 31.25 Hz apart at 16 kHz."""
_TINY = float(np.finfo(np.float32).tiny)
# On a CPU a few clips fit its caches; a GPU wants many, and past 256 segments each would be run twice.
SEGMENTS_AT_ONCE = {"cpu": 64, "cuda": 250}


def cell(how: str, db: float, norm: str = "linf", *, bits: int | None = None) -> str:
    """The name of a cell. how: segments, utterances, or transfer: made on the plain CNN."""
    return f"{how} {norm} {db:g}" + (f" {bits} bits" if bits else "")


CLEAN = "clean"


@final
@dataclass(frozen=True)
class Overturn(Goal):
    """Make a classifier say another class, climbed by the difference of the scores.

    Of two classes that has the direction of the cross-entropy, which the paper climbs, and does not vanish:
    the head of embeddings has logits a hundred apart, where the cross-entropy and its gradient are zero in
    single precision, and an attack that follows it does not move, which looks like robustness.
    """

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        scorer = target.capability(Scores)
        return self.margin(scorer.scores(batch, draws=draws), scorer.classes)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [text != reference for text, reference in zip(texts, self.references, strict=True)]

    def applies(self, reference: str) -> bool:
        return True


@final
@dataclass(frozen=True, eq=False)
class Arena:
    """The clips that are attacked, on the device of the targets.

    by_segments: whether an utterance weighs what it has segments, so that a speaker's mean is the mean over
        segments, as the paper's is for the CNN; if not, all utterances weigh alike.
    """

    clips: ClipsInMemory
    plan: JobPlan
    draws: Draws
    by_segments: bool = True

    def batches(self) -> Iterator[Labelled]:
        """A few clips at a time, in order."""
        most = SEGMENTS_AT_ONCE.get(self.clips.samples.device.type, SEGMENTS_AT_ONCE["cpu"])
        some: list[int] = []
        total = 0
        for place, length in enumerate(self.clips.lengths.tolist()):
            count = (length - SEGMENT) // HOP + 1
            if some and total + count > most:
                yield self.clips.batch(some)
                some, total = [], 0
            some.append(place)
            total += count
        yield self.clips.batch(some)

    def clean(self, target: Target) -> Cell:
        rows = [row for some in self.batches() for row in self.chances(target, some.batch, some.labels)]
        return {"chance": rows, "snr_db": None}

    def chances(self, target: Target, batch: AudioBatch, labels: Sequence[str]) -> list[list[float]]:
        """Of a random target the share of its votes, of others the softmax; with the weight."""
        draws = self.draws.turn("judge")
        with torch.no_grad():
            if target.random:
                said = Passes(target, batch, draws, self.plan.votes).texts()
                right = [
                    sum(text == label for text in texts) / len(texts)
                    for texts, label in zip(said, labels, strict=True)
                ]
            else:
                scorer = target.capability(Scores)
                every = scorer.scores(batch, draws=draws).double().softmax(dim=1)
                wanted = torch.tensor([scorer.classes.index(label) for label in labels], device=every.device)
                right = every.gather(1, wanted[:, None])[:, 0].tolist()
        counts = [(length - SEGMENT) // HOP + 1 for length in batch.lengths.tolist()]
        weights = counts if self.by_segments else [1] * len(batch)
        return [[chance * weight, float(weight)] for chance, weight in zip(right, weights, strict=True)]

    def utterances(self, target: Target, db: float, *, norm: NormName = "linf") -> tuple[Cell, Cell, Pairs]:
        """One waveform for all segments. In floats, as 16-bit files, and the pairs of clean and attacked."""
        ball = Snr(db, shape=norm)
        pairs = [(some.batch, self._attack(target, some.batch, some.labels, ball)) for some in self.batches()]
        return (*self.judge(target, pairs, ball), pairs)

    def judge(self, target: Target, pairs: Pairs, ball: Snr) -> tuple[Cell, Cell]:
        """What the target makes of examples of these clips, wherever they were made."""
        floats, files = _Count(ball.db), _Count(ball.db)
        for some, (clean, attacked) in zip(self.batches(), pairs, strict=True):
            for count, heard in ((floats, attacked), (files, on_grid(clean, attacked, ball, BITS))):
                count.add(clean, heard, self.chances(target, heard, some.labels))
        return floats.cell(), files.cell()

    def segments(self, target: SegmentDetector, db: float) -> tuple[Cell, Cell, Pairs]:
        """Each segment by itself, as the paper does: no one waveform has all of these perturbations."""
        ball = Snr(db, shape="linf")
        floats, files = _Count(ball.db), _Count(ball.db)
        pairs = []
        for some in self.batches():
            pieces, rows = segments_of(some.batch), segment_rows(some.batch)
            labels = [some.labels[row] for row in rows]
            attacked = self._attack(target, pieces, labels, ball)
            rounded = on_grid(pieces, attacked, ball, BITS)
            for count, heard in ((floats, attacked), (files, rounded)):
                chances = self.chances(target, heard, labels)
                sums = np.zeros((len(some), 2))
                np.add.at(sums, rows, chances)
                count.add(pieces, heard, sums.tolist())
            pairs.append((pieces, attacked))
        return floats.cell(), files.cell(), pairs

    def _attack(self, target: Target, clean: AudioBatch, labels: Sequence[str], ball: Snr) -> AudioBatch:
        """PGD from the clean clip, away from the right label; through noise by the mean over passes."""
        step = STEP if ball.norm == "linf" else 2.0 / math.sqrt(STEPS)
        draws = self.draws.turn("attack")
        if target.random:
            delta = self._climb_noise(target, clean, labels, ball, step, draws)
        else:
            goal = Overturn().bind(labels)
            delta = Pgd(steps=STEPS, step=step).perturb(target, clean, goal, ball, draws).detach()
        return clean.with_waveforms(clean.waveforms + within(clean, ball.project(delta, clean)))

    def _climb_noise(
        self, target: Target, clean: AudioBatch, labels: Sequence[str], ball: Snr, step: float, draws: Draws
    ) -> Tensor:
        """The last of the steps, not the best: with fresh noise at each, the best is the luckiest, and where
        little changes that is often the clean clip itself."""
        seen = Averaged(target, self.plan.average, at_once=len(clean))
        goal = Evade().bind(labels)
        stride = step * ball.radius(clean).to(clean.waveforms.dtype)[:, None]
        delta = torch.zeros_like(clean.waveforms)
        for place in range(STEPS):
            _, gradient = climb(seen, clean, delta, goal, draws.turn("step", place))
            delta = within(clean, ball.project(delta + stride * ball.steepest(gradient, clean), clean))
        return delta.detach()


class _Count:
    """A cell in the making. asked_db: the SNR that no clip may fall below."""

    def __init__(self, asked_db: float) -> None:
        self.asked_db = asked_db
        self.rows: list[list[float]] = []
        self.least = math.inf

    def add(self, clean: AudioBatch, heard: AudioBatch, chances: list[list[float]]) -> None:
        reached = snr_db(clean.waveforms, heard.waveforms - clean.waveforms, clean.lengths)
        # What is all but silent has no level to be relative to, so its budget promises no ratio.
        loud = (clean.length_l2 > SILENCE * clean.lengths.double().sqrt()).cpu()
        self.least = min([self.least, *reached[loud].tolist()])
        if self.least < self.asked_db - SLACK_DB:
            raise InputError(
                f"an attack at {self.asked_db:g} dB went down to {self.least:.2f} dB on a clip, so its "
                "figures would be "
                "those of a louder attack; please report this as a bug."
            )
        self.rows += chances

    def cell(self) -> Cell:
        return {"chance": self.rows, "snr_db": self.least if math.isfinite(self.least) else None}


def mean_psd(pairs: Pairs) -> dict[str, list[float]]:
    """Welch's estimate of clean clips and of what was added, the mean over clips, in power per hertz."""
    clean, added = [], []
    for batch, heard in pairs:
        for row in range(len(batch)):
            before, after = (one.clip(row).double().cpu().numpy() for one in (batch, heard))
            clean.append(_psd(before, batch.sample_rate))
            added.append(_psd(after - before, batch.sample_rate))
    return {"speech": np.mean(clean, axis=0).tolist(), "added": np.mean(added, axis=0).tolist()}


def _psd(waveform: NDArray[np.float64], sample_rate: int) -> NDArray[np.float64]:
    found: NDArray[np.float64] = scipy.signal.welch(waveform, sample_rate, nperseg=WELCH)[1]
    return found


class Examples:
    """Attacked clips, kept small: clean ones in 16 bits, what was added in 8 bits of its own peak."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.arrays: dict[str, NDArray[Any]] = {}

    def add(self, name: str, pairs: Pairs) -> None:
        """The first clips of an attack; those of every attack on a fold are the same ones."""
        rows = [(clean, heard, row) for clean, heard in pairs for row in range(len(clean))][: self.most]
        clips = [clean.clip(row).double().cpu().numpy() for clean, _, row in rows]
        heard = [batch.clip(row).double().cpu().numpy() for _, batch, row in rows]
        added = [after - before for before, after in zip(clips, heard, strict=True)]
        peaks = np.array([max(float(np.abs(one).max()), _TINY) for one in added])
        scaled = [127.0 * one / peak for one, peak in zip(added, peaks, strict=True)]
        self.arrays |= {
            "samples": np.rint(np.concatenate(clips) * FULL_SCALE).astype(np.int16),
            "lengths": np.array([len(clip) for clip in clips], dtype=np.int64),
            "ids": np.array([clean.ids[row] for clean, _, row in rows], dtype=str),
            f"peaks {name}": peaks,
            f"added {name}": np.rint(np.concatenate(scaled)).astype(np.int8),
        }


def read_examples(path: Path) -> dict[str, tuple[AudioBatch, AudioBatch]]:
    """Clean and attacked clips by the name of the cell."""
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    edges, ids = np.cumsum(arrays["lengths"])[:-1], arrays["ids"].tolist()
    clean = np.split(arrays["samples"] / FULL_SCALE, edges)
    found = {}
    for name in (key.removeprefix("added ") for key in arrays if key.startswith("added ")):
        added = np.split(arrays[f"added {name}"] / 127.0, edges)
        heard = [
            np.clip(clip + peak * one, -1.0, 1.0)
            for clip, one, peak in zip(clean, added, arrays[f"peaks {name}"], strict=True)
        ]
        found[name] = (AudioBatch.of(clean, SAMPLE_RATE, ids), AudioBatch.of(heard, SAMPLE_RATE, ids))
    return found
