"""O4: adversarial sparsity, for audio: hardened models, broken defenses, radii, and what it predicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sottovoce.auditing.sparsity.sparsity_folder import SparseClip, SparsityRow, mean
from sottovoce.core.statistics import Interval
from sottovoce.report.sparsity_section import draw_sparsity, number, percent, radius_of
from sottovoce.studies.draw import INK, OURS, PAPERS, SOFT, canvas
from sottovoce.studies.olivier2023.sparsity import sparsity_tables as thesis
from sottovoce.studies.olivier2023.sparsity.sparsity_plans import BROKEN, LINF, SNR_DB, VARIANTS, linf, snr
from sottovoce.studies.olivier2023.sparsity.sparsity_setup import (
    QUIET_DB,
    SparsityOutcome,
    SparsitySetup,
    open_sparsity,
    read_sparsity,
)
from sottovoce.studies.shown_numbers import MISSING, as_printed
from sottovoce.studies.study import Reading, Result, Study, StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, trend_sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"plain": INK, "fgsm": "#5f3dc4", "pgd": OURS, "mixed": "#2b8a3e"}
ROWS = {"plain": thesis.TABLE_4_1[0], "fgsm": thesis.TABLE_4_1[1], "pgd": thesis.TABLE_4_1[2]}
"""The rows of Table 4.1 that are nearest in kind."""
COORDINATES = 3072
L2, CUBE = snr(SNR_DB), linf(LINF)


def run(bench: SparsitySetup) -> Result:
    values = values_of(bench)
    return Result(
        sheets=[
            trend_sheet(_trends(bench, values), NOTE),
            _models(bench),
            _defenses(bench),
            _radii(bench, values),
            _distances(values),
            _predictions(values),
            _printed_models(),
            _printed_augmentations(),
        ],
        drawings=[
            StudyFigure(
                name="radius",
                title="Sparsity (left) and success (right) against the radius, plain and hardened",
                figure=_radius_figure(bench),
            ),
            StudyFigure(
                name="models",
                title="Sparsity of each clip, L2 30 dB (left) and L-infinity .002 (right)",
                figure=_models_figure(bench),
            ),
            StudyFigure(
                name="distance",
                title="Sparsity of each clip against arcsin(d / eps), where a linear model would have it",
                figure=_distance_figure(bench),
            ),
        ],
        values=values,
        notes=[
            "Residual: the mean over the clips that were fooled at that radius. Counted: over all clips that "
            "were right, where one that nothing fooled counts as pi, or as all samples. Brackets: 95 % "
            "interval over clips.",
            "Sparsity is an upper bound: a stronger attack would find nearer perturbations, behind defenses "
            "whose gradient is only that of a stand-in above all.",
            "Every defense is attacked through itself: MP3 and quantisation with the gradient of the "
            "identity, the median and the low-pass with their own.",
            *thesis.ERRORS,
            "Not run here: the variance over trainings and transfer between them (section 4.7), "
            "augmentations (Table 4.3) and CIFAR-10. They need models that are not shipped.",
        ],
        seconds=bench.seconds,
    )


def values_of(bench: SparsitySetup) -> dict[str, Any]:
    """Every number of the study, by name."""
    rows = {
        name: {row.setting.budget: row.to_json() for row in one.rows() if row.clips}
        for name, one in bench.runs.items()
    }
    return {
        "runs": rows,
        "gain": {name: _gain(bench, name, "plain", L2) for name in VARIANTS if name != "plain"},
        "gain_linf": {name: _gain(bench, name, "plain", CUBE) for name in VARIANTS if name != "plain"},
        "broken": {name: _gain(bench, f"broken-{name}", "plain", L2) for name in BROKEN},
        "broken_linf": {name: _gain(bench, f"broken-{name}", "plain", CUBE) for name in BROKEN},
        "distance": {name: _linear(bench, name) for name in ("plain", "pgd")},
        "prediction": {name: _predict(bench, name) for name in VARIANTS if name != "plain"},
        "clip_spread": {
            name: _deviation(bench.runs[name], L2) for name in ("plain", "pgd") if name in bench.runs
        },
    }


# What is compared.


def _found(one: SparsityOutcome, budget: str) -> dict[str, SparseClip]:
    """Clips that were fooled, by id."""
    return {clip: record for clip, record in one.clips(budget).items() if record.sparsity is not None}


def _size(record: SparseClip) -> float:
    """Radians, or the share of the samples."""
    assert record.sparsity is not None
    return record.sparsity if record.norm == "l2" else record.sparsity / (record.dimensions or 1)


def _gain(bench: SparsitySetup, name: str, base: str, budget: str) -> Interval | None:
    """How much sparser one is than another, over the clips that both are fooled on."""
    if name not in bench.runs or base not in bench.runs:
        return None
    ours, theirs = (_found(bench.runs[each], budget) for each in (name, base))
    both = [clip for clip in ours if clip in theirs]
    return mean([_size(ours[clip]) - _size(theirs[clip]) for clip in both]) if both else None


def _deviation(one: SparsityOutcome, budget: str) -> float | None:
    sizes = [_size(record) for record in _found(one, budget).values()]
    return float(np.std(sizes, ddof=1)) if len(sizes) > 1 else None


def points_of(bench: SparsitySetup, name: str) -> dict[str, list[tuple[float, float]]]:
    """arcsin(d / eps) and the sparsity of each clip, by radius; d the least distance that fools."""
    least = least_distances(bench, name)
    found: dict[str, list[tuple[float, float]]] = {}
    for run in (name, f"radius-{name}"):
        if run not in bench.runs:
            continue
        for budget in bench.runs[run].plan.budgets:
            if not budget.startswith("snr"):
                continue
            pairs = []
            for clip, record in _found(bench.runs[run], budget).items():
                if clip in least and record.eps and record.sparsity is not None:
                    pairs.append((math.asin(min(1.0, least[clip] / record.eps)), record.sparsity))
            found[budget] = pairs
    return found


def least_distances(bench: SparsitySetup, name: str) -> dict[str, float]:
    """The least L2 distance at which anything fooled a clip: by the attack that looks for it, or a radius."""
    told = bench.extras.get(f"distance-{name}", {})
    found = {clip: float(one["distance"]) for clip, one in told.items() if one["distance"] is not None}
    for run in (name, f"radius-{name}"):
        for budget in bench.runs[run].plan.budgets if run in bench.runs else ():
            for clip, record in _found(bench.runs[run], budget).items():
                if record.norm == "l2" and record.eps and clip in told:
                    found[clip] = min(found.get(clip, math.inf), record.eps)
    return found


def _linear(bench: SparsitySetup, name: str) -> dict[str, dict[str, float | int | None]]:
    """What a linear model would have beside what there is, by radius."""
    found: dict[str, dict[str, float | int | None]] = {}
    for budget, pairs in points_of(bench, name).items():
        rank = rank_correlation(pairs)
        expected = float(np.mean([pair[0] for pair in pairs])) if pairs else None
        found[budget] = {"expected": expected, "rank": rank, "clips": len(pairs)}
    return found


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's; None where there are too few, or one side is all the same."""
    if len(pairs) < 4 or any(len(set(column)) == 1 for column in zip(*pairs, strict=True)):
        return None
    from scipy import stats

    found = float(stats.spearmanr(*zip(*pairs, strict=True)).statistic)
    return None if math.isnan(found) else found


def _predict(bench: SparsitySetup, name: str) -> dict[str, Any]:
    """How well the plain model's sparsity tells which clips a hardened model gets right."""
    told = bench.extras.get(f"hardened-{name}", {})
    found = _found(bench.runs["all-clips"], L2) if "all-clips" in bench.runs else {}
    known: dict[str, Any] = {}
    for kind in ("clean", "attacked"):
        pairs = [(_size(record), bool(told[clip][kind])) for clip, record in found.items() if clip in told]
        known[kind] = predict([one for one, _ in pairs], [right for _, right in pairs])
    return known


def predict(scores: Sequence[float], right: Sequence[bool]) -> dict[str, float | int | None]:
    """A threshold on scores as a predictor of `right`: its precision where as large a share of the wrong is
    let in as of the right is left out (equal error rate), the error there, and the area under the curve."""
    yes = [score for score, good in zip(scores, right, strict=True) if good]
    no = [score for score, good in zip(scores, right, strict=True) if not good]
    found: dict[str, float | int | None] = {
        "clips": len(right), "right": len(yes), "precision": None, "error": None, "area": None,
    }  # fmt: skip
    if not yes or not no:
        return found
    wins = sum((one > other) + 0.5 * (one == other) for one in yes for other in no)
    found["area"] = wins / (len(yes) * len(no))

    def errors(edge: float) -> tuple[float, float]:
        return sum(score >= edge for score in no) / len(no), sum(score < edge for score in yes) / len(yes)

    edge = min(sorted(set(scores)), key=lambda each: abs(errors(each)[0] - errors(each)[1]))
    let_in, kept = sum(score >= edge for score in no), sum(score >= edge for score in yes)
    found["error"] = sum(errors(edge)) / 2
    found["precision"] = kept / (kept + let_in) if kept + let_in else None
    return found


# Tables.

NOTE = (
    "Yes and no go by the value; where the interval of a difference holds zero, these clips do not settle "
    "it. Differences are over the clips that both are fooled on."
)


def _row(bench: SparsitySetup, name: str, budget: str) -> SparsityRow | None:
    return bench.runs[name].row(budget) if name in bench.runs else None


def _both(bench: SparsitySetup, name: str) -> tuple[str, ...]:
    """The figures of a run at the radii of the tables, as text."""
    ball, cube = _row(bench, name, L2), _row(bench, name, CUBE)
    return (
        str(ball.clips) if ball else MISSING,
        percent(ball.success) if ball else MISSING,
        number(ball.residual, False) if ball else MISSING,
        number(ball.counted, False) if ball else MISSING,
        percent(cube.success) if cube else MISSING,
        share(cube),
        f"{ball.spread:.4f}" if ball and ball.spread == ball.spread else MISSING,
    )


def share(row: SparsityRow | None) -> str:
    """Free samples in % of the clip."""
    return f"{100 * row.share:.1f}" if row and row.residual.n else MISSING


HEAD = (
    "right before", "fooled at 30 dB, %", "residual, rad", "counted, rad", "fooled at .002, %",
    "free samples, %", "spread, rad",
)  # fmt: skip


def _models(bench: SparsitySetup) -> StudyTable:
    rows = []
    for name in VARIANTS:
        row = ROWS.get(name)
        paper = MISSING
        if row is not None and row.l2 is not None and row.linf is not None:
            paper = f"{row.l2.sparsity:.3f}; {100 * row.linf.sparsity / COORDINATES:.1f}"
        rows.append((name, *_both(bench, name), paper))
    return StudyTable(
        title="Hardened models against the plain one (Table 4.1)",
        columns=("model", *HEAD, "paper"),
        rows=rows,
        note="Paper: radians at L2 0.5, and free coordinates of 3,072 in %, of ResNet-18: undefended, "
        "trained with one step, and with ten. Spread: the deviation over the directions of a clip.",
    )


def _defenses(bench: SparsitySetup) -> StudyTable:
    rows = [("none", *_both(bench, "plain"), _paper_defense("none"))]
    rows += [
        (text, *_both(bench, f"broken-{name}"), _paper_defense(theirs))
        for name, (text, theirs) in BROKEN.items()
    ]
    return StudyTable(
        title="Defenses that are held for broken, on the plain model (Table 4.2)",
        columns=("defense", *HEAD, "paper"),
        rows=rows,
        note="The paper's defenses are those of images: JPEG, feature squeezing (FS) and spatial smoothing.",
    )


def _paper_defense(name: str) -> str:
    found = thesis.TABLE_4_2.get(name)
    return MISSING if found is None else f"{name}: {found.l2:.3f}; {100 * found.linf / COORDINATES:.1f}"


def _curve_rows(bench: SparsitySetup, name: str) -> list[SparsityRow]:
    """The rows of a model over L2 radii, the loudest first."""
    rows = [
        row
        for run in (name, f"radius-{name}")
        if run in bench.runs
        for row in bench.runs[run].rows()
        if row.setting.budget.startswith("snr") and row.clips
    ]
    return sorted(rows, key=radius_of)


def _radii(bench: SparsitySetup, values: Mapping[str, Any]) -> StudyTable:
    plain = {row.setting.budget: row for row in _curve_rows(bench, "plain")}
    rows = []
    for hard in _curve_rows(bench, "pgd"):
        budget = hard.setting.budget
        soft = plain.get(budget)
        ratio = MISSING
        if soft and soft.residual.n and hard.residual.n and soft.residual.value:
            ratio = f"{hard.residual.value / soft.residual.value:.1f}"
        rows.append(
            (
                hard.setting.title,
                *((percent(soft.success), number(soft.residual, False)) if soft else (MISSING, MISSING)),
                percent(hard.success),
                number(hard.residual, False),
                number(hard.counted, False),
                ratio,
            )
        )
    return StudyTable(
        title="Sparsity against the radius (figures 4.4 and 4.5)",
        columns=(
            "radius", "plain: fooled, %", "plain: residual", "pgd: fooled, %", "pgd: residual",
            "pgd: counted", "ratio of residuals",
        ),
        rows=rows,
        note="The thesis has figures alone, and one number: over five times as sparse at large radii.",
    )  # fmt: skip


def _distances(values: Mapping[str, Any]) -> StudyTable:
    budgets = sorted(values["distance"]["plain"] or values["distance"]["pgd"], key=_db)

    def cells(name: str, budget: str) -> tuple[str, str]:
        found = values["distance"][name].get(budget, {})
        expected, rank = found.get("expected"), found.get("rank")
        return (
            MISSING if expected is None else f"{expected:.3f}",
            MISSING if rank is None else f"{rank:.2f}",
        )

    return StudyTable(
        title="What the least distance alone would say: arcsin(d / eps)",
        columns=("radius", "plain: mean", "plain: rank correlation", "pgd: mean", "pgd: rank correlation"),
        rows=[(f"SNR {_db(one):g} dB", *cells("plain", one), *cells("pgd", one)) for one in budgets],
        note="d: the least L2 distance that fools, by Carlini and Wagner's attack or, where that is less, "
        "the least radius at which anything did. Of a linear model the mean sparsity is arcsin(d / eps), so "
        "that it says nothing beyond d. The rank correlation is over clips.",
    )


def _db(budget: str) -> float:
    return float(budget.removeprefix("snr(db=").removesuffix(")"))


def _predictions(values: Mapping[str, Any]) -> StudyTable:
    rows = []
    kinds = {"clean": "clean clips", "attacked": f"under AutoPGD at {QUIET_DB} dB"}
    for name, found in values["prediction"].items():
        for kind, words in kinds.items():
            one = found[kind]
            cells = (
                MISSING if one[what] is None else f"{100 * one[what]:.0f}" for what in ("precision", "error")
            )
            base = MISSING if not one["clips"] else f"{100 * one['right'] / one['clips']:.0f}"
            area = MISSING if one["area"] is None else f"{one['area']:.2f}"
            paper = f"{thesis.PRECISION_AT_EER:g}" if (name, kind) == ("pgd", "clean") else MISSING
            rows.append((name, words, f"{one['right']} of {one['clips']}", base, *cells, area, paper))
    return StudyTable(
        title="The plain model's sparsity as a predictor of what a hardened model gets right (section 4.6.2)",
        columns=(
            "model", "right", "clips", "base rate, %", "precision at EER, %", "EER, %", "area", "paper",
        ),
        rows=rows,
        note="A clip is predicted to be right where the plain model's sparsity at 30 dB is above a "
        "threshold. A precision means little without the base rate, which the thesis does not print; an area "
        "of 0.5 is chance.",
    )  # fmt: skip


def _printed_models() -> StudyTable:
    def cells(found: thesis.ModelSparsity | None) -> tuple[str, ...]:
        if found is None:
            return (MISSING,) * 3
        return as_printed(found.clean), as_printed(found.attacked), as_printed(found.sparsity)

    rows = [(row.model, row.defense, *cells(row.l2), *cells(row.linf)) for row in thesis.TABLE_4_1]
    for name, found in thesis.TABLE_B_1.items():
        model, _, defense = name.partition(", ")
        rows.append((f"{model} (ImageNet)", defense, *cells(found), *cells(None)))
    rows.append(("ViT B-16", "none", MISSING, MISSING, as_printed(thesis.VIT_SPARSITY), *cells(None)))
    columns = ("clean, %", "attacked, %", "sparsity")
    return StudyTable(
        title="As printed: Tables 4.1 and B.1",
        columns=(
            "model", "defense", *(f"L2: {one}" for one in columns),
            *(f"L-infinity: {one}" for one in columns),
        ),
        rows=rows,
        note="L-infinity sparsities are too small: see the errors below.",
    )  # fmt: skip


def _printed_augmentations() -> StudyTable:
    return StudyTable(
        title="As printed: Table 4.3",
        columns=("augmentation", "accuracy, %", "L2 sparsity", "L-infinity sparsity"),
        rows=[
            (name, as_printed(one.accuracy), as_printed(one.l2), as_printed(one.linf))
            for name, one in thesis.TABLE_4_3.items()
        ],
    )


# What the thesis claims.


def _trends(bench: SparsitySetup, values: Mapping[str, Any]) -> list[Trend]:
    return [
        *_hardened_trends(values),
        *_broken_trends(values),
        *_radius_trends(bench),
        _direction_trend(bench),
        _prediction_trend(values),
        _distance_trend(values),
        Trend("Sparsity varies between trainings alike, and goes with transfer (4.7)", None, "not run"),
        Trend("Data augmentation raises sparsity (4.5.3)", None, "not run"),
    ]


def _compare(claim: str, gain: Interval | None, holds: bool, unit: str) -> Trend:
    if gain is None or not gain.n or math.isnan(gain.value):
        return Trend(claim, None, "not run, or no clip that both are fooled on")
    by, form = (1.0, "+.3f") if unit == "rad" else (100.0, "+.1f")
    value, low, high = (f"{by * each:{form}}" for each in gain[:3])
    return Trend(claim, holds, f"{value} {unit} [{low}, {high}], {gain.n} clips")


def _hardened_trends(values: Mapping[str, Any]) -> list[Trend]:
    found = []
    for kind, unit, norm in (("gain", "rad", "L2 30 dB"), ("gain_linf", "% of samples", "L-infinity .002")):
        for name, gain in values[kind].items():
            claim = f"{norm}: adversarial training ({name}) makes the model sparser (4.5.1)"
            found.append(_compare(claim, gain, gain is not None and gain.value > 0, unit))
    return found


def _broken_trends(values: Mapping[str, Any]) -> list[Trend]:
    found = []
    for name, (_, theirs) in BROKEN.items():
        gain = values["broken"][name]
        settled = gain is not None and gain.n and gain.low > 0
        claim = f"L2: {name} brings no significant sparsity (4.5.2{f', {theirs}' if theirs else ''})"
        found.append(_compare(claim, gain, not settled, "rad"))
    wanted = {"mp3": True, "median": True, "quantise": False, "quantise+median": True}
    for name, rises in wanted.items():
        gain = values["broken_linf"][name]
        up = gain is not None and bool(gain.n) and gain.low > 0
        words = "does bring some" if rises else "brings none"
        claim = f"L-infinity: {name} {words} (4.5.2, {BROKEN[name][1]})"
        found.append(_compare(claim, gain, up == rises, "% of samples"))
    return found


def _radius_trends(bench: SparsitySetup) -> list[Trend]:
    plain, hard = _curve_rows(bench, "plain"), _curve_rows(bench, "pgd")
    found = []
    claim = "Accuracy is 0 from a small radius on, where sparsity goes on to fall (4.5.4)"
    dead = [row for row in plain if row.success.value == 1.0 and row.residual.n]
    if len(dead) > 1:
        first, last = dead[-1], dead[0]
        numbers = (
            f"plain: all fooled from {first.setting.title} on; {first.residual.value:.3f} there, "
            f"{last.residual.value:.3f} at {last.setting.title}"
        )
        found.append(Trend(claim, last.residual.value < first.residual.value, numbers))
    else:
        found.append(Trend(claim, None, "fewer than two radii at which all are fooled"))
    claim = "At large radii a hardened model is over five times as sparse (4.5.4)"
    if plain and hard and plain[0].residual.n and hard[0].residual.n and plain[0].residual.value:
        ratio = hard[0].residual.value / plain[0].residual.value
        found.append(Trend(claim, ratio > 5, f"{ratio:.1f} times at {hard[0].setting.title}"))
    else:
        found.append(Trend(claim, None, "not run"))
    claim = "Sparsity of a hardened model has a maximum near the radius of its training (4.5.4)"
    known = [row for row in hard if row.residual.n]
    if len(known) > 2:
        top = max(known, key=lambda row: row.residual.value)
        counted = max(known, key=lambda row: row.counted.value)
        inner = top not in (known[0], known[-1])
        words = (
            f"residual largest at {top.setting.title}; with robust clips counted, at {counted.setting.title}"
        )
        found.append(Trend(claim, inner, words))
    else:
        found.append(Trend(claim, None, "not run"))
    return found


def _direction_trend(bench: SparsitySetup) -> Trend:
    claim = f"The deviation over directions is below {thesis.SPREAD_OVER_DIRECTIONS} (4.6.1)"
    spreads = {
        name: row.spread
        for name in VARIANTS
        if (row := _row(bench, name, L2)) is not None and not math.isnan(row.spread)
    }
    if not spreads:
        return Trend(claim, None, "not run")
    words = ", ".join(f"{name} {value:.4f}" for name, value in spreads.items())
    return Trend(claim, max(spreads.values()) < thesis.SPREAD_OVER_DIRECTIONS, words)


def _prediction_trend(values: Mapping[str, Any]) -> Trend:
    claim = "The plain model's sparsity tells which clips a hardened model gets right (4.6.2)"
    one = values["prediction"]["pgd"]["attacked"]
    if one["area"] is None:
        return Trend(claim, None, "not run, or all clips are right, or none")
    words = (
        f"pgd at {QUIET_DB} dB: area {one['area']:.2f}, precision {100 * one['precision']:.0f} % at EER, "
        f"base rate {100 * one['right'] / one['clips']:.0f} %, {one['clips']} clips"
    )
    return Trend(claim, one["area"] > 0.5, words)


def _distance_trend(values: Mapping[str, Any]) -> Trend:
    claim = "Sparsity says more than the least distance (4.8: a notion of its own)"
    found = {name: values["distance"][name].get(L2, {}) for name in ("plain", "pgd")}
    ranks = {name: one.get("rank") for name, one in found.items()}
    if ranks["plain"] is None:
        return Trend(claim, None, "not run")
    words = "; ".join(
        f"{name}: rank correlation {rank:.2f} at 30 dB, arcsin(d / eps) {found[name]['expected']:.3f}"
        for name, rank in ranks.items()
        if rank is not None
    )
    return Trend(claim, ranks["plain"] < 0.9, words)


def _rises(values: Mapping[str, Any]) -> bool:
    """Whether the mean of the plain model is larger at 30 dB than at the lower radius of 35 dB."""
    louder = values["runs"].get("plain", {}).get(L2)
    quieter = values["runs"].get("radius-plain", {}).get(snr(SNR_DB + 5))
    if not louder or not quieter:
        return False
    return bool((louder["residual"]["value"] or 0.0) > (quieter["residual"]["value"] or 0.0))


# Figures.


def _radius_figure(bench: SparsitySetup) -> Figure:
    rows = [
        replace(row, setting=replace(row.setting, defense=name))
        for name in ("plain", "pgd")
        for row in _curve_rows(bench, name)
    ]
    return draw_sparsity(rows) if rows else canvas((9, 3.3))


def _models_figure(bench: SparsitySetup) -> Figure:
    """A dot a clip and a bar at the mean, a line a model and defense."""
    figure = canvas((9, 4.6))
    panels = figure.subplots(1, 2, sharey=True)
    names = [name for name in (*VARIANTS, *(f"broken-{each}" for each in BROKEN)) if name in bench.runs]
    titles = ["sparsity, radians", "free samples, % of the clip"]
    for axes, budget, by, title in zip(panels, (L2, CUBE), (1.0, 100.0), titles, strict=True):
        for place, name in enumerate(names):
            sizes = [by * _size(record) for record in _found(bench.runs[name], budget).values()]
            colour = COLOURS.get(name, PAPERS)
            spread = 0.5 * ((np.arange(len(sizes)) * 0.618) % 1.0 - 0.5)
            axes.plot(sizes, place + spread, ".", color=colour, markersize=5, alpha=0.6)
            if sizes:
                axes.plot([np.mean(sizes)] * 2, [place - 0.35, place + 0.35], color=colour, linewidth=2.5)
        axes.set(xlabel=title, yticks=range(len(names)))
        axes.set_yticklabels([name.replace("broken-", "plain, ") for name in names])
        axes.set_xlim(left=0)
        axes.grid(color=SOFT, alpha=0.3, linewidth=0.6, axis="x")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    return figure


def _distance_figure(bench: SparsitySetup) -> Figure:
    figure = canvas((6.2, 5.2))
    axes = figure.subplots()
    low, top = 1e-3, 2.0
    for name in ("plain", "pgd"):
        pairs = [pair for found in points_of(bench, name).values() for pair in found]
        if pairs:
            # Zeros, of directions that fool by themselves, are drawn at the edge.
            expected, sizes = (np.clip(column, low, top) for column in zip(*pairs, strict=True))
            axes.plot(expected, sizes, ".", color=COLOURS[name], alpha=0.6, label=f"{name}, all radii")
    axes.plot([low, top], [low, top], color=SOFT, linewidth=1.2, label="a linear model")
    axes.set(xscale="log", yscale="log", xlim=(0.8 * low, top), ylim=(0.8 * low, top))
    axes.set(xlabel="arcsin(d / eps), radians", ylabel="sparsity, radians")
    axes.legend(frameon=False)
    axes.grid(color=SOFT, alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


STUDY = Study(
    id="O4",
    title="Adversarial sparsity",
    paper="Olivier's thesis (2023), chapter 4 and appendix B",
    reports="how far from a random direction the nearest perturbation lies tells models apart that are all "
    "fooled: .180 radians for a plain ResNet-18, over .5 for hardened ones",
    open=open_sparsity,
    run=run,
    fits=False,
    read=read_sparsity,
    readings=(
        Reading(
            text="At 30 dB attacks fool the plain model on {runs[plain][snr(db=30)][success]:percent} % of "
            "clips and the one hardened by PGD on {runs[pgd][snr(db=30)][success]:percent} %. The angle from "
            "a random direction to the nearest perturbation that fools is "
            "{runs[plain][snr(db=30)][residual]:.3f} and {runs[pgd][snr(db=30)][residual]:.3f} radians; over "
            "the clips that both are fooled on the hardened model is sparser by {gain[pgd]:.3f} "
            "[{gain[pgd][low]:.3f}, {gain[pgd][high]:.3f}], and in L-infinity by {gain_linf[pgd]:percent} % "
            "of the samples.",
            when=lambda values: bool(values["gain"].get("pgd") and values["gain_linf"].get("pgd")),
        ),
        Reading(
            text="On the plain model the spread over directions is small, "
            "{runs[plain][snr(db=30)][spread]:.4f} radians, where the clips themselves differ by "
            "{clip_spread[plain]:.3f}: four directions are enough. On the model hardened by PGD it is "
            "{runs[pgd][snr(db=30)][spread]:.4f}: runs from some directions end early, so that sparsity "
            "there is an upper bound.",
        ),
        Reading(
            text="A mean over fooled clips can rise with the radius: on the plain model it is "
            "{runs[radius-plain][snr(db=35)][residual]:.3f} at 35 dB and "
            "{runs[plain][snr(db=30)][residual]:.3f} at 30 dB, because the clips of near silence, the "
            "sparsest, are fooled from 30 dB on alone. With robust clips counted it falls from "
            "{runs[radius-plain][snr(db=35)][counted]:.3f} to {runs[plain][snr(db=30)][counted]:.3f}.",
            when=lambda values: _rises(values),
        ),
        Reading(
            text="The plain model's sparsity ranks the clips that the hardened model still gets right under "
            "attack with an area under the curve of {prediction[pgd][attacked][area]:.2f}.",
            when=lambda values: (values["prediction"]["pgd"]["attacked"]["area"] or 0.0) > 0.5,
        ),
        Reading(
            figure="distance",
            text="On a linear model all points would lie on the line. At 30 dB the rank correlation is "
            "{distance[plain][snr(db=30)][rank]:.2f} on the plain model and "
            "{distance[pgd][snr(db=30)][rank]:.2f} on the hardened one.",
        ),
    ),
)
