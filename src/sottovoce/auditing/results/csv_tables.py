"""`summary.csv` and `trials.csv` of a run folder: the tidy rows, for spreadsheets and data frames.

A cell is the value itself: text as it was recorded, numbers with all digits, True and False. None and NaN are
empty. Nothing is put before a text that a spreadsheet would take for a formula, so that programs read back
what was said; `docs/reference.md` tells people how to open such files. As in reports, a model that is named
by a path of this machine is called by the end of that path.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.results.tidy_rows import SUMMARY_COLUMNS, TrialColumns, summary_rows
from sottovoce.auditing.run.hide_paths import roots_of
from sottovoce.auditing.run.run_folder import PART, RunFolder
from sottovoce.core.files.private_paths import hide_paths
from sottovoce.errors import StoreError

Rows = Iterable[Mapping[str, Any]]
SUMMARY, TRIALS = "summary.csv", "trials.csv"


def write_tables(plan: Plan, folder: RunFolder) -> None:
    """Write both files anew, unless nothing was recorded since."""
    paths = folder.path / SUMMARY, folder.path / TRIALS
    if not folder.records_path.exists() or all(_is_newer(path, folder.records_path) for path in paths):
        return
    columns = TrialColumns()
    summary = summarise(plan, columns.watch(folder.records()))
    _write(paths[0], SUMMARY_COLUMNS, _without_paths(plan, summary_rows(plan, summary)))
    _write(paths[1], columns.names(), _without_paths(plan, columns.rows(plan, folder.records())))


def csv_text(columns: Sequence[str], rows: Rows) -> str:
    """Rows as the text of a file."""
    file = StringIO()
    _fill(file, columns, rows)
    return file.getvalue()


def _without_paths(plan: Plan, rows: Rows) -> Iterator[dict[str, Any]]:
    """Rows whose cell, which the plan names, tells no path of this machine. Records hold none."""
    roots = roots_of(plan.data, plan.fit)
    hidden = cache(lambda text: text and hide_paths(text, roots))
    for row in rows:
        yield {**row, **{name: hidden(row[name]) for name in SUMMARY_COLUMNS[:6]}}


def _is_newer(path: Path, than: Path) -> bool:
    return path.exists() and path.stat().st_mtime_ns > than.stat().st_mtime_ns


def _write(path: Path, columns: Sequence[str], rows: Rows) -> None:
    """All of a file or, after a kill, nothing."""
    torn = path.with_name(f"{path.name}{PART}")
    try:
        with torn.open("w", newline="", encoding="utf-8") as file:
            _fill(file, columns, rows)
        torn.replace(path)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}; all trials are recorded: free some space and give the "
            "same command again."
        ) from None


def _fill(file: TextIO, columns: Sequence[str], rows: Rows) -> None:
    # Lines end as RFC 4180 has it. With another end the writer would not quote all line breaks in texts.
    writer = csv.DictWriter(file, columns)
    writer.writeheader()
    writer.writerows(rows)
