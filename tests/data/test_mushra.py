"""A listening test is read as it is written, and refused where it is not whole."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.data.mushra_ratings import open_mushra
from sottovoce.errors import InputError

HEADER = "signal,condition,ratings,participant_ids,file"
ROWS = [
    'one,Reference,"[100.0, 98.0]","[3, 7]",a/ref.wav',
    'one,codec,"[40, 61.0]","[3, 7]",a/codec.wav',
    'one,Anchor,"[10.0, 20.0]","[3, 7]",',
]


def make(
    folder: Path, rows: list[str] = ROWS, header: str = HEADER, rates: tuple[int, int] = (8000, 8000)
) -> Path:
    (folder / "audio" / "a").mkdir(parents=True, exist_ok=True)
    for name, rate in zip(("ref", "codec"), rates, strict=True):
        samples = np.stack([np.full(100, 0.5), np.full(100, 0.25)], axis=1)
        soundfile.write(folder / "audio" / "a" / f"{name}.wav", samples, rate)
    (folder / "ratings.csv").write_text("\n".join([header, *rows]) + "\n")
    return folder


def test_a_test_is_read(tmp_path: Path) -> None:
    test = open_mushra(make(tmp_path))
    assert (test.items, test.conditions) == (["one"], ["Reference", "codec", "Anchor"])
    assert (test.listeners, test.sample_rate, test.unheard) == (["3", "7"], 8000, ["Anchor"])
    codec = test.stimuli[1]
    assert (codec.ratings, codec.mean, codec.by_listener()) == ((40.0, 61.0), 50.5, {"3": 40.0, "7": 61.0})
    assert test.reference("one").condition == "Reference"
    assert [one.condition for one in test.heard] == ["Reference", "codec"]
    np.testing.assert_allclose(test.read(codec), np.full(100, 0.375), atol=1e-4)
    with pytest.raises(InputError, match="Anchor: expected an audio file"):
        test.read(test.stimuli[2])


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('one,codec,40,"[3]",', r"such as \[41.0, 90.0\], got '40'"),
        ('one,codec,"[40.0, oops]","[3, 7]",', "write a list"),
        ('one,codec,"[140.0]","[3]",', "from 0 to 100, got 140.0"),
        ('one,codec,"[true]","[3]",', "from 0 to 100, got True"),
        ('one,codec,"[NaN]","[3]",', "from 0 to 100, got nan"),
        ('one,codec,"[40.0, 50.0]","[3]",', "2 ratings of 1"),
        ('one,codec,"[40.0, 50.0]","[3, 3]",', "2 ratings of 1"),
        ('one,codec,"[]","[]",', "0 ratings of 0"),
        (',codec,"[40.0]","[3]",', "line 3: expected a signal and a condition"),
        ('one,codec,"[40.0]","[3]",a/lost.wav', "lost.wav, got no such file"),
        (
            'one,reference 2,"[40.0]","[3]",a/codec.wav',
            "called Reference with audio for one, got 2",
        ),
        ('one,Reference,"[40.0]","[3]",', "one row for one, Reference, got two"),
        ('two,codec,"[40.0]","[3]",a/codec.wav', "called Reference with audio for two, got 0"),
    ],
)
def test_rows_that_cannot_be_used(tmp_path: Path, row: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        open_mushra(make(tmp_path, [ROWS[0], row]))


def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got no such folder"):
        open_mushra(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"got no ratings\.csv in it"):
        open_mushra(tmp_path)
    with pytest.raises(InputError, match="got none called participant_ids, file"):
        open_mushra(make(tmp_path, ["a,b,c"], "signal,condition,ratings"))
    with pytest.raises(InputError, match="a row for each item and condition, got none"):
        open_mushra(make(tmp_path, []))
    with pytest.raises(InputError, match=r"at one rate, got 8000 Hz \(ref.wav\), 16000 Hz \(codec.wav\)"):
        open_mushra(make(tmp_path, rates=(8000, 16000)))
    make(tmp_path)
    (tmp_path / "audio" / "a" / "codec.wav").write_text("no audio")
    with pytest.raises(InputError, match="a file it rejects"):
        open_mushra(tmp_path)


def test_a_published_test() -> None:
    # As its authors describe it: 8 sentences, 19 listeners, an anchor whose file is not there.
    folder = Path(os.environ.get("SOTTOVOCE_DATA", Path(__file__).parents[3] / "shared" / "data")) / "mushra"
    if not folder.is_dir():
        pytest.skip("needs mushra in the folder named by SOTTOVOCE_DATA")
    test = open_mushra(folder)
    assert (len(test.items), len(test.conditions), len(test.listeners)) == (8, 9, 19)
    assert (test.sample_rate, test.unheard, len(test.heard)) == (24000, ["Anchor"], 64)
    first = test.stimuli[0]
    assert first.ratings[:3] == (41.0, 32.0, 32.0)
    assert len(test.read(first)) == len(test.read(test.reference(first.item)))
