"""Learners: their losses against the package's own targets, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, UnknownName
from sottovoce.training.checkpoint import load_weights, save_weights
from sottovoce.training.learner import ClassLearner
from sottovoce.training.trainable_models import build_learner


def noise(lengths: list[int], seed: int = 0) -> AudioBatch:
    random = np.random.default_rng(seed)
    return AudioBatch.of([random.normal(0, 0.1, length).clip(-1, 1) for length in lengths], 16_000)


def test_the_loss_of_a_linear_model_by_hand(make_learner: Callable[..., ClassLearner]) -> None:
    learner = make_learner([1.0] + [0.0] * 15)
    clip = np.zeros(16, np.float32)
    clip[0] = 0.5
    batch = AudioBatch.of([clip, clip], 100)
    # Scores 0.5 and -0.5: -log of 1 / (1 + e^-1) and of 1 / (1 + e).
    wanted = torch.tensor([0.3132617, 1.3132617])
    torch.testing.assert_close(learner.loss(batch, ("up", "down")), wanted)


@pytest.mark.parametrize(
    ("name", "weights", "lengths", "labels"),
    [
        ("keyword", "shipped", [16_000, 12_000], ("yes", "stop")),
        ("recogniser", "shipped", [20_000, 15_000], ("go left", "no")),
    ],
)
def test_in_evaluation_mode_the_loss_is_the_targets(
    name: str, weights: str, lengths: list[int], labels: tuple[str, ...]
) -> None:
    learner = build_learner(name, weights)
    learner.module.eval().requires_grad_(True)
    batch = noise(lengths)
    loss = learner.loss(batch, labels)
    torch.testing.assert_close(loss, learner.target().loss(batch, labels, draws=Draws(0)))
    loss.sum().backward()
    assert all(value.grad is not None for value in learner.module.parameters())


def test_deepspeech2_learns_letters() -> None:
    learner = build_learner("deepspeech2", "scratch")
    batch = noise([8_000, 6_000])
    loss = learner.loss(batch, ("go", "no"))
    assert loss.shape == (2,)
    learner.module.eval()
    loss = learner.loss(batch, ("go", "no"))
    torch.testing.assert_close(loss, learner.target().loss(batch, ("go", "no"), draws=Draws(0)))


def test_a_text_too_long_for_its_clip_teaches_nothing() -> None:
    learner = build_learner("recogniser")
    learner.module.eval().requires_grad_(True)
    loss = learner.loss(noise([16_000, 8_000]), ("go", "a very long sentence in no time at all"))
    assert loss[1].item() == 0.0
    loss.sum().backward()
    assert all(bool(torch.isfinite(value.grad).all()) for value in learner.module.parameters())
    with pytest.raises(InputError, match="an empty one"):
        learner.loss(noise([16_000]), ("",))


def test_the_same_seed_gives_the_same_weights_and_no_trace() -> None:
    before = torch.get_rng_state()
    first, second, third = (build_learner("recogniser", "scratch", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    weight = [learner.module.state_dict()["output.weight"] for learner in (first, second, third)]
    assert torch.equal(weight[0], weight[1])
    assert not torch.equal(weight[0], weight[2])


def test_weights_come_back_with_what_they_are_of(
    tmp_path: Path, make_learner: Callable[..., ClassLearner]
) -> None:
    learner = make_learner([0.5] * 16)
    save_weights(tmp_path / "w.safetensors", learner, learner.module.state_dict(), half=True)
    with safetensors.safe_open(tmp_path / "w.safetensors", framework="pt") as file:
        about = file.metadata()
        assert file.get_tensor("weight").dtype == torch.float16
    assert about["architecture"] == "Linear"
    assert about["parameters"] == "16"
    assert json.loads(about["answers"]) == ["up", "down"]
    fresh = make_learner()
    load_weights(fresh, tmp_path / "w.safetensors")
    assert fresh.module.state_dict()["weight"].tolist() == [0.5] * 16
    assert list(tmp_path.iterdir()) == [tmp_path / "w.safetensors"]


def test_weights_of_another_architecture_are_refused(
    tmp_path: Path, make_learner: Callable[..., ClassLearner]
) -> None:
    linear = make_learner()
    save_weights(tmp_path / "linear.safetensors", linear, linear.module.state_dict(), half=False)
    with pytest.raises(InputError, match="expected architecture Conformer, got Linear"):
        build_learner("recogniser", str(tmp_path / "linear.safetensors"))
    # Without metadata the shapes tell.
    safetensors.torch.save_file({"weight": torch.zeros(8)}, tmp_path / "bare.safetensors")
    with pytest.raises(InputError, match=r"with weight \(16,\), got \(8,\)"):
        load_weights(linear, tmp_path / "bare.safetensors")
    longer = make_learner([0.0] * 20)
    with pytest.raises(InputError, match="expected parameters 20, got 16"):
        load_weights(longer, tmp_path / "linear.safetensors")
    (tmp_path / "text.safetensors").write_text("no weights")
    for name in ("text.safetensors", "absent.safetensors"):
        with pytest.raises(InputError, match="expected weights as safetensors"):
            load_weights(linear, tmp_path / name)


def test_models_that_cannot_be_built_say_why() -> None:
    with pytest.raises(UnknownName, match="did you mean 'keyword'"):
        build_learner("keywords")
    with pytest.raises(InputError, match="no weights of a Deep Speech 2 come with sottovoce"):
        build_learner("deepspeech2")
    with pytest.raises(InputError, match="sottovoce train keyword"):
        build_learner("keyword", "scratch")
