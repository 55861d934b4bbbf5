"""Corpora of pathological speech as they are handed out: PC-GITA and TORGO. Both must be asked for.

Labels are "control" and "pathological", whatever a corpus calls them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from sottovoce.data.corpora import SUFFIXES, existing_folder, inventory
from sottovoce.data.load import Corpus, Entry
from sottovoce.errors import InputError, UnknownName

CONTROL, PATHOLOGICAL = LABELS = ("control", "pathological")
WORDS = {
    CONTROL: ("control", "controls", "healthy", "hc", "neurotypical", "normal", "typical", "0"),
    PATHOLOGICAL: (
        "pathological", "pathology", "patient", "patients", "patologica", "patologicas", "pd", "parkinson",
        "dysarthria", "dysarthric", "als", "cp", "1",
    ),
}  # fmt: skip
"""What the labels are called elsewhere."""

TASKS = ("sentences", "sentences2", "readtext")
"""What the paper takes of PC-GITA: ten sentences and a text."""
_SUBJECT = re.compile(r"AVPEPUDEA(C?)\d{4}", re.IGNORECASE)
_RAW = ("sinnormalizar", "nonnormalized", "nonormalizado", "nonormalizados", "raw")
_SCALED = ("normalizado", "normalizados", "normalizada", "normalizadas", "normalized", "connormalizar")

_PERSON = re.compile(r"[FM](C?)\d{2}")
MICROPHONES = ("wav_headMic", "wav_arrayMic")
# Prompts to which nobody speaks, or whose recordings failed.
_NO_SPEECH = re.compile(r"xxx|\[relax", re.IGNORECASE)
_HEADER = 44
"""Bytes of a WAV file with nothing in it."""


def pcgita(path: str) -> Corpus:
    """PC-GITA (Orozco-Arroyave et al. 2014): Spanish by 50 people with Parkinson's disease and 50 without.

    path: the folder above the tasks (`sentences/laura/sin_normalizar/pd/AVPEPUDEA0001_laura.wav` and the
    like). Ten sentences and the read text are taken; `DIR#monologue,words` takes other tasks and `DIR#all`
    every one. The C in AVPEPUDEAC0001 marks a control, and the folders must agree. Of recordings
    that are there both as they were and scaled, those as they were are taken.
    """
    name, _, tasks = path.partition("#")
    root = existing_folder(name)
    files = [file for file in sorted(root.rglob("*")) if file.suffix.lower() in SUFFIXES and file.is_file()]
    found = [file for file in files if _SUBJECT.search(file.stem)]
    if not found:
        raise InputError(
            f"{root}: expected PC-GITA (recordings called AVPEPUDEA0001... or AVPEPUDEAC0001...), got "
            f"{inventory(root)} and {len(files)} other recordings; name the folder above the tasks, or list "
            "the files in a CSV with the columns path, speaker and label."
        )
    wanted = [_plain(task) for task in tasks.split(",")] if tasks else list(TASKS)
    kept = found if wanted == ["all"] else [file for file in found if _task(file, root) in wanted]
    if not kept:
        there = ", ".join(sorted({_task(file, root) or "(none)" for file in found}))
        raise InputError(
            f"{root}: expected the tasks {', '.join(wanted)}, got {there}; name the tasks that you want, "
            f"such as pcgita:{name}#monologue, or #all."
        )
    whole = _without_scaled(kept, root)
    notes = [f"tasks {', '.join(sorted({_task(file, root) or 'all' for file in whole}))}"]
    notes += _counted(len(kept) - len(whole), "scaled copies left out")
    notes += _counted(len(files) - len(found), "recordings of nobody in PC-GITA left out")
    return Corpus("pcgita", tuple(_subject(file, root) for file in whole), "; ".join(notes))


def torgo(path: str) -> Corpus:
    """TORGO (Rudzicz et al. 2012): English by 8 people with cerebral palsy or ALS and 7 without.

    path: the folder above F01, FC01, M01, MC01 and so on, or above folders of those. The C says who is a
    control. From each session the head microphone is taken, or the array if that one was off.
    """
    root = existing_folder(path)
    people = [
        one for depth in ("*", "*/*", "*/*/*") for one in root.glob(depth)
        if one.is_dir() and _PERSON.fullmatch(one.name)
    ]  # fmt: skip
    entries: list[Entry] = []
    odd: Counter[str] = Counter()
    for person in sorted(people, key=lambda one: one.name):
        for session in sorted(person.glob("Session*")):
            entries += _session(person.name, session, odd)
    if not entries:
        got = f"{len(people)} such folders without recordings" if people else inventory(root)
        raise InputError(
            f"{root}: expected TORGO (F01/Session1/wav_headMic/0001.wav and so on), got {got}; name the "
            "folder above the speakers."
        )
    notes = [text for what, count in odd.items() for text in _counted(count, what)]
    # Schu, Janbakhshi and Kodrasi (2023): a detector may do well by hearing the room.
    notes.append("patients and controls were recorded in different noise, which a detector can learn")
    return Corpus("torgo", tuple(entries), "; ".join(notes))


def clinical(corpus: Corpus) -> Corpus:
    """A corpus with its labels called "control" and "pathological", from what such tables often say."""
    names = {word: label for label, words in WORDS.items() for word in words}
    for entry in corpus:
        if entry.label.strip().lower() not in names:
            others = "; ".join(f"for {label} {', '.join(words[1:])}" for label, words in WORDS.items())
            raise InputError(
                f"corpus {corpus.name!r}, clip {entry.id!r}: expected the label {CONTROL} or {PATHOLOGICAL}, "
                f"got {entry.label!r}; correct the table (also understood: {others})."
            )
    renamed = (replace(entry, label=names[entry.label.strip().lower()]) for entry in corpus)
    return replace(corpus, entries=tuple(renamed))


def _subject(file: Path, root: Path) -> Entry:
    mark = _SUBJECT.search(file.stem)
    if mark is None:
        raise UnknownName("speaker of PC-GITA", file.stem, ())
    speaker, label = mark.group().upper(), CONTROL if mark.group(1) else PATHOLOGICAL
    folders = [part for part in file.relative_to(root).parts[:-1] if _plain(part) not in (*_RAW, *_SCALED)]
    said = {own for own, words in WORDS.items() for part in folders if _plain(part) in words}
    if said and said != {label}:
        raise InputError(
            f"{file}: a {label} speaker is in a folder labelled {min(said - {label})}; move the recording, "
            "or list the files in a CSV with the columns path, speaker and label."
        )
    place = [part for part in folders if not any(_plain(part) in words for words in WORDS.values())]
    facts = {"speaker": speaker, "language": "es", "task": _task(file, root)}
    id = "/".join([speaker, *place, file.stem])
    return Entry(id, file, label, facts={key: value for key, value in facts.items() if value})


def _task(file: Path, root: Path) -> str:
    """The uppermost folder that is no label, or the root's own name where there is none."""
    other = {*_RAW, *_SCALED, *(word for words in WORDS.values() for word in words)}
    places = [_plain(part) for part in file.relative_to(root).parts[:-1]]
    return next((place for place in places if place not in other and "pcgita" not in place), "")


def _without_scaled(files: list[Path], root: Path) -> list[Path]:
    """Of a recording that is there twice, as it was and scaled, only the first."""

    def parts(file: Path) -> list[str]:
        return [_plain(part) for part in file.relative_to(root).parts[:-1]]

    def key(file: Path) -> tuple[str, ...]:
        return (*(part for part in parts(file) if part not in (*_RAW, *_SCALED)), file.stem.lower())

    raw = {key(file) for file in files if not any(part in _SCALED for part in parts(file))}
    return [
        file for file in files if key(file) not in raw or not any(part in _SCALED for part in parts(file))
    ]


def _session(person: str, session: Path, odd: Counter[str]) -> Iterator[Entry]:
    label = CONTROL if "C" in person else PATHOLOGICAL
    found = {name: sorted((session / name).glob("*.wav")) for name in MICROPHONES}
    chosen = next((name for name in MICROPHONES if found[name]), "")
    if chosen != MICROPHONES[0]:
        odd["sessions by the array microphone" if chosen else "sessions without recordings"] += 1
    for file in found.get(chosen, []):
        text = _prompt(session / "prompts" / f"{file.stem}.txt")
        if _NO_SPEECH.search(text):
            odd["recordings without speech left out"] += 1
        elif file.stat().st_size <= _HEADER:
            odd["empty recordings left out"] += 1
        else:
            odd["recordings without a prompt that can be read"] += not text
            facts = {"speaker": person, "language": "en", "session": session.name}
            facts |= {"text": text} if text else {}
            yield Entry(f"{person}/{session.name}/{file.stem}", file, label, facts=facts)


def _prompt(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _plain(name: str) -> str:
    """A folder's name without what people spell in different ways: "Read Text" is "readtext"."""
    return re.sub(r"[\W_]", "", name.lower())


def _counted(count: int, what: str) -> Iterable[str]:
    return [f"{count} {what}"] if count else []
