"""Study A: who is trained on and who is tested, and which clips are used."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sottovoce.data.load import Corpus, Entry, Recording
from sottovoce.errors import InputError, UnknownName
from sottovoce.studies.pathology.material import choose_speakers, open_material
from sottovoce.studies.pathology.plan import MINI

SMALL = replace(MINI, speakers=None, train_clips=None, test_clips=None, seconds=None)


def sound(samples: int, level: float = 0.25) -> Recording:
    """A square wave, whose RMS is its level."""
    return Recording(np.where(np.arange(samples) % 20 < 10, level, -level), 16_000)


def entry(name: str, speaker: str, label: str, samples: int = 16_000, **facts: str) -> Entry:
    known = {"speaker": speaker, **facts} if speaker else facts
    return Entry(name, Path("made"), label, facts=known, source=partial(sound, samples))


def corpus(speakers: int = 3, clips: int = 2) -> Corpus:
    """So many speakers of each label."""
    entries = [
        entry(f"{label}-{number}-{take}", f"{label}-{number}", label)
        for label in ("control", "pathological")
        for number in range(speakers)
        for take in range(clips)
    ]
    return Corpus("made", tuple(entries))


def test_every_speaker_is_tested_once_and_learned_from_elsewhere() -> None:
    made = open_material(corpus(), SMALL, 0)
    tested = [name for split in made.splits for name in split.test]
    assert sorted(tested) == [
        f"{label}-{number}" for label in ("control", "pathological") for number in range(3)
    ]
    for fold in range(3):
        parts = [{*made.speakers_of(part(fold))} for part in (made.train, made.valid, made.test)]
        assert [len(part) for part in parts] == [2, 2, 2]
        assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])


def test_plan_cuts_clips_and_speakers() -> None:
    plan = replace(SMALL, speakers=6, train_clips=3, test_clips=1, seconds=0.75)
    made = open_material(corpus(speakers=5, clips=4), plan, 0)
    assert Counter(made.labels.values()) == {"control": 3, "pathological": 3}
    assert (len(made.train(0)), len(made.test(0))) == (6, 2)
    assert set(made.utterances.clips.lengths.tolist()) == {12_000}


def test_speakers_are_chosen_evenly_while_they_last() -> None:
    labels = {f"c{number}": "control" for number in range(9)} | {"p0": "pathological", "p1": "pathological"}
    chosen = choose_speakers(labels, 6, 0)
    assert Counter(labels[name] for name in chosen) == {"control": 4, "pathological": 2}
    assert choose_speakers(labels, 6, 0) == chosen


def test_short_and_long_clips_are_unused_with_the_reason() -> None:
    extra = (entry("tiny", "control-0", "control", 6_400), entry("long", "control-0", "control", 48_000))
    whole = corpus()
    made = open_material(replace(whole, entries=(*whole.entries, *extra)), SMALL, 0, longest=32_000)
    assert made.unused == {
        "tiny": "expected 500 ms or more, one segment, got 400 ms",
        "long": "expected at most 2 s for the encoder, got 3.0 s",
    }
    assert len(made.utterances.clips) == 12


def test_sigma_is_15_db_below_the_median_clip() -> None:
    # 0.25 / 10^(15/20) = 0.04446.
    assert open_material(corpus(), SMALL, 0).sigma() == 0.044


def test_a_given_split_is_used() -> None:
    parts = {0: "train", 1: "valid", 2: "test"}
    entries = [
        replace(one, facts={**one.facts, "split": parts[int(one.id.split("-")[1])]})
        for one in corpus().entries
    ]
    made = open_material(Corpus("made", tuple(entries)), SMALL, 0)
    assert made.given
    assert [sorted(split.test) for split in made.splits] == [["control-2", "pathological-2"]]
    leaked = replace(entries[0], facts={**entries[0].facts, "split": "test"})
    with pytest.raises(InputError, match="'control-0' in train and test"):
        open_material(Corpus("made", (leaked, *entries[1:])), SMALL, 0)
    others = [one for one in entries if one.facts["speaker"] != "pathological-0"]
    with pytest.raises(InputError, match="both labels in the split train, got no pathological"):
        open_material(Corpus("made", tuple(others)), SMALL, 0)


def test_what_is_refused() -> None:
    controls = Corpus("made", tuple(one for one in corpus().entries if one.label == "control"))
    with pytest.raises(InputError, match="got no pathological one"):
        open_material(controls, SMALL, 0)
    with pytest.raises(InputError, match="expected 10 speakers or more of each label for 10 folds"):
        open_material(corpus(), replace(SMALL, folds=10), 0)
    nameless = Corpus("made", (*corpus().entries, entry("who", "", "control")))
    with pytest.raises(InputError, match=r"'who': expected a speaker, got none; add a column speaker"):
        open_material(nameless, SMALL, 0)
    with pytest.raises(UnknownName, match="label"):
        open_material(Corpus("made", (*corpus().entries, entry("x", "s", "healthy"))), SMALL, 0)
    short = Corpus("made", tuple(replace(one, source=partial(sound, 100)) for one in corpus().entries))
    with pytest.raises(InputError, match="expected clips to use, got none"):
        open_material(short, SMALL, 0)
