"""Targets by name and variant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Target
from sottovoce.data.corpora import open_corpus
from sottovoce.errors import InputError, UnknownName
from sottovoce.targets.zoo import shipped_weights as shipped
from sottovoce.targets.zoo.classifier_targets import MaskedClassifier, sound, speaker
from sottovoce.targets.zoo.keyword_cnn import KeywordCnn, keyword
from sottovoce.targets.zoo.recogniser_targets import recogniser
from sottovoce.targets.zoo.sound_cnn import SoundCnn
from sottovoce.targets.zoo.speaker_cnn import SpeakerCnn

Make = Callable[..., Target]


class Length(torch.nn.Module):
    """Scores that are the number of samples, and its negative."""

    def forward(self, waveforms: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.stack([lengths, -lengths], dim=1).to(waveforms)


def write(module: torch.nn.Module, path: Path) -> None:
    halves = {name: value.half().contiguous() for name, value in module.state_dict().items()}
    safetensors.torch.save_file(halves, path)


def test_a_module_is_told_the_lengths() -> None:
    target = MaskedClassifier(Length(), ["long", "short"], shortest=100)
    batch = AudioBatch.of([torch.zeros(300), torch.zeros(200)], 16_000)
    assert target.scores(batch, draws=Draws(0)).tolist() == [[300.0, -300.0], [200.0, -200.0]]
    assert target.decode(batch, draws=Draws(0)) == ["long", "long"]
    assert (target.shortest, target.longest) == (100, None)


@pytest.mark.parametrize(("make", "module"), [(speaker, SpeakerCnn), (sound, SoundCnn)])
def test_weights_of_a_file_run_in_32_bits(make: Make, module: type[torch.nn.Module], tmp_path: Path) -> None:
    write(module(), tmp_path / "mine.safetensors")
    target = make(weights=str(tmp_path / "mine.safetensors"))
    assert isinstance(target, MaskedClassifier)
    assert {value.dtype for value in target.module.state_dict().values()} == {torch.float32}
    assert not target.module.training
    assert not any(value.requires_grad for value in target.module.parameters())


@pytest.mark.parametrize(
    ("make", "near", "meant"),
    [
        (speaker, "gausian", "gaussian"),
        (sound, "mda", "mad"),
        (keyword, "pdg", "pgd"),
        (recogniser, "nosy", "noisy"),
    ],
)
def test_an_unknown_variant_names_the_nearest(make: Make, near: str, meant: str) -> None:
    with pytest.raises(UnknownName, match=rf"unknown variant of \w+ '{near}': did you mean '{meant}'\?"):
        make(variant=near)


def test_variants_have_files_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    monkeypatch.setattr(shipped.resources, "files", lambda _: tmp_path)
    for stem, module in (("speaker-plain", SpeakerCnn), ("sound-mad", SoundCnn), ("keyword-pgd", KeywordCnn)):
        write(module(), tmp_path / "weights" / f"{stem}.safetensors")
    assert (
        speaker().sample_rate
        == sound(variant="mad").sample_rate
        == keyword(variant="pgd").sample_rate
        == 16_000
    )
    for make, name, variant in (
        (speaker, "speaker", "mad"),
        (sound, "sound", "plain"),
        (recogniser, "recogniser", "noisy"),
    ):
        with pytest.raises(
            InputError, match=rf"'{variant}' of {name}: its weights, {name}-{variant}\.safetensors, are not"
        ):
            make(variant=variant)
    with pytest.raises(
        InputError, match=r"its weights, keyword_cnn\.safetensors, are not in this installation"
    ):
        keyword()
    with pytest.raises(
        InputError, match=r"its weights, recogniser\.safetensors, are not in this installation"
    ):
        recogniser()


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    write(SoundCnn(), tmp_path / "sound.safetensors")
    with pytest.raises(InputError, match="no SpeakerCnn of the shipped size"):
        speaker(weights=str(tmp_path / "sound.safetensors"))
    with pytest.raises(InputError, match="variant and weights exclude each other, got 'mad' and"):
        sound(variant="mad", weights=str(tmp_path / "sound.safetensors"))


def test_the_clips_of_the_speakers_are_not_shipped(tmp_path: Path) -> None:
    write(SpeakerCnn(), tmp_path / "mine.safetensors")
    target = speaker(weights=str(tmp_path / "mine.safetensors"))
    with pytest.raises(
        InputError, match=r"github\.com/soerenab/AudioMNIST \(MIT\) and give --data audiomnist:DIR"
    ):
        open_corpus(target.clips)


def test_the_sounds_are_made(tmp_path: Path) -> None:
    write(SoundCnn(), tmp_path / "mine.safetensors")
    target = sound(weights=str(tmp_path / "mine.safetensors"))
    corpus = open_corpus(target.clips)
    target.check_labels(corpus.labels)
    assert len(corpus) == 100
