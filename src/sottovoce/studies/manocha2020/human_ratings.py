"""M4: metrics and ears against people's ratings (Manocha et al. 2020, section 4.1, Table 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sottovoce import __version__
from sottovoce.core.statistics import Interval
from sottovoce.data.mushra_ratings import ANCHOR, MushraRatings, open_mushra
from sottovoce.errors import InputError
from sottovoce.studies.manocha2020 import human_ratings_sheets as sheets
from sottovoce.studies.manocha2020.agreement import Agreement, Bools, agreement, clear_pairs, ratings_table
from sottovoce.studies.manocha2020.judges import Judge, Measured, judges, try_all
from sottovoce.studies.manocha2020.manocha_tables import SETUP
from sottovoce.studies.manocha2020.rated_pairs import RatedPair, as_batch, read_pairs
from sottovoce.studies.study import Choice, Result, Study, Tell, default_folder, find_scale

Floats = NDArray[np.float64]
CORPUS = "mushra"


@final
@dataclass(frozen=True)
class ValidationSetup:
    """A listening test, its pairs, and what each judge said of them; `absent`: why others were not run."""

    folder: Path
    test: MushraRatings
    pairs: list[RatedPair]
    judges: list[Judge]
    measured: dict[str, Measured]
    absent: dict[str, str]
    setting: dict[str, Any]
    unused: dict[str, str] = field(default_factory=dict)

    @cached_property
    def codecs(self) -> list[str]:
        """Conditions with audio, without the hidden reference and without anchors."""
        found = dict.fromkeys(one.rated.condition for one in self.pairs if not one.rated.is_reference)
        return [name for name in found if not name.lower().startswith(ANCHOR)]

    @cached_property
    def conditions(self) -> list[str]:
        """Every condition with audio, the hidden reference last."""
        names = list(dict.fromkeys(one.rated.condition for one in self.pairs if not one.rated.is_reference))
        return [*names, self.test.reference(self.test.items[0]).condition]

    @property
    def known(self) -> list[Judge]:
        """Judges that were run."""
        return [one for one in self.judges if one.id in self.measured]

    def table(self, values: Floats, conditions: Sequence[str]) -> Floats:
        """Values of the pairs, `(items, conditions)`; NaN where there is no audio."""
        found = np.full((len(self.test.items), len(conditions)), np.nan)
        for pair, value in zip(self.pairs, values.tolist(), strict=True):
            if pair.rated.condition in conditions:
                place = self.test.items.index(pair.rated.item), conditions.index(pair.rated.condition)
                found[place] = value
        return found

    def turned(self, judge: Judge, conditions: Sequence[str]) -> Floats:
        """A judge's values so that more is better, `(items, conditions)`."""
        return self.table(judge.turned(self.measured[judge.id].values), conditions)

    def facts(self) -> dict[str, Any]:
        return self.setting

    def scope(self, study: Study[Any]) -> list[str]:
        test = self.test
        counts = [len(one.ratings) for one in test.stimuli]
        lines = [
            f"Listening test {self.setting['data']}: {len(test.items)} items, {len(test.conditions)} "
            f"conditions, {len(test.listeners)} listeners, {min(counts)} to {max(counts)} ratings a clip, "
            f"{test.sample_rate} Hz.",
            f"The paper: {SETUP}. This is a different test with few clips: intervals are wide.",
        ]
        if test.unheard:
            lines.append(f"Rated, but not measured as there is no audio: {', '.join(test.unheard)}.")
        return lines


def open_validation(choice: Choice, out: Path | None, device: str, tell: Tell) -> ValidationSetup:
    """Read and align the clips of a listening test, and measure them with everything that can be had."""
    choice.refuse("M4", "attack", "fit", "clips", "batch")
    if choice.data is None:
        raise InputError(
            f"study M4 needs ratings by people, and none come with sottovoce: give --data {CORPUS}:DIR, a "
            "folder "
            "with ratings.csv and audio/."
        )
    test = open_mushra(choice.data.removeprefix(f"{CORPUS}:"))
    scale = find_scale(choice.scale).name
    folder = out or default_folder("M4", scale, [choice.data, choice.model or "", choice.seed])
    tell(0.0, "reading and aligning")
    pairs = read_pairs(test)
    asked = judges(choice.model)
    ids = [f"{one.rated.item}/{one.rated.condition}" for one in pairs]
    clean, changed = (
        as_batch([getattr(one, side) for one in pairs], test.sample_rate, ids)
        for side in ("clean", "changed")
    )
    measured, absent = try_all(asked, clean, changed, slow=scale == "full", tell=tell)
    setting = {
        "version": __version__,
        "data": choice.data,
        "model": choice.model,
        "scale": scale,
        "seed": choice.seed,
    }
    unused = {
        f"{judge}: {clip}": reason
        for judge, found in measured.items()
        for clip, reason in found.reasons.items()
    }
    return ValidationSetup(folder, test, pairs, asked, measured, absent, setting, unused)


def run(bench: ValidationSetup) -> Result:
    codecs = bench.codecs
    alone = _agreements(bench, codecs, clear_pairs(bench.test, codecs))
    whole = _agreements(bench, bench.conditions, clear_pairs(bench.test, bench.conditions))
    order = sorted(alone, key=lambda one: -_known(alone[one].spearman_conditions.value))
    return Result(
        sheets=[
            sheets.trends(bench),
            sheets.agreements(bench, order, alone),
            sheets.with_reference(bench, order, whole),
            sheets.beside_paper(bench, alone),
            sheets.calibration(bench),
            sheets.conditions(bench),
            *sheets.not_run(bench),
        ],
        drawings=sheets.drawings(bench, order, alone),
        values=_values(bench, alone, whole),
        notes=list(sheets.NOTES),
    )


def _agreements(bench: ValidationSetup, conditions: Sequence[str], clear: Bools) -> dict[str, Agreement]:
    ratings = ratings_table(bench.test, conditions)
    seed = bench.setting["seed"]
    return {
        judge.id: agreement(bench.turned(judge, conditions), ratings, clear, seed=seed)
        for judge in bench.known
    }


def _known(value: float) -> float:
    return -2.0 if np.isnan(value) else value


def _values(
    bench: ValidationSetup, alone: dict[str, Agreement], whole: dict[str, Agreement]
) -> dict[str, Any]:
    def numbers(found: Agreement) -> dict[str, Interval]:
        return found._asdict()

    return {
        "judges": {
            judge.id: {
                "better": judge.better,
                "seconds": bench.measured[judge.id].seconds,
                "codecs": numbers(alone[judge.id]),
                "with_reference": numbers(whole[judge.id]),
                "values": bench.measured[judge.id].values.tolist(),
                "heard": None if (p := bench.measured[judge.id].heard) is None else p.tolist(),
            }
            for judge in bench.known
        },
        "clips": [
            {
                "item": one.rated.item,
                "condition": one.rated.condition,
                "rating": one.rated.mean,
                "shift_samples": one.shift.samples,
                "shift_by": one.shift.by,
                "match": one.shift.match,
            }
            for one in bench.pairs
        ],
        "not_run": bench.absent,
    }


STUDY = Study(
    id="M4",
    title="Metrics and ears against people's ratings",
    paper="Manocha et al. (2020), section 4.1, Table 2",
    reports="the metric trained from scratch on just noticeable differences agrees best with opinions: "
    "Spearman 0.71, 0.63 and 0.61 on three tests (MSE 0.18, 0.18, 0.00; PESQ 0.43, 0.49, 0.21)",
    open=open_validation,
    run=run,
)
