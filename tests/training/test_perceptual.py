"""Training of the learned ear: figures by hand, and a tiny network that learns from made-up answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from sottovoce.core.draws import Draws
from sottovoce.data.load import Clip
from sottovoce.errors import InputError
from sottovoce.perception.ears.learned import Learned
from sottovoce.perception.ears.learned_network import EarShape, load_network
from sottovoce.perception.jnd.answers import SameDifferentAnswer, read_answers, write_answers
from sottovoce.training.ear.answer_pairs import PaddedClips, Sampler, Store, shifted
from sottovoce.training.ear.ear_figures import area_under_curve, calibration_error, judge
from sottovoce.training.ear.pretrain_ear import PretrainRecipe as ClassRecipe
from sottovoce.training.ear.pretrain_ear import Task, train_classes
from sottovoce.training.ear.train_ear import (
    EarRecipe,
    EarTraining,
    answered,
    disorder,
    new_network,
    prepare,
    train_to,
    trainable,
)

TINY = EarShape(bands=8, channels=(4, 4))
RATE = 16_000
LEVELS = (-70, -50, -30, -10)
"""Of the noise that was added, in dB below a reference; from -30 on it is heard."""


def clip(name: str, samples: np.ndarray, speaker: str) -> Clip:
    grid = np.rint(samples.clip(-1, 0.999) * 32768) / 32768
    return Clip(name, torch.from_numpy(grid.astype(np.float32)), RATE, "", facts={"speaker": speaker})


def write(folder: Path, *, references: int = 10, answer: str = "heard", speakers: bool = True) -> Path:
    """Noise over noise, at four levels, each judged by two simulated listeners without lapses."""
    clips, answers, splits = [], [], []
    for number in range(references):
        source = np.random.default_rng(number)
        samples = 0.1 * source.standard_normal(round(RATE * source.uniform(0.2, 0.3)))
        split = ("train", "train", "train", "valid", "test")[number % 5] if speakers else ""
        speaker = f"speaker {number}" if speakers else ""
        clips.append(clip(f"r{number}", samples, speaker))
        splits.append(split)
        for db in LEVELS:
            noise = 0.1 * 10 ** (db / 20) * source.standard_normal(len(samples))
            clips.append(clip(f"r{number}/{-db}", samples + noise, speaker))
            splits.append(split)
            different = {"heard": db >= -30, "same": False, "different": True}[answer]
            answers += [
                SameDifferentAnswer(
                    listener=f"simulated-{who}",
                    simulated=True,
                    reference=f"r{number}",
                    changed=f"r{number}/{-db}",
                    different=different,
                    strength=100.0 + db,
                    direction="white",
                )
                for who in range(2)
            ]
    write_answers(folder, answers, clips, splits)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("answers") / "heard")


def quiet(text: str) -> None:
    return None


RECIPE = EarRecipe(steps=30, batch=8, check=10, learning_rate=5e-3)


def test_figures_by_hand() -> None:
    found = judge([0.9, 0.2, 0.6], [3, 1, 0], [4, 2, 2])
    # Right: 3 of 4 that were called different, 1 of 2 same, 0 of 2: 4 of 8.
    assert found.accuracy == 0.5
    assert (found.answers, found.pairs) == (8, 3)
    logs = 3 * np.log(0.9) + np.log(0.1) + np.log(0.2) + np.log(0.8) + 2 * np.log(0.4)
    assert found.loss == pytest.approx(-logs / 8)
    # Three bins with one pair each: |3.6 - 3| + |0.4 - 1| + |1.2 - 0| over 8 answers.
    assert found.calibration == pytest.approx(2.4 / 8)


def test_area_under_curve_is_that_of_scikit_learn() -> None:
    source = np.random.default_rng(0)
    scores = source.integers(0, 6, 40) / 5
    yes, no = source.integers(0, 4, 40).astype(float), source.integers(0, 4, 40).astype(float)
    labels = np.concatenate([np.ones(int(yes.sum())), np.zeros(int(no.sum()))])
    values = np.concatenate([np.repeat(scores, yes.astype(int)), np.repeat(scores, no.astype(int))])
    assert area_under_curve(scores, yes, no) == pytest.approx(roc_auc_score(labels, values))
    assert np.isnan(area_under_curve(scores, yes, 0 * no))


def test_calibrated_answers_have_no_error() -> None:
    p = np.array([0.25, 0.75])
    assert calibration_error(p, np.array([1.0, 3.0]), np.array([4.0, 4.0])) == 0.0


def test_a_lapse_is_a_coin() -> None:
    torch.testing.assert_close(answered(torch.tensor([0.0, 0.5, 1.0]), 0.1), torch.tensor([0.05, 0.5, 0.95]))


def test_only_a_stronger_change_that_is_nearer_is_disorder() -> None:
    distance = torch.tensor([1.0, 2.0, 2.0, 1.0, 1.0, 3.0, 3.0, 1.0])
    strengths = torch.tensor([10.0, 20.0, 10.0, 20.0, 5.0, 5.0, float("nan"), 5.0])
    # Rows two by two: in order, wrong by log 2, equal, and not known.
    assert float(disorder(distance, strengths)) == pytest.approx(np.log(2.0) / 4)


def test_a_shift_keeps_the_length() -> None:
    sound = PaddedClips(torch.tensor([[1.0, 2.0, 3.0, 0.0], [1.0, 2.0, 3.0, 4.0]]), torch.tensor([3, 4]))
    now, later = shifted(sound, 1, Draws(0))
    steps = int((later.waveforms[0] == 0).float().cumprod(0).sum())
    assert 1 <= steps <= 16
    assert now.waveforms.tolist() == [[1.0, 2.0, 3.0, 0.0]]
    assert later.waveforms[0, 3] == 0.0


def test_clips_come_from_the_store_with_silence_around(folder: Path) -> None:
    answers = read_answers(folder)
    store = Store.of(answers.pack, torch.device("cpu"))
    places = torch.tensor([answers.places["r0"], answers.places["r1"]])
    found = store.take(places, torch.tensor([5, 0]), torch.tensor([0, 7]))
    first, second = answers.clip("r0"), answers.clip("r1")
    assert found.lengths.tolist() == [len(first) + 5, len(second) + 7]
    assert not found.waveforms[0, :5].any()
    np.testing.assert_array_equal(found.waveforms[0, 5 : 5 + len(first)], first)
    np.testing.assert_array_equal(found.waveforms[1, : len(second)], second)
    assert not found.waveforms[1, len(second) :].any()


def test_answers_are_counted_by_pair_and_split_by_speaker(folder: Path) -> None:
    material = prepare(read_answers(folder), log=quiet)
    assert {name: len(pairs) for name, pairs in material.parts.items()} == {
        "train": 24,
        "valid": 8,
        "test": 8,
    }
    train = material.parts["train"]
    assert train.asked.tolist() == [2.0] * 24
    assert int(train.different.sum()) == 24
    assert material.listeners == "simulated"
    rows = Sampler(train).draw(8, np.random.default_rng(0))
    groups = train.groups[rows].view(-1, 2)
    assert torch.equal(groups[:, 0], groups[:, 1])


def test_few_speakers_are_split_by_reference(tmp_path: Path) -> None:
    said: list[str] = []
    material = prepare(read_answers(write(tmp_path / "a", references=3, speakers=False)), log=said.append)
    assert {"train", "valid"} <= material.parts.keys()
    assert any("reference" in line for line in said)
    with pytest.raises(InputError, match="all answers are about one reference"):
        prepare(read_answers(write(tmp_path / "b", references=1, speakers=False)), log=quiet)


@pytest.mark.parametrize("only", ["same", "different"])
def test_one_kind_of_answer_teaches_nothing(tmp_path: Path, only: str) -> None:
    with pytest.raises(InputError, match=f"all '{only}'"):
        prepare(read_answers(write(tmp_path / "a", answer=only)), log=quiet)


def test_variants_learn_what_they_are_named_for() -> None:
    network = new_network(0, TINY)
    blocks, weights = len(list(network.blocks.parameters())), len(network.weights)
    found = {variant: len(trainable(network, variant)) for variant in ("pre", "lin", "fin", "scratch")}
    assert found == {"pre": 0, "lin": weights, "fin": blocks + weights, "scratch": blocks + weights}


def test_training_tells_heard_from_not_heard(folder: Path, tmp_path: Path) -> None:
    material = prepare(read_answers(folder), log=quiet)
    network = new_network(0, TINY)
    path = tmp_path / "scratch.safetensors"
    report = train_to(path, network, material, variant="scratch", recipe=RECIPE, log=quiet)
    # Levels that are heard lie above all others, so that a monotone distance has an area of 1.
    assert report.held_out.auc > 0.99
    assert report.held_out.accuracy > 0.9
    assert report.steps == 30
    assert all(bool((weight >= 0).all()) for weight in network.weights)
    assert Learned(weights=str(path)).facts["listeners"] == "simulated"
    assert not list(tmp_path.glob("*.checkpoint.pt"))
    assert not any(one.requires_grad for one in network.parameters())


def test_pre_and_lin_keep_the_features(folder: Path, tmp_path: Path) -> None:
    material = prepare(read_answers(folder), log=quiet)
    for variant in ("pre", "lin"):
        network = new_network(0, TINY)
        before = {name: value.clone() for name, value in network.blocks.state_dict().items()}
        path = tmp_path / f"{variant}.safetensors"
        report = train_to(path, network, material, variant=variant, recipe=RECIPE, log=quiet)  # type: ignore[arg-type]
        after = network.blocks.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        uniform = all(bool((weight == 1.0).all()) for weight in network.weights)
        assert uniform == (variant == "pre")
        assert report.held_out.auc > 0.99


def test_same_seed_same_weights(folder: Path, tmp_path: Path) -> None:
    material = prepare(read_answers(folder), log=quiet)
    found = []
    for name in ("one", "two"):
        network = new_network(0, TINY)
        recipe = EarRecipe(steps=6, batch=8, check=3)
        train_to(tmp_path / f"{name}.safetensors", network, material, variant="fin", recipe=recipe, log=quiet)
        found.append(network.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_run_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    material = prepare(read_answers(folder), log=quiet)
    recipe = EarRecipe(steps=8, batch=8, check=4)
    whole = new_network(0, TINY)
    train_to(tmp_path / "whole.safetensors", whole, material, variant="fin", recipe=recipe, log=quiet)

    class Killed(Exception):
        pass

    def kill(text: str) -> None:
        if "step 8" in text:
            raise Killed

    path = tmp_path / "parted.safetensors"
    with pytest.raises(Killed):
        train_to(path, new_network(0, TINY), material, variant="fin", recipe=recipe, log=kill)
    assert path.with_suffix(".checkpoint.pt").is_file()
    said: list[str] = []
    parted = new_network(7, TINY)
    train_to(path, parted, material, variant="fin", recipe=recipe, resume=True, log=said.append)
    assert said[0].endswith("going on at step 4")
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(parted.state_dict()[name], value)


def test_a_checkpoint_of_another_network_is_refused(folder: Path, tmp_path: Path) -> None:
    material = prepare(read_answers(folder), log=quiet)
    run = EarTraining(new_network(0, TINY), material, "fin", RECIPE, tmp_path / "c.pt", quiet)
    run._save()
    other = EarTraining(
        new_network(0, EarShape(bands=8, channels=(4,))), material, "fin", RECIPE, tmp_path / "c.pt", quiet
    )
    with pytest.raises(InputError, match="expected shape"):
        other.go(resume=True)


def test_bad_recipes() -> None:
    with pytest.raises(InputError, match="steps or seconds"):
        EarRecipe(steps=None)
    with pytest.raises(InputError, match="--batch of 2 or more"):
        EarRecipe(batch=1)


def test_features_learn_to_classify(tmp_path: Path) -> None:
    """Low and high noise: two classes that anything with bands can tell apart."""
    clips = []
    for number in range(40):
        source = np.random.default_rng(number)
        samples = source.standard_normal(3200)
        spectrum = np.fft.rfft(samples)
        spectrum[:300] *= number % 2
        spectrum[300:] *= 1 - number % 2
        samples = 0.1 * np.fft.irfft(spectrum, 3200)
        clips.append(clip(f"c{number}", samples, f"speaker {number % 2}"))
    from sottovoce.data.pack import save_pack

    pack = save_pack(tmp_path / "c.npz", clips)
    network = new_network(0, TINY)
    task = Task.of("noise", pack, "speakers", torch.device("cpu"))
    assert (len(task.train), len(task.valid), task.count) == (36, 4, 2)
    found = train_classes(network, [task], ClassRecipe(steps=40, batch=16, learning_rate=1e-2), quiet)
    assert found == {"noise": 1.0}
    with pytest.raises(InputError, match="two classes"):
        Task.of("noise", pack, "labels", torch.device("cpu"))


def test_statistics_are_fixed_once_trained(folder: Path, tmp_path: Path) -> None:
    material = prepare(read_answers(folder), log=quiet)
    path = tmp_path / "s.safetensors"
    train_to(path, new_network(0, TINY), material, variant="scratch", recipe=RECIPE, log=quiet)
    network, _ = load_network(path)
    clean, changed = material.parts["test"].sounds(torch.tensor([0, 1, 2]))
    together = network(clean.waveforms, changed.waveforms, clean.lengths)
    width = int(clean.lengths[1])
    alone = network(clean.waveforms[1:2, :width], changed.waveforms[1:2, :width], clean.lengths[1:2])
    torch.testing.assert_close(together[1:2], alone, rtol=1e-4, atol=1e-6)
    assert not torch.equal(network.blocks[0].mean, torch.zeros(4))
