"""The clips that ship with sottovoce: format, balance, levels, and voices that training never heard."""

from __future__ import annotations

import csv
import importlib.util
import sys
from collections import Counter
from importlib import resources
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile

CLIPS = Path(str(resources.files("sottovoce.data"))) / "clips"
TOOL = Path(__file__).parents[2] / "tools" / "make_clips.py"
CLASSES = ["silence", "unknown", "yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go"]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with (CLIPS / "clips.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_clips", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their annotations
    spec.loader.exec_module(module)
    return module


def level_db(row: dict[str, str]) -> float:
    samples, _ = soundfile.read(CLIPS / row["path"], dtype="int16")
    return float(20 * np.log10(np.abs(samples.astype(float)).mean()))


def test_all_files_together_are_small() -> None:
    assert sum(path.stat().st_size for path in CLIPS.iterdir()) < 2_000_000


def test_table_and_folder_agree(rows: list[dict[str, str]]) -> None:
    assert list(rows[0]) == ["id", "path", "label", "voice", "sex", "text"]
    assert len({row["id"] for row in rows}) == 60
    assert {row["path"] for row in rows} == {path.name for path in CLIPS.glob("*.flac")}


def test_five_clips_a_class(rows: list[dict[str, str]]) -> None:
    assert Counter(row["label"] for row in rows) == dict.fromkeys(CLASSES, 5)


def test_format(rows: list[dict[str, str]]) -> None:
    for row in rows:
        info = soundfile.info(CLIPS / row["path"])
        assert (info.samplerate, info.channels, info.subtype) == (16_000, 1, "PCM_16")
        assert 0.7 <= info.duration <= 1.0


def test_levels_cover_the_three_bands(rows: list[dict[str, str]]) -> None:
    # Low below 50 dB, medium to 70 dB, high above: Vadillo and Santana, section 5.1.
    spoken = [level_db(row) for row in rows if row["label"] != "silence"]
    bands = Counter(int(np.digitize(level, [50.0, 70.0])) for level in spoken)
    assert min(bands[0], bands[1], bands[2]) >= 5
    assert bands[1] + bands[2] > 4 * bands[0]
    assert max(level_db(row) for row in rows if row["label"] == "silence") < 55.0


def test_nothing_is_digital_silence(rows: list[dict[str, str]]) -> None:
    for row in rows:
        samples, _ = soundfile.read(CLIPS / row["path"], dtype="int16")
        quietest = min(np.abs(part.astype(float)).mean() for part in np.array_split(samples, 10))
        assert quietest > 0.5, row["id"]


def test_every_word_has_five_voices_of_both_sexes(rows: list[dict[str, str]]) -> None:
    for label in CLASSES[1:]:
        spoken = [row for row in rows if row["label"] == label]
        assert len({row["voice"] for row in spoken}) == 5
        assert min(Counter(row["sex"] for row in spoken)[sex] for sex in ("female", "male")) >= 2


def test_text_is_the_label_and_unknown_words_are_none_of_the_ten(rows: list[dict[str, str]]) -> None:
    assert all(row["text"] == row["label"] for row in rows if row["label"] in CLASSES[2:])
    unknown = {row["text"] for row in rows if row["label"] == "unknown"}
    assert len(unknown) == 5
    assert not unknown & set(CLASSES)


def test_embedded_voices_are_not_in_the_training_mix(rows: list[dict[str, str]], maker: ModuleType) -> None:
    random = np.random.default_rng(0)
    drawn = {maker.draw_voice(random).id for _ in range(5_000)}
    speakers = {voice.split("+")[-1] for voice in drawn}
    heard = {row["voice"] for row in rows if row["label"] != "silence"}
    assert heard == {voice.id for voice in maker.EMBEDDED_VOICES}
    assert not heard & drawn
    assert not {voice.split("+")[-1] for voice in heard if "+" in voice} & speakers
    assert not any(name in voice for voice in drawn for name in ("slt", "rms", "awb"))
