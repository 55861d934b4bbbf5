"""The models that are shipped hardened: what they are hardened with, and one short run of each kind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch

from sottovoce.core.budget import LInf
from sottovoce.defenses.filters import BiquadLowPass, IdealLowPass
from sottovoce.defenses.randomised_smoothing import Gaussian, MadNoise
from sottovoce.errors import InputError, UnknownName
from sottovoce.targets.zoo import conformer, keyword_cnn, sound_cnn, speaker_cnn
from sottovoce.training import sources
from sottovoce.training.hardening import AdversarialShare
from sottovoce.training.keyword import keyword_pack
from sottovoce.training.recogniser.recogniser_pack import of_items, save_pack
from sottovoce.training.variants import VARIANTS, Variant, adjust, find_variants, train_variant


def tone(pitch_hz: float, samples: int, seed: int) -> np.ndarray:
    time = np.arange(samples) / 16_000
    noise = np.random.default_rng(seed).normal(0, 30, samples)
    return (5_000 * np.sin(2 * np.pi * pitch_hz * time) + noise).astype(np.int16)


def write_pack(path: Path, labels: tuple[str, ...]) -> Path:
    """Eight clips of each of two classes, half of them to judge by."""
    rows = [(label, place) for place in range(8) for label in labels[:2]]
    clips = [tone(300.0 + 500 * labels.index(label), 4_000 + 100 * place, place) for label, place in rows]
    np.savez_compressed(
        path,
        samples=np.concatenate(clips),
        lengths=np.array([len(clip) for clip in clips]),
        labels=np.array([label for label, _ in rows]),
        ids=np.array([f"{label}-{place}" for label, place in rows]),
        split=np.array(["train" if place < 4 else "valid" for _, place in rows]),
        speakers=np.array([""] * len(rows)),
        sample_rate=16_000,
    )
    return path


def test_there_is_a_job_for_every_variant_of_every_model() -> None:
    named = {
        "speaker": speaker_cnn.VARIANTS,
        "sound": sound_cnn.VARIANTS,
        # These two are there already, plain.
        "keyword": tuple(name for name in keyword_cnn.VARIANTS if name != "plain"),
        "recogniser": tuple(name for name in conformer.VARIANTS if name != "plain"),
    }
    assert list(VARIANTS) == [f"{model}-{name}" for model, names in named.items() for name in names]


def test_sizes_are_the_thesis_s_on_full_swing() -> None:
    """Section 7.5.2: sigma .1 and .15, eps .003 on [0, 1]; 5 % of the frequencies, 200 Hz; 50 then 80 %."""
    gaussian, mad = (VARIANTS[f"speaker-{name}"].hardening.noise for name in ("gaussian", "mad"))
    assert gaussian is not None and mad is not None
    assert isinstance(gaussian.kind, Gaussian) and gaussian.sigma == pytest.approx((0.2, 0.2))
    assert isinstance(mad.kind, MadNoise) and mad.sigma == pytest.approx((0.3, 0.3))
    assert VARIANTS["speaker-lowpass"].hardening.front == (IdealLowPass(share=0.05),)
    assert VARIANTS["speaker-biquad"].hardening.front == (BiquadLowPass(hz=200.0),)
    adversary = VARIANTS["speaker-adversarial"].hardening.adversary
    assert adversary is not None
    assert adversary.budget == LInf(0.006)
    assert adversary.share.values == (0.5, 0.8)


def test_a_model_stands_for_all_of_its_variants() -> None:
    assert find_variants(["sound", "keyword-pgd"]) == [
        "sound-plain",
        "sound-gaussian",
        "sound-mad",
        "keyword-pgd",
    ]
    with pytest.raises(UnknownName, match="did you mean 'speaker-plain'"):
        find_variants(["speaker-plan"])


def short(name: str) -> Variant:
    recipe = replace(VARIANTS[name].recipe, epochs=1, batch_size=8, check_epochs=1)
    return replace(VARIANTS[name], recipe=recipe)


@pytest.mark.parametrize(
    ("name", "classes", "figures"),
    [
        ("speaker-lowpass", speaker_cnn.CLASSES, {"clean"}),
        ("speaker-mad", speaker_cnn.CLASSES, {"clean", "noisy"}),
        ("speaker-adversarial", speaker_cnn.CLASSES, {"clean", "attacked"}),
        ("sound-gaussian", sound_cnn.CLASSES, {"clean", "noisy"}),
        ("keyword-fgsm", keyword_cnn.CLASSES, {"clean", "attacked"}),
    ],
)
def test_a_short_run_leaves_weights_that_the_zoo_loads(
    name: str, classes: tuple[str, ...], figures: set[str], tmp_path: Path
) -> None:
    pack = write_pack(tmp_path / "pack.npz", classes)
    train_variant(name, short(name), pack, tmp_path)
    report = json.loads((tmp_path / f"{name}.json").read_text())
    assert set(report["valid"]) == figures
    assert report["valid"]["clean"]["n"] == 8
    with safetensors.safe_open(tmp_path / f"{name}.safetensors", framework="pt") as file:
        assert {file.get_tensor(key).dtype for key in file.keys()} == {torch.float16}  # noqa: SIM118
    if name.startswith("s"):
        zoo = speaker_cnn if name.startswith("speaker") else sound_cnn
        zoo.load("cpu", tmp_path / f"{name}.safetensors")


def test_a_keyword_pack_will_do(tmp_path: Path) -> None:
    labels = ["yes", "no"] * 4
    pack = keyword_pack.KeywordPack(
        clips=np.stack([tone(300.0 if label == "yes" else 900.0, 16_000, 0) for label in labels]),
        labels=np.array(labels),
        split=np.array(["train"] * 4 + ["valid"] * 2 + ["test"] * 2),
        source=np.array(["real"] * 8),
    )
    pack.save(tmp_path / "keyword.npz")
    report = train_variant("keyword-fgsm", short("keyword-fgsm"), tmp_path / "keyword.npz", tmp_path)
    assert report.valid["clean"].n == 2


def test_what_a_variant_has_can_be_adjusted() -> None:
    noisy = adjust(VARIANTS["recogniser-noisy"], sigma="0.01:0.03").hardening.noise
    assert noisy is not None and noisy.sigma == (0.01, 0.03)
    adversary = adjust(
        VARIANTS["keyword-pgd"], budget=LInf(0.5), share=AdversarialShare((0.1,))
    ).hardening.adversary
    assert adversary is not None
    assert (adversary.budget, adversary.share.values) == (LInf(0.5), (0.1,))
    with pytest.raises(InputError, match="expected a variant with noise"):
        adjust(VARIANTS["speaker-plain"], sigma="0.1")
    with pytest.raises(InputError, match="expected a variant with an adversary"):
        adjust(VARIANTS["speaker-mad"], budget=LInf(0.1))


def test_a_pack_that_is_not_there_is_named(tmp_path: Path) -> None:
    for name in ("keyword-pgd", "speaker-plain"):
        with pytest.raises(InputError, match="expected a pack"):
            train_variant(name, VARIANTS[name], tmp_path / "absent.npz", tmp_path)


@pytest.mark.slow
def test_the_recogniser_learns_from_strings_under_noise_and_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "VALID_STRINGS", 10)
    words = [(word, split) for split in ("train", "valid", "test") for word in ("go", "no", "left") * 2]
    items = [tone(400.0 * (1 + place % 3), 4_000, place) for place in range(len(words))]
    pack = of_items(
        items,
        texts=[word for word, _ in words],
        split=[split for _, split in words],
        kind=["word"] * len(words),
        source=["beep"] * len(words),
    )
    save_pack(pack, tmp_path / "pack", parts=2)
    for name, figure in (("recogniser-noisy", "noisy"), ("recogniser-pgd", "attacked")):
        # The clock ends it within the first epoch of 200 batches.
        recipe = replace(
            VARIANTS[name].recipe, epochs=None, minutes=0.05, batch_size=4, attacked_clips=4, warm_up_steps=2
        )
        report = train_variant(name, replace(VARIANTS[name], recipe=recipe), tmp_path / "pack", tmp_path)
        assert report.measure == "WER"
        assert list(report.valid) == ["clean", figure]
        assert report.valid["clean"].n == 10
        assert report.steps >= 1
        conformer.load("cpu", tmp_path / f"{name}.safetensors")
