"""Detectors of pathological speech as targets: votes of segments, files, laws, and attacks inside an SNR."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.files.weight_files import read_weights, save_weights
from sottovoce.core.goal import Evade
from sottovoce.core.target import Target, check_clips
from sottovoce.data.load import Clip
from sottovoce.errors import InputError, UnknownName
from sottovoce.metrics.decisions import ChanceOfRight, CleanChanceOfRight
from sottovoce.metrics.signal_distortion import snr_db
from sottovoce.targets.adapters.speech_encoders import open_encoder
from sottovoce.targets.zoo import detector_targets as detectors
from sottovoce.targets.zoo.detector_networks import EmbeddingHead, SegmentCnn
from sottovoce.targets.zoo.detector_targets import (
    EmbeddingDetector,
    SegmentDetector,
    detector,
    load_detector,
    save_detector,
    segment_clips,
    segment_rows,
    segments_of,
)
from sottovoce.targets.zoo.shipped_weights import shipped_file
from sottovoce.testing import check_target, example_clips

DRAWS = Draws(0)
# One segment, two (and 150 ms that nobody hears), four, two.
SECONDS = (0.5, 0.9, 1.25, 0.75)


def seeded(make: type[torch.nn.Module], *given: int, seed: int = 1) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(*given).eval()


def cnn() -> SegmentDetector:
    return SegmentDetector(seeded(SegmentCnn))


def embedding(layer: int = 3) -> EmbeddingDetector:
    encoder = open_encoder("recogniser")
    return EmbeddingDetector(encoder, layer, seeded(EmbeddingHead, encoder.width))


@pytest.fixture
def clips() -> AudioBatch:
    return example_clips(seconds=SECONDS)


def test_detectors_keep_the_laws(clips: AudioBatch) -> None:
    check_target(cnn(), clips)
    check_target(embedding(), clips)


def test_scores_of_nan_are_no_answer(
    check_nan: Callable[[Target, AudioBatch], None], clips: AudioBatch
) -> None:
    check_nan(cnn(), clips)
    check_nan(embedding(), clips)


def test_a_clip_is_the_mean_of_the_probabilities_of_its_segments(clips: AudioBatch) -> None:
    target = cnn()
    chances = target.scores(clips, draws=DRAWS).exp()
    np.testing.assert_allclose(chances.detach().sum(dim=1), 1.0, atol=1e-6)
    clip = clips.clip(2)
    starts = (0, 4000, 8000, 12000)
    each = [target.module(clip[None, start : start + 8000]).softmax(dim=1)[0] for start in starts]
    torch.testing.assert_close(chances[2], torch.stack(each).mean(dim=0))


def test_what_follows_the_last_whole_segment_is_not_heard(clips: AudioBatch) -> None:
    target = cnn()
    louder = clips.waveforms.clone()
    # 0.9 s: segments begin at 0 and 250 ms, and the last of them ends at 750 ms.
    louder[1, 12_000 : int(clips.lengths[1])] = 0.5
    torch.testing.assert_close(
        target.scores(clips.with_waveforms(louder), draws=DRAWS), target.scores(clips, draws=DRAWS)
    )


def test_shorter_clips_are_refused() -> None:
    batch = AudioBatch.of([torch.zeros(8000), torch.zeros(7999)], 16_000, ["long", "short"])
    with pytest.raises(InputError, match=r"'short': expected at least 8000 samples \(500 ms\).* got 7999"):
        check_clips(cnn(), batch)
    for hear in (segments_of, lambda some: cnn().scores(some, draws=DRAWS)):
        with pytest.raises(InputError, match=r"'short': expected at least 8000 samples .* got 7999"):
            hear(batch)


def test_many_segments_give_what_few_give(clips: AudioBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    target = cnn()
    found = []
    for most in (256, 2):
        monkeypatch.setattr(detectors, "AT_ONCE", most)
        monkeypatch.setattr(detectors, "CACHED", min(most, 32))
        leaf = clips.waveforms.clone().requires_grad_()
        # Handed over in training mode: the second pass for the gradient must not be in it either.
        target.module.train()
        loss = target.loss(clips.with_waveforms(leaf), ["control"] * 4, draws=DRAWS)
        loss.sum().backward()
        assert target.module.training
        found.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)


def test_segments_are_clips_of_their_own(clips: AudioBatch) -> None:
    segments = segments_of(clips)
    assert segments.ids == (
        *("example-0#0", "example-1#0", "example-1#1"),
        *("example-2#0", "example-2#1", "example-2#2", "example-2#3", "example-3#0", "example-3#1"),
    )
    assert segment_rows(clips) == [0, 1, 1, 2, 2, 2, 2, 3, 3]
    assert set(segments.lengths.tolist()) == {8000}
    torch.testing.assert_close(segments.waveforms[4], clips.waveforms[2, 4000:12_000])


def test_segments_keep_label_and_facts() -> None:
    waveform = torch.arange(12_000) / 32768
    clip = Clip("a", waveform, 16_000, "pathological", facts={"speaker": "ann"})
    first, second = segment_clips([clip])
    assert (first.id, second.id) == ("a#0", "a#1")
    assert {one.label for one in (first, second)} == {"pathological"}
    assert second.facts == {"speaker": "ann"}
    assert float(second.waveform[0]) == 4000 / 32768
    with pytest.raises(InputError, match=r"'b': expected at least 8000 samples"):
        segment_clips([Clip("b", waveform[:100], 16_000, "control")])


def attacked(target: SegmentDetector | EmbeddingDetector, clean: AudioBatch, db: float) -> Trial:
    labels = ("control",) * len(clean)
    attack = Pgd(steps=10, step=0.25)
    goal, budget = Evade().bind(list(labels)), Snr(db, shape="linf")
    return attack(target, clean, goal, budget, draws=DRAWS, labels=labels, bits=None)


@pytest.mark.parametrize("db", [0.0, 30.0, 60.0, 100.0])
def test_every_attacked_clip_has_the_snr_that_was_asked_for(db: float, clips: AudioBatch) -> None:
    # With the radius ||x|| 10^(-db/20) / sqrt(N); the paper's 10^(-db/20) / N would promise another SNR.
    for clean in (segments_of(clips), clips):
        trial = attacked(cnn(), clean, db)
        reached = snr_db(trial.clean.waveforms, trial.delta, trial.clean.lengths)
        # A full cube has the SNR itself; float32 rounds the samples of a 100 dB perturbation.
        assert float(reached.min()) >= db - 1e-3
        assert float(reached.min()) <= db + 6.0


def test_attacks_lower_the_probability_that_is_recorded(clips: AudioBatch) -> None:
    target = cnn()
    trial = attacked(target, clips, 30.0)
    before, after = CleanChanceOfRight().measure(trial), ChanceOfRight().measure(trial)
    expected = torch.tensor(
        [target.scores(clips.select([row]), draws=DRAWS).softmax(dim=1)[0, 0].item() for row in range(4)]
    )
    torch.testing.assert_close(before[:, 0].float(), expected)
    assert before[:, 1].tolist() == [1.0] * 4
    assert bool((after[:, 0] < before[:, 0]).all())


def test_a_cnn_comes_back_from_its_file(tmp_path: Path, clips: AudioBatch) -> None:
    target, path = cnn(), tmp_path / "mine.safetensors"
    save_detector(path, target, trained_on="three clips")
    found = detector(str(path))
    assert isinstance(found, SegmentDetector)
    torch.testing.assert_close(found.scores(clips, draws=DRAWS), target.scores(clips, draws=DRAWS))
    assert not any(value.requires_grad for value in found.module.parameters())
    with pytest.raises(InputError, match="is a cnn, which has none"):
        detector(str(path), encoder="recogniser")


def test_a_detector_of_embeddings_comes_back_with_its_encoder(tmp_path: Path, clips: AudioBatch) -> None:
    target, path = embedding(layer=5), tmp_path / "mine.safetensors"
    save_detector(path, target, trained_on="three clips")
    found = detector(str(path))
    assert isinstance(found, EmbeddingDetector)
    assert (found.encoder.name, found.layer) == ("recogniser", 5)
    torch.testing.assert_close(found.scores(clips, draws=DRAWS), target.scores(clips, draws=DRAWS))


def test_other_weights_under_the_encoders_name_are_noticed(tmp_path: Path) -> None:
    target, path = embedding(), tmp_path / "mine.safetensors"
    with torch.no_grad():
        next(target.encoder.module.parameters()).add_(0.1)
    save_detector(path, target, trained_on="three clips")
    with pytest.raises(InputError, match=r"trained with recogniser, got other weights in recogniser"):
        load_detector(path)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_weights(path, "denoiser", {}, {"x": torch.zeros(1)}, {})
    with pytest.raises(InputError, match="expected weights of a detector, got those of denoiser"):
        detector(str(path))
    classes = ["control", "pathological"]
    save_weights(path, "detector", {"kind": "ccn", "classes": classes}, {"x": torch.zeros(1)}, {})
    with pytest.raises(UnknownName, match=r"kind of detector .* 'ccn': did you mean 'cnn'\?"):
        detector(str(path))
    save_weights(path, "detector", {"kind": "cnn", "classes": ["hc", "pd"]}, {"x": torch.zeros(1)}, {})
    with pytest.raises(InputError, match="expected a detector of control and pathological, got"):
        detector(str(path))
    save_weights(path, "detector", {"kind": "cnn", "classes": classes}, {"x": torch.zeros(1)}, {})
    with pytest.raises(InputError, match=r"expected layers\.0\.bias \(64,\), got nothing"):
        detector(str(path))


def test_a_head_fits_its_encoder_alone() -> None:
    with pytest.raises(InputError, match="expected one with frames of 768 numbers, got 144"):
        EmbeddingDetector(open_encoder("recogniser"), 3, EmbeddingHead(768))
    with pytest.raises(InputError, match="expected a layer from 0 to 8, got 9"):
        embedding(layer=9)


def test_the_shipped_detector_says_that_it_knows_a_proxy_alone(clips: AudioBatch) -> None:
    target = detector()
    assert isinstance(target, SegmentDetector)
    assert (target.classes, target.clips) == (("control", "pathological"), "proxy")
    file = shipped_file("detector", "plain", ("plain",), plain="detector")
    with resources.as_file(file) as path:
        assert read_weights(path, "detector", "nobody").facts["trained_on"].startswith("PROXY")
        assert path.stat().st_size < 140_000
    assert "PROXY" in file.parent.joinpath("detector.md").read_text().splitlines()[2]
    check_target(target, clips)
