"""Clips to fit on and clips to judge on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.errors import InputError, UnknownName
from sottovoce.studies.run_study import find_study
from sottovoce.studies.study import FULL, MINI, StudySetting, find_scale
from sottovoce.studies.vadillo2022.fitting_split import check_data, open_material
from sottovoce.targets.zoo.keyword_cnn import CLASSES


def test_embedded_clips_are_shared_out_three_to_two(tmp_path: Path) -> None:
    material = open_material(StudySetting(), CLASSES, tmp_path)
    assert tuple(material.fit) == tuple(material.valid) == CLASSES
    for label in CLASSES:
        fit, valid = ({entry.id for entry in pool[label]} for pool in (material.fit, material.valid))
        assert (len(fit), len(valid), len(fit & valid)) == (3, 2, 0)
        assert {entry.id for entry in material.fit_set(label, 0)} == fit


def speech_commands(root: Path, train: int, valid: int) -> StudySetting:
    for split, count in (("train", train), ("valid", valid)):
        folder = root / split / "yes"
        folder.mkdir(parents=True)
        for number in range(count):
            soundfile.write(folder / f"{number:03d}.wav", np.zeros(1600), 16000)
    return StudySetting(data=f"speechcommands:{root}", scale=replace(MINI, fit_clips=5, valid_clips=3))


def test_splits_of_the_corpus_are_kept_and_silence_is_made(tmp_path: Path) -> None:
    setting = speech_commands(tmp_path / "corpus", 20, 4)
    material = open_material(setting, CLASSES, tmp_path / "silence")
    assert tuple(material.fit) == ("silence", "yes")
    assert {entry.path.parent.parent.name for entry in material.fit["yes"]} == {"train"}
    assert {entry.path.parent.parent.name for entry in material.valid["yes"]} == {"valid"}
    first, second = (tuple(material.fit_set("yes", number)) for number in (0, 1))
    assert len(first) == len(second) == 5 and first != second
    assert len(material.valid_set("yes")) == 3
    assert "made noise" in material.note and "without clips: unknown, no" in material.note
    assert soundfile.info(material.valid["silence"][0].path).samplerate == 16000


def test_full_scale_needs_the_corpus() -> None:
    for data in ("embedded", "folder:clips", "speechcommands"):
        with pytest.raises(
            InputError, match=r"--scale full needs 1,000 training clips per class.*--data speechcommands:DIR"
        ):
            check_data(StudySetting(scale=FULL, data=data))
    check_data(StudySetting(scale=FULL, data="speechcommands:clips"))


def test_data_of_other_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least two clips of a class"):
        open_material(StudySetting(), ("left turn",), tmp_path)


def test_names_that_are_not_there() -> None:
    with pytest.raises(UnknownName, match="did you mean 'V2'"):
        find_study("V22")
    with pytest.raises(UnknownName, match="did you mean 'mini'"):
        find_scale("min")
    assert find_study("v3").id == "V3"


def test_paper_scale_is_the_papers() -> None:
    assert (FULL.sets, FULL.fit_clips, FULL.epochs, FULL.deepfool_steps) == (5, 1000, 5, 100)


def test_folder_hangs_on_data_and_seed() -> None:
    folders = {str(one.folder) for one in (StudySetting(), StudySetting(seed=1), StudySetting(attack="uap"))}
    assert len(folders) == 3
    assert all(name.startswith("runs/study-V-mini-") for name in folders)
