"""No speaker in two splits, whatever the corpus."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sottovoce.data.folds import (
    Split,
    given_split,
    has_splits,
    most_folds,
    of_speakers,
    speaker_folds,
    speaker_labels,
)
from sottovoce.data.load import Corpus, Entry
from sottovoce.errors import InputError, UnknownName


def corpus(*rows: tuple[str, str, str]) -> Corpus:
    """Clips of a speaker, a label and a split, either of which may be empty."""
    entries = []
    for number, (speaker, label, split) in enumerate(rows):
        facts = {key: value for key, value in (("speaker", speaker), ("split", split)) if value}
        entries.append(Entry(f"c{number}", Path("x.wav"), label, facts=facts))
    return Corpus("clinic", tuple(entries))


def people(controls: int, patients: int) -> dict[str, str]:
    labels = {f"c{number:03d}": "control" for number in range(controls)}
    return labels | {f"p{number:03d}": "pathological" for number in range(patients)}


@given(st.integers(3, 40), st.integers(3, 40), st.integers(3, 12), st.integers(0, 2**32))
def test_laws(controls: int, patients: int, folds: int, seed: int) -> None:
    labels = people(controls, patients)
    if folds > min(controls, patients):
        with pytest.raises(InputError, match=f"expected {folds} speakers or more of each label"):
            speaker_folds(labels, folds, seed)
        return
    splits = speaker_folds(labels, folds, seed)
    assert len(splits) == folds
    assert Counter(name for split in splits for name in split.test) == dict.fromkeys(labels, 1)
    assert Counter(name for split in splits for name in split.valid) == dict.fromkeys(labels, 1)
    for split in splits:
        assert split.train | split.valid | split.test == set(labels)
        assert len(split.train) + len(split.valid) + len(split.test) == len(labels)
        assert abs(len(split.test) - len(labels) / folds) < 1
        for label, count in (("control", controls), ("pathological", patients)):
            assert abs(sum(labels[name] == label for name in split.test) - count / folds) < 1
            assert any(labels[name] == label for name in split.train)
    assert [split.valid for split in splits] == [split.test for split in splits[1:] + splits[:1]]
    assert speaker_folds(dict(reversed(labels.items())), folds, seed) == splits


def test_ten_folds_of_the_paper_are_80_10_10() -> None:
    """50 and 50 speakers."""
    for split in speaker_folds(people(50, 50)):
        assert (len(split.train), len(split.valid), len(split.test)) == (80, 10, 10)
        assert sum(name.startswith("p") for name in split.test) == 5


def test_another_seed_gives_other_folds() -> None:
    assert speaker_folds(people(20, 20), 5, 0) != speaker_folds(people(20, 20), 5, 1)


def test_folds_of_a_corpus() -> None:
    rows = [(name, label, "") for name, label in people(3, 3).items() for _ in range(2)]
    clinic = corpus(*rows)
    splits = speaker_folds(clinic, 3)
    assert splits == speaker_folds(people(3, 3), 3)
    clips = [
        len(of_speakers(clinic, part)) for split in splits for part in (split.train, split.valid, split.test)
    ]
    assert clips == [4, 4, 4] * 3
    assert splits[0].part_of(min(splits[0].valid)) == "valid"
    with pytest.raises(UnknownName, match="unknown speaker 'nobody'"):
        splits[0].part_of("nobody")


def test_a_split_that_is_given() -> None:
    clinic = corpus(("a", "control", "train"), ("b", "pathological", "train"), ("c", "control", "valid"),
                    ("d", "pathological", "test"), ("a", "control", "train"))  # fmt: skip
    assert has_splits(clinic) and not has_splits(corpus(("a", "control", "")))
    assert given_split(clinic) == Split(frozenset("ab"), frozenset("c"), frozenset("d"))


def test_a_speaker_in_two_splits_is_named() -> None:
    leak = corpus(("a", "control", "train"), ("anna", "control", "train"), ("c", "control", "valid"),
                  ("anna", "control", "test"))  # fmt: skip
    with pytest.raises(InputError, match="expected each speaker in one split, got 'anna' in train and test"):
        given_split(leak)


def test_a_speaker_with_two_labels_is_named() -> None:
    with pytest.raises(InputError, match=r"got 'control' and 'pathological' for 'anna' \(clip 'c1'\)"):
        speaker_labels(corpus(("anna", "control", ""), ("anna", "pathological", "")))


def test_what_else_is_refused() -> None:
    with pytest.raises(InputError, match="clip 'c1': expected a speaker, got none"):
        speaker_folds(corpus(("a", "control", ""), ("", "control", "")))
    with pytest.raises(
        InputError, match="clip 'c1': expected a split, because other clips have one, got none"
    ):
        given_split(corpus(("a", "control", "train"), ("b", "control", "")))
    with pytest.raises(UnknownName, match="unknown split 'tests': did you mean 'test'"):
        given_split(corpus(("a", "control", "tests")))
    with pytest.raises(InputError, match="got none in valid"):
        given_split(corpus(("a", "control", "train"), ("b", "control", "test")))
    with pytest.raises(InputError, match="folds: expected 3 or more, got 2"):
        speaker_folds(people(5, 5), 2)
    with pytest.raises(InputError, match="expected speakers of two labels or more, got control"):
        speaker_folds(people(5, 0), 3)
    with pytest.raises(InputError, match="got 4 of 'pathological'; ask for fewer folds"):
        speaker_folds(people(9, 4), 5)


def of_voices(*rows: tuple[str, str, str]) -> Corpus:
    """A clip of each speaker, label and voice, which may be empty."""
    entries = []
    for speaker, label, voice in rows:
        facts = {"speaker": speaker, **({"voice": voice} if voice else {})}
        entries.append(Entry(speaker, Path("x.wav"), label, facts=facts))
    return Corpus("pairs", tuple(entries))


def test_speakers_of_one_voice_stay_together() -> None:
    """Four voices as two speakers each, and two speakers without a partner, in three folds."""
    pairs = [
        (f"{voice}{number}", label, voice) for voice in "abcd" for number, label in enumerate(("well", "ill"))
    ]
    known = of_voices(*pairs, ("e", "well", ""), ("f", "ill", ""))
    for split in speaker_folds(known, 3):
        for voice in "abcd":
            assert split.part_of(f"{voice}0") == split.part_of(f"{voice}1")
        assert 2 <= len(split.test) <= 4
    with pytest.raises(InputError, match="expected 6 speakers or more of each label for 6 folds, got 5"):
        speaker_folds(known, 6)
    assert most_folds(known) == 5
    assert most_folds(people(7, 8)) == 7
    with pytest.raises(InputError, match="for 3 folds, got 1 of 'ill'"):
        speaker_folds(of_voices(("a0", "well", "a"), ("a1", "ill", "a"), ("b", "well", "")), 3)


def test_a_given_split_that_parts_a_voice() -> None:
    entries = [
        Entry(f"{name}-0", Path(f"{name}.wav"), label, facts={"speaker": name, "split": part, "voice": "a"})
        for name, label, part in (("a1", "well", "train"), ("a2", "ill", "test"), ("a3", "ill", "valid"))
    ]
    with pytest.raises(InputError, match=r"expected each voice in one split, got 'a' in train and \w+"):
        given_split(Corpus("c", tuple(entries)))
