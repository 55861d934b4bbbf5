"""Tables and trends of study A, the paper's values beside ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sottovoce.studies.amiri2024 import job_plan as plans
from sottovoce.studies.amiri2024.amiri_tables import TABLE_1, TABLE_2
from sottovoce.studies.amiri2024.attack_quality import JUDGES
from sottovoce.studies.amiri2024.attack_quality_sheets import DIGITS
from sottovoce.studies.amiri2024.clinic_options import HEARD, Option, certified_curves, strongest
from sottovoce.studies.amiri2024.detector_attacks import BITS, CLEAN, cell
from sottovoce.studies.amiri2024.job_plan import CLAIMED_DB, NOISES, OPTION_LEVELS_DB
from sottovoce.studies.amiri2024.job_results import PathologySetup, SpeakerAccuracy, share_above
from sottovoce.studies.shown_numbers import MISSING, percent, percent_interval
from sottovoce.studies.study import StudyTable
from sottovoce.studies.trends import Trend, trend_sheet

EDGE_HZ = 4000.0
SPREAD = "Mean ± deviation over seeds; brackets: 95 % interval over speakers."
SERIES: dict[str, tuple[str, Callable[[int], str]]] = {
    "CNN, segments": (plans.CNN, lambda db: cell("segments", db)),
    "CNN, segments, 16 bits": (plans.CNN, lambda db: cell("segments", db, bits=BITS)),
    "CNN, whole utterances": (plans.CNN, lambda db: cell("utterances", db)),
    "CNN, whole utterances, 16 bits": (plans.CNN, lambda db: cell("utterances", db, bits=BITS)),
    "embeddings": (plans.EMBEDDING, lambda db: cell("utterances", db)),
    "embeddings, 16 bits": (plans.EMBEDDING, lambda db: cell("utterances", db, bits=BITS)),
}
"""Curves of Fig. 1, by the kind of job and the name of the cell at an SNR."""
HARDENED: dict[str, tuple[str, Callable[[int], str]]] = {
    "CNN": (plans.CNN, lambda db: cell("segments", db)),
    "CNN-A": (plans.ADVERSARIAL, lambda db: cell("segments", db)),
}
"""Those of Fig. 4."""
SPECTRA = {
    "CNN, segments": (plans.CNN, "segments"),
    "CNN, whole utterances": (plans.CNN, "utterances"),
    "embeddings": (plans.EMBEDDING, "utterances"),
}


def labelled(sheets: Sequence[StudyTable], label: str) -> list[StudyTable]:
    """Every table says what the data are."""
    return [replace(one, note=f"{label}. {one.note}".rstrip()) for one in sheets]


def table_1(bench: PathologySetup) -> StudyTable:
    names = {plans.CNN: "CNN", plans.EMBEDDING: f"embeddings, {bench.setting.encoder_title}"}
    return StudyTable(
        title="Speaker-level accuracy on clean speech, % (Table 1)",
        columns=("detector", "accuracy", "paper", "interval", "seeds", "speakers"),
        rows=[
            (name, spread(one), str(TABLE_1[kind]), percent_interval(one and one.interval), *_counts(one))
            for kind, name in names.items()
            for one in (bench.accuracy(kind, CLEAN),)
        ],
        note=f"{SPREAD} Chance: {percent(bench.chance)} %.",
    )


def levels(
    bench: PathologySetup, series: dict[str, tuple[str, Callable[[int], str]]], title: str
) -> StudyTable:
    """Accuracies by SNR."""
    seeds = bench.shared_seeds(kind for kind, _ in series.values())
    rows = [("clean", *(spread(bench.accuracy(kind, CLEAN, seeds)) for kind, _ in series.values()), MISSING)]
    for db in sorted(bench.setting.plan.levels_db, reverse=True):
        each = [spread(bench.accuracy(kind, make(db), seeds)) for kind, make in series.values()]
        reached = [bench.least_snr(kind, make(db), seeds) for kind, make in series.values()]
        least = min((one for one in reached if one is not None), default=None)
        rows.append((f"{db} dB", *each, MISSING if least is None else f"{least:.2f}"))
    return StudyTable(
        title=title,
        columns=("SNR", *series, "least SNR, dB"),
        rows=rows,
        note=f"PGD-10, each SNR attacked by itself. {SPREAD.partition(';')[0]}. Least SNR: the lowest that "
        "was measured on any clip or segment of the row, silent ones left out.",
    )


def quality(bench: PathologySetup) -> StudyTable:
    rows = []
    for kind, name in ((plans.CNN, "CNN, whole utterances"), (plans.EMBEDDING, "embeddings")):
        for db in sorted(bench.setting.plan.levels_db, reverse=True):
            each = [bench.measured(kind, cell("utterances", db), judge.id) for judge in JUDGES]
            count = max((one.n for one in each if one), default=0)
            shown = [
                MISSING if one is None else f"{one.value:.{DIGITS[judge.id]}f}"
                for judge, one in zip(JUDGES, each, strict=True)
            ]
            rows.append((f"{name}, {db} dB", *shown, str(count)))
    return StudyTable(
        title="Audibility of the attacks by SNR (Fig. 2)",
        columns=("attack", *(one.title for one in JUDGES), "clips"),
        rows=rows,
        note="In floats. Equal clips read STOI 1, PESQ 4.6, CD 0 and fwSSNR 35 dB, which is what the paper "
        "reports from 60 dB on. P(heard) is predicted by a model; no listening test was made.",
    )


def places(bench: PathologySetup) -> StudyTable:
    rows = []
    for name, (kind, how) in SPECTRA.items():
        found = bench.psd(kind, how)
        if found is not None:
            speech, added = (percent(share_above(one, EDGE_HZ)) for one in found)
            rows.append((name, added, speech))
    return StudyTable(
        title="Power above 4 kHz at 60 dB, % (Fig. 3)",
        columns=("attack on", "of the perturbation", "of clean speech"),
        rows=rows,
        note="Of white noise it would be 50 %. Welch's estimate, mean over clips.",
    )


def table_2(bench: PathologySetup) -> StudyTable:
    rows = []
    for name in NOISES:
        kind, (noisy, attacked) = f"noise-{name}", TABLE_2[name]
        rows.append(
            (
                f"{name} (stand-in)",
                spread(bench.accuracy(kind, "noisy")),
                str(noisy),
                spread(bench.accuracy(kind, cell("segments", CLAIMED_DB))),
                str(attacked),
                spread(bench.accuracy(kind, cell("segments", CLAIMED_DB, bits=BITS))),
                spread(bench.accuracy(kind, CLEAN)),
            )
        )
    return StudyTable(
        title="CNN trained on noisy speech at 15 dB, speaker-level accuracy, % (Table 2)",
        columns=("noise", "noisy", "paper", "attacked, 60 dB", "paper", "as 16-bit files", "clean speech"),
        rows=rows,
        note="Noises are synthesised stand-ins for the paper's recordings of the same names (QUT-NOISE). "
        "Test clips have the same noise as the training clips; segments are attacked. "
        f"{SPREAD.partition(';')[0]}.",
    )


def options_sheet(bench: PathologySetup, options: Sequence[Option]) -> StudyTable:
    rows = []
    for one in options:
        known = {attack.db: attack for attack in one.attacked}
        rows.append(
            (
                one.title,
                percent(one.clean.mean),
                *(percent(known[db].left.mean) if db in known else MISSING for db in OPTION_LEVELS_DB),
                " / ".join(_heard(known[db].heard) if db in known else MISSING for db in OPTION_LEVELS_DB),
                MISSING if one.certified is None else percent(one.certified[CLAIMED_DB]),
                MISSING if one.radius is None else f"{one.radius:.3g}",
                str(one.passes),
                str(one.clean.interval.n),
            )
        )
    return StudyTable(
        title="Options for a clinic: speaker-level accuracy under the strongest attack, %",
        columns=(
            "option", "clean", *(f"{db} dB" for db in OPTION_LEVELS_DB), "P(heard), 60 / 40 / 20 dB",
            "certified at 60 dB", "certified radius", "passes", "speakers",
        ),
        rows=rows,
        note="Each attack finds one waveform. Each speaker counts under the attack that lowers the right "
        "answer most, at that SNR or a higher one: through the defense (gradients are means over passes) or "
        "made on the plain CNN, in any of the balls tried, in floats or as a file. Behind noise the same "
        "votes select and judge, which biases accuracy slightly downwards. P(heard): the highest of the "
        "selected "
        f"attacks, by the more sensitive of two models of hearing; from {HEARD:g} on an attack counts as "
        "heard. Certified "
        "radius: L2 at which half of the speakers are certified.",
    )  # fmt: skip


def verdicts(options: Sequence[Option]) -> StudyTable:
    return StudyTable(
        title="Verdicts from these numbers",
        columns=("option", "verdict"),
        rows=[(one.title, one.verdict()) for one in options],
        note=recommend(options) or "",
    )


def recommend(options: Sequence[Option]) -> str | None:
    """Which option keeps most under attacks that are not heard."""
    useful = [one for one in options if one.clean.mean > one.chance and one.worst_unheard is not None]
    if not useful:
        return None

    def kept(one: Option) -> tuple[float, float]:
        worst = one.worst_unheard
        return (worst.left.mean if worst else 0.0, one.clean.mean)

    best = max(useful, key=kept)
    share, clean = kept(best)
    if share <= best.chance:
        return "None of the options that were attacked is robust against inaudible attacks."
    return (
        f"Most robust of these against inaudible attacks: {best.title} ({100 * share:.0f} %, "
        f"clean {100 * clean:.0f} %)."
    )


def certificates(bench: PathologySetup) -> StudyTable | None:
    rows = []
    shown = sorted({*OPTION_LEVELS_DB, *bench.setting.plan.levels_db}, reverse=True)
    for kind, name in (("gaussian", "CNN"), ("gaussian-trained", "CNN trained on the noise")):
        found = certified_curves(bench, kind)
        if found is not None:
            rows.append((name, *(percent(found[0][db]) for db in shown)))
    if not rows:
        return None
    return StudyTable(
        title=f"Speakers certified behind Gaussian noise of sigma {bench.setting.sigma:g}, % by SNR",
        columns=("detector", *(f"{db} dB" for db in shown)),
        rows=rows,
        note="Certified to be right for every perturbation of each of a speaker's clips at that SNR, with a "
        f"confidence of 99.9 % per clip; {bench.setting.plan.passes:,} passes per clip. Certificates are "
        "about "
        "the vote of infinitely many passes.",
    )


def trends(bench: PathologySetup) -> StudyTable:
    return trend_sheet([*_useful(bench), *_broken(bench), *_high(bench), *_hardened(bench), *_noisy(bench)])


def _useful(bench: PathologySetup) -> list[Trend]:
    rows = []
    for kind, name in ((plans.CNN, "CNN"), (plans.EMBEDDING, "embeddings")):
        claim = f"{name}: clean accuracy is useful (above chance)"
        rows.append(_beside_chance(claim, bench.accuracy(kind, CLEAN), bench.chance, above=True))
    one, other = (bench.accuracy(kind, CLEAN) for kind in (plans.EMBEDDING, plans.CNN))
    rows.append(_compare("embeddings beat the CNN on clean speech", one, other, higher=True))
    tough, weak = (
        _mean([bench.accuracy(kind, cell(how, db)) for db in bench.setting.plan.levels_db])
        for kind, how in ((plans.EMBEDDING, "utterances"), (plans.CNN, "segments"))
    )
    claim = "embeddings withstand attacks better than the CNN, mean over all SNRs"
    known = tough is not None and weak is not None
    numbers = f"{100 * (tough or 0):.1f} and {100 * (weak or 0):.1f} %" if known else "not run"
    return [*rows, Trend(claim, (tough or 0) > (weak or 0) if known else None, numbers)]


def _broken(bench: PathologySetup) -> list[Trend]:
    rows = []
    for name, (kind, make) in SERIES.items():
        one = bench.accuracy(kind, make(CLAIMED_DB))
        trend = _beside_chance(f"{name}: below chance at {CLAIMED_DB} dB", one, bench.chance, above=False)
        below = [db for db, found in bench.levels(kind, make).items() if found.mean < bench.chance]
        since = f"below chance from {max(below)} dB down" if below else "not below chance at any SNR tried"
        trend = trend if one is None else trend._replace(numbers=f"{trend.numbers}; {since}")
        rows.append(_if_useful(trend, bench.accuracy(kind, CLEAN), bench.chance))
    return rows


def _high(bench: PathologySetup) -> list[Trend]:
    rows = []
    for name, (kind, how) in SPECTRA.items():
        found = bench.psd(kind, how)
        claims = (
            f"{name}: perturbations have more of their power above 4 kHz than speech has",
            f"{name}: perturbations have more power above 4 kHz than below",
        )
        if found is None:
            rows += [Trend(claim, None, "not run") for claim in claims]
            continue
        speech, added = (share_above(one, EDGE_HZ) for one in found)
        rows.append(Trend(claims[0], added > speech, f"{100 * added:.0f} % and {100 * speech:.0f} %"))
        rows.append(Trend(claims[1], added > 0.5, f"{100 * added:.0f} %"))
    return rows


def _hardened(bench: PathologySetup) -> list[Trend]:
    seeds = bench.seeds(plans.ADVERSARIAL) if bench.of(plans.ADVERSARIAL) else []
    name = cell("segments", CLAIMED_DB)
    clean, plain = (bench.accuracy(kind, CLEAN, seeds) for kind in (plans.ADVERSARIAL, plans.CNN))
    hard, weak = (bench.accuracy(kind, name, seeds) for kind in (plans.ADVERSARIAL, plans.CNN))
    worst = strongest(bench, plans.ADVERSARIAL, CLAIMED_DB)
    return [
        _compare("CNN-A is worse than the CNN on clean speech", clean, plain, higher=False),
        _compare(f"CNN-A is better than the CNN at {CLAIMED_DB} dB", hard, weak, higher=True),
        *(
            _if_useful(_beside_chance(claim, left, bench.chance, above=False), clean, bench.chance)
            for claim, left in (
                (f"adversarial training is of little help: CNN-A below chance at {CLAIMED_DB} dB", hard),
                (
                    f"the same under the strongest attack on whole utterances at {CLAIMED_DB} dB",
                    worst.left if worst else None,
                ),
            )
        ),
    ]


def _noisy(bench: PathologySetup) -> list[Trend]:
    kinds = [f"noise-{name}" for name in NOISES]
    left = [one for kind in kinds if (one := bench.accuracy(kind, cell("segments", CLAIMED_DB)))]
    noisy = [one for kind in kinds if (one := bench.accuracy(kind, "noisy"))]
    plain = bench.accuracy(plans.CNN, CLEAN, bench.seeds(kinds[0])) if bench.of(kinds[0]) else None
    first = f"training on noise is no help: below chance at {CLAIMED_DB} dB for every noise"
    second = "noisy speech is classified worse than clean speech, mean over noises"
    if not left or not noisy or plain is None:
        return [Trend(first, None, "not run"), Trend(second, None, "not run")]
    most, mean = max(one.mean for one in left), sum(one.mean for one in noisy) / len(noisy)
    return [
        Trend(first, most < bench.chance, f"at most {100 * most:.1f} %, {len(left)} noises"),
        Trend(second, mean < plain.mean, f"{100 * mean:.1f} and {100 * plain.mean:.1f} %"),
    ]


def _beside_chance(claim: str, one: SpeakerAccuracy | None, chance: float, *, above: bool) -> Trend:
    if one is None:
        return Trend(claim, None, "not run")
    holds = one.mean > chance if above else one.mean < chance
    return Trend(claim, holds, f"{percent_interval(one.interval)} %, chance {100 * chance:.0f} %")


def _if_useful(trend: Trend, clean: SpeakerAccuracy | None, chance: float) -> Trend:
    """What was no better than chance before the attack tells nothing by being below it afterwards."""
    if trend.holds is None or (clean is not None and clean.mean > chance):
        return trend
    return trend._replace(holds=None, numbers=f"{trend.numbers}; clean speech is no better than chance")


def _compare(
    claim: str, one: SpeakerAccuracy | None, other: SpeakerAccuracy | None, *, higher: bool
) -> Trend:
    if one is None or other is None:
        return Trend(claim, None, "not run")
    holds = one.mean > other.mean if higher else one.mean < other.mean
    return Trend(
        claim, holds, f"{100 * one.mean:.1f} and {100 * other.mean:.1f} %, {one.interval.n} speakers"
    )


def _mean(found: Sequence[SpeakerAccuracy | None]) -> float | None:
    known = [one.mean for one in found if one is not None]
    return sum(known) / len(known) if known else None


def _heard(heard: dict[str, float]) -> str:
    return f"{max(heard.values()):.2f}" if heard else MISSING


def spread(one: SpeakerAccuracy | None) -> str:
    if one is None:
        return MISSING
    return f"{100 * one.mean:.1f} ± {100 * one.deviation:.1f}" if one.seeds > 1 else f"{100 * one.mean:.1f}"


def _counts(one: SpeakerAccuracy | None) -> tuple[str, str]:
    return (MISSING, MISSING) if one is None else (str(one.seeds), str(one.interval.n))
