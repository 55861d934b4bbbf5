"""Recognisers and their defenses under attack: Tables 7.2, E.1 and E.2, and the curves of Fig. 7.1."""

from __future__ import annotations

from collections.abc import Mapping

from sottovoce.auditing.plan.plan_file import Cell
from sottovoce.core.record import Record
from sottovoce.core.statistics import Interval
from sottovoce.studies.olivier2023.defense_tables import SNRS_DB, TABLE_7_2, TABLE_E_1, TABLE_E_2
from sottovoce.studies.olivier2023.runs.defense_plans import MATCHED, MP3, NONE, sigmas, walls
from sottovoce.studies.olivier2023.runs.recogniser_figures import crossing_db, forced_wer, found
from sottovoce.studies.olivier2023.runs.recogniser_setup import AsrSetup
from sottovoce.studies.shown_numbers import MISSING, as_printed, db_interval, percent_interval
from sottovoce.studies.study import StudyTable
from sottovoce.studies.trends import Trend, at_least

HALF = 0.5
BARE, COMPRESSED, AUGMENTED = (0.0, "bare"), (0.0, "MP3 compression"), (0.0, "AUG")
SHELF, TRAINED = "RS + ASNR + ROVER", "RS + AUG + ROVER"
Key = tuple[float, str]
"""A row of Table E.2: sigma (0 where there is no noise), and its name."""
Cells = list[tuple[Cell, list[Record]]]


def keys(bench: AsrSetup) -> list[Key]:
    """The rows of Table E.2 in its order, at the deviations that these clips call for."""
    names = ("RS", "RS + AUG", "RS + ASNR", "RS + ROVER", TRAINED, SHELF)
    return [
        BARE,
        COMPRESSED,
        AUGMENTED,
        *((sigma, name) for sigma in sigmas(bench.on_strings) for name in names),
    ]


def title(key: Key) -> str:
    sigma, name = key
    return f"{name} ({sigma:g})" if sigma else name


def papers(key: Key) -> list[Key]:
    """The thesis's rows beside ours."""
    sigma, name = key
    if key == BARE:
        return [(0.0, "DeepSpeech2")]
    if key == AUGMENTED:
        return [(0.01, name), (0.02, name)]
    return [(MATCHED.get(sigma, sigma), name)]


def row_cells(bench: AsrSetup, key: Key, attack: str) -> Cells:
    """The cells of a row under `pgd` or `cw`, from the largest SNR on; none where it was not run."""
    sigma, name = key
    run, defense = attack, NONE
    if key == COMPRESSED:
        run, defense = f"{attack}-mp3", MP3
    elif key == AUGMENTED:
        run = f"{attack}-trained"
    elif key != BARE:
        defense = walls(sigma)[name]
        ending = {SHELF: "", TRAINED: "-trained", "RS + AUG": "-parts-trained"}
        run = attack + ending.get(name, "-parts")
    named = {"pgd": "pgd", "cw": "cw-asr"}[attack]
    return [(cell, records) for cell, records in bench.cells(run, named, defense) if records]


def curve(cells: Cells) -> tuple[list[float], list[float]]:
    known = points(cells)
    return [snr for snr, _ in known], [100 * wer for _, wer in known]


def points(cells: Cells) -> list[tuple[float, float]]:
    pairs = [(float(cell.budget.settings["db"]), found(records, "wer")) for cell, records in cells]
    return sorted((snr, wer.value) for snr, wer in pairs if wer)


def forced_sheet(bench: AsrSetup) -> StudyTable:
    named = {"Vanilla": BARE, "MP3 compression": COMPRESSED}
    for sigma in sigmas(bench.on_strings):
        paper = f"({MATCHED.get(sigma, sigma):g})".replace("0.", ".")
        named |= {f"Trained {paper}": (sigma, TRAINED), f"Off-the-shelf {paper}": (sigma, SHELF)}
    rows = []
    for name, key in named.items():
        paper_row = TABLE_7_2[name]
        cells = row_cells(bench, key, "cw")
        cell, records = cells[0] if cells else (None, [])
        rows.append(
            (
                title(key),
                percent_interval(found(records, "clean-wer")),
                as_printed(paper_row.clean),
                percent_interval(found(records, "wer")),
                as_printed(paper_row.truth),
                percent_interval(forced_wer(cell, records) if cell else None),
                as_printed(paper_row.target),
                db_interval(found(records, "snr")),
                as_printed(paper_row.snr_db),
                percent_interval(found(records, "success")),
                str(len(records)),
            )
        )
    return StudyTable(
        title="Texts that are forced, WER in % (Table 7.2)",
        columns=(
            "defense", "clean", "paper", "to the truth", "paper", "to the target", "paper", "SNR, dB",
            "paper", "texts forced, %", "clips",
        ),
        rows=rows,
        note="SNR over all clips: of the quietest example that forces its text, else of the closest attempt. "
        "If few texts are forced, it does not show what SNR forcing takes.",
    )  # fmt: skip


def attacked_sheet(bench: AsrSetup) -> StudyTable:
    rows = []
    for key in keys(bench):
        rows += [_attacked(bench, key)] if row_cells(bench, key, "pgd") or row_cells(bench, key, "cw") else []
        for paper in papers(key):
            row = TABLE_E_2[paper]
            numbers = (row.clean, *row.pgd, row.truth, row.target, row.snr_db)
            rows.append((f"paper: {title(paper)}", *map(as_printed, numbers), MISSING))
    return StudyTable(
        title="WER under attack, % (Table E.2)",
        columns=(
            "defense", "clean", *(f"PGD {level} dB" for level in SNRS_DB), "forced: to the truth",
            "forced: to the target", "forced: SNR, dB", "clips",
        ),
        rows=rows,
        note="Brackets: 95 % interval over clips, over speakers where there are five or more.",
    )  # fmt: skip


def _attacked(bench: AsrSetup, key: Key) -> tuple[str, ...]:
    pgd, forced = row_cells(bench, key, "pgd"), row_cells(bench, key, "cw")
    wers = {float(cell.budget.settings["db"]): found(records, "wer") for cell, records in pgd}
    cell, records = forced[0] if forced else (None, [])
    first = pgd[0][1] if pgd else records
    return (
        f"here: {title(key)}",
        percent_interval(found(first, "clean-wer")),
        *(percent_interval(wers.get(level)) for level in SNRS_DB),
        percent_interval(found(records, "wer")),
        percent_interval(forced_wer(cell, records) if cell else None),
        db_interval(found(records, "snr")),
        str(len(first)),
    )


def used_sheet(rows: Mapping[str, Cells]) -> StudyTable:
    """How much of its budget PGD used: too few steps end short of the edge, and a row that they attack in
    vain looks more robust than it is."""
    lines = []
    for name, cells in rows.items():
        used = {float(cell.budget.settings["db"]): found(records, "snr") for cell, records in cells}
        lines.append((name, *(_level(used.get(level)) for level in SNRS_DB)))
    return StudyTable(
        title="SNR that PGD reached, dB",
        columns=("defense", *(f"asked: {level} dB" for level in SNRS_DB)),
        rows=lines,
        note="Mean over clips. Steps in random directions add up to less than steps that agree: if the SNR "
        "is above the requested one, more steps would help.",
    )


def _level(snr: Interval | None) -> str:
    return MISSING if snr is None else f"{snr.value:.1f}"


def unaware_sheet(bench: AsrSetup) -> StudyTable:
    sigma, rows = sigmas(bench.on_strings)[-1], []
    for name, suffix in ((SHELF, ""), (TRAINED, "-trained")):
        lines = {
            "16 passes": row_cells(bench, (sigma, name), "pgd"),
            "one pass": bench.cells(f"one-pass{suffix}", "pgd"),
            "from the bare model": bench.cells(f"transfer{suffix}", "pgd"),
        }
        for line, cells in lines.items():
            if not any(records for _, records in cells):
                continue
            wers = {float(cell.budget.settings["db"]): found(records, "wer") for cell, records in cells}
            each = [percent_interval(wers.get(level)) for level in SNRS_DB]
            rows.append((f"here: {title((sigma, name))}", line, *each))
    for line, answer in (("one pass", "No"), ("16 passes", "Yes")):
        rows.append(("paper", line, *map(as_printed, TABLE_E_1[answer])))
    return StudyTable(
        title="WER by what the attack knows, % (Table E.1)",
        columns=("defense", "gradients", *(f"PGD {level} dB" for level in SNRS_DB)),
        rows=rows,
    )


def louder(bench: AsrSetup, key: Key) -> Trend:
    """Whether an attacker who wants half of the words wrong must be louder than against the bare model."""
    claim = f"{title(key)}: a WER of 50 % takes a louder attack than on the bare model"
    bare, defended = (points(row_cells(bench, one, "pgd")) for one in (BARE, key))
    if not bare or not defended:
        return Trend(claim, None, "not run")
    edge = (max(bare[0][0], defended[0][0]), min(bare[-1][0], defended[-1][0]))
    before, after = crossing_db(bare, HALF), crossing_db(defended, HALF)
    numbers = f"bare {at_least(before, edge)}, defended {at_least(after, edge)}"
    if before == after:
        return Trend(claim, None, f"{numbers}: undecided with the sizes that were run")
    return Trend(claim, loudness(after) > loudness(before), numbers)


def loudness(db: float | None) -> float:
    """How loud an attack at that SNR is; one that was not found is louder than all."""
    return float("inf") if db is None else -db
