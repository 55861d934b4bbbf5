"""Linear redundancy pruning: what is an exact combination goes, and no output changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from sottovoce.errors import InputError
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.targets.zoo.keyword_cnn import KeywordCnn, load
from sottovoce.training.learner import ClassLearner, apart
from sottovoce.training.pruning.linear_redundancy import choose, fold_onto, listen, novel_use, prune_link
from sottovoce.training.pruning.prunable_chain import (
    PrunableLayer,
    find_links,
    layer_of,
    resize,
    weights_in,
    width_of,
    without_neurons,
)
from sottovoce.training.pruning.prune_layers import PruningRecipe, prune
from sottovoce.training.recipe import TrainingRecipe
from sottovoce.training.sources import ClipsInMemory, ClipSource, hold_clips

CLOSE = 1e-5


def copy_neuron(layer: nn.Linear | nn.Conv2d, place: int, of: int, times: float) -> None:
    """Let a neuron say so many times what another says, before whatever comes behind the layer."""
    assert layer.bias is not None
    with torch.no_grad():
        layer.weight[place] = times * layer.weight[of]
        layer.bias[place] = times * layer.bias[of]


def passes(module: nn.Module, clips: Tensor, classes: int) -> list[Callable[[], Tensor]]:
    truth = torch.arange(len(clips)) % classes
    return [lambda: functional.cross_entropy(module(clips), truth, reduction="none")]


def pruned(module: nn.Module, link: PrunableLayer, heard: Tensor, count: int = 1) -> nn.Module:
    return prune_link(module, link, passes(module, heard, 2), count)


def largest_change(module: nn.Module, small: nn.Module, shape: tuple[int, ...]) -> float:
    """On inputs that redundancy was not measured on."""
    fresh = torch.randn(64, *shape, generator=torch.Generator().manual_seed(99))
    with torch.no_grad():
        return float((module(fresh) - small(fresh)).abs().max())


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


# What is exact


def test_a_fold_by_hand() -> None:
    """Outputs 1*h0 + 10*h1 + 100*h2 with h2 = 2*h0 + 3*h1 are 201*h0 + 310*h1."""
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 1, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]]))
        net[1].weight.copy_(torch.tensor([[1.0, 10.0, 100.0]]))
    heard = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -1.0]])
    readings = listen(net, PrunableLayer("0", "1"), [lambda: net(heard)[:, 0]])
    # Any one of the three could go, for each is a combination of the two others: this is the last one.
    small = without_neurons(net, PrunableLayer("0", "1"), (0, 1), fold_onto(readings, (0, 1)))
    torch.testing.assert_close(small[1].weight, torch.tensor([[201.0, 310.0]]))
    torch.testing.assert_close(small[0].weight, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    torch.testing.assert_close(small(heard), net(heard))


def test_linear_to_linear() -> None:
    """A sum of two others, with no activation between the layers."""
    net = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 3)).eval()
    with torch.no_grad():
        net[0].weight[4] = net[0].weight[1] - 0.5 * net[0].weight[2]
        net[0].bias[4] = net[0].bias[1] - 0.5 * net[0].bias[2] + 7.0
    small = pruned(net, PrunableLayer("0", "1"), torch.randn(64, 8))
    assert width_of(small, "0") == 5
    assert small[0].out_features == small[1].in_features == 5
    assert largest_change(net, small, (8,)) < CLOSE


def test_behind_a_relu_a_multiple_is_redundant() -> None:
    net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    copy_neuron(net[0], 5, of=0, times=3.0)
    readings = listen(net, PrunableLayer("0", "2"), passes(net, torch.randn(64, 8), 3))
    useful = novel_use(readings, range(6))
    assert set(useful.argsort()[:2].tolist()) == {0, 5}
    assert largest_change(net, pruned(net, PrunableLayer("0", "2"), torch.randn(64, 8)), (8,)) < CLOSE


def test_behind_a_relu_a_sum_is_not() -> None:
    """relu(a + b) is not relu(a) + relu(b): the novel part is what the ReLU makes of it."""
    net = nn.Sequential(nn.Linear(8, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
    with torch.no_grad():
        net[0].weight[2] = net[0].weight[0] + net[0].weight[1]
        net[0].bias[2] = net[0].bias[0] + net[0].bias[1]
        net[2].weight.fill_(1.0).mul_(torch.tensor([[1.0], [-1.0]]))
    useful = novel_use(listen(net, PrunableLayer("0", "2"), passes(net, torch.randn(64, 8), 2)), range(3))
    assert float(useful.min()) > 1e-3
    assert largest_change(net, pruned(net, PrunableLayer("0", "2"), torch.randn(64, 8)), (8,)) > 1e-2


def test_a_neuron_that_never_changes_goes_into_the_bias() -> None:
    net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    with torch.no_grad():
        net[0].weight[2] = 0.0
        net[0].bias[2] = 1.5
    small = pruned(net, PrunableLayer("0", "2"), torch.randn(64, 8))
    assert largest_change(net, small, (8,)) < CLOSE
    torch.testing.assert_close(small[2].bias, net[2].bias + 1.5 * net[2].weight[:, 2])


def conv_net(padding: int = 1) -> nn.Sequential:
    """Two convolutions with batch norm, ReLU and pooling between them, then a linear layer."""
    side = 4 if padding else 2
    net = nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 5, 3, padding=padding),
        nn.ReLU(),
        nn.Dropout2d(0.5),
        nn.Flatten(),
        nn.Linear(5 * side * side, 3),
    )
    norm = net[1]
    assert isinstance(norm, nn.BatchNorm2d)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2.0)
        norm.bias.uniform_(-0.5, 0.5)
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean.uniform_(-0.3, 0.3)
        norm.running_var.uniform_(0.5, 2.0)
    return net.eval()


def twin_map(net: nn.Sequential, place: int, of: int, times: float) -> None:
    """A map that is so many times another one after the batch norm, and so after ReLU and pooling."""
    norm = net[1]
    with torch.no_grad():
        net[0].weight[place], net[0].bias[place] = net[0].weight[of], net[0].bias[of]
        norm.running_mean[place], norm.running_var[place] = norm.running_mean[of], norm.running_var[of]
        norm.weight[place], norm.bias[place] = times * norm.weight[of], times * norm.bias[of]


@pytest.mark.parametrize("padding", [0, 1])
def test_conv_to_conv(padding: int) -> None:
    """Through batch norm, ReLU and max pooling, with zeros around the maps and without."""
    net = conv_net(padding)
    twin_map(net, 3, of=1, times=2.0)
    link = PrunableLayer("0", "4", ("1",))
    small = pruned(net, link, torch.randn(32, 2, 8, 8))
    assert width_of(small, "0") == 5
    assert len(small[1].running_mean) == small[1].num_features == small[4].in_channels == 5
    assert largest_change(net, small, (2, 8, 8)) < CLOSE


def test_conv_to_flatten_to_linear() -> None:
    net = conv_net()
    copy_neuron(net[4], 4, of=2, times=0.25)
    small = pruned(net, PrunableLayer("4", "8"), torch.randn(32, 2, 8, 8))
    assert small[8].weight.shape == (3, 4 * 16)
    assert largest_change(net, small, (2, 8, 8)) < CLOSE


def test_a_constant_map_folds_where_nothing_is_padded() -> None:
    """Between zeros a constant map is no constant: there the fold is only near."""
    changes = []
    for padding in (0, 1):
        net = conv_net(padding)
        with torch.no_grad():
            net[0].weight[2], net[1].weight[2], net[1].bias[2] = 0.0, 0.0, 0.8
        changes.append(
            largest_change(
                net, pruned(net, PrunableLayer("0", "4", ("1",)), torch.randn(32, 2, 8, 8)), (2, 8, 8)
            )
        )
    assert changes[0] < CLOSE < changes[1]


@given(times=st.floats(0.01, 100.0), of=st.integers(0, 4), seed=st.integers(0, 99))
def test_a_multiple_is_redundant_whatever_its_size(times: float, of: int, seed: int) -> None:
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 3)).eval()
    copy_neuron(net[0], 5, of=of, times=times)
    small = pruned(net, PrunableLayer("0", "2"), torch.randn(64, 6))
    assert largest_change(net, small, (6,)) < 1e-4


def test_of_two_twins_one_stays() -> None:
    """With one gone the other is novel: what goes next is something else."""
    net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
    copy_neuron(net[0], 3, of=0, times=1.0)
    choice = choose(listen(net, PrunableLayer("0", "2"), passes(net, torch.randn(64, 8), 3)), 2)
    assert not {0, 3} <= set(choice.kept)
    assert choice.scores[0] < 1e-6 < choice.scores[1]


def test_the_module_itself_stays_as_it_was() -> None:
    net = conv_net().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    pruned(net, PrunableLayer("0", "4", ("1",)), torch.randn(16, 2, 8, 8), 3)
    assert net.training and net[1].training
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, before[name])


# Which networks


class Own(nn.Module):
    """Functions for modules, and something before the first layer that is nobody's business."""

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Conv2d(1, 4, 3)
        self.late = nn.Linear(4, 5)
        self.out = nn.Linear(5, 2)

    def forward(self, images: Tensor) -> Tensor:
        images = images + 0.5 * images.flip(-1)
        hidden = functional.relu(self.early(images)).mean(dim=(2, 3))
        return self.out(torch.tanh(self.late(hidden))).log_softmax(dim=1)


class Skip(Own):
    def forward(self, images: Tensor) -> Tensor:
        hidden = self.early(images).mean(dim=(2, 3))
        return self.out(self.late(hidden) + functional.pad(hidden, (0, 1)))


class Normed(Own):
    def forward(self, images: Tensor) -> Tensor:
        hidden = self.early(images).mean(dim=(2, 3))
        return self.out(functional.layer_norm(self.late(hidden), (5,)))


class Twice(Own):
    def forward(self, images: Tensor) -> Tensor:
        hidden = self.early(images).mean(dim=(2, 3))
        return self.out(self.late(self.late(hidden)[:, :4]))


def test_chains_are_found_however_they_are_written() -> None:
    net = conv_net()
    links = find_links(net, lambda: net(torch.randn(2, 2, 8, 8)))
    assert links == [PrunableLayer("0", "4", ("1",)), PrunableLayer("4", "8")]
    own = Own()
    assert find_links(own, lambda: own(torch.randn(2, 1, 6, 6))) == [
        PrunableLayer("early", "late"),
        PrunableLayer("late", "out"),
    ]
    keyword = KeywordCnn()
    heard = torch.rand(2, 16_000) - 0.5
    assert find_links(keyword, lambda: keyword(heard)) == [
        PrunableLayer("first", "second"),
        PrunableLayer("second", "output"),
    ]


@pytest.mark.parametrize(
    ("net", "told"),
    [
        (Skip(), "reads what came before 'late' as well"),
        (Normed(), "got 'layer_norm'"),
        (Twice(), "each layer once, got 'late' twice"),
        (nn.Sequential(nn.Flatten(), nn.Linear(36, 2)), "expected a layer behind another one, got '1'"),
        (
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=4), nn.Flatten(), nn.Linear(16, 2)),
            "treated one by one",
        ),
        (nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2)), "a row of values a clip"),
    ],
)
def test_what_is_no_chain_is_refused(net: nn.Module, told: str) -> None:
    with pytest.raises(InputError, match=told):
        find_links(net, lambda: net(torch.randn(2, 1, 6, 6)))


# Whole runs

RATE = 100


def tones(count: int, seed: int) -> ClipsInMemory:
    """A square wave up or down, in noise, and which of the two it is."""
    random = np.random.default_rng(seed)
    sign = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
    rows = 0.2 * sign[:, None] * np.array([1.0] * 8 + [-1.0] * 8) + random.normal(0, 0.1, (count, 16))
    return hold_clips(
        [(row.clip(-1, 1) * 32767).astype(np.int16) for row in rows],
        ["up" if one > 0 else "down" for one in sign],
        [f"{seed}-{place}" for place in range(count)],
        RATE,
        "waves",
    )


def wave_learner() -> ClassLearner:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 2))
    return ClassLearner(
        module,
        name="waves",
        read=apart,
        as_target=lambda net: ModuleClassifier(net, ("up", "down"), RATE),
    )


RECIPE = PruningRecipe(
    lose=0.05, share=0.5, clips=64, tuning=TrainingRecipe(epochs=3, learning_rate=1e-2, warm_up_steps=1)
)


def taught() -> ClassLearner:
    learner = wave_learner()
    clips = tones(64, 1)
    batch = clips.batch(range(64))
    optimiser = torch.optim.Adam(learner.module.parameters(), lr=1e-2)
    for _ in range(30):
        optimiser.zero_grad()
        learner.loss(batch.batch, batch.labels).mean().backward()
        optimiser.step()
    return learner


def test_a_network_is_shrunk_from_the_top_within_the_limit(tmp_path: Path) -> None:
    learner, lines = taught(), []
    report = prune(
        learner, ClipSource(tones(64, 1)), tones(40, 2), out=tmp_path, recipe=RECIPE, log=lines.append
    )
    assert report.weights_before == 16 * 12 + 12 + 12 * 8 + 8 + 8 * 2 + 2
    assert report.weights == weights_in(learner.module) < report.weights_before
    assert report.before.value == 1.0 and report.valid.value >= 0.95
    layers = [entry["layer"] for entry in report.history]
    assert layers == sorted(layers, reverse=True) and set(layers) == {"0", "2"}
    first, second = report.layers
    assert (first.before, second.before) == (12, 8)
    assert report.weights == 17 * first.now + (first.now + 1) * second.now + 2 * second.now + 2
    told = json.loads((tmp_path / "report.json").read_text())
    assert told["removed"] == pytest.approx(1 - report.weights / 326)
    assert told["valid"]["n"] == 40
    card = (tmp_path / "card.md").read_text()
    assert "after the published description" in card and "of 326 weights are left" in card
    assert not (tmp_path / "rounds").exists()


def test_how_much_stays_can_be_said(tmp_path: Path) -> None:
    recipe = PruningRecipe(lose=1.0, keep=0.25, share=0.5, clips=32, tuning=RECIPE.tuning)
    report = prune(taught(), ClipSource(tones(64, 1)), tones(40, 2), out=tmp_path, recipe=recipe)
    assert [(one.before, one.now) for one in report.layers] == [(12, 3), (8, 2)]


def test_a_run_that_was_killed_ends_where_it_would_have_ended(tmp_path: Path) -> None:
    def run(out: Path, resume: bool = False, stop: int = 99) -> dict[str, Tensor]:
        learner = taught()

        def log(line: str) -> None:
            if line.startswith(f"round {stop}:"):
                raise KeyboardInterrupt

        prune(learner, ClipSource(tones(64, 1)), tones(40, 2), out=out, recipe=RECIPE, resume=resume, log=log)
        return learner.module.state_dict()

    whole = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "torn", stop=3)
    with pytest.raises(InputError, match="give --resume to go on"):
        run(tmp_path / "torn")
    again = run(tmp_path / "torn", resume=True)
    assert whole.keys() == again.keys()
    for name, value in whole.items():
        torch.testing.assert_close(again[name], value, rtol=0, atol=0)
    with pytest.raises(InputError, match=r"lose 0\.5, not 0\.05"):
        learner = taught()
        other = PruningRecipe(lose=0.5, share=0.5, clips=64, tuning=RECIPE.tuning)
        prune(
            learner, ClipSource(tones(64, 1)), tones(40, 2), out=tmp_path / "torn", recipe=other, resume=True
        )


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"lose": 2.0}, "lose from 0 to 1, got 2"), ({"keep": -0.1}, "keep from 0 to 1"),
     ({"share": 1.0}, "--share above 0 and below 1"), ({"clips": 0}, "1 clip or more")],
)  # fmt: skip
def test_recipes_are_checked(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(InputError, match=told):
        PruningRecipe(**wrong)  # type: ignore[arg-type]


def test_weights_of_another_size_go_into_a_module() -> None:
    net = conv_net()
    small = pruned(net, PrunableLayer("0", "4", ("1",)), torch.randn(16, 2, 8, 8), 3)
    again = conv_net()
    resize(again, small.state_dict())
    heard = torch.randn(4, 2, 8, 8)
    torch.testing.assert_close(again(heard), small(heard))
    assert layer_of(again, "0").out_channels == 3  # type: ignore[union-attr]


def test_a_pruned_keyword_model_opens(tmp_path: Path) -> None:
    full = load()
    heard = torch.rand(4, 16_000) - 0.5
    small = pruned(full, PrunableLayer("second", "output"), heard, 60)
    path = tmp_path / "model.safetensors"
    safetensors.torch.save_file(
        {name: value.contiguous() for name, value in small.state_dict().items()}, path
    )
    opened = load(weights=path)
    assert opened.second.out_channels == 12
    with torch.no_grad():
        torch.testing.assert_close(opened(heard), small(heard), rtol=1e-4, atol=1e-4)
