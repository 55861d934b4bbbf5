"""`sottovoce train prune` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from sottovoce.cli.train import app
from sottovoce.core.draws import Draws
from sottovoce.data.corpora import open_corpus
from sottovoce.data.embedded import embedded
from sottovoce.data.pack import save_pack
from sottovoce.errors import InputError, SottovoceError
from sottovoce.targets.open_target import open_target
from sottovoce.training.sources import hold_corpus


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped words: three takes to train on, one to decide by, one to listen to afterwards."""
    corpus = embedded()
    clips = [corpus.load(entry, 16_000) for entry in corpus]
    uses = {"1": "test", "2": "valid"}
    path = tmp_path_factory.mktemp("packs") / "words.npz"
    save_pack(path, clips, [uses.get(clip.id[-1], "train") for clip in clips])
    return path


def prune(packed: Path, out: Path, *words: str) -> Result:
    data = ["--data", f"pack:{packed}#train", "--valid", f"pack:{packed}#valid", "--out", str(out)]
    return CliRunner().invoke(app, ["prune", *data, *words])


HALF = ("--keep", "0.5", "--share", "0.5", "--lose", "1", "--measure", "16")


def test_half_of_the_maps_go_and_the_file_opens(packed: Path, tmp_path: Path) -> None:
    done = prune(packed, tmp_path, *HALF)
    assert done.exit_code == 0, done.output
    assert "round 1: second 72 -> 36" in done.output and "round 2: first 40 -> 20" in done.output
    report = json.loads((tmp_path / "report.json").read_text())
    # 20 of 105 + 1; 36 of 20 * 35 + 1; 12 of 36 * 60 + 1: of 156,964
    assert report["weights"] == 2_120 + 25_236 + 25_932
    assert report["removed"] == pytest.approx(1 - 53_288 / 156_964)
    assert [(one["name"], one["before"], one["now"]) for one in report["layers"]] == [
        ("first", 40, 20),
        ("second", 72, 36),
    ]
    assert report["before"]["n"] == report["valid"]["n"] == 12
    assert "after the published description" in (tmp_path / "card.md").read_text()
    text = f"keyword(weights={tmp_path}/model.safetensors)"
    assert f"--model '{text}'" in done.output
    target = open_target(text, "cpu")
    heard = hold_corpus(open_corpus(f"pack:{packed}#test"), 16_000).batch(range(12))
    with torch.no_grad():
        said = target.decode(heard.batch, draws=Draws(0))
    assert len(said) == 12
    again = prune(packed, tmp_path, *HALF)
    assert isinstance(again.exception, InputError) and "give --resume" in str(again.exception)
    resumed = prune(packed, tmp_path, *HALF, "--resume")
    assert "going on after round 2" in resumed.output and "round 3" not in resumed.output
    # A pruned model is pruned further.
    further = prune(
        packed, tmp_path / "less", *HALF, "--weights", str(tmp_path / "model.safetensors"), "--epochs", "1"
    )
    assert "second 36 -> 18" in further.output, further.output
    hardened = CliRunner().invoke(
        app,
        [
            "harden", "--model", "keyword", "--data", f"pack:{packed}#train", "--valid",
            f"pack:{packed}#valid", "--weights", str(tmp_path / "model.safetensors"), "--sigma", "0.01",
            "--epochs", "1", "--out", str(tmp_path / "hard"),
        ],
    )  # fmt: skip
    assert hardened.exit_code == 0, hardened.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--keep", "2"], "expected --keep from 0 to 1, got 2"),
        (["--lose", "-0.1"], "expected --lose from 0 to 1"),
        (["--share", "1"], "expected --share above 0 and below 1"),
        (["--measure", "0"], "expected --measure of 1 clip or more"),
        (["--epochs", "0"], "expected --epochs or --minutes above 0"),
        (["--weights", "scratch"], "--weights scratch: expected a trained model to prune"),
        (["--weights", "absent.safetensors"], "expected weights as safetensors"),
        (["--model", "keyboard"], "did you mean 'keyword'?"),
        (["--model", "recogniser"], "pruning expected a classifier, got a recogniser"),
    ],
)
def test_mistakes_are_named(packed: Path, tmp_path: Path, words: list[str], message: str) -> None:
    done = prune(packed, tmp_path, *words)
    assert isinstance(done.exception, SottovoceError), done.output
    assert message in str(done.exception)


def test_validation_clips_must_be_others(packed: Path, tmp_path: Path) -> None:
    words = ["prune", "--data", f"pack:{packed}#train", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert "needs validation clips beside it" in str(done.exception)
    done = CliRunner().invoke(app, [*words, "--valid", f"pack:{packed}#train"])
    assert "are also training clips" in str(done.exception)


def test_help_teaches() -> None:
    text = " ".join(CliRunner().invoke(app, ["prune", "--help"]).output.split())
    assert "after the published description" in text
    assert "Smaller is not harder to fool" in text


def test_weights_that_are_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    np.save(tmp_path / "a.npy", np.zeros(3))
    (tmp_path / "a.npy").rename(path)
    with pytest.raises(InputError, match="no KeywordCnn of the shipped size can be read"):
        open_target(f"keyword(weights={path})", "cpu")
