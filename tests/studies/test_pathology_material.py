"""Study A: who is trained on and who is tested, and which clips are used."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import Corpus, Entry, Recording
from sottovoce.data.pack import pack, save_pack
from sottovoce.errors import InputError, StoreError, UnknownName
from sottovoce.studies.amiri2024.detection import STUDY
from sottovoce.studies.amiri2024.detection_material import choose_speakers, open_material
from sottovoce.studies.amiri2024.job_plan import FULL, MINI, JobPlan
from sottovoce.studies.amiri2024.job_results import PathologySetup
from sottovoce.studies.amiri2024.jobs import Workshop
from sottovoce.studies.amiri2024.open_study import open_workshop, read_encoder

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


def with_splits() -> list[Entry]:
    """A speaker of each label in each part."""
    parts = {0: "train", 1: "valid", 2: "test"}
    return [
        replace(one, facts={**one.facts, "split": parts[int(one.id.split("-")[1])]})
        for one in corpus().entries
    ]


def test_a_given_split_is_used() -> None:
    entries = with_splits()
    made = open_material(Corpus("made", tuple(entries)), SMALL, 0)
    assert made.given
    assert [sorted(split.test) for split in made.splits] == [["control-2", "pathological-2"]]
    leaked = replace(entries[0], facts={**entries[0].facts, "split": "test"})
    with pytest.raises(InputError, match="'control-0' in train and test"):
        open_material(Corpus("made", (leaked, *entries[1:])), SMALL, 0)


def test_every_part_of_a_given_split_has_both_labels() -> None:
    extra = entry("more", "control-9", "control", split="test")
    for number, part in enumerate(("train", "valid", "test")):
        for label in ("control", "pathological"):
            others = [one for one in with_splits() if one.facts["speaker"] != f"{label}-{number}"]
            left = [*others, extra] if label == "pathological" else others
            with pytest.raises(InputError, match=f"both labels in the split {part}, got no {label} one"):
                open_material(Corpus("made", tuple(left)), SMALL, 0)


def test_what_is_refused() -> None:
    controls = Corpus("made", tuple(one for one in corpus().entries if one.label == "control"))
    with pytest.raises(InputError, match="got no pathological one"):
        open_material(controls, SMALL, 0)
    with pytest.raises(InputError, match="for 3 folds, got 2 of 'control'; add speakers"):
        open_material(corpus(speakers=2), replace(SMALL, folds=10), 0)
    nameless = Corpus("made", (*corpus().entries, entry("who", "", "control")))
    with pytest.raises(InputError, match=r"'who': expected a speaker, got none; add a column speaker"):
        open_material(nameless, SMALL, 0)
    strange = "got 'deaf'; correct the table (also understood: for control controls, healthy, hc,"
    with pytest.raises(InputError, match=re.escape(strange)):
        open_material(Corpus("made", (*corpus().entries, entry("x", "s", "deaf"))), SMALL, 0)
    short = Corpus("made", tuple(replace(one, source=partial(sound, 100)) for one in corpus().entries))
    with pytest.raises(InputError, match="expected clips to use, got none"):
        open_material(short, SMALL, 0)


def test_labels_by_other_names() -> None:
    names = {"control": ("HC", "0", "healthy"), "pathological": ("PD", "1", "Patient ")}
    entries = [replace(one, label=names[one.label][int(one.id.split("-")[1])]) for one in corpus().entries]
    made = open_material(Corpus("made", tuple(entries)), SMALL, 0)
    assert made.labels == {
        f"{label}-{number}": label for label in ("control", "pathological") for number in range(3)
    }
    assert set(made.utterances.clips.labels) == {"control", "pathological"}


def open_shop(data: Corpus, out: Path, plan: JobPlan = SMALL, encoder: str = "recogniser") -> Workshop:
    return open_workshop(data, "clinic", plan, encoder, 0, out, "cpu")


def relabelled(data: Corpus, names: dict[str, str]) -> Corpus:
    """With other labels for some speakers."""
    return replace(
        data,
        entries=tuple(replace(one, label=names.get(one.facts["speaker"], one.label)) for one in data.entries),
    )


def test_a_folder_is_not_gone_on_with_after_the_data_have_changed(tmp_path: Path) -> None:
    data = corpus()
    open_shop(data, tmp_path)
    open_shop(data, tmp_path)
    swapped = relabelled(data, {"control-0": "pathological", "pathological-0": "control"})
    told = r"\(changed: the recordings, their speakers, labels or splits\); choose another folder"
    with pytest.raises(StoreError, match=told):
        open_shop(swapped, tmp_path)
    # The same length and the same median level.
    first = replace(data.entries[0], source=partial(sound, 16_000, 0.24))
    with pytest.raises(StoreError, match=told):
        open_shop(replace(data, entries=(first, *data.entries[1:])), tmp_path)


def test_what_the_digest_hangs_on(tmp_path: Path) -> None:
    plain, split = corpus(), Corpus("made", tuple(with_splits()))
    others = {"0": "valid", "1": "train", "2": "test"}
    moved = [
        replace(one, facts={**one.facts, "split": others[one.id.split("-")[1]]}) for one in plain.entries
    ]
    renamed = [
        replace(one, facts={"speaker": one.facts["speaker"].replace("control-0", "anna")})
        for one in plain.entries
    ]
    made = [plain, split, *(Corpus("made", tuple(entries)) for entries in (moved, renamed))]
    digests = [open_material(one, SMALL, 0).digest() for one in made]
    assert len(set(digests)) == 4
    # A pack is the same clips on another machine.
    clips = [plain.load(one, 16_000) for one in plain.entries]
    save_pack(tmp_path / "made.npz", clips, [""] * len(clips))
    assert open_material(pack(str(tmp_path / "made.npz")), SMALL, 0).digest() == digests[0]


def test_the_page_says_what_was_run_of_a_given_split(tmp_path: Path) -> None:
    shop = open_shop(Corpus("made", tuple(with_splits())), tmp_path, MINI)
    scope = PathologySetup(tmp_path, shop.setting, {}).scope(STUDY)
    assert scope[1] == (
        "3 control and 3 pathological speakers, 12 clips, 0.2 minutes. The split of the manifest; scale "
        "mini: 1 fold, 2 seeds of the detectors and 1 of all else, at most 5 epochs, at most 6 clips a "
        "speaker to train on, 1 to attack, 1.5 s of each clip."
    )
    assert shop.setting.fewer_folds == ""


@pytest.fixture
def torgo(tmp_path: Path) -> str:
    """Its 8 patients and 7 controls, with 0.6 s of each."""
    people = "F01 F03 F04 M01 M02 M03 M04 M05 FC01 FC02 FC03 MC01 MC02 MC03 MC04"
    for place, name in enumerate(people.split()):
        folder = tmp_path / "TORGO" / name / "Session1" / "wav_headMic"
        folder.mkdir(parents=True)
        soundfile.write(folder / "0001.wav", sound(9_600, 0.1 + 0.01 * place).samples, 16_000)
    return f"torgo:{tmp_path / 'TORGO'}"


def test_torgo_at_full_scale_up_to_its_jobs(torgo: str, tmp_path: Path) -> None:
    shop = open_shop(open_corpus(torgo), tmp_path / "out", FULL, "recogniser(layer=5)")
    known = shop.setting
    assert known.speakers == {"control": 7, "pathological": 8}
    assert (known.encoder, known.layer, known.folds) == ("recogniser", 5, 7)
    # 14 kinds of 7 folds and 5 seeds.
    assert len(list(known.jobs())) == 490
    tested = [Counter(shop.material.test(fold).labels) for fold in range(7)]
    assert [one["control"] for one in tested] == [1] * 7
    assert sorted(one["pathological"] for one in tested) == [1] * 6 + [2]
    assert known.scale == "full: 7 folds, 5 seeds of the detectors and 5 of all else, at most 100 epochs"
    assert known.fewer_folds == (
        "7 folds instead of 10: there are 7 control and 8 pathological speakers, and every fold "
        "needs at least one of each label to test."
    )
    with pytest.raises(InputError, match="encoder recogniser: expected a layer from 0 to 8, got 9"):
        open_shop(open_corpus(torgo), tmp_path / "other", FULL, "recogniser(layer=9)")


def test_encoders_with_and_without_a_layer() -> None:
    asked = {
        "wav2vec2": ("wav2vec2", None),
        "wav2vec2:models/base (2)": ("wav2vec2:models/base (2)", None),
        "wav2vec2(layer=9)": ("wav2vec2", 9),
        "wav2vec2(model=models/base, layer=0)": ("wav2vec2:models/base", 0),
        "whisper(model=tiny.pt)": ("whisper:tiny.pt", None),
    }
    assert {spec: read_encoder(spec) for spec in asked} == asked
    with pytest.raises(UnknownName, match="unknown setting of the encoder wav2vec2 'layers'"):
        read_encoder("wav2vec2(layers=9)")
    with pytest.raises(InputError, match=r"expected the number of a layer in .*, got 'last'; write layer=9"):
        read_encoder("wav2vec2(layer=last)")
