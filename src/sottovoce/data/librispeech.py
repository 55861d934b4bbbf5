"""LibriSpeech (Panayotov et al. 2015): read English with transcripts."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sottovoce.data.corpora import existing_folder, id_of, inventory, lhotse_module, of_lines
from sottovoce.data.load import Corpus, Entry
from sottovoce.errors import InputError

TABLE = "transcripts.tsv"
COLUMNS = ("path", "speaker", "sex", "seconds", "text")
ENDING = ".trans.txt"


def librispeech(path: str) -> Corpus:
    """Utterances with their transcripts as labels, their speakers, and the language "en".

    path is one of: the unpacked download or its `LibriSpeech` folder (every subset in it is taken), one
    subset such as `LibriSpeech/test-clean`, or a folder with a `transcripts.tsv` of the columns path,
    speaker, sex, seconds and text.
    """
    root = existing_folder(path)
    if (root / TABLE).is_file():
        return of_lines(root / TABLE, "librispeech", _table(root / TABLE))
    root = root / "LibriSpeech" if (root / "LibriSpeech").is_dir() else root
    subsets = _subsets(root)
    if not subsets:
        raise InputError(
            f"{root}: expected LibriSpeech (SUBSET/SPEAKER/CHAPTER/*{ENDING}) or a {TABLE}, got "
            f"{inventory(root)}; name the unpacked download, or one subset of it."
        )
    entries, absent = [], 0
    for subset in subsets:
        for entry in _utterances(subset):
            entries += [entry] if entry else []
            absent += entry is None
    note = f"subsets {', '.join(one.name for one in subsets)}" if len(subsets) > 1 else ""
    lost = f"{absent} transcripts without a file" if absent else ""
    name = f"librispeech-{subsets[0].name}" if len(subsets) == 1 else "librispeech"
    return Corpus(name, tuple(entries), "; ".join(filter(None, (note, lost))))


def _subsets(root: Path) -> list[Path]:
    """The folders above SPEAKER/CHAPTER, sorted."""
    if any(root.glob(f"*/*/*{ENDING}")):
        return [root]
    return sorted({file.parents[2] for file in root.glob(f"*/*/*/*{ENDING}")})


def _utterances(subset: Path) -> Iterator[Entry | None]:
    """An entry for each line of a transcript as lhotse reads it; None where the audio is not there."""
    recipe = lhotse_module("lhotse.recipes.librispeech")
    broken = lhotse_module("lhotse.audio.utils").AudioLoadingError
    for file in sorted(subset.glob(f"*/*/*{ENDING}")):
        for number, line in enumerate(file.read_text("utf-8").splitlines(), start=1):
            try:
                found = recipe.parse_utterance(subset, line, {})
            except ValueError as error:
                raise InputError(
                    f"{file}, line {number}: expected an id and a transcript, got {line!r}; correct that "
                    "line."
                ) from error
            except broken as error:
                raise InputError(
                    f"{file}, line {number}: expected a FLAC file that can be read, got one that cannot "
                    f"({line.split()[0]}); unpack it again or drop the line."
                ) from error
            yield _entry(*found) if found else None


def _entry(recording: Any, segment: Any) -> Entry:
    source = Path(recording.sources[0].source)
    return Entry(segment.id, source, segment.text, facts={"speaker": segment.speaker, "language": "en"})


def _table(path: Path) -> Iterator[tuple[int, Entry]]:
    with path.open(encoding="utf-8", newline="") as file:
        for line, row in enumerate(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE), start=1):
            if line == 1 and tuple(row) == COLUMNS:
                continue
            if len(row) != len(COLUMNS) or not row[0].strip() or not row[4].strip():
                raise InputError(
                    f"{path}, line {line}: expected {', '.join(COLUMNS)}, separated by tabs, got {len(row)} "
                    "columns or an empty path or text; correct that line."
                )
            audio, speaker, _, _, text = (value.strip() for value in row)
            place = path.parent / audio
            facts = {"speaker": speaker, "language": "en"} if speaker else {"language": "en"}
            yield line, Entry(id_of(place, path.parent), place, text, facts=facts)
