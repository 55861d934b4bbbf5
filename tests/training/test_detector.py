"""Training detectors: the schedule by hand, and toy voices that a spectrum tells apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.data.load import Corpus, Entry, Recording
from sottovoce.defenses.randomised_smoothing import Gaussian
from sottovoce.errors import InputError, StoreError
from sottovoce.metrics.signal_distortion import snr_db
from sottovoce.targets.adapters.speech_encoders import open_encoder
from sottovoce.targets.zoo.detector_networks import EmbeddingHead, SegmentCnn
from sottovoce.targets.zoo.detector_targets import EmbeddingDetector, SegmentDetector
from sottovoce.training.detector.detector_embeddings import (
    EmbeddingCache,
    Embeddings,
    embed,
    train_embeddings,
)
from sottovoce.training.detector.detector_material import (
    Background,
    Held,
    Utterances,
    changed,
    cut_segments,
    hold_features,
)
from sottovoce.training.detector.train_detector import (
    FOR_EMBEDDINGS,
    FOR_SEGMENTS,
    DetectorRecipe,
    Schedule,
    adversary,
    fit,
    judge,
    train_detector,
)
from sottovoce.training.sources import ClipsInMemory, hold_clips

RATE = 16_000
QUICK = replace(FOR_SEGMENTS, epochs=4, batch_size=8)


def voices(count: int, seed: int, seconds: float = 1.0) -> ClipsInMemory:
    """Noise that falls with frequency is "control", noise that rises "pathological"; turn by turn."""
    source = np.random.default_rng(seed)
    samples = round(seconds * RATE)
    tilt = np.linspace(0.0, 1.0, samples // 2 + 1)
    waveforms, labels = [], []
    for place in range(count):
        shape = tilt if place % 2 else 1.0 - tilt
        sound = np.fft.irfft(np.fft.rfft(source.standard_normal(samples)) * shape, n=samples)
        waveforms.append((3000 * sound / sound.std()).clip(-32768, 32767).astype(np.int16))
        labels.append("pathological" if place % 2 else "control")
    return hold_clips(waveforms, labels, [f"{seed}-{place}" for place in range(count)], RATE)


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.flatten() for value in module.state_dict().values()])


# --- the recipe -----------------------------------------------------------------------------------------


def test_recipes_are_the_papers() -> None:
    for recipe in (FOR_SEGMENTS, FOR_EMBEDDINGS):
        assert (recipe.weight_decay, recipe.patience) == (5e-4, 5)
        assert (recipe.stop_share, recipe.epochs) == (1e-4, 100)
    assert (FOR_SEGMENTS.optimiser, FOR_SEGMENTS.learning_rate) == ("sgd", 1e-3)
    assert (FOR_EMBEDDINGS.optimiser, FOR_EMBEDDINGS.learning_rate) == ("adam", 0.1)
    assert type(FOR_EMBEDDINGS.build(EmbeddingHead(4))) is torch.optim.Adam
    (group,) = FOR_SEGMENTS.build(EmbeddingHead(4)).param_groups
    assert (group["lr"], group["weight_decay"]) == (1e-3, 5e-4)


def test_five_epochs_without_gain_halve_the_rate() -> None:
    schedule = Schedule(FOR_SEGMENTS)
    losses = [1.0, 0.9, 0.9, 0.95, 0.91, 0.92, 0.93, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9]
    rates = []
    for loss in losses:
        schedule.step(loss)
        rates.append(schedule.rate)
    # 0.9 is lowest at the second; five that are no lower follow it, then a gain, then five more.
    assert rates == [1e-3] * 6 + [5e-4] * 6 + [2.5e-4]
    assert schedule.best == 0.8


def test_training_stops_below_a_ten_thousandth_of_the_first_rate() -> None:
    schedule, epochs = Schedule(FOR_SEGMENTS), 1
    schedule.step(1.0)
    while not schedule.over:
        schedule.step(1.0)
        epochs += 1
    # 2^-13 is 1.22e-4 and 2^-14 is 0.61e-4: fourteen times five epochs without gain, after the first.
    assert epochs == 1 + 14 * 5
    assert schedule.rate == pytest.approx(1e-3 / 2**14)


def test_a_plan_without_epochs_is_refused() -> None:
    with pytest.raises(InputError, match="above 0, got 32, 5, 0 and"):
        DetectorRecipe(epochs=0)


# --- the CNN --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> tuple[ClipsInMemory, ClipsInMemory]:
    return voices(8, 1), voices(4, 2)


@pytest.fixture(scope="module")
def few() -> tuple[ClipsInMemory, ClipsInMemory]:
    return voices(6, 1, seconds=0.5), voices(2, 2, seconds=0.5)


def test_a_detector_learns_and_the_best_epoch_is_kept(data: tuple[ClipsInMemory, ClipsInMemory]) -> None:
    train, valid = data
    found = train_detector(train, valid, recipe=QUICK)
    assert isinstance(found.module, SegmentCnn)
    assert len(found.history) == 4
    assert not found.module.training
    assert not any(value.requires_grad for value in found.module.parameters())
    test = voices(6, 3).batch(range(6))
    assert SegmentDetector(found.module).decode(test.batch, draws=Draws(0)) == list(test.labels)
    best = found.history[found.best]
    assert best.valid_loss == min(epoch.valid_loss for epoch in found.history)
    held = hold_features(cut_segments(valid, "cpu"))
    assert judge(found.module, held, Draws(0)) == pytest.approx((best.valid_loss, best.valid_accuracy))


def test_the_seed_rules_all(few: tuple[ClipsInMemory, ClipsInMemory]) -> None:
    train, valid = few
    recipe = replace(QUICK, epochs=2)
    state = torch.get_rng_state()
    one, two, other = (train_detector(train, valid, seed=seed, recipe=recipe) for seed in (5, 5, 6))
    assert torch.equal(state, torch.get_rng_state())
    torch.testing.assert_close(weights(one.module), weights(two.module), rtol=0, atol=1e-6)
    assert not torch.allclose(weights(one.module), weights(other.module), atol=1e-3)


def test_segments_are_cut_as_the_target_cuts_them() -> None:
    clips = hold_clips(
        [np.arange(12_000, dtype=np.int16), np.arange(8_100, dtype=np.int16)],
        ["pathological", "control"],
        ["a", "b"],
        RATE,
    )
    sounds = cut_segments(clips, "cpu")
    assert sounds.ids == ("a#0", "a#1", "b#0")
    assert sounds.segments[:, 0].tolist() == [0, 4000, 0]
    assert sounds.segments.shape == (3, 8000)
    assert sounds.wanted.tolist() == [1, 1, 0]


def test_features_held_are_those_of_the_waveforms(data: tuple[ClipsInMemory, ClipsInMemory]) -> None:
    sounds = cut_segments(data[1], "cpu")
    module = SegmentCnn().eval()
    rows = torch.tensor([3, 0])
    torch.testing.assert_close(
        hold_features(sounds).scores(module, rows, Draws(0)), sounds.scores(module, rows, Draws(0))
    )


@pytest.mark.parametrize(
    ("clips", "message"),
    [
        (replace(voices(2, 0), labels=("control", "healthy")), "unknown class 'healthy'"),
        (replace(voices(2, 0), labels=("control", "control")), "training clips of two classes or more"),
        (voices(2, 0, seconds=0.4), "'0-0': expected 8000 to"),
        (replace(voices(2, 0), sample_rate=8_000), "training clips at 16000 Hz, got 8000 Hz"),
    ],
)
def test_clips_that_teach_nothing_are_refused(clips: ClipsInMemory, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train_detector(clips, voices(2, 1))


def test_a_loss_without_end_is_an_error() -> None:
    never = Held(torch.full((2, 4), torch.nan), torch.tensor([0, 1]), lambda module, rows: module(rows))
    with pytest.raises(InputError, match="expected a finite validation loss, got nan in all of 2 epochs"):
        fit(EmbeddingHead(4), never, never, recipe=DetectorRecipe(epochs=2), draws=Draws(0))


# --- what is done to the clips --------------------------------------------------------------------------


def test_background_noise_has_its_exact_snr() -> None:
    noise = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
    batch = voices(3, 4, seconds=0.6).batch(range(3)).batch
    batch = AudioBatch.of([batch.clip(0), batch.clip(1)[:8000], batch.clip(2)], RATE, batch.ids)
    background = Background(recordings=(noise,), snr_db=15.0)
    found = background(batch, draws=Draws(1))
    reached = snr_db(batch.waveforms, found.waveforms - batch.waveforms, batch.lengths)
    np.testing.assert_allclose(reached, 15.0, atol=1e-3)
    assert not found.waveforms[1, 8000:].any()
    alone = background(batch.select([1]), draws=Draws(1))
    torch.testing.assert_close(alone.waveforms[0], found.waveforms[1, :8000])
    # The recording is short and comes round again.
    added = (found.waveforms - batch.waveforms)[0]
    torch.testing.assert_close(added[:3000], added[3000:6000], rtol=0, atol=1e-6)


def test_noise_that_cannot_be_heard_is_refused() -> None:
    for recordings in ((), (np.zeros(10, dtype=np.float32),)):
        with pytest.raises(InputError, match="expected recordings of noise"):
            Background(recordings=recordings)


def test_changed_clips_are_rounded_to_16_bits() -> None:
    clips = voices(3, 5, seconds=0.5)
    noise = np.random.default_rng(0).standard_normal(9000).astype(np.float32)
    found = changed(clips, Background(recordings=(noise,), snr_db=0.0), Draws(0))
    assert found.samples.dtype == torch.int16
    assert (found.ids, found.labels, found.lengths.tolist()) == (clips.ids, clips.labels, [8000] * 3)
    before, after = (some.samples[:8000].double() for some in (clips, found))
    ratio = before.square().sum() / (after - before).square().sum()
    assert float(10 * ratio.log10()) == pytest.approx(0.0, abs=0.01)


def test_half_of_each_batch_is_attacked_inside_the_snr(data: tuple[ClipsInMemory, ClipsInMemory]) -> None:
    heard: list[torch.Tensor] = []
    sounds = replace(cut_segments(data[1], "cpu"), adversary=adversary(60.0))
    module = SegmentCnn()
    module.register_forward_hook(lambda module, inputs, output: heard.append(inputs[0].detach()))
    sounds.scores(module, torch.arange(10), Draws(0))
    clean = sounds.segments[:10].float() / 32768
    # The last pass is that of training; those before it are the attack's.
    delta = heard[-1] - clean
    attacked = delta.any(dim=1)
    assert int(attacked.sum()) == 5
    reached = snr_db(clean[attacked], delta[attacked], torch.full((5,), 8000))
    assert float(reached.min()) >= 60.0 - 1e-3
    assert float(reached.max()) <= 66.0


def test_training_against_attacks_and_in_noise_runs_and_is_repeatable(
    few: tuple[ClipsInMemory, ClipsInMemory],
) -> None:
    train, valid = few
    recipe = replace(QUICK, epochs=1)
    noise = Background(recordings=(np.random.default_rng(0).standard_normal(9000).astype(np.float32),))
    settings = {
        "adversarial": {"adversarial": adversary(30.0)},
        "noise": {"noise": noise},
        "smoothing": {"smoothing": Gaussian(snr_db=20.0)},
    }
    plain = weights(train_detector(train, valid, recipe=recipe).module)
    for name, setting in settings.items():
        one, two = (train_detector(train, valid, recipe=recipe, **setting) for _ in range(2))
        torch.testing.assert_close(weights(one.module), weights(two.module), rtol=0, atol=1e-5, msg=name)
        assert not torch.allclose(weights(one.module), plain, atol=1e-4), name


@pytest.mark.slow
def test_adversarial_training_hardens_against_its_attack(few: tuple[ClipsInMemory, ClipsInMemory]) -> None:
    train, valid = few
    recipe = replace(QUICK, epochs=8)
    test = voices(4, 9, seconds=0.5).batch(range(4))
    losses = []
    for adversarial in (None, adversary(10.0, share=1.0)):
        module = train_detector(train, valid, recipe=recipe, adversarial=adversarial).module
        target, goal = SegmentDetector(module), Evade().bind(list(test.labels))
        trial = Pgd(steps=10, step=0.25)(
            target, test.batch, goal, Snr(10.0, "linf"), draws=Draws(0), labels=test.labels
        )
        losses.append(float(target.loss(trial.adversarial, test.labels, draws=Draws(0)).mean()))
    assert losses[1] < losses[0]


# --- speakers -------------------------------------------------------------------------------------------


def entry(name: str, speaker: str) -> Entry:
    sound = np.full(8000, 0.25)
    facts = {"speaker": speaker} if speaker else {}
    return Entry(name, Path(name), "control", facts=facts, source=lambda: Recording(sound, RATE))


def test_clips_are_taken_by_speaker() -> None:
    corpus = Corpus("toy", (entry("a1", "ann"), entry("b1", "bob"), entry("a2", "ann")))
    found = Utterances.of(corpus)
    assert found.speakers == ("ann", "bob", "ann")
    assert found.by(["ann"]).ids == ("a1", "a2")
    assert found.by({"bob"}).batch([0]).batch.waveforms[0, 0] == 0.25
    with pytest.raises(InputError, match="expected clips of the speakers asked for, got none"):
        found.by(["cay"])


def test_clips_without_a_speaker_are_refused() -> None:
    with pytest.raises(InputError, match="clip 'x': expected a speaker"):
        Utterances.of(Corpus("toy", (entry("a", "ann"), entry("x", ""))))


# --- embeddings -----------------------------------------------------------------------------------------


def test_embeddings_are_kept_by_clip_sound_and_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = open_encoder("recogniser")
    clips, cache = voices(5, 6, seconds=0.6), EmbeddingCache(tmp_path)
    passes: list[int] = []
    whole = encoder.frames
    monkeypatch.setattr(
        encoder, "frames", lambda batch, layer: passes.append(len(batch)) or whole(batch, layer)
    )
    first = embed(encoder, 4, clips, cache)
    assert (first.vectors.shape, first.ids, sum(passes)) == ((5, 144), clips.ids, 5)
    again = embed(encoder, 4, clips, cache)
    assert sum(passes) == 5
    np.testing.assert_array_equal(again.vectors, first.vectors)
    np.testing.assert_allclose(embed(encoder, 4, clips).vectors, first.vectors, atol=1e-4)
    passes.clear()
    louder = replace(clips, samples=torch.cat([clips.samples[:9600] // 2, clips.samples[9600:]]))
    embed(encoder, 4, louder, cache)
    assert sum(passes) == 1
    embed(encoder, 5, clips, cache)
    assert sum(passes) == 1 + 5
    with torch.no_grad():
        next(encoder.module.parameters()).mul_(1.01)
    embed(encoder, 4, clips, cache)
    assert sum(passes) == 1 + 5 + 5


def test_a_broken_cache_is_named(tmp_path: Path) -> None:
    encoder, cache = open_encoder("recogniser"), EmbeddingCache(tmp_path)
    cache.path(encoder, 2).write_bytes(b"nothing")
    with pytest.raises(StoreError, match="expected kept embeddings, got something else"):
        embed(encoder, 2, voices(2, 0), cache)


def test_a_detector_of_embeddings_learns() -> None:
    # Two clouds, a deviation of 1 around points that lie 8 apart.
    source = np.random.default_rng(0)
    train, valid = (
        Embeddings(
            (source.standard_normal((40, 4)) + np.repeat([[0.0], [4.0]], 20, axis=0)).astype(np.float32),
            ("control",) * 20 + ("pathological",) * 20,
            tuple(str(place) for place in range(40)),
        )
        for _ in range(2)
    )
    found = train_embeddings(train, valid, recipe=replace(FOR_EMBEDDINGS, epochs=20))
    assert found.history[found.best].valid_accuracy == 1.0
    assert not found.module.training


def test_attacks_on_embeddings_reach_the_waveform() -> None:
    encoder = open_encoder("recogniser")
    clips = voices(4, 1)
    found = train_embeddings(*[embed(encoder, 4, clips)] * 2, recipe=replace(FOR_EMBEDDINGS, epochs=20))
    target = EmbeddingDetector(encoder, 4, found.module)
    heard = clips.batch(range(4))
    goal = Evade().bind(list(heard.labels))
    trial = Pgd(steps=10, step=0.25)(target, heard.batch, goal, Snr(10.0, "linf"), draws=Draws(0))
    before, after = (
        target.loss(some, heard.labels, draws=Draws(0)).detach() for some in (trial.clean, trial.adversarial)
    )
    assert bool((after > before).all())


def test_embeddings_are_taken_by_clip() -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    some = Embeddings(vectors, ("control", "pathological", "control"), ("a", "b", "c")).of(["c", "a"])
    assert (some.ids, some.vectors.tolist()) == (("a", "c"), [[0.0, 1.0], [4.0, 5.0]])
    with pytest.raises(InputError, match="expected labels control and pathological, got 'x'"):
        train_embeddings(replace(some, labels=("x", "control")), some)
