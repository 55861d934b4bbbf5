"""A new study file, with its clips beside it and a word on every entry."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from sottovoce.errors import InputError, StoreError
from sottovoce.listening.study.block_presets import Draft, draft
from sottovoce.listening.study.blocks import MushraBlock
from sottovoce.listening.study.clip_sources import Candidate, ChoicePair
from sottovoce.listening.study.seating import lay_out
from sottovoce.listening.study.study_checks import check_study
from sottovoce.listening.study.study_file import ListeningStudy, expand, load, make_study, parse, read_study
from sottovoce.listening.study.test_sounds import STOP

WIDTH, SHORT = 108, 96
TITLES = {
    "v6": "Words and how natural they sound",
    "naming": "Name the word",
    "abx": "Which one is X?",
    "same-different": "Same or different?",
    "mushra": "Rate the clips",
    "preference": "Which sounds better?",
    "closer": "Which is closer?",
}
CONSENT = (
    "You will listen to short recordings and answer questions about them. Taking part is voluntary, and you "
    "can stop at any time by closing the page. Your answers are stored without your name."
)
INSTRUCTIONS = "Please sit in a quiet place and wear headphones."
QUESTIONNAIRE = [
    {"name": "age", "text": "How old are you?", "kind": "number", "required": False},
    {
        "name": "hearing",
        "text": "Do you know of any hearing loss?",
        "kind": "choice",
        "choices": ["no", "yes"],
    },
    {"name": "comments", "text": "Anything you would like to tell us?", "required": False},
]
HEAD = """\
# A listening test. Try it with simulated listeners, look at it in a browser, then invite people:
#   sottovoce listen simulate {name}
#   sottovoce listen serve {name}
#   sottovoce listen results {name}
# Once people have answered, change neither this file nor its clips: the answers belong to this version.
"""
ATTENTION = """\
# Attention test: a word to hear in a sentence; the study ends for who misses it. Add the clip below.
# attention:
# - {clip: sentence, choices: [river, window, garden], answer: window}
"""
COMPLETION = """\
# What listeners see at the end. Names in braces come from the address they arrived with.
# completion:
#   code: C1A2B3C4                 # one for all; left out, everybody gets a code of their own
#   screened_code: C9Z8Y7X6        # for those who fail the headphone check or the attention test
#   link: https://app.prolific.com/submissions/complete?cc={code}
#   # link: https://www.mturk.com/mturk/externalSubmit?assignmentId={assignmentId}&code={code}
"""
BLOCK = """\
# One block per test: naming, abx, same-different, mushra, preference or closer, in this order.
#   items: what trials are about; or sets: lists of which every listener gets one
#   per_listener: number of items for each listener, in turn
#   order: shuffled, or latin (conditions one after the other, their order balanced over listeners)
#   teaching: items with feedback that come first; sentinels: items that nobody who listens gets wrong
#   break_after: a rest after this many trials; title, instructions, question: your own words
"""
SENTINELS = """\
# A listener with more wrong sentinels than this does not count; the listener does not learn of it.
"""


def write_study(
    path: str | Path,
    found: Sequence[Candidate] | Sequence[ChoicePair],
    test: str,
    *,
    limit: int | None = None,
    seed: int = 0,
    seats: int = 18,
    title: str | None = None,
    directions: Sequence[str] = (),
    force: bool = False,
) -> tuple[ListeningStudy, list[str]]:
    """Write a study and copy its clips beside it; returns it as read again, and what to tell its owner."""
    place = expand(path, "study")
    if place.suffix not in (".yaml", ".yml"):
        raise InputError(f"{place}: expected a file name that ends in .yaml.")
    folder = place.with_name(f"{place.stem}-clips")
    if not force and (place.exists() or folder.exists()):
        there = place if place.exists() else folder
        raise InputError(f"{there} exists already; choose another name, or add --force to replace it.")
    made = draft(test, found, limit=limit, seed=seed, directions=directions)
    settings = {"title": title or TITLES[test], "seed": seed, "seats": seats}
    entries = {key: _entry(folder.name, key, made) for key in made.clips}
    text = _text(place.name, test, settings, made, entries)
    _check_ahead(text, place, made)
    try:
        _check_replaceable(place, folder, made)
        place.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place.parent, prefix=f".{place.stem}-") as part:
            written, copies = Path(part, place.name), Path(part, folder.name)
            written.write_text(text, encoding="utf-8")
            copies.mkdir()
            for key, entry in entries.items():
                shutil.copyfile(made.files[key], Path(part, entry["path"]))
            # All is there: only now is a study of that name replaced.
            if folder.exists():
                shutil.rmtree(folder)
            copies.rename(folder)
            written.replace(place)
    except OSError as error:
        raise StoreError(f"cannot write {place}: {error.strerror or error}; choose another place.") from None
    study = read_study(place)
    return study, [*made.notes, *_doubt_anchors(study), _sum_up(study)]


def _entry(folder: str, key: str, made: Draft) -> dict[str, Any]:
    source = made.files[key]
    if not source.is_file():
        raise InputError(
            f"{source}: the audio file of a clip is missing; run the audit again, or leave the clip out."
        )
    return {"path": f"{folder}/{key}{source.suffix.lower()}", **made.clips[key]}


def _check_ahead(text: str, place: Path, made: Draft) -> None:
    """Refuse a study that could not be run, with the clips where they still are."""
    study = make_study(parse(text, place), str(place))
    clips = {key: clip.model_copy(update={"path": str(made.files[key])}) for key, clip in study.clips.items()}
    check_study(study.model_copy(update={"clips": clips}))


def _check_replaceable(place: Path, folder: Path, made: Draft) -> None:
    """Nothing may be lost with the folder but copies that the study there plays."""
    inside = [source for source in made.files.values() if folder.resolve() in source.resolve().parents]
    if inside:
        raise InputError(
            f"{inside[0]}: this clip lies in {folder.name}, where copies are written; give the study another "
            "name."
        )
    found = load(place).get("clips") if folder.exists() and place.exists() else None
    clips = [clip for clip in found.values() if isinstance(clip, dict)] if isinstance(found, dict) else []
    played = {(place.parent / str(clip.get("path"))).resolve() for clip in clips}
    for file in sorted(one for one in folder.rglob("*") if not one.is_dir()):
        if file.resolve() not in played:
            raise InputError(
                f"{folder}: --force replaces only clips of {place.name}, but there is {file.name}; move it "
                "away, or "
                "give the study another name."
            )


def _text(
    name: str, test: str, settings: dict[str, Any], made: Draft, clips: dict[str, dict[str, Any]]
) -> str:
    """The file, one entry after the other, each under its comment."""
    pieces: list[tuple[str, dict[str, Any]]] = [
        ("", {"title": settings["title"]}),
        ("# Seed of all orders and random choices.\n", {"seed": settings["seed"]}),
        (
            "# Number of listeners that the design is balanced for; more may come.\n",
            {"seats": settings["seats"]},
        ),
        ("# as-is, or matched: all clips of a block equally loud, by rms or lufs.\n", {"level": "as-is"}),
        ("", {"loudness": "rms"}),
        ("", {"consent": CONSENT}),
        ("", {"instructions": INSTRUCTIONS}),
        ("# Start with a noise to set the volume.\n", {"volume": True}),
        (
            "# Noise of one 16-bit step, different in each slot: comparing files gives nothing away.\n",
            {"dither": False},
        ),
        (
            "# Which of three tones is the quietest: impossible over loudspeakers. Five of six pass.\n",
            {"headphones": {"trials": 6, "need": 5, "retries": 1, "fail": "end"}},
        ),
        (ATTENTION, {}),
        ("# Asked at the end: text, number or choice.\n", {"questionnaire": QUESTIONNAIRE}),
        (COMPLETION, {}),
        (SENTINELS, {"wrong_sentinels": 0}),
    ]
    if test == "v6":
        note = "# Vadillo and Santana (2020): nine experiments for two listeners each; blocks must match.\n"
        pieces.append((note, {"preset": "v6"}))
    pieces.append((BLOCK, {"blocks": made.blocks}))
    note = (
        "# Paths are relative to this file. reference: the clip it was made from; level: the group it is "
        "in.\n"
    )
    pieces.append((note, {"clips": clips}))
    return (
        HEAD.format(name=name)
        + "\n"
        + "\n".join(note + (_dump(entry) if entry else "") for note, entry in pieces)
    )


class _Dumper(yaml.SafeDumper):
    """Short entries on one line, all others one below the other. Words such as yes and no come quoted."""

    def represent_sequence(
        self, tag: str, sequence: Any, flow_style: bool | None = None
    ) -> yaml.SequenceNode:
        node = super().represent_sequence(tag, sequence)
        node.flow_style = _is_short(node.value)
        return node

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        node = super().represent_mapping(tag, mapping)
        node.flow_style = _is_short([part for pair in node.value for part in pair])
        return node

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _is_short(nodes: Sequence[yaml.Node]) -> bool:
    plain = all(isinstance(node, yaml.ScalarNode) for node in nodes)
    return plain and sum(len(str(node.value)) + 2 for node in nodes) < SHORT


def _dump(entry: dict[str, Any]) -> str:
    stream = StringIO()
    dumper = _Dumper(stream, sort_keys=False, allow_unicode=True, width=WIDTH)
    dumper.open()
    node = dumper.represent_mapping("tag:yaml.org,2002:map", entry)
    # An entry of the file is never in braces, however short it is.
    node.flow_style = False
    dumper.serialize(node)
    dumper.close()
    return stream.getvalue()


def _doubt_anchors(study: ListeningStudy) -> Iterator[str]:
    """Anchors that take away next to nothing, as the clips end where they do."""
    for block in study.blocks:
        if not isinstance(block, MushraBlock):
            continue
        rates = {rack.reference: _rate(study, rack.reference) for rack in block.all_items()}
        lowest, high = min(rates.values()), max(block.anchors_hz, default=0)
        if lowest / 2 <= STOP * high:
            yield (
                f"clips at {lowest / 1000:g} kHz: the {high / 1000:g} kHz anchor sounds almost like the "
                "reference, so that post-screening may exclude everybody; take clips at 32 kHz or more, or "
                "anchors_hz: [3500]"
            )


def _rate(study: ListeningStudy, key: str) -> int:
    import soundfile

    return int(soundfile.info(study.clips[key].path).samplerate)


def _sum_up(study: ListeningStudy) -> str:
    trials = [planned for planned in lay_out(study, 0) if not planned.teaching]
    return f"{len(study.clips)} clips; {len(trials)} trials for each of {study.seats} listeners"
