"""A synthetic proxy of a clinical corpus: healthy speakers, half of whom are made to sound dysarthric.

It says whether a study runs and shows its trends, and says nothing about patients: see docs/proxy.md.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, final

import numpy as np

from sottovoce import registry
from sottovoce.core.draws import Draws
from sottovoce.data.clinical_corpora import CONTROL, PATHOLOGICAL
from sottovoce.data.corpora import open_corpus
from sottovoce.data.dysarthria import draw_voice, render
from sottovoce.data.folds import VOICE
from sottovoce.data.load import Corpus, Entry, Recording
from sottovoce.data.source_filter import SAMPLE_RATE, Floats
from sottovoce.errors import InputError

SHIPPED = "prompts+strings"
SPEAKERS = 100
"""As many as the corpus of the paper has: half of them are made pathological."""
LEAST_SECONDS, MOST_SECONDS = 4.0, 24.0
"""A speaker with less is left out; of one with more, the rest is left out."""
SHORTEST, LONGEST = 2.0, 4.0
"""Seconds of an utterance before the transform: shorter clips are joined, longer ones cut."""
SEVERITY = (0.5, 1.0)
"""The range in which the severity of a pathological speaker is drawn, evenly."""
FADE = 160
_HASH = re.compile(r"[0-9a-f]{8}(?=_)")


class ClipPiece(NamedTuple):
    """Samples `first` to `last` of a clip, at 16 kHz."""

    entry: Entry
    first: int
    last: int


@final
@dataclass(frozen=True)
class ProxySpeaker:
    """A speaker of the proxy. group: the corpus and, where known, the sex: halves are drawn within it.

    voice: shared by the two speakers of a pair.
    """

    name: str
    group: str
    language: str
    utterances: tuple[tuple[ClipPiece, ...], ...]
    voice: str = ""


def proxy(
    data: str = "",
    speakers: int = SPEAKERS,
    severity: tuple[float, float] = SEVERITY,
    seed: int = 0,
    paired: bool | None = None,
) -> Corpus:
    """Speakers of any corpora as "control" and "pathological", half and half: a PROXY, without any patient.

    data: a corpus as the command line names it, or several joined by "+", such as
        `librispeech:DIR+speechcommands:DIR`; without it, the speech that sottovoce ships. Speakers are those
        of the fact "speaker", or in Speech Commands of the file's name.
    speakers: at most so many.
    severity: the range, within 0 to 1, from which each pathological speaker draws one.
    seed: of the draws.
    paired: use every voice twice, as a control and as a pathological speaker, who are never in two splits of
        a study; without it, only the shipped speech is paired, which has too few voices for halves.
    """
    found = [one for spec in _specs(data or SHIPPED) for one in _speakers(open_corpus(spec))]
    draws = Draws(seed, ("proxy",))
    paired = not data if paired is None else paired
    chosen = _choose(found, speakers, draws.turn("choice"))
    if len(chosen) < 2:
        raise InputError(
            f"proxy:{data}: expected 2 speakers or more with {LEAST_SECONDS:g} s of speech, got "
            f"{len(chosen)}; give a larger corpus whose clips name their speakers."
        )
    chosen, ill = _pair(chosen) if paired else (chosen, _halve(chosen, draws.turn("half")))
    entries = []
    for one in chosen:
        degree = float(draws.turn("severity").generator(one.name).uniform(*severity))
        entries += list(_entries(one, degree if one.name in ill else None, draws))
    return Corpus("proxy", tuple(entries), _note(data, chosen, severity, paired))


def _specs(data: str) -> list[str]:
    """Corpora joined by "+"; a "+" in a path stays, because no corpus name follows it."""
    names = "|".join(map(re.escape, registry.names("corpus")))
    return re.split(rf"\+(?=(?:{names})(?:[:+]|$))", data)


def _speakers(corpus: Corpus) -> Iterator[ProxySpeaker]:
    clips: dict[str, list[Entry]] = defaultdict(list)
    for entry in corpus:
        name = speaker_of(entry)
        if name and entry.label != "silence":
            clips[name].append(entry)
    if not clips:
        raise InputError(
            f"corpus {corpus.name!r}: expected clips that name their speaker, got none; give a corpus with "
            "speakers, or a CSV with a column speaker."
        )
    for name, own in sorted(clips.items()):
        utterances = tuple(_utterances(own))
        if utterances:
            facts = own[0].facts
            group = f"{corpus.name}/{facts.get('sex', '')}"
            yield ProxySpeaker(f"{corpus.name}/{name}", group, facts.get("language", ""), utterances)


def speaker_of(entry: Entry) -> str:
    """Who speaks in a clip, or ""; in Speech Commands that is the hash before the number of the take."""
    mark = _HASH.match(entry.id.rpartition("/")[2])
    return entry.facts.get("speaker", "") or (mark.group() if mark else "")


def _utterances(clips: Iterable[Entry]) -> Iterator[tuple[ClipPiece, ...]]:
    """Pieces of 2 to 4 s in all from the clips of one speaker; none if there are not 4 s of them."""
    shortest, longest, most = (round(one * SAMPLE_RATE) for one in (SHORTEST, LONGEST, MOST_SECONDS))
    made: list[tuple[ClipPiece, ...]] = []
    waiting: list[ClipPiece] = []
    total = 0
    for entry in sorted(clips, key=lambda one: one.id):
        length = _samples(entry)
        parts = -(-length // longest) or 1
        edges = [length * part // parts for part in range(parts + 1)]
        for first, last in pairwise(edges):
            if sum(piece.last - piece.first for piece in waiting) + last - first > longest:
                waiting = []
            waiting.append(ClipPiece(entry, first, last))
            size = sum(piece.last - piece.first for piece in waiting)
            if size >= shortest and total + size <= most:
                made.append(tuple(waiting))
                total += size
                waiting = []
    if total >= LEAST_SECONDS * SAMPLE_RATE:
        yield from made


def _samples(entry: Entry) -> int:
    """The length of a clip at 16 kHz, from its header where there is one; 0 where it cannot be read."""
    if entry.source is None and entry.frames is None:
        import soundfile

        try:
            header = soundfile.info(str(entry.path))
        except soundfile.SoundFileError:
            return 0
        return int(header.frames * SAMPLE_RATE / header.samplerate)
    recording = entry.read(math.inf)
    return int(len(recording.samples) * SAMPLE_RATE / recording.sample_rate)


def _choose(found: Sequence[ProxySpeaker], count: int, draws: Draws) -> list[ProxySpeaker]:
    """At most `count` speakers, as many of each group as of any other while they last, in the old order."""
    if count < 2:
        raise InputError(f"expected 2 speakers or more, one of each label, got {count}.")
    turns = sorted(
        (turn, group, place)
        for group, places in _grouped(found).items()
        for turn, place in enumerate(draws.generator(group).permutation(places).tolist())
    )
    kept = {place for _, _, place in turns[:count]}
    return [one for place, one in enumerate(found) if place in kept]


def _halve(chosen: Sequence[ProxySpeaker], draws: Draws) -> frozenset[str]:
    """The speakers to be made pathological: every other one of each group in a drawn order."""
    order = [
        place
        for group, places in sorted(_grouped(chosen).items())
        for place in draws.generator(group).permutation(places).tolist()
    ]
    return frozenset(chosen[place].name for place in order[1::2])


def _pair(chosen: Sequence[ProxySpeaker]) -> tuple[list[ProxySpeaker], frozenset[str]]:
    """Each voice as two speakers, and the names of those to be made pathological."""
    pairs = [
        [replace(one, name=f"{one.name}/{label}", voice=one.name) for label in (CONTROL, PATHOLOGICAL)]
        for one in chosen
    ]
    return [one for pair in pairs for one in pair], frozenset(ill.name for _, ill in pairs)


def _grouped(speakers: Sequence[ProxySpeaker]) -> Mapping[str, list[int]]:
    groups: dict[str, list[int]] = defaultdict(list)
    for place, one in enumerate(speakers):
        groups[one.group].append(place)
    return groups


def _entries(speaker: ProxySpeaker, severity: float | None, draws: Draws) -> Iterator[Entry]:
    """The clips of a speaker, who is a control if there is no severity."""
    label = CONTROL if severity is None else PATHOLOGICAL
    facts = {"speaker": speaker.name}
    facts |= {VOICE: speaker.voice} if speaker.voice else {}
    facts |= {"language": speaker.language} if speaker.language else {}
    facts |= {"severity": f"{severity:.2f}"} if severity is not None else {}
    for number, pieces in enumerate(speaker.utterances):
        id = f"{speaker.name}/{number:02d}"
        source = partial(_make, id, speaker.name, pieces, severity or 0.0, draws)
        yield Entry(id, Path("proxy"), label, facts=facts, source=source)


def _make(id: str, speaker: str, pieces: Sequence[ClipPiece], severity: float, draws: Draws) -> Recording:
    voice = draw_voice(severity, draws.turn("voice").generator(speaker))
    spoken = np.concatenate([_faded(piece) for piece in pieces])
    return Recording(render(spoken, voice, draws.turn("synthesis").generator(id)), SAMPLE_RATE)


def _faded(piece: ClipPiece) -> Floats:
    clip = Corpus("piece", (piece.entry,)).load(piece.entry, SAMPLE_RATE)
    samples = clip.waveform.numpy().astype(np.float64)[piece.first : piece.last]
    ramp = np.minimum(1.0, np.arange(1, len(samples) + 1) / FADE)
    return samples * ramp * ramp[::-1]


def _note(data: str, chosen: Sequence[ProxySpeaker], severity: tuple[float, float], paired: bool) -> str:
    groups = Counter(one.group.partition("/")[0] for one in chosen)
    sources = ", ".join(f"{count} of {group}" for group, count in groups.items())
    count = f"{len(chosen)} speakers ({sources})"
    if paired:
        count += f", who are {len(chosen) // 2} voices twice, never in two splits"
    few = "" if len(chosen) // (1 + paired) >= 20 else "; so few voices prove nothing"
    shipped = "" if data else "; most voices of the shipped speech are synthetic"
    return (
        f"SYNTHETIC PROXY, no patients: {count}, half of them through a dysarthria-like transform (severity "
        f"{severity[0]:g} to {severity[1]:g}), the others through the same synthesis with healthy "
        f"settings{few}{shipped}"
    )
