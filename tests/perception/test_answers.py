"""The answers folder: what is written comes back, and what cannot be used is said plainly."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from sottovoce.data.load import Clip
from sottovoce.errors import InputError, StoreError
from sottovoce.perception.jnd.answers import (
    Answers,
    SameDifferentAnswer,
    answer_writer,
    read_answers,
    split_speakers,
    write_answers,
)

RATE = 16_000


def clip(name: str, length: int = 160, step: int = 1, speaker: str = "") -> Clip:
    samples = torch.arange(length, dtype=torch.float32).remainder(100) * step / 32768
    return Clip(name, samples, RATE, "", facts={"speaker": speaker} if speaker else {})


def answer(different: bool = True, **given: object) -> SameDifferentAnswer:
    plain: dict[str, object] = dict(
        listener="ann", simulated=False, reference="a", changed="a+", strength=40.0
    )
    return SameDifferentAnswer(different=different, **{**plain, **given})  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    given = [
        answer(True),
        answer(False, strength=20.0, direction="white+mp3"),
        answer(True, listener="simulated-1", simulated=True, sentinel=True),
        answer(False, listener="simulated-1", simulated=True, changed="a", strength=0.0),
    ]
    write_answers(tmp_path / "set", given, [clip("a"), clip("a+", step=2)], ["train", "train"])
    return tmp_path / "set"


def test_lines_hold_the_fields_that_every_tool_agrees_on(folder: Path) -> None:
    second = json.loads((folder / "answers.jsonl").read_text().splitlines()[1])
    assert second == {
        "task": "same-different",
        "listener": "ann",
        "simulated": False,
        "reference": "a",
        "changed": "a+",
        "different": False,
        "strength": 20.0,
        "direction": "white+mp3",
        "sentinel": False,
    }


def test_what_is_written_comes_back(folder: Path) -> None:
    found = read_answers(folder)
    assert len(found) == 4 and found.sample_rate == RATE
    assert found.answers[1] == answer(False, strength=20.0, direction="white+mp3")
    assert found.clip("a+")[99] == np.float32(198 / 32768) and found.length("a+") == 160
    assert found.splits == {"a": "train"} and found.rows("train") == [0, 1, 2, 3] and found.rows("test") == []
    references, changed, different = found.batch([1, 0])
    assert different.tolist() == [False, True]
    torch.testing.assert_close(changed.waveforms, 2 * references.waveforms)


def test_summary_counts_and_says_who_is_simulated(folder: Path) -> None:
    found = read_answers(folder).summary()
    assert found == (2, 1, 4, 1, 0, 2, 1, 1, 2)
    assert "4 answers of 2 listeners (1 simulated): 2 same, 1 different, 1 sentinels" in str(found)
    only = Answers((answer(),), read_answers(folder).pack).summary()
    assert "(people)" in str(only)


def test_files_of_audio_are_as_good_as_a_pack(tmp_path: Path) -> None:
    (tmp_path / "audio" / "deep").mkdir(parents=True)
    for name, step in (("deep/a.flac", 1), ("a+.wav", 2)):
        samples = (np.arange(160) % 100 * step).astype(np.int16)
        soundfile.write(tmp_path / "audio" / name, samples, 24_000, subtype="PCM_16")
    with answer_writer(tmp_path) as writer:
        writer.write([answer(reference="deep/a")])
    found = read_answers(tmp_path)
    assert found.sample_rate == 24_000
    assert found.clip("a+")[3] == np.float32(6 / 32768)
    assert set(found.splits) == {"deep/a"}


def test_an_id_does_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "set" / "audio").mkdir(parents=True)
    soundfile.write(tmp_path / "secret.wav", np.zeros(10), RATE)
    with answer_writer(tmp_path / "set") as writer:
        writer.write([answer(reference="../../secret", changed="../../secret")])
    with pytest.raises(InputError, match=r"expected clips\.npz"):
        read_answers(tmp_path / "set")


def test_one_wrong_sentinel_discards_a_listener(folder: Path) -> None:
    found = read_answers(folder)
    wrong = replace(found.answers[2], different=False)
    left = Answers((*found.answers, wrong), found.pack).attentive()
    assert {one.listener for one in left.answers} == {"ann"} and len(left) == 2
    # A clip against itself is a sentinel that asks for "same".
    assert answer(False, changed="a", sentinel=True).right
    assert not answer(True, changed="a", sentinel=True).right


@pytest.mark.parametrize(("different", "word"), [(False, "'same'.*stronger"), (True, "'different'.*weaker")])
def test_one_kind_of_answer_teaches_nothing(folder: Path, different: bool, word: str) -> None:
    found = read_answers(folder)
    assert len(found.for_training()) == 4
    one_sided = Answers((answer(different), answer(different, strength=1.0)), found.pack)
    with pytest.raises(InputError, match=f"all {word}"):
        one_sided.for_training()


def test_training_without_an_attentive_listener_raises(folder: Path) -> None:
    wrong = answer(False, sentinel=True)
    with pytest.raises(InputError, match="every listener answered a sentinel"):
        Answers((answer(), wrong), read_answers(folder).pack).for_training()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1]", "not a JSON object"),
        ("{", "line 1"),
        ('{"listener": "x"}', "missing"),
        (answer().to_line().replace("40.0", "140.0"), "0 to 100"),
        (answer().to_line().replace("true", '"yes"'), "true or false"),
        (answer().to_line().replace("same-different", "mushra"), "same-different"),
    ],
)
def test_a_bad_line_is_named(folder: Path, line: str, message: str) -> None:
    (folder / "answers.jsonl").write_text(line + "\n")
    with pytest.raises(StoreError, match=message) as caught:
        read_answers(folder)
    assert "line 1" in str(caught.value)


def test_missing_clips_and_folders_are_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected an answers folder"):
        read_answers(tmp_path / "nowhere")
    with pytest.raises(InputError, match="got one that has it"):
        write_answers(folder, [answer()], [clip("a")])
    with answer_writer(folder) as writer:
        writer.write([answer(changed="gone")])
    with pytest.raises(InputError, match="no clip 'gone'"):
        read_answers(folder)


def test_two_lengths_and_two_rates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="160 and 161 samples"):
        write_answers(tmp_path / "set", [answer()], [clip("a"), clip("a+", length=161)])
    (tmp_path / "files" / "audio").mkdir(parents=True)
    for name, rate in (("a", 16_000), ("a+", 8_000)):
        soundfile.write(tmp_path / "files" / "audio" / f"{name}.wav", np.zeros(100), rate)
    with answer_writer(tmp_path / "files") as writer:
        writer.write([answer()])
    with pytest.raises(InputError, match="got 8000"):
        read_answers(tmp_path / "files")


def test_a_torn_last_line_is_dropped(folder: Path) -> None:
    with (folder / "answers.jsonl").open("a") as file:
        file.write('{"task": "same-di')
    assert len(read_answers(folder)) == 4


def test_all_clips_of_a_speaker_fall_into_one_split_with_the_shares_asked() -> None:
    found = list(split_speakers(f"speaker {number}" for number in range(4000)).values())
    assert [found.count(name) for name in ("train", "valid", "test")] == [3200, 400, 400]
    clips = [clip(name, speaker="bob") for name in ("a", "b", "c")]
    answers = tuple(answer(reference=one.id, changed=one.id) for one in clips)
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        write_answers(place, answers, clips)
        assert len(set(read_answers(place).splits.values())) == 1
