"""What of a run is handed on, its records, reports and claims, holds no path of the machine it came from.

The plan and `about.json` keep what was typed, because going on with a run needs it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from sottovoce.auditing.run.corpus_manifest import data_root
from sottovoce.core.files.private_paths import find_roots, hide_all, hide_paths
from sottovoce.core.record import Record


def roots_of(*data: str | None) -> tuple[str, ...]:
    """The folders that paths count from: those of clips, as a plan names them."""
    found: list[Path] = []
    for text in data:
        # What is no path at all, or too long for one, is no folder either.
        with suppress(OSError, ValueError):
            found += [data_root(text)] if text and "://" not in text else []
    return find_roots(*found)


def without_paths(record: Record, roots: tuple[str, ...]) -> Record:
    """A record whose remarks count paths from the data's root."""
    texts = (record.reason, record.loaded, *record.facts.values(), *record.unscored.values())
    if not any("/" in text or "\\" in text for text in texts):
        return record
    return replace(
        record,
        reason=hide_paths(record.reason, roots),
        loaded=hide_paths(record.loaded, roots),
        facts=hide_all(record.facts, roots),
        unscored=hide_all(record.unscored, roots),
    )
