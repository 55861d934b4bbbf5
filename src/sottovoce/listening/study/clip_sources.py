"""Where the clips of a new study come from: an audit's records, a folder, a table, or pairs to compare."""

from __future__ import annotations

import csv
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, final

from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.draws import Draws
from sottovoce.core.record import Record
from sottovoce.data.corpora import SUFFIXES, open_corpus
from sottovoce.errors import InputError, UnknownName
from sottovoce.listening.study.study_file import expand

CLEAN_FOLDERS = ("clean", "reference", "references", "original")
PAIRS, KEY = "pairs.csv", "key.csv"
SILENT = ("", "silence", "empty")
"""Labels of clips in which nothing is said."""
OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@final
@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A clip that could be heard, and what was made of it, where there is such.

    clip: its id. condition: how `changed` was made. facts: what else is known; values: what was measured.
    """

    clip: str
    clean: Path
    changed: Path | None = None
    condition: str = ""
    label: str = ""
    level: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)

    def look_up(self, name: str) -> str | float | None:
        """Whatever has this name: a field, a fact, a figure."""
        own: dict[str, str | float] = {**self.values, **self.facts, "clip": self.clip}
        own |= {"condition": self.condition, "label": self.label, "class": self.label}
        return self.level if name == "level" and self.level else own.get(name)

    def names(self) -> set[str]:
        return {"clip", "condition", "label", "class", "level", *self.facts, *self.values}


class ChoicePair(NamedTuple):
    """Two sounds of one reference, to choose from."""

    name: str
    reference: Path
    a: Path
    b: Path
    conditions: tuple[str, str] = ("", "")
    level: str = ""
    facts: Mapping[str, str] = {}


def read_run(path: str | Path, level: str = "intensity") -> list[Candidate]:
    """What an audit attacked and kept the audio of. level: the fact or figure that clips are tranched by."""
    folder = RunFolder(expand(path, "run"))
    folder.plan()
    found = [_of_record(folder.path, record, level) for record in folder.records() if _is_heard(record)]
    if not found:
        raise InputError(
            f"{path}: the run has no records with audio; run the audit with --audio all, and let it finish."
        )
    return found


def _is_heard(record: Record) -> bool:
    return record.status == "ok" and {"clean", "adversarial"} <= set(record.audio)


def _of_record(folder: Path, record: Record, level: str) -> Candidate:
    values = {
        name: parts[0] / parts[1]
        for name, parts in record.parts.items()
        if len(parts) == 2 and parts[1] and math.isfinite(parts[0])
    }
    facts = {
        **record.facts,
        "cell": record.cell,
        "success": "yes" if record.achieved else "no",
        "right": "yes" if record.clean_text == record.label else "no",
    }
    made = Candidate(
        clip=record.clip,
        clean=folder / record.audio["clean"],
        changed=folder / record.audio["adversarial"],
        condition=record.cell,
        label=record.label,
        facts=facts,
        values=values,
    )
    tranche = made.look_up(level)
    if tranche is None:
        raise UnknownName("fact or figure", level, made.names())
    text = f"{tranche:.0f}" if isinstance(tranche, float) else tranche
    return Candidate(**{**vars(made), "level": text})


def read_clips(path: str | Path) -> list[Candidate] | list[ChoicePair]:
    """Clips that are not of an audit.

    A folder with pairs.csv, or such a file: pairs to compare, with the columns reference, a and b.
    A CSV with a column path, and reference, condition, level, label, id if wanted.
    A folder with clean/ in it: its other folders are conditions, files of one name belong together.
    A folder of class folders, or of files alone.
    """
    place = expand(path, "clips")
    if (place / PAIRS).is_file():
        return _read_pairs(place / PAIRS)
    if place.is_file() and place.suffix.lower() == ".csv":
        columns = set(_rows(place)[0])
        return _read_pairs(place) if {"reference", "a", "b"} <= columns else _read_table(place)
    if not place.is_dir():
        got = "another kind of file" if place.exists() else "a path that does not exist"
        raise InputError(f"{place}: expected a folder of clips or a .csv file, got {got}; check the path.")
    clean = next((place / name for name in CLEAN_FOLDERS if (place / name).is_dir()), None)
    if clean is not None:
        return list(_read_conditions(place, clean))
    loose = _audio_in(place)
    if loose:
        return [Candidate(clip=file.stem, clean=file) for file in loose]
    corpus = open_corpus(f"folder:{place}")
    return [Candidate(clip=entry.id, clean=entry.path, label=entry.label) for entry in corpus]


def _read_conditions(root: Path, clean: Path) -> Iterator[Candidate]:
    references = {file.relative_to(clean).with_suffix("").as_posix(): file for file in _audio_below(clean)}
    others = sorted(one for one in root.iterdir() if one.is_dir() and one != clean)
    for folder in others:
        for file in _audio_below(folder):
            name = file.relative_to(folder).with_suffix("").as_posix()
            if name not in references:
                raise InputError(
                    f"{file}: expected a clip of the same name in {clean.name}/, got none; add it there, or "
                    "delete this one."
                )
            label = name.partition("/")[0] if "/" in name else ""
            yield Candidate(
                clip=name, clean=references[name], changed=file, condition=folder.name, label=label
            )


def _read_table(path: Path) -> list[Candidate]:
    rows = _rows(path)
    if "path" not in rows[0]:
        raise InputError(
            f"{path}: expected a column path, or the columns reference, a and b, got {', '.join(rows[0])}; "
            "name them in the first line."
        )
    known = {"path", "reference", "condition", "level", "label", "id"}
    found = []
    for row in rows:
        file = _file(path, row["path"])
        reference = _file(path, row["reference"]) if row.get("reference") else None
        found.append(
            Candidate(
                clip=row.get("id") or (reference or file).stem,
                clean=reference or file,
                changed=file if reference else None,
                condition=row.get("condition") or (file.parent.name if reference else ""),
                label=row.get("label", ""),
                level=row.get("level", ""),
                facts={name: value for name, value in row.items() if name not in known and value},
            )
        )
    return found


def _read_pairs(path: Path) -> list[ChoicePair]:
    """Pairs by path, or by the names of files in audio/; what they are, key.csv beside them says."""
    told = {row["pair"]: row for row in _rows(path.with_name(KEY))} if path.with_name(KEY).is_file() else {}
    found = []
    for number, row in enumerate(_rows(path), start=1):
        name = row.get("pair") or f"pair-{number}"
        known = {**row, **told.get(name, {})}
        files = [_file(path, row[column]) for column in ("reference", "a", "b")]
        systems = [known.get(f"{side}_system") or known.get(f"{side}_condition", "") for side in ("a", "b")]
        if not any(systems):
            systems = [file.parent.name for file in files[1:]]
        level = known.get("level") or known.get("snr_db", "")
        facts = {key: known[key] for key in ("clip", "noise", "snr_db") if known.get(key)}
        found.append(ChoicePair(name, files[0], files[1], files[2], (systems[0], systems[1]), level, facts))
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            rows = [
                {str(key).strip(): (value or "").strip() for key, value in row.items() if key is not None}
                for row in reader
            ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: expected CSV in UTF-8 ({error}); save it in that encoding.") from None
    if not rows:
        raise InputError(
            f"{path}: expected a row for each clip or pair below the header, got none; add some."
        )
    return rows


def _file(table: Path, name: str) -> Path:
    """A path from the table's folder on, or the name of a file in audio/ beside it."""
    tried = [table.parent / name, *(table.parent / "audio" / f"{name}{suffix}" for suffix in SUFFIXES)]
    found = next((path for path in tried if name and path.is_file()), None)
    if found is None:
        raise InputError(f"{table}: expected files for all clips, got none for {name!r}; check the paths.")
    return found


def _audio_in(folder: Path) -> list[Path]:
    return sorted(one for one in folder.iterdir() if one.is_file() and one.suffix.lower() in SUFFIXES)


def _audio_below(folder: Path) -> list[Path]:
    return sorted(one for one in folder.rglob("*") if one.is_file() and one.suffix.lower() in SUFFIXES)


def keep(found: Sequence[Candidate], conditions: Iterable[str]) -> list[Candidate]:
    """Candidates that meet all conditions, such as "level=high", "snr>=30", "cell!=noise"."""
    kept = list(found)
    for condition in conditions:
        parts = re.fullmatch(r"\s*([^<>=!]+?)\s*(>=|<=|!=|=|>|<)\s*(.*?)\s*", condition)
        if parts is None:
            raise InputError(
                f"expected --where with a condition such as level=high or snr>=30, got {condition!r}."
            )
        name, sign, wanted = parts.groups()
        known = set[str]().union(*(one.names() for one in found))
        if name not in known:
            raise UnknownName("fact or figure", name, known)
        kept = [one for one in kept if _meets(one.look_up(name), sign, wanted)]
    if not kept:
        raise InputError(
            f"none of {len(found)} clips meets --where {' and '.join(conditions)}; drop or loosen a "
            "condition."
        )
    return kept


def _meets(value: str | float | None, sign: str, wanted: str) -> bool:
    if sign in OPERATORS:
        try:
            return value is not None and OPERATORS[sign](float(value), float(wanted))
        except ValueError:
            raise InputError(
                f"--where ...{sign}{wanted}: {sign} compares numbers, got {value!r} and {wanted!r}; compare "
                "texts with =."
            ) from None
    same = str(value) == wanted
    if isinstance(value, float):
        try:
            same = value == float(wanted)
        except ValueError:
            same = False
    return same == (sign == "=")


def leave_silence(found: Sequence[Candidate]) -> tuple[list[Candidate], int]:
    """Candidates in which something is said, and how many others there were.

    Some corpora have a class for silence, or clips whose transcript is empty. Where no clip has a label,
    nothing is known of any, and all stay.
    """
    said = [one for one in found if one.label.strip(" _").lower() not in SILENT]
    labelled = any(one.label for one in found)
    return (said, len(found) - len(said)) if labelled else (list(found), 0)


def take_turns(found: Sequence[Candidate], most: int, draws: Draws) -> list[Candidate]:
    """At most `most` candidates: new clips before known ones, then levels, labels and conditions in turn."""
    left = [found[place] for place in draws.generator("order").permutation(len(found)).tolist()]
    met = Counter[tuple[str, str]]()
    taken: list[Candidate] = []
    while left and len(taken) < most:
        best = min(left, key=lambda one: [met[mark] for mark in _marks(one)])
        left.remove(best)
        taken.append(best)
        met.update(_marks(best))
    return taken


def _marks(one: Candidate) -> list[tuple[str, str]]:
    return [("clip", one.clip), ("level", one.level), ("label", one.label), ("condition", one.condition)]
