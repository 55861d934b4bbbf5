"""M5: the metric as a loss (Manocha et al. 2020, section 4.2): denoisers that differ in their loss alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sottovoce.core.statistics import Interval, ratio_bootstrap, ratio_difference
from sottovoce.studies.draw import curves
from sottovoce.studies.manocha2020.denoiser_setup import (
    JUDGES,
    NOISY,
    TITLES,
    TRANCHES_DB,
    DenoiserSetup,
    open_bench,
)
from sottovoce.studies.manocha2020.preference_pairs import export_pairs, rivals_of
from sottovoce.studies.shown_numbers import MISSING
from sottovoce.studies.study import Result, Study, StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, trend_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OURS = "learned"
HEARD = "heard"
MEASURES = {**{one.id: one.title for one in JUDGES}, HEARD: "P(heard), %"}
DIGITS = {"pesq": 2, "stoi": 3, "fwssnr": 1, "distance": 1, HEARD: 0}
RIVALS = ("features", "wiener", "omlsa")
"""Whom the paper's denoiser was preferred to, besides a WaveNet."""
NAMES = ("hard", "", "", "easy")


def run(bench: DenoiserSetup) -> Result:
    means = {
        judge: {
            system: [_mean(bench, system, judge, db) for db in (*TRANCHES_DB, None)] for system in bench.heard
        }
        for judge in MEASURES
    }
    folder = bench.folder / "M5" / "pairs"
    count = export_pairs(bench, OURS, rivals_of(OURS, bench), folder) if OURS in bench.heard else 0
    notes = [
        "Every clip is in every tranche, with a different noise each time. Intervals are over clips. "
        "P(heard) "
        "and the learned distance are between clean and denoised clips, by the learned ear, which was "
        "trained "
        "on simulated listeners: a denoiser that was trained with it as its loss has an advantage there. "
        "The noise left at these SNRs is always audible, so P(heard) hardly separates the systems; the "
        "distance does.",
    ]
    if _known(means[HEARD]) and _certain(means[HEARD]):
        notes.append("P(heard) is 100 % for every system in every tranche.")
    if count:
        notes.append(f"{count} pairs for an A/B listening test, equally loud, names hidden: {folder}.")
    return Result(
        sheets=[
            trend_sheet(_trends(bench)),
            _others(bench),
            *(
                _sheet(judge, found)
                for judge, found in means.items()
                if _known(found) and not (judge == HEARD and _certain(found))
            ),
            *_absent(bench),
        ],
        drawings=[
            StudyFigure(
                name=judge,
                title=f"{MEASURES[judge]} by the SNR of the noisy clip (objective measures)",
                figure=_figure(judge, means[judge]),
            )
            for judge in ("pesq", "distance")
            if _known(means[judge])
        ],
        values=_values(bench, means),
        notes=notes,
    )


def _mean(bench: DenoiserSetup, system: str, judge: str, snr_db: float | None) -> Interval:
    values = bench.values(system, judge)
    if values is None:
        return Interval(math.nan, math.nan, math.nan, 0)
    return ratio_bootstrap(_sums(bench, values * (100.0 if judge == HEARD else 1.0), snr_db))


def _sums(bench: DenoiserSetup, values: NDArray[np.float64], snr_db: float | None) -> NDArray[np.float64]:
    """Sum and count of each clip's mixtures, `(clips, 2)`: a clip in four noises is still one clip."""
    clips = {one.clip: place for place, one in enumerate({one.clip: one for one in bench.mixed}.values())}
    found = np.zeros((len(clips), 2))
    for row in bench.rows(snr_db):
        if not np.isnan(values[row]):
            found[clips[bench.mixed[row].clip]] += (values[row], 1.0)
    return found[found[:, 1] > 0]


def _known(found: dict[str, list[Interval]]) -> bool:
    return any(not math.isnan(one.value) for row in found.values() for one in row)


def _certain(found: dict[str, list[Interval]]) -> bool:
    """Whether a table of P(heard) would say 100 % and nothing else."""
    return all(one.value > 99.5 for row in found.values() for one in row)


def _sheet(judge: str, found: dict[str, list[Interval]]) -> StudyTable:
    heads = [f"{db:g} dB {name}".strip() for db, name in zip(TRANCHES_DB, NAMES, strict=True)]
    ear = judge in ("distance", HEARD)
    return StudyTable(
        title=f"{MEASURES[judge]}, by tranche",
        columns=("system", *heads, "all"),
        rows=[(TITLES[system], *(_cell(one, DIGITS[judge]) for one in row)) for system, row in found.items()],
        note="By an ear that was learned from simulated listeners; less is better." if ear else "",
    )


def _cell(found: Interval, digits: int) -> str:
    if math.isnan(found.value):
        return MISSING
    text = f"{found.value:.{digits}f}"
    return text if math.isnan(found.low) else f"{text} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _trends(bench: DenoiserSetup) -> list[Trend]:
    """The paper's claims are about preference; PESQ is used in place of people."""
    trends = [_better(bench, OURS, rival, None) for rival in RIVALS]
    trends += [_better(bench, OURS, "features", db) for db in TRANCHES_DB]
    gains = [_gain(bench, OURS, "features", db) for db in (TRANCHES_DB[0], TRANCHES_DB[-1])]
    claim = f"{TITLES[OURS]}: largest gain over {TITLES['features']} in the easy tranche (PESQ, a proxy)"
    if any(gain is None or math.isnan(gain.value) for gain in gains):
        return [*trends, Trend(claim, None, "not run")]
    hard, easy = (gain.value for gain in gains if gain is not None)
    return [*trends, Trend(claim, easy > hard, f"{easy:+.2f} when easy, {hard:+.2f} when hard")]


def _others(bench: DenoiserSetup) -> StudyTable:
    """What else there is to compare, which the paper did not."""
    two = [(OURS, "l1"), (OURS, "dpam"), (OURS, NOISY), (f"l1-{OURS}", "l1"), (f"mrstft-{OURS}", "mrstft")]
    rows = []
    for one, other in two:
        gain = _gain(bench, one, other, None)
        numbers = MISSING if gain is None or math.isnan(gain.value) else _signed(gain)
        rows.append((f"{TITLES[one]} minus {TITLES[other]}", numbers))
    return StudyTable(title="Further differences in PESQ", columns=("systems", "difference"), rows=rows)


def _better(bench: DenoiserSetup, one: str, other: str, snr_db: float | None) -> Trend:
    where = "" if snr_db is None else f", at {snr_db:g} dB"
    claim = f"{TITLES[one]}: better than {TITLES[other]}{where} (PESQ, a proxy of preference)"
    gain = _gain(bench, one, other, snr_db)
    if gain is None or math.isnan(gain.value):
        return Trend(claim, None, "not run")
    return Trend(claim, gain.value > 0, f"{_signed(gain)}, {gain.n} clips")


def _gain(bench: DenoiserSetup, one: str, other: str, snr_db: float | None) -> Interval | None:
    """By how much one system's PESQ is higher, mixture by mixture; None where one of them was not run."""
    ours, theirs = bench.values(one, "pesq"), bench.values(other, "pesq")
    if ours is None or theirs is None:
        return None
    unknown = np.isnan(ours + theirs)
    parts = [_sums(bench, np.where(unknown, np.nan, values), snr_db) for values in (ours, theirs)]
    return ratio_difference(*parts)


def _signed(found: Interval) -> str:
    return f"{found.value:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def _figure(judge: str, found: dict[str, list[Interval]]) -> Figure:
    figure = curves([("SNR, dB", "linear", _lines(found))], label=MEASURES[judge], top=None)
    # The lowest PESQ there is, and no distance at all.
    figure.axes[0].set_ylim(bottom=1.0 if judge == "pesq" else 0.0)
    return figure


def _lines(found: dict[str, list[Interval]]) -> dict[str, tuple[list[float], list[float]]]:
    return {
        TITLES[system]: (list(TRANCHES_DB), [one.value for one in row[:-1]]) for system, row in found.items()
    }


def _absent(bench: DenoiserSetup) -> list[StudyTable]:
    rows = [(TITLES.get(name, MEASURES.get(name, name)), reason) for name, reason in bench.absent.items()]
    return [StudyTable(title="Not run", columns=("what", "why"), rows=rows)] if rows else []


def _values(bench: DenoiserSetup, means: dict[str, dict[str, list[Interval]]]) -> dict[str, Any]:
    heads = [*(f"{db:g}" for db in TRANCHES_DB), "all"]
    return {
        "means": {
            judge: {system: dict(zip(heads, row, strict=True)) for system, row in found.items()}
            for judge, found in means.items()
        },
        "mixtures": [
            {"id": one.id, "clip": one.clip, "noise": one.noise, "snr_db": one.snr_db} for one in bench.mixed
        ],
        "each": {
            system: {
                judge: values.tolist()
                for judge in MEASURES
                if (values := bench.values(system, judge)) is not None
            }
            for system in bench.heard
        },
        "not_run": bench.absent,
    }


STUDY = Study(
    id="M5",
    title="The metric as a loss",
    paper="Manocha et al. (2020), section 4.2, Figure 3",
    reports="people prefer a denoiser trained with the learned metric to one trained with deep features, to "
    "a WaveNet, to OMLSA and to a Wiener filter, in all four tranches of noise",
    open=open_bench,
    run=run,
    fits=False,
)
