"""Study A: attacks of a detector whose answers are known, spectra and kept examples."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.transform import Defended
from sottovoce.defenses.randomised_smoothing import Gaussian
from sottovoce.errors import InputError
from sottovoce.studies.amiri2024.detector_attacks import Arena, Examples, cell, mean_psd, read_examples
from sottovoce.studies.amiri2024.job_plan import MINI, NOISES
from sottovoce.studies.amiri2024.noise_stand_ins import RECIPES, recordings
from sottovoce.targets.families.classifier import Classifier
from sottovoce.targets.zoo.detector_networks import SegmentCnn
from sottovoce.targets.zoo.detector_targets import SegmentDetector
from sottovoce.training.sources import ClipsInMemory, hold_clips

RATE = 16_000


class MeanSign(Classifier):
    """Says "pathological" where the mean of a clip is above zero; its score is so many times that."""

    classes = ("control", "pathological")
    sample_rate = RATE

    def __init__(self, gain: float = 100.0) -> None:
        self.gain = gain

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        mean = batch.waveforms.sum(dim=1) / batch.lengths
        return torch.stack([torch.zeros_like(mean), self.gain * mean], dim=1)


def constant(level: int, samples: int) -> np.ndarray:
    return np.full(samples, level, dtype=np.int16)


@pytest.fixture
def clips() -> ClipsInMemory:
    """Three segments of 1000 steps of 16 bits, and one of -1000."""
    return hold_clips(
        [constant(1000, 16_000), constant(-1000, 8_000)], ["pathological", "control"], ["a", "b"], RATE
    )


def arena(clips: ClipsInMemory, **options: bool) -> Arena:
    return Arena(clips, MINI, Draws(0), **options)


def logistic(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-score))


def test_chances_are_weighed_by_segments(clips: ClipsInMemory) -> None:
    level = 1000 / 32768
    found = arena(clips).clean(MeanSign())["chance"]
    # a is told "pathological" with a score of 100 x 0.0305, b "control" with as much; a has three segments.
    wanted = [[3 * logistic(100 * level), 3.0], [logistic(100 * level), 1.0]]
    assert np.array(found) == pytest.approx(np.array(wanted), rel=1e-5)
    alike = arena(clips, by_segments=False).clean(MeanSign())["chance"]
    assert np.array(alike) == pytest.approx(np.array([[logistic(100 * level), 1.0]] * 2), rel=1e-5)


def test_attack_by_hand_in_floats_and_as_a_file(clips: ClipsInMemory) -> None:
    floats, files, pairs = arena(clips).utterances(MeanSign(), 20.0)
    # Every sample moves a tenth of its size toward zero: 900 steps are left, at the SNR asked for.
    left = logistic(100 * 900 / 32768)
    assert [value / weight for value, weight in floats["chance"]] == pytest.approx([left, left], rel=1e-4)
    assert floats["snr_db"] == pytest.approx(20.0, abs=1e-3)
    assert files["snr_db"] == pytest.approx(20.0, abs=1e-3)
    assert float(pairs[0][1].clip(0)[0]) == pytest.approx(900 / 32768)
    # At 70 dB the radius is a third of a step: nothing of it is in a file.
    floats, files, _ = arena(clips).utterances(MeanSign(), 70.0)
    assert (floats["snr_db"], files["snr_db"]) == (pytest.approx(70.0, abs=0.01), None)
    assert files["chance"] == arena(clips).clean(MeanSign())["chance"]


def test_silent_clips_have_no_snr_and_hide_that_of_no_other() -> None:
    sounds = [constant(1000, 16_000), constant(0, 8_000)]
    clips = hold_clips(sounds, ["pathological", "control"], ["a", "b"], RATE)
    floats, files, _ = arena(clips).utterances(MeanSign(), 20.0)
    assert floats["snr_db"] == pytest.approx(20.0, abs=1e-3)
    assert files["snr_db"] == pytest.approx(20.0, abs=1e-3)


def test_what_is_louder_than_asked_is_an_error(clips: ClipsInMemory) -> None:
    ground = arena(clips)
    # A tenth of every sample: 20 dB.
    _, _, pairs = ground.utterances(MeanSign(), 20.0)
    ground.judge(MeanSign(), pairs, Snr(20.04, shape="linf"))
    with pytest.raises(InputError, match=r"an attack at 20\.1 dB went down to 20\.00 dB"):
        ground.judge(MeanSign(), pairs, Snr(20.1, shape="linf"))


def test_a_sure_detector_is_attacked_too(clips: ClipsInMemory) -> None:
    # Scores are 3,000 apart: the cross-entropy and its gradient are zero, and what climbs it stands still.
    sure = MeanSign(1e5)
    some = clips.batch([0])
    waveforms = some.batch.waveforms.clone().requires_grad_()
    loss = sure.loss(some.batch.with_waveforms(waveforms), some.labels, draws=Draws(0))
    (gradient,) = torch.autograd.grad(loss.sum(), waveforms)
    assert (loss.detach().tolist(), float(gradient.abs().max())) == ([0.0], 0.0)
    floats, _, pairs = arena(clips).utterances(sure, 20.0)
    assert floats["snr_db"] == pytest.approx(20.0, abs=1e-3)
    assert float(pairs[0][1].clip(0)[0]) == pytest.approx(900 / 32768)


def test_what_is_attacked_through_noise_is_never_left_as_it_was(clips: ClipsInMemory) -> None:
    # The mean of a clip hardly moves with the noise, and the loss still less: no step looks better for sure.
    smoothed = Defended(MeanSign(), (Gaussian(sigma=0.01),))
    for norm in ("linf", "l2"):
        _, _, pairs = arena(clips).utterances(smoothed, 60.0, norm=norm)
        for clean, heard in pairs:
            # Ten steps of a quarter of the radius end on its edge: a thousandth of every sample.
            added = (heard.waveforms - clean.waveforms)[clean.mask]
            assert added.abs().double().numpy() == pytest.approx(1 / 32768, rel=0.05)


def test_examples_made_elsewhere_are_judged_here(clips: ClipsInMemory) -> None:
    ground = arena(clips)
    _, _, pairs = ground.utterances(MeanSign(), 20.0)
    floats, _ = ground.judge(MeanSign(), pairs, Snr(20.0, shape="linf"))
    assert floats == ground.utterances(MeanSign(), 20.0)[0]


def test_votes_of_a_smoothed_detector_are_counted(clips: ClipsInMemory) -> None:
    # Noise of a hundredth moves the mean of 8,000 samples by about 1e-4: all passes say the same.
    smoothed = Defended(MeanSign(), (Gaussian(sigma=0.01),))
    assert arena(clips).clean(smoothed)["chance"] == [[3.0, 3.0], [1.0, 1.0]]


@pytest.fixture
def noisy_clips() -> ClipsInMemory:
    source = np.random.default_rng(0)
    waveforms = [(3000 * source.standard_normal(size)).astype(np.int16) for size in (9_000, 16_500)]
    return hold_clips(waveforms, ["control", "pathological"], ["a", "b"], RATE)


@pytest.mark.parametrize("db", [20.0, 60.0])
def test_every_attack_keeps_its_snr_and_segments_count(noisy_clips: ClipsInMemory, db: float) -> None:
    torch.manual_seed(0)
    target = SegmentDetector(SegmentCnn().requires_grad_(False).eval())
    ground = arena(noisy_clips)
    clean = ground.clean(target)
    for attack in (ground.segments, ground.utterances):
        floats, files, _ = attack(target, db)
        assert [weight for _, weight in floats["chance"]] == [1.0, 3.0]
        for one in (floats, files):
            assert one["snr_db"] >= db - 1e-3
        for (before, _), (after, _) in zip(clean["chance"], floats["chance"], strict=True):
            assert after < before
    l2, _, _ = ground.utterances(target, db, norm="l2")
    assert l2["snr_db"] >= db - 1e-3


def test_psd_holds_the_power() -> None:
    # A sine of amplitude 0.5 has a power of 0.125; that is what its density adds up to.
    time = np.arange(16_000) / RATE
    clean = AudioBatch.of([0.5 * np.sin(2 * np.pi * 1000 * time)], RATE)
    heard = AudioBatch.of([clean.waveforms[0].numpy() + 0.1 * np.sin(2 * np.pi * 5000 * time)], RATE)
    found = mean_psd([(clean, heard)])
    step = RATE / 512
    assert sum(found["speech"]) * step == pytest.approx(0.125, rel=0.01)
    assert sum(found["added"]) * step == pytest.approx(0.005, rel=0.01)
    assert (int(np.argmax(found["speech"])), int(np.argmax(found["added"]))) == (32, 160)


def test_examples_survive_their_file(tmp_path: Path, clips: ClipsInMemory) -> None:
    _, _, pairs = arena(clips).utterances(MeanSign(), 80.0)
    kept = Examples(most=1)
    kept.add(cell("utterances", 80), pairs)
    np.savez_compressed(tmp_path / "one.npz", **kept.arrays)  # type: ignore[arg-type]
    found = read_examples(tmp_path / "one.npz")
    assert list(found) == ["utterances linf 80"]
    clean, heard = found["utterances linf 80"]
    assert clean.ids == ("a",)
    # What is far below a step of 16 bits is still there: a ten-thousandth of 1000 steps.
    added = (heard.waveforms - clean.waveforms).double().numpy()
    assert added == pytest.approx(np.full_like(added, -0.1 / 32768), rel=0.01)


def test_names_of_cells() -> None:
    assert cell("segments", 60) == "segments linf 60"
    assert cell("transfer", 20.0, "l2", bits=16) == "transfer l2 20 16 bits"


def test_noises_are_those_of_the_paper_and_heard() -> None:
    assert tuple(RECIPES) == NOISES
    for name in ("KITCHEN", "CITY"):
        ones, others = recordings(name, "train"), recordings(name, "test")
        assert [len(one) for one in (*ones, *others)] == [128_000] * 4
        assert all(np.isfinite(one).all() and np.abs(one).max() == 1.0 for one in (*ones, *others))
        # Tests hear other noise than training did.
        assert abs(float(np.corrcoef(ones[0], others[0])[0, 1])) < 0.5
