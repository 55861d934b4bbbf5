"""M3: the learned metric and its variants (section 2.2), on answers of simulated listeners."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sottovoce import __version__
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.data.corpora import open_corpus
from sottovoce.errors import InputError
from sottovoce.perception.ears.auditory import Auditory
from sottovoce.perception.ears.dpam import FILES, Dpam
from sottovoce.perception.ears.ear import Ear
from sottovoce.perception.ears.learned import VARIANTS, Learned
from sottovoce.perception.jnd.answers import LINES, Answers, read_answers
from sottovoce.studies.draw import curves
from sottovoce.studies.shown_numbers import MISSING, percent
from sottovoce.studies.study import (
    Choice,
    Result,
    Study,
    StudyFigure,
    StudyTable,
    Tell,
    default_folder,
    find_scale,
)
from sottovoce.studies.trends import Trend, trend_sheet
from sottovoce.training.ear.answer_pairs import AnswerPairs, Store, make_pairs
from sottovoce.training.ear.ear_figures import BINS, EarFigures, judge

PAIRS = {"mini": 30, "full": 600}
PEOPLE = {"mini": 2, "full": 4}
PAPER_2AFC = {"pre": 83.9, "lin": 83.6, "fin": 80.3, "scratch": 71.78}
"""Table 2, simulated triplets, in per cent."""
BATCH = 16
CHECK_SECONDS, CHECK_CLIPS = 2.0, 4

Floats = NDArray[np.float64]


@final
@dataclass(frozen=True)
class LearnedSetup:
    """data: an answers folder, or clips over which simulated listeners are asked. dpam: its weights."""

    folder: Path
    scale: str
    data: str
    dpam: str | None
    pairs: int
    seed: int
    device: str
    tell: Tell
    unused: dict[str, str]

    @property
    def given(self) -> bool:
        """Whether the answers are given, and not simulated here."""
        return (Path(self.data).expanduser() / LINES).is_file()

    def answers(self) -> Answers:
        if self.given:
            return read_answers(self.data)
        made = self.folder / "answers"
        if not (made / LINES).is_file():
            _simulate(self, made)
        return read_answers(made)

    def ears(self) -> dict[str, Ear]:
        """Ours by variant, DPAM's where its weights are given, and the one behind the simulated listeners."""
        ears: dict[str, Ear] = {f"ours, {variant}": Learned(variant=variant) for variant in VARIANTS}
        if self.dpam is not None:
            for variant in ("pre", "lin", "fin", "scratch"):
                ears[f"DPAM, {variant}"] = Dpam(weights=self.dpam, variant=variant)
        ears["auditory model"] = Auditory()
        return ears

    def facts(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "scale": self.scale,
            "data": self.data,
            "dpam": self.dpam,
            "pairs": self.pairs,
            "seed": self.seed,
        }

    def scope(self, study: Study[Any]) -> list[str]:
        who = Learned().facts["listeners"]
        return [
            f"SIMULATED: our metric was trained on answers of {who} listeners, and is evaluated here on "
            "answers "
            "of simulated ones, who hear through our auditory model. Nothing here was tested with people.",
            f"Answers: {self.data}, seed {self.seed}. The paper: about 55,000 answers of people.",
        ]


def open_bench(choice: Choice, out: Path | None, device: str, tell: Tell) -> LearnedSetup:
    choice.refuse("M3", "attack", "fit", "batch")
    scale = "full" if find_scale(choice.scale).name == "full" else "mini"
    data = choice.data or "embedded"
    if choice.model is not None and not (Path(choice.model).expanduser() / FILES["scratch"]).is_file():
        raise InputError(
            f"--model {choice.model}: expected the folder of DPAM's published weights, with "
            f"{FILES['scratch']}; name that folder, or leave --model out."
        )
    pairs = choice.clips or PAIRS[scale]
    folder = out or default_folder("M3", scale, [data, choice.model or "", pairs, choice.seed])
    return LearnedSetup(folder, scale, data, choice.model, pairs, choice.seed, device, tell, {})


class EarDistances(NamedTuple):
    """Distances of all pairs by an ear, and its P(different), None where it has none."""

    distance: Floats
    p: Floats | None


def run(bench: LearnedSetup) -> Result:
    answers = bench.answers()
    # A folder that is given may hold what the metric was trained on; what is simulated here does not.
    every = [row for row, one in enumerate(answers.answers) if not one.sentinel]
    held = [row for row in every if answers.splits[answers.answers[row].reference] != "train"]
    rows = held if bench.given and held else every
    pairs = make_pairs(answers, rows, Store.of(answers.pack, torch.device("cpu")))
    ears = bench.ears()
    heard = {}
    for place, (name, ear) in enumerate(ears.items()):
        bench.tell(place / len(ears), f"{name}: {len(pairs)} pairs")
        heard[name] = listen(ear, pairs)
    figures = {name: _figures(one, pairs) for name, one in heard.items()}
    order = {name: ordered(one.distance, pairs) for name, one in heard.items()}
    checks = {name: check(ear, bench.seed) for name, ear in ears.items()}
    return Result(
        sheets=[
            _goal_sheet(_trends(figures, checks)),
            _answer_sheet(figures, order, pairs),
            _check_sheet(checks),
        ],
        drawings=[
            StudyFigure(
                name="calibration",
                title="Share of 'different' answers of simulated listeners by the P(different) of an ear",
                figure=curves(
                    [("P(different)", "linear", {name: _bins(one.p, pairs) for name, one in heard.items()
                      if one.p is not None and not name.startswith("DPAM")})],
                    label="answered different, %",
                ),
            )
        ],
        values={
            "simulated": True,
            "figures": {name: one.to_json() for name, one in figures.items()},
            "order": order,
            "checks": {name: one._asdict() for name, one in checks.items()},
        },
        notes=[
            "All answers are simulated. Simulated listeners hear with the auditory model; they differ from "
            "it in "
            "sensitivity, by chance near the threshold and by lapses. Its figures are about the best "
            "possible.",
            "The paper's column is its Table 2, 2AFC accuracy on 1,210 simulated triplets judged by people: "
            "which of two clips is closer to a reference. Ours: how often, of two changes of one reference "
            "along "
            "one path, the stronger one gets the larger distance.",
        ],
    )  # fmt: skip


def _simulate(bench: LearnedSetup, folder: Path) -> None:
    from sottovoce.perception.jnd.references import Cut, cut_references
    from sottovoce.perception.jnd.simulated_answers import Collection, simulate

    draws = Draws(bench.seed).turn("study", "M3")
    references = cut_references([open_corpus(bench.data)], bench.pairs, Cut(), draws)
    simulate(folder, references, Collection(people=PEOPLE[bench.scale], seed=bench.seed), tell=bench.tell)


def listen(ear: Ear, pairs: AnswerPairs) -> EarDistances:
    """What an ear makes of every pair."""
    found = torch.zeros(len(pairs), dtype=torch.float64)
    order = torch.argsort(pairs.store.lengths[pairs.clean])
    with torch.no_grad():
        for rows in order.split(BATCH):
            clean, changed = (
                AudioBatch(one.waveforms, one.lengths, 16_000, tuple(map(str, rows.tolist())))
                for one in pairs.sounds(rows)
            )
            found[rows] = ear.distance(clean, changed).double()
        try:
            p = ear.probability(found.float()).double().numpy()
        except InputError:
            p = None
    return EarDistances(found.numpy(), p)


def _figures(heard: EarDistances, pairs: AnswerPairs) -> EarFigures:
    """Of P(different), but the area under the curve, which the distance gives: P may be flat."""
    area = judge(heard.distance, pairs.different, pairs.asked)
    if heard.p is None:
        return replace(area, loss=math.nan, accuracy=math.nan, calibration=math.nan)
    return replace(judge(heard.p, pairs.different, pairs.asked), auc=area.auc)


def ordered(distance: Floats, pairs: AnswerPairs) -> float:
    """The share of pairs along one path where more strength is further away; ties count half."""
    groups, strengths = pairs.groups.numpy(), pairs.strengths.numpy()
    right = total = 0.0
    for group in np.unique(groups):
        rows = np.flatnonzero((groups == group) & ~np.isnan(strengths))
        first, second = np.triu_indices(len(rows), 1)
        sign = np.sign(strengths[rows[second]] - strengths[rows[first]])
        rise = np.sign(distance[rows[second]] - distance[rows[first]]) * sign
        right += float(((rise > 0) + 0.5 * (rise == 0))[sign != 0].sum())
        total += float((sign != 0).sum())
    return right / total if total else math.nan


class KnownAnswers(NamedTuple):
    """What an ear makes of changes whose answer is known, means over clips of speech. noise: the distance of
    white noise at 40 dB SNR, by which the next three are divided. alone: how much a distance differs in a
    batch, as a share. rises: whether P never falls."""

    noise: float
    gain: float
    shift_one: float
    shift_millisecond: float
    alone: float
    at_zero: float | None
    rises: bool | None


def check(ear: Ear, seed: int) -> KnownAnswers:
    corpus = open_corpus("prompts")
    clips = [
        corpus.load(entry, 16_000).waveform[: int(CHECK_SECONDS * 16_000)]
        for entry in list(corpus)[:CHECK_CLIPS]
    ]
    source = Draws(seed).turn("study", "M3").generator("noise")
    with torch.no_grad():
        found = np.array([_distances(ear, clip, source) for clip in clips])
    noise, gain, one, millisecond, _ = found.mean(axis=0).tolist()
    alone = float(np.abs(found[:, 4] / found[:, 0] - 1.0).max())
    return KnownAnswers(noise, gain / noise, one / noise, millisecond / noise, alone, *_head(ear))


def _distances(ear: Ear, clip: Tensor, source: np.random.Generator) -> list[float]:
    """Of noise, half the gain and two shifts, and of the noise once more beside a shorter clip."""
    noise = torch.from_numpy(source.standard_normal(len(clip))).float()
    noisy = (clip + 0.01 * noise * clip.square().mean().sqrt() / noise.square().mean().sqrt()).clamp(-1, 1)
    late = [torch.nn.functional.pad(clip, (samples, 0))[:-samples] for samples in (1, 16)]
    short = clip[: len(clip) // 2]
    batched = _pair(ear, [clip, short], [noisy, 0.5 * short])[0]
    return [*(float(_pair(ear, [clip], [one])[0]) for one in (noisy, 0.5 * clip, *late)), float(batched)]


def _pair(ear: Ear, clean: list[Tensor], changed: list[Tensor]) -> Tensor:
    return ear.distance(
        *(AudioBatch.of([one.numpy() for one in clips], 16_000) for clips in (clean, changed))
    )


def _head(ear: Ear) -> tuple[float | None, bool | None]:
    grid = torch.linspace(0.0, 6.0, 601)
    try:
        p = ear.probability(grid)
    except InputError:
        return None, None
    return float(p[0]), bool((p.diff() >= -1e-6).all())


def _bins(p: Floats | None, pairs: AnswerPairs) -> tuple[list[float], list[float]]:
    place = (np.asarray(p) * BINS).astype(int).clip(0, BINS - 1)
    asked, different = (values.double().numpy() for values in (pairs.asked, pairs.different))
    said, answered, total = (
        np.bincount(place, weights=values, minlength=BINS) for values in (p * asked, different, asked)
    )
    there = total > 0
    return (said[there] / total[there]).tolist(), (100 * answered[there] / total[there]).tolist()


def _answer_sheet(
    figures: Mapping[str, EarFigures], order: Mapping[str, float], pairs: AnswerPairs
) -> StudyTable:
    return StudyTable(
        title="Held-out answers of simulated listeners",
        columns=("ear", "accuracy, %", "AUC", "calibration error, %", "order along a path, %", "paper, 2AFC"),
        rows=[
            (
                name,
                _share(one.accuracy),
                f"{one.auc:.3f}",
                _share(one.calibration),
                _share(order[name]),
                f"{PAPER_2AFC[name.split(', ')[1]]:g}" if name.startswith("ours") else MISSING,
            )
            for name, one in figures.items()
        ],
        note=f"{int(pairs.asked.sum()):,} simulated answers about {len(pairs):,} pairs. Accuracy and "
        "calibration of P(different) as the ear gives it; DPAM's is its published classifier.",
    )


def _check_sheet(checks: Mapping[str, KnownAnswers]) -> StudyTable:
    words = {True: "yes", False: "NO", None: MISSING}
    return StudyTable(
        title="Changes with a known answer",
        columns=(
            "ear", "noise at 40 dB", "half the gain", "shift by 1 sample", "shift by 1 ms",
            "alone or in a batch, %", "P at distance 0", "P never falls",
        ),
        rows=[
            (
                name,
                f"{one.noise:.2f}",
                f"{one.gain:.2f}",
                f"{one.shift_one:.3f}",
                f"{one.shift_millisecond:.3f}",
                f"{100 * one.alone:.4f}",
                MISSING if one.at_zero is None else f"{one.at_zero:.3f}",
                words[one.rises],
            )
            for name, one in checks.items()
        ],
        note=f"Means over {CHECK_CLIPS} spoken prompts of {CHECK_SECONDS:g} s. White noise at 40 dB SNR in "
        "the ear's own unit (ours and the auditory model: just noticeable differences), then distances as "
        "multiples of it: half the gain is clearly audible, a shift is not. DPAM is run one clip at a time "
        "here; its authors' code computes statistics over the batch.",
    )  # fmt: skip


def _goal_sheet(goals: list[Trend]) -> StudyTable:
    plain = trend_sheet(goals)
    return StudyTable(title="Requirements on a metric", columns=("goal", *plain.columns[1:]), rows=plain.rows)


def _share(value: float) -> str:
    return MISSING if math.isnan(value) else percent(value)


def _trends(figures: Mapping[str, EarFigures], checks: Mapping[str, KnownAnswers]) -> list[Trend]:
    ours = {variant: figures[f"ours, {variant}"].auc for variant in VARIANTS}
    least = min(ours["lin"], ours["fin"], ours["scratch"])
    told = ", ".join(f"{name} {value:.3f}" for name, value in ours.items())
    trends = [Trend("training on answers beats features of classifiers (AUC)", least > ours["pre"], told)]
    mine = checks["ours, scratch"]
    claim = "a shift of one sample has a smaller distance than faint noise and than half the gain"
    numbers = f"{mine.shift_one:.3f} and {mine.gain:.2f} times noise at 40 dB"
    trends.append(Trend(f"ours: {claim}", mine.shift_one < min(1.0, mine.gain), numbers))
    if "DPAM, scratch" in checks:
        theirs = checks["DPAM, scratch"]
        numbers = f"{theirs.shift_one:.3f} and {theirs.gain:.2f} times noise at 40 dB"
        trends.append(Trend(f"DPAM: {claim}", theirs.shift_one < min(1.0, theirs.gain), numbers))
    return trends


STUDY = Study(
    id="M3",
    title="A metric learned from just noticeable differences, and its variants",
    paper="Manocha et al. (2020), sections 2.2 and 4.1",
    reports="scratch agrees best with people's ratings, pre keeps the order but not the scale (Table 2)",
    open=open_bench,
    run=run,
    fits=False,
)
