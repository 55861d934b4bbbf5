"""O3: redundant features eliminated (section 3.6): whether a pruned network is harder to fool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from sottovoce.core.statistics import Interval, ratio_difference
from sottovoce.studies.draw import twin_curves
from sottovoce.studies.olivier2023.pruned_networks.pruning_bench import (
    PruningBench,
    TrainedNetwork,
    open_bench,
)
from sottovoce.studies.olivier2023.pruned_networks.pruning_tables import ERRORS, SIZES, SMALLER, TABLE_3_1
from sottovoce.studies.olivier2023.pruned_networks.strongest_attack import PGD, SEARCH, JudgedNetwork
from sottovoce.studies.shown_numbers import as_printed, percent, percent_interval
from sottovoce.studies.study import Reading, Result, Study, StudyFigure, StudyTable
from sottovoce.studies.trends import Trend, higher, trend_sheet

TITLES = {"fgsm": "FGSM training", "pgd": "PGD training", "mixed": "PGD training, 50 % then 80 %"}
ALONE = (PGD,)
PLAIN, HARDENED = "plain", "pgd"
NONE, TRAINED, SMOOTHED, COMPRESSED, FURTHER = (
    "none",
    "adversarial training",
    "randomized smoothing",
    "compressed",
    "compressed further",
)
BY_INTERVAL = (
    "Yes: the interval of the difference lies above zero. Not known: its value does, but not the interval. "
    "No: neither does."
)
LARGE = ("Linf 16/255", "L2 2")
SMALL = ("Linf 4/255", "L2 0.5")
Group = Mapping[str, TrainedNetwork]


def run(bench: PruningBench) -> Result:
    groups: dict[str, Group] = {"keyword": bench.keyword, **bench.images}
    return Result(
        sheets=[
            trend_sheet([*_keyword_trends(bench.keyword), *_image_trends(bench.images)], note=BY_INTERVAL),
            _sheet("Keyword models", bench.keyword, "word"),
            *(_sheet(f"Images, network {name}", group, "image") for name, group in bench.images.items()),
            _ends(groups),
            _printed(),
        ],
        drawings=[
            StudyFigure(
                name="keyword",
                title="Keyword models under attack: pruned ones, and ones trained on attacked clips",
                figure=_keyword_figure(bench.keyword),
            ),
            *(
                StudyFigure(
                    name=f"images-{name}",
                    title=f"Networks of images ({name}) under attack, by how they were trained or pruned",
                    figure=_image_figure(group),
                )
                for name, group in bench.images.items()
            ),
        ],
        values={
            "keyword": _values(bench.keyword),
            "images": {name: _values(group) for name, group in bench.images.items()},
        },
        notes=[
            "Strongest: clip by clip, of PGD, AutoPGD up the cross-entropy and up the logit ratio, and a "
            "genetic search that sees scores alone; a clip that one has fooled meets no other. PGD alone is "
            "the thesis's attack.",
            "Accuracy is against the label; a clip that was not understood before is not attacked.",
            "Keyword models are judged on waveforms of 16 bits. Images are judged in floats; an L2 radius is "
            "as long for their size as the thesis's for 32x32 pixels.",
        ],
        seconds=bench.seconds,
    )


def title_of(name: str, trained: TrainedNetwork) -> str:
    """A network as tables name it."""
    if trained.removed and name.startswith("halved"):
        return f"pruned, {100 * trained.removed:.0f} % gone"
    return TITLES.get(name, name)


def _values(group: Group) -> dict[str, Any]:
    return {
        name: {
            "weights": one.weights,
            "removed": one.removed,
            "clean": one.judged.clean,
            "one_class": one.judged.one_class(),
            "flat": one.judged.flat,
            "mean": {"pgd": _mean(one.judged, ALONE), "strongest": _mean(one.judged, None)},
            "percent": {"removed": 100 * one.removed, "strongest": 100 * _mean(one.judged, None)},
            "sizes": {
                size: {
                    "pgd": one.judged.accuracy(size, ALONE),
                    "strongest": one.judged.accuracy(size),
                    "one_class": one.judged.one_class(size),
                    "fell": {each: one.judged.beyond(size, each) for each in _attacks(one.judged)},
                }
                for size in one.judged.fell
            },
        }
        for name, one in group.items()
    }


def _attacks(judged: JudgedNetwork) -> list[str]:
    """The attacks that fooled it at all."""
    return sorted({each for fell in judged.fell.values() for each in fell if each})


def _mean(judged: JudgedNetwork, attacks: Sequence[str] | None) -> float:
    """Over the thesis's six sizes, or over all radii of a keyword model."""
    return fmean(judged.accuracy(size, attacks).value for size in _counted(judged))


def _counted(judged: JudgedNetwork) -> list[str]:
    return [size for size in judged.fell if size not in SMALLER]


def _sheet(title: str, group: Group, what: str) -> StudyTable:
    first = next(iter(group.values())).judged
    sizes = list(first.fell)
    rows = []
    for name, one in group.items():
        judged = one.judged
        pairs = [
            f"{percent(judged.accuracy(size, ALONE).value)} / {percent_interval(judged.accuracy(size))}"
            for size in sizes
        ]
        rows.append(
            (
                title_of(name, one),
                f"{one.weights:,}",
                percent(one.removed),
                percent_interval(judged.clean),
                f"{percent(_mean(judged, ALONE))} / {percent(_mean(judged, None))}",
                *pairs,
                f"{percent(judged.one_class())} / {percent(max(map(judged.one_class, sizes)))}",
            )
        )
    count = len(first.truth)
    return StudyTable(
        title=f"{title}: accuracy in %, under PGD alone / under the strongest attack",
        columns=(
            "network",
            "weights",
            "gone, %",
            "clean",
            f"mean of {len(_counted(first))}",
            *sizes,
            "in one class, %",
        ),
        rows=rows,
        note=f"{count} {what}s. Brackets: 95 % interval. In one class: the share of the commonest answer, "
        "clean / the most under attack; a network that always says one thing cannot be fooled.",
    )


def _ends(groups: Mapping[str, Group]) -> StudyTable:
    """Whether PGD was the end of it."""
    rows = []
    for group in groups.values():
        for name, one in group.items():
            judged = one.judged
            pairs = len(judged.fell) * len(judged.truth)
            by = {each: sum(judged.beyond(size, each) for size in judged.fell) for each in _attacks(judged)}
            auto = sum(count for each, count in by.items() if each.startswith("apgd"))
            stood = sum(sum(judged.stands(size)) for size in judged.fell)
            rows.append(
                (
                    title_of(name, one) if group is groups["keyword"] else f"images: {name}",
                    f"{by.get(PGD, 0)}",
                    f"{auto}",
                    f"{by.get(SEARCH, 0)}",
                    f"{stood} of {pairs}",
                    percent(judged.flat),
                )
            )
    return StudyTable(
        title="Who fooled it: clips, all sizes together",
        columns=("network", "PGD", "then AutoPGD", "then the search", "stood", "gradient zero, %"),
        rows=rows,
        note="Where AutoPGD or a search without gradients fools many clips that PGD did not, gradients are "
        "masked, and PGD's accuracy says little. Gradient zero: clean clips whose loss has none.",
    )


def _printed() -> StudyTable:
    return StudyTable(
        title="Table 3.1 as printed",
        columns=("network", "method", "gone, %", "clean", "mean", "mean of the six", *SIZES),
        rows=[
            (
                row.network, row.method, as_printed(row.removed), as_printed(row.clean), as_printed(row.mean),
                f"{row.own_mean:.1f}", *map(as_printed, row.robust),
            )
            for row in TABLE_3_1
        ],
        note=" ".join(ERRORS),
    )  # fmt: skip


def difference(
    one: JudgedNetwork,
    other: JudgedNetwork,
    attacks: Sequence[str] | None,
    sizes: Sequence[str] | None = None,
) -> Interval:
    """Accuracy of a network less that of another on the same clips, over some sizes; None: those of
    the mean."""
    wanted = _counted(one) if sizes is None else list(sizes)

    def parts(judged: JudgedNetwork) -> list[tuple[int, int]]:
        stood = [judged.stands(size, attacks) for size in wanted]
        return [(sum(each), len(wanted)) for each in zip(*stood, strict=True)]

    return ratio_difference(parts(one), parts(other))


def _clean_difference(one: JudgedNetwork, other: JudgedNetwork) -> Interval:
    def parts(judged: JudgedNetwork) -> list[tuple[int, int]]:
        return [(int(said == meant), 1) for said, meant in zip(judged.said, judged.truth, strict=True)]

    return ratio_difference(parts(one), parts(other))


def _answer(claim: str, found: Interval, unit: str = "points") -> Trend:
    """A claim that a difference is above zero: yes where its interval is, not known where its value alone."""
    answered = higher(claim, found, unit)
    return answered._replace(holds=None) if found.value > 0 and not found.low > 0 else answered


def _keyword_trends(group: Group) -> list[Trend]:
    plain = group[PLAIN].judged
    trends = []
    for name, one in group.items():
        if one.removed:
            for told, attacks in (("PGD", ALONE), ("the strongest attack", None)):
                claim = f"keyword, {title_of(name, one)}: holds better than the plain one under {told}"
                trends.append(_answer(claim, difference(one.judged, plain, attacks), "points, all sizes"))
    least = next(one for one in group.values() if one.removed)
    claim = "keyword: pruning (the mildest) holds better than PGD training under the strongest attack"
    return [
        *trends,
        _answer(claim, difference(least.judged, group[HARDENED].judged, None), "points, all sizes"),
    ]


def _image_trends(networks: Mapping[str, Group]) -> list[Trend]:
    trends = []
    for network, group in networks.items():
        judged = {name: one.judged for name, one in group.items()}
        for told, attacks in (("PGD", ALONE), ("the strongest attack", None)):
            for method in (COMPRESSED, FURTHER):
                claim = f"images, {network}: {method} holds better than plain under {told} (17.7 against 1.3)"
                found = difference(judged[method], judged[NONE], attacks)
                trends.append(_answer(claim, found, "points, mean of six sizes"))
        pruned = judged[COMPRESSED]
        claim = f"images, {network}: compressed holds better than plain at smaller sizes (not in the thesis)"
        trends.append(_answer(claim, difference(pruned, judged[NONE], None, SMALLER)))
        for told, sizes, sign in (("largest", LARGE, 1), ("smallest", SMALL, -1)):
            for method in (TRAINED, SMOOTHED):
                pair = (pruned, judged[method]) if sign > 0 else (judged[method], pruned)
                found = difference(*pair, None, sizes)
                claim = (
                    f"images, {network}: at the {told} sizes compressed holds "
                    f"{'better' if sign > 0 else 'worse'} than {method}, strongest attack"
                )
                trends.append(_answer(claim, found))
        claim = f"images, {network}: compressed is better on clean images than {TRAINED} (85.6 against 74.9)"
        trends.append(_answer(claim, _clean_difference(pruned, judged[TRAINED])))
        trends.append(_hardly_falls(network, pruned))
    return trends


def _hardly_falls(network: str, pruned: JudgedNetwork) -> Trend:
    """Of 20.0 at 4/255 the thesis has 13.3 at 16/255."""
    first, last = (pruned.accuracy(size, ALONE) for size in (SMALL[0], LARGE[0]))
    claim = f"images, {network}: compressed, PGD from 4/255 to 16/255 costs less than half (20.0 to 13.3)"
    holds = None if not first.value else last.value > first.value / 2
    return Trend(claim, holds, f"{percent(first.value)} to {percent(last.value)} %")


def _line(judged: JudgedNetwork, sizes: Sequence[str]) -> tuple[list[str], list[float], list[float]]:
    clean = 100 * judged.clean.value
    return (
        ["none", *(size.split()[1] for size in sizes)],
        [clean, *(100 * judged.accuracy(size).value for size in sizes)],
        [clean, *(100 * judged.accuracy(size, ALONE).value for size in sizes)],
    )


def _keyword_figure(group: Group) -> Any:
    def lines(wanted: Sequence[str]) -> dict[str, Any]:
        found = {}
        for name in wanted:
            judged = group[name].judged
            sizes = list(judged.fell)
            found[title_of(name, group[name])] = _line(judged, sizes)
        return found

    pruned = [name for name, one in group.items() if one.removed]
    hardened = [name for name, one in group.items() if not one.removed]
    return twin_curves(
        {
            "L-infinity radius, pruned": lines([PLAIN, *pruned]),
            "L-infinity radius, hardened": lines(hardened),
        },
        label="accuracy, %",
        told=("strongest attack", "PGD alone"),
    )


def _image_figure(group: Group) -> Any:
    panels = {}
    for norm, across in (("Linf", "L-infinity radius"), ("L2", "L2 radius, as for 32x32")):
        sizes = [size for size in (*SMALLER, *SIZES) if size.startswith(norm)]
        panels[across] = {name: _line(one.judged, sizes) for name, one in group.items()}
    return twin_curves(panels, label="accuracy, %", told=("strongest attack", "PGD alone"))


def _no_gain(values: Mapping[str, Any]) -> bool:
    """Whether no pruned network of images keeps three points more than the plain one, as a mean of six."""
    return all(
        group[method]["mean"]["strongest"] < group[NONE]["mean"]["strongest"] + 0.03
        for group in values["images"].values()
        for method in (COMPRESSED, FURTHER)
    )


def _nothing_masked(values: Mapping[str, Any]) -> bool:
    """Whether the attacks after PGD took next to nothing from pruned networks of images."""
    return all(
        group[method]["mean"]["pgd"] - group[method]["mean"]["strongest"] < 0.01
        for group in values["images"].values()
        for method in (COMPRESSED, FURTHER)
    )


READINGS = (
    Reading(
        text="**Pruning made nothing robust here.** At the thesis's six sizes the compressed network keeps "
        "a mean of {images[small][compressed][percent][strongest]:.1f} %, the plain one "
        "{images[small][none][percent][strongest]:.1f} %; the one trained on adversarial examples "
        "keeps {images[small][adversarial training][percent][strongest]:.1f} %. The thesis has 17.7 "
        "against 1.3 % for VGG16, under PGD alone.",
        when=lambda values: "small" in values["images"] and _no_gain(values),
    ),
    Reading(
        text="The compressed network lost {images[small][compressed][percent][removed]:.1f} % of its "
        "weights within five points of validation accuracy; "
        "{images[small][compressed][clean]:percent} % of its answers to clean images are right, of "
        "the plain one's {images[small][none][clean]:percent} %. With {images[small][compressed "
        "further][percent][removed]:.1f} % gone it is {images[small][compressed "
        "further][clean]:percent} %.",
        when=lambda values: "small" in values["images"],
    ),
    Reading(
        text="At the thesis's sizes AutoPGD and the search without gradients fooled next to nothing more "
        "than PGD; below them AutoPGD took a few points, from the plain network as from the pruned "
        "ones. Gradients are not masked, and no network says one class to everything: there was no "
        "false robustness to take back either. Table 3.1's own pattern, accuracy that hardly falls "
        "from 4/255 to 16/255 (20.0, 17.4, 13.3), cannot be checked on its networks, which are not "
        "published; it is what masked gradients or a constant class look like.",
        when=lambda values: "small" in values["images"] and _no_gain(values) and _nothing_masked(values),
    ),
    Reading(
        text="The keyword model with {keyword[halved-1][percent][removed]:.0f} % of its weights gone gets "
        "{keyword[halved-1][clean]:percent} % of clean words (plain: "
        "{keyword[plain][clean]:percent}), with {keyword[halved-2][percent][removed]:.0f} % gone "
        "{keyword[halved-2][clean]:percent}. At a radius of 0.0001, three steps of 16 bits, the plain "
        "model keeps {keyword[plain][sizes][Linf 0.0001][strongest]:percent} %, the pruned ones "
        "{keyword[halved-1][sizes][Linf 0.0001][strongest]:percent} and "
        "{keyword[halved-2][sizes][Linf 0.0001][strongest]:percent}; the one trained on PGD keeps "
        "{keyword[pgd][sizes][Linf 0.0001][strongest]:percent} %.",
        figure="keyword",
    ),
    Reading(
        text="Networks, images and recipes are smaller than the thesis's: the small network had far less "
        "to spare than a VGG16, and one seed was trained.",
        when=lambda values: "small" in values["images"],
    ),
)

STUDY = Study(
    id="O3",
    title="Redundant features eliminated",
    paper="Olivier's thesis (2023), section 3.6, Table 3.1",
    reports="a VGG16 without 87.7 % of its weights, trained on clean images alone, keeps 17.7 % accuracy "
    "under PGD (mean of six sizes) where the plain one keeps 1.3 %",
    open=open_bench,
    run=run,
    readings=READINGS,
)
