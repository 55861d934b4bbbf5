"""Training of denoisers: mixtures at the SNR asked for, losses that begin at 1, and runs that learn."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.data.pack import Pack
from sottovoce.defenses.denoiser import Denoise, DenoiserShape
from sottovoce.errors import InputError, MissingExtra, UnknownName
from sottovoce.perception.ears.dpam import Dpam
from sottovoce.perception.ears.learned_network import EarShape as EarShape
from sottovoce.perception.ears.learned_network import LearnedNetwork, save_network
from sottovoce.training.denoiser.denoiser_losses import LossWeights, Objective, make_term, mean_l1
from sottovoce.training.denoiser.denoiser_material import (
    Mixer,
    NoiseBank,
    make_material,
    make_noises,
    make_one,
)
from sottovoce.training.denoiser.train_denoiser import DenoiserRecipe, snr_db, train_denoiser

RATE = 16000
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> LossWeights:
    """Untrained ears: what a loss is made of does not hang on what was learned."""
    folder = tmp_path_factory.mktemp("ears")
    for variant in ("pre", "scratch"):
        network = LearnedNetwork(EarShape(bands=16, channels=(4, 4)))
        save_network(folder / f"learned-{variant}.safetensors", network, {})
    return LossWeights(ears=folder)


def pack_of(speakers: list[str], seconds: float = 1.0) -> Pack:
    """Speech stands for a tone that comes and goes, of a pitch of its own."""
    time = np.arange(int(seconds * RATE)) / RATE
    clips = []
    for number, _ in enumerate(speakers):
        tone = np.sin(2 * np.pi * (200 + 50 * number) * time) * (np.sin(2 * np.pi * 2 * time) > 0)
        clips.append(np.rint(8000 * tone).astype(np.int16))
    blank = np.full(len(clips), "")
    return Pack(
        samples=np.concatenate(clips),
        lengths=np.array([len(clip) for clip in clips]),
        ids=np.array([f"clip-{number}" for number in range(len(clips))]),
        labels=blank,
        split=blank,
        speakers=np.array(speakers),
        sample_rate=RATE,
    )


def white(count: int) -> list[np.ndarray]:
    return [
        np.rint(3000 * np.random.default_rng(number).standard_normal(RATE)).astype(np.int16)
        for number in range(count)
    ]


def pair(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    clean = 0.1 * torch.randn(2, 12000, generator=source)
    return clean, clean + 0.03 * torch.randn(2, 12000, generator=source)


def test_pieces_are_cut_from_clips_at_an_rms_of_one() -> None:
    bank = NoiseBank.of(
        [np.full(4, 16384, np.int16), np.array([100, -100, 300, -300, 100, -100], np.int16)], CPU
    )
    # Ten samples: the first four are of one clip, the last six of the other.
    chances = torch.tensor([[0.39, 0.9], [0.41, 0.0], [0.99, 0.99]], dtype=torch.float64)
    found = bank.cut(chances, 5)
    rms = np.sqrt((4 * 100**2 + 2 * 300**2) / 6)
    expected = [[1, 1, 1, 1, 0], np.array([100, -100, 300, -300, 100]) / rms]
    expected.append(np.array([-100, 300, -300, 100, -100]) / rms)
    np.testing.assert_allclose(found.numpy(), np.array(expected), rtol=1e-5)


def test_mixtures_have_the_snr_and_the_level_asked_for() -> None:
    speech = NoiseBank.of([pack_of(["a"]).clip(0)], CPU)
    mixer = Mixer(speech, NoiseBank.of(white(1), CPU), snr_db=(10.0, 10.0), level_db=(-30.0, -30.0))
    clean, noisy = mixer.mix(40, RATE, np.random.default_rng(0))
    found = snr_db(clean, noisy).numpy()
    # Where two noises come together they are the same one here, and so 3.01 dB louder.
    assert np.minimum(abs(found - 10.0), abs(found - 6.9897)).max() < 0.01
    assert 5 < (found > 8).sum() < 40
    levels = 10 * clean.square().mean(dim=1).log10()
    np.testing.assert_allclose(levels.numpy(), -30.0, atol=0.01)


def test_no_speaker_is_in_two_splits() -> None:
    names = [f"speaker-{number}" for number in range(20)]
    material = make_material(pack_of(names, 0.2), {"train": white(1), "valid": white(2)})
    every = [name for split in ("train", "valid", "test") for name in material.speakers[split]]
    assert sorted(every) == sorted(names)
    assert [len(material.speakers[split]) for split in ("train", "valid", "test")] == [16, 2, 2]
    assert len(material.train.speech) == 16


def test_packs_without_speakers_or_at_another_rate_are_refused() -> None:
    noises = {"train": white(1), "valid": white(1)}
    with pytest.raises(InputError, match="does not name the speakers"):
        make_material(pack_of(["a", "", "b"], 0.1), noises)
    with pytest.raises(InputError, match="got none"):
        make_material(pack_of(["a", "b"], 0.1), noises)


def test_noises_hang_on_their_ids_alone() -> None:
    one = make_one(("coloured", "denoiser/train/coloured-000"))
    np.testing.assert_array_equal(one, make_one(("coloured", "denoiser/train/coloured-000")))
    other = make_one(("coloured", "denoiser/valid/coloured-000"))
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.1
    # 4 noises, 10 sounds and six times as many coloured ones.
    assert len(make_noises(1, "valid", processes=1)) == 4 + 10 + 6


def test_every_loss_begins_at_one_and_is_zero_for_clean_speech(sources: LossWeights) -> None:
    pytest.importorskip("auraloss")
    clean, noisy = pair()
    for name in ("l1", "mrstft", "features", "learned", "l1-learned", "mrstft-learned"):
        loss = Objective(name, sources)
        loss.calibrate(clean, noisy)
        assert float(loss(clean, noisy)) == pytest.approx(1.0, rel=1e-5), name
        assert float(loss(clean, clean)) == pytest.approx(0.0, abs=1e-6), name
        leaf = noisy.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(clean, leaf), leaf)
        assert bool(gradient.isfinite().all()), name
        assert bool((gradient != 0).any()), name


def test_two_terms_weigh_alike(sources: LossWeights) -> None:
    clean, noisy = pair()
    both, one, two = (Objective(name, sources) for name in ("l1-learned", "l1", "learned"))
    for loss in (both, one, two):
        loss.calibrate(clean, noisy)
    nearer = 0.3 * noisy + 0.7 * clean
    expected = (float(one(clean, nearer)) + float(two(clean, nearer))) / 2
    assert float(both(clean, nearer)) == pytest.approx(expected, rel=1e-5)
    assert float(one(clean, nearer)) == pytest.approx(0.3, rel=1e-4)


def test_l1_by_hand() -> None:
    clean, other = torch.tensor([[0.0, 1.0], [0.5, 0.5]]), torch.tensor([[1.0, 1.0], [0.5, -0.5]])
    assert float(mean_l1(clean, other)) == 0.5


def test_mrstft_is_that_of_auraloss(sources: LossWeights) -> None:
    freq = pytest.importorskip("auraloss.freq")
    clean, noisy = pair()
    expected = freq.MultiResolutionSTFTLoss()(noisy[:, None], clean[:, None])
    assert float(make_term("mrstft", sources, CPU)(clean, noisy)) == pytest.approx(float(expected))


def test_the_dpam_loss_is_the_ears_distance() -> None:
    models = Path(os.environ.get("SOTTOVOCE_MODELS", Path(__file__).parents[3] / "shared" / "models"))
    if not (models / "dpam" / "scratch.npz").exists():
        pytest.skip("needs dpam in the folder named by SOTTOVOCE_MODELS")
    clean, noisy = pair()
    # A length that is whole at 22.05 kHz as well: 13230 samples.
    clean, noisy = clean[:, :9600], noisy[:, :9600]
    ear = Dpam(weights=str(models / "dpam"))
    batches = [AudioBatch.of(list(each.numpy()), RATE) for each in (clean, noisy)]
    term = make_term("dpam", LossWeights(dpam=str(models / "dpam")), CPU)
    assert float(term(clean, noisy)) == pytest.approx(float(ear.distance(*batches).mean()), rel=1e-4)


def test_what_a_loss_needs_is_named(sources: LossWeights, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="l2"):
        Objective("l2", sources)
    with pytest.raises(InputError, match="published weights"):
        Objective("dpam", sources)
    with pytest.raises(InputError, match="check the"):
        Objective("learned", LossWeights(ears=Path("nowhere")))
    clean, _ = pair()
    with pytest.raises(InputError, match="above 0"):
        Objective("l1", sources).calibrate(clean, clean)
    monkeypatch.setitem(sys.modules, "auraloss.freq", None)
    with pytest.raises(MissingExtra, match="sottovoce\\[denoise\\]"):
        Objective("mrstft", sources)


def test_a_run_learns_and_leaves_weights(sources: LossWeights, tmp_path: Path) -> None:
    names = [f"speaker-{number}" for number in range(12)]
    material = make_material(pack_of(names), {"train": white(4), "valid": white(2)})
    recipe = DenoiserRecipe(
        steps=60,
        seconds=None,
        batch=4,
        piece_seconds=0.25,
        learning_rate=5e-3,
        looks=2,
        valid_pieces=8,
        shape=DenoiserShape(width=6, octaves=5),
    )
    said: list[str] = []
    reports = [
        train_denoiser(
            "l1", material, sources=sources, recipe=recipe, out=tmp_path / name, facts={}, log=said.append
        )
        for name in ("one", "two")
    ]
    first, last = reports[0].history[0], reports[0].history[-1]
    assert first["snr_db"] == pytest.approx(first["before_db"])
    assert last["loss"] < 0.9 * first["loss"]
    assert last["snr_db"] > last["before_db"] + 1.0
    assert reports[0].history == [
        {**look, "seconds": own["seconds"]}
        for look, own in zip(reports[1].history, reports[0].history, strict=True)
    ]
    part = Denoise(weights=str(tmp_path / "one" / "denoiser-l1.safetensors"))
    assert part.facts["trained_on"].split(",") == material.speakers["train"]
    assert part.facts["steps"] == "60"


@pytest.mark.parametrize("settings", [{"steps": None, "seconds": None}, {"batch": 0}, {"piece_seconds": 0.1}])
def test_recipes_are_checked(settings: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"expected|give steps or seconds"):
        DenoiserRecipe(**settings)  # type: ignore[arg-type]
