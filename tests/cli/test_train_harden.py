"""`sottovoce train harden` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors
from typer.testing import CliRunner, Result

from sottovoce.cli.train import app
from sottovoce.errors import InputError, UnknownName
from sottovoce.targets.zoo.keyword_cnn import CLASSES
from sottovoce.training.sources import check_apart, hold_clips


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tones that stand for words, twelve to train on and six to judge by, and some of one class."""
    folder = tmp_path_factory.mktemp("packs")
    random = np.random.default_rng(0)

    def write(name: str, labels: list[str], split: list[str]) -> None:
        time = np.arange(8_000) / 16_000
        pitches = [200.0 * (1 + CLASSES.index(label)) for label in labels]
        clips = [3_000 * np.sin(2 * np.pi * pitch * time) + random.normal(0, 30, 8_000) for pitch in pitches]
        np.savez_compressed(
            folder / name,
            samples=np.concatenate(clips).astype(np.int16),
            lengths=np.full(len(clips), 8_000),
            labels=np.array(labels),
            ids=np.array([f"clip-{place}" for place in range(len(clips))]),
            split=np.array(split),
            speakers=np.array([""] * len(clips)),
            sample_rate=16_000,
        )

    write("words.npz", ["yes", "stop", "go"] * 6, ["train"] * 12 + ["valid"] * 6)
    write("one.npz", ["yes"] * 6, ["train"] * 4 + ["valid"] * 2)
    return folder


def harden(packs: Path, out: Path, *words: str, pack: str = "words.npz", model: str = "keyword") -> Result:
    data = ["--data", f"pack:{packs / pack}#train", "--valid", f"pack:{packs / pack}#valid"]
    command = ["harden", "--model", model, *data, "--out", str(out), "--device", "cpu", "--batch", "6"]
    return CliRunner().invoke(app, [*command, *words])


def test_a_keyword_model_is_hardened_and_goes_on(packs: Path, tmp_path: Path) -> None:
    how = ["--attack", "pgd", "--steps", "2", "--budget", "linf(eps=0.002)", "--share", "0.5,1"]
    how += ["--sigma", "0:0.01", "--noise", "mad", "--epochs", "2", "--rate", "1e-4"]
    done = harden(packs, tmp_path / "run", *how)
    assert done.exit_code == 0, done.output
    assert "one process on cpu" in done.output
    assert "before: accuracy clean" in done.output
    assert "epoch 1/2" in done.output and "50 % attacked" in done.output
    assert "epoch 2/2" in done.output and "100 % attacked" in done.output
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert set(report["valid"]) == set(report["before"]) == {"clean", "noisy", "attacked"}
    assert report["valid"]["clean"]["n"] == 6
    assert report["hardening"]["noise"] == "MadNoise, sigma 0:0.01"
    assert report["steps"] == 4
    with safetensors.safe_open(tmp_path / "run" / "model.safetensors", framework="pt") as file:
        assert file.metadata()["architecture"] == "KeywordCnn"
    again = harden(packs, tmp_path / "run", *how, "--resume")
    assert again.exit_code == 0
    assert "continuing after epoch 2" in again.output


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["--sigma", "0"], InputError, "expected sigma above 0"),
        (["--sigma", "-0.1"], InputError, "expected sigma above 0"),
        (["--noise", "mad"], InputError, "--noise mad needs --sigma"),
        (["--attack", "pgd", "--share", "1.5"], InputError, "expected shares from 0 to 1"),
        (["--attack", "trades"], UnknownName, "unknown attack to train against 'trades'"),
        (["--attack", "pgd", "--steps", "0"], InputError, "expected a number of at least 1"),
        (["--attack", "fgsm", "--budget", "snrr(db=3)"], UnknownName, "did you mean 'snr'"),
        (["--sigma", "0.1", "--epochs", "0"], InputError, "expected --epochs or --minutes above 0"),
        (
            ["--sigma", "0.1", "--epochs", "-1", "--minutes", "0.01"],
            InputError,
            "--epochs or --minutes above 0",
        ),
        (["--sigma", "0.1", "--minutes", "-1"], InputError, "expected --epochs or --minutes above 0"),
        (["--sigma", "0.1", "--rate", "nan"], InputError, "a learning rate above 0, got 6, 1 and nan"),
        (["--sigma", "0.1", "--patience", "-3"], InputError, "expected --patience of 0 or more, got -3"),
        (["--front", "majority"], InputError, "got a vote"),
        ([], InputError, "give --sigma, --attack or --front"),
        (
            ["--sigma", "0.1", "--weights", "absent.safetensors"],
            InputError,
            "expected weights as safetensors",
        ),
    ],
)
def test_mistakes_are_named(
    packs: Path, tmp_path: Path, words: list[str], kind: type[Exception], message: str
) -> None:
    done = harden(packs, tmp_path, *words)
    assert isinstance(done.exception, kind)
    assert message in str(done.exception)


def test_unknown_models_and_one_class_are_named(packs: Path, tmp_path: Path) -> None:
    done = harden(packs, tmp_path, "--sigma", "0.1", model="keyboard")
    assert "did you mean 'keyword'?" in str(done.exception)
    done = harden(packs, tmp_path, "--sigma", "0.1", pack="one.npz")
    assert "two classes or more, got 4 of 'yes' only" in str(done.exception)


def test_labels_that_the_model_does_not_know(packs: Path, tmp_path: Path) -> None:
    with np.load(packs / "words.npz") as file:
        content = dict(file)
    content["labels"] = np.array(["bird", "_unknown_", *content["labels"][2:]])
    np.savez_compressed(tmp_path / "odd.npz", **content)
    how = ["--sigma", "0.01", "--epochs", "1"]
    failed = harden(tmp_path, tmp_path / "run", *how, pack="odd.npz")
    assert isinstance(failed.exception, InputError)
    assert "got others for 1 of 12 clips: bird (1). Its classes: down, go, left," in str(failed.exception)
    assert "--labels skip" in str(failed.exception)
    done = harden(tmp_path, tmp_path / "run", *how, "--labels", "skip", pack="odd.npz")
    assert done.exit_code == 0, done.output
    assert "skipped 1 of 12 clips whose label the model does not know: bird (1)" in done.output
    assert json.loads((tmp_path / "run" / "report.json").read_text())["data"]["training"]["clips"] == 11


def test_validation_clips_that_training_hears_are_refused(packs: Path, tmp_path: Path) -> None:
    again = ["--sigma", "0.1", "--valid", f"pack:{packs}/words.npz#train"]
    done = harden(packs, tmp_path, *again)
    assert isinstance(done.exception, InputError)
    assert "12 of 12 validation clips are also training clips, such as 'clip-0'" in str(done.exception)
    # The whole pack has them too; its other six are new.
    done = harden(packs, tmp_path, "--sigma", "0.1", "--valid", f"pack:{packs}/words.npz")
    assert "12 of 18 validation clips are also training clips" in str(done.exception)


def test_silence_is_no_clip_in_particular() -> None:
    sound, silence = np.full(4, 7, np.int16), np.zeros(4, np.int16)
    train = hold_clips([sound, silence], ["a", "b"], ["0", "1"], 100)
    check_apart(train, hold_clips([silence, sound + 1], ["b", "a"], ["0", "1"], 100))
    with pytest.raises(InputError, match="1 of 2 validation clips are also training clips, such as 'y'"):
        check_apart(train, hold_clips([silence, sound], ["b", "a"], ["x", "y"], 100))


def test_a_few_copies_are_told_of() -> None:
    """Two of a hundred are; three are refused."""
    sounds = [np.full(4, place + 1, np.int16) for place in range(100)]
    names = [str(place) for place in range(100)]
    valid = hold_clips(sounds, names, names, 100)
    told: list[str] = []
    check_apart(hold_clips(sounds[:2], names[:2], names[:2], 100), valid, told.append)
    assert told == ["warning: 2 of 100 validation clips are also training clips, such as '0'"]
    with pytest.raises(InputError, match="3 of 100 validation clips are also training clips"):
        check_apart(hold_clips(sounds[:3], names[:3], names[:3], 100), valid)


@pytest.mark.parametrize("minutes", ["-1", "0", "nan"])
def test_a_recogniser_is_trained_for_some_time(minutes: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["recogniser", "--pack", str(tmp_path), "--minutes", minutes])
    assert isinstance(done.exception, InputError)
    assert "expected --minutes above 0" in str(done.exception)


def test_validation_clips_must_be_named(packs: Path, tmp_path: Path) -> None:
    words = ["harden", "--model", "keyword", "--data", f"pack:{packs}/words.npz#train", "--sigma", "0.1"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert "needs validation clips beside it" in str(done.exception)


def test_help_teaches() -> None:
    text = " ".join(CliRunner().invoke(app, ["harden", "--help"]).output.split())
    assert "Make a model harder to fool" in text
    assert "accelerate launch" in text
