"""RXOR: networks trained in one batch against PyTorch one by one, and margins worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, UnknownName
from sottovoce.studies.olivier2023.accidental.exact_margin import exact_margins, grid_margins
from sottovoce.studies.olivier2023.accidental.network_batch import (
    BlockDraws,
    Design,
    Nesterov,
    Networks,
    draw_ball,
)
from sottovoce.studies.olivier2023.accidental.rxor_sets import (
    LOSSES,
    Training,
    all_right,
    draw_points,
    signs_of,
    train,
)


def draws(first: int = 0, count: int = 40, name: str = "test") -> BlockDraws:
    return BlockDraws(Draws(0).turn(name), first, count)


def networks(widths: tuple[int, ...], *rows: list[float], skip: bool = False) -> Networks:
    return Networks(Design(widths=widths, skip=skip), torch.tensor(rows))


def test_parameter_counts() -> None:
    """Those of figure 3.3b, two by two, and a biased, a normalised and a skipping one by hand."""
    counts = [Design(widths=one).parameters for one in ((6,), (3, 3), (9,), (3, 3, 3))]
    assert counts == [18, 18, 27, 27]
    assert Design(widths=(9,), bias=True).parameters == 27 + 9 + 1
    assert Design(widths=(9,), batch_norm=True).parameters == 27 + 18
    assert Design(widths=(9, 9), skip=True).parameters == 18 + 81 + 9


def test_names_as_the_thesis_writes_them() -> None:
    assert str(Design(widths=(9,), batch_norm=True)) == "MLP-9-ReLUBN"
    assert str(Design(widths=(9,), dropout=0.3)) == "MLP-9-ReLUDropout0.3"
    assert str(Design(widths=(9, 9), skip=True)) == "MLP-9_9-ReLU-wSkip_1>2"
    assert str(Design(widths=(9,), activation="tanh", bias=True)) == "MLP-9-Tanh with biases"


def test_the_ball_is_uniform() -> None:
    """(r / R)^p is uniform on [0, 1]: its mean is 1/2, within four deviations of 1 / sqrt(12 n)."""
    design = Design(widths=(3,))
    length = draw_ball(design, 25.0, draws(count=4000)).norm(dim=1).double() / 25.0
    assert float(length.max()) <= 1.0 + 1e-6
    share = float((length**design.parameters).mean())
    assert abs(share - 0.5) < 4 / (12 * 4000) ** 0.5


def test_points_of_a_margin() -> None:
    points = draw_points(draws(count=10), 0.3)
    size = points.abs()
    assert points.shape == (10, 1000, 2) and 0.3 <= float(size.min()) <= float(size.max()) <= 1.0
    assert abs(float(size.mean()) - 0.65) < 0.01 and abs(float((points > 0).double().mean()) - 0.5) < 0.02
    four = torch.tensor([[0.4, 0.5], [-0.4, 0.5], [0.4, -0.5], [-0.4, -0.5]])
    assert signs_of(four).tolist() == [-1.0, 1.0, 1.0, -1.0]


class Module(nn.Module):
    """One network of a design, from PyTorch's own layers."""

    def __init__(self, design: Design, flat: torch.Tensor) -> None:
        super().__init__()
        sizes = [design.inputs, *design.widths, design.outputs]
        self.layers = nn.ModuleList(
            nn.Linear(before, after, bias=design.bias) for before, after in pairwise(sizes)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for width in design.widths if design.batch_norm)
        self.design = design
        place = 0
        for number, layer in enumerate(self.layers):
            norm = self.norms[number : number + 1]
            for one in [*layer.parameters(), *(value for each in norm for value in each.parameters())]:
                one.data = flat[place : place + one.numel()].reshape(one.shape).clone()
                place += one.numel()

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        active = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}[self.design.activation]
        first = None
        for number, layer in enumerate(self.layers[:-1]):
            points = layer(points)
            if self.norms:
                points = self.norms[number](points)
            points = active(points)
            if self.design.skip and number == 1:
                points = points + first
            first = points if number == 0 else first
        return self.layers[-1](points)


@pytest.mark.parametrize(
    "design",
    [
        Design(widths=(6,)),
        Design(widths=(3, 6, 3)),
        Design(widths=(4, 4), skip=True),
        Design(widths=(9,), activation="sigmoid", bias=True),
        Design(widths=(5,), activation="tanh", bias=True, outputs=3, inputs=4),
        Design(widths=(9,), batch_norm=True),
    ],
    ids=str,
)
def test_one_network_of_the_batch_is_that_of_pytorch(design: Design) -> None:
    """Seven steps of SGD with Nesterov's momentum, then the scores of evaluation."""
    start = draw_ball(design, 3.0, draws(count=4)).double()
    source = torch.Generator().manual_seed(1)
    points = torch.randn(7, 4, 20, design.inputs, generator=source, dtype=torch.float64)
    goal = torch.randn(7, 4, 20, design.outputs, generator=source, dtype=torch.float64)
    batch = Networks(design, start.clone())
    descent = Nesterov(batch, 0.05)
    module = Module(design, start[2]).double()
    sgd = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for step in range(7):
        scores = descent.fresh().scores(points[step], training=True)
        descent.step(((scores - goal[step]) ** 2).mean(dim=(1, 2)))
        loss = ((module(points[step, 2]) - goal[step, 2]) ** 2).mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    module.eval()
    with torch.no_grad():
        ours, theirs = batch.scores(points[0])[2], module(points[0, 2])
    assert (ours - theirs).abs().max() < 1e-6


def test_losses() -> None:
    """By hand for a score of .5: log(1 + exp(-.5)), 1 - .5, (.5 - 1)^2."""
    score, sign = torch.tensor(0.5), torch.tensor(1.0)
    found = {name: float(loss(score, sign)) for name, loss in LOSSES.items()}
    assert found == pytest.approx({"bce": 0.474077, "hinge": 0.5, "squared": 0.25}, abs=1e-6)


def test_dropout_is_in_training_alone_and_keeps_the_mean() -> None:
    design = Design(widths=(1,), dropout=0.6)
    one = Networks(design, torch.tensor([[1.0, 0.0, 1.0]]))
    points = torch.tensor([[[1.0, 0.0]]]).expand(1, 20_000, 2)
    with torch.no_grad():
        dropped = one.scores(points, training=True, draws=draws(count=1))
        assert torch.equal(one.scores(points), torch.ones(1, 20_000, 1))
    assert set(dropped.flatten().tolist()) == {0.0, 2.5}
    assert abs(float(dropped.mean()) - 1.0) < 0.04


@pytest.mark.parametrize("b, margin", [(1.5, 1 / 3), (1.10526, 0.095235), (4.0, 0.75)])
def test_margin_of_three_units(b: float, margin: float) -> None:
    """x1+ + x2+ - b (x1 + x2)+ is right above a ratio of 1 - 1/b: x1 - b (x1 - |x2|) where x1 > 0 > x2."""
    one = networks((3,), [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, -b])
    assert float(exact_margins(one)) == pytest.approx(margin, abs=1e-5)


def test_margin_of_six_units() -> None:
    """|x1| + |x2| - b |x1 + x2|: (b - 1) / (b + 1), .05 for b = 1.10526."""
    b = 1.10526
    rows = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [1.0, 1.0], [-1.0, -1.0]]
    one = networks((6,), [*np.ravel(rows).tolist(), 1.0, 1.0, 1.0, 1.0, -b, -b])
    assert float(exact_margins(one)) == pytest.approx(0.05, abs=1e-5)


def test_margins_of_extremes() -> None:
    """A network that is always right in the limit has no margin; one that says 0 everywhere has all of 1."""
    b = 1.0 + 1e-9
    right = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, -b]
    found = exact_margins(networks((3,), right, [0.0] * 9, [-one for one in right[:6]] + right[6:]))
    assert found.tolist() == pytest.approx([0.0, 1.0, 0.0], abs=1e-6)


def test_margins_through_layers_that_copy() -> None:
    """Units that are not negative pass an identity layer: the margin stays; a skip doubles them, as here."""
    first, out = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0], [1.0, 1.0, -1.5]
    same = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    deep = networks((3, 3, 3), [*first, *same, *same, *out])
    assert float(exact_margins(deep)) == pytest.approx(1 / 3, abs=1e-7)
    # x1 + x1, x2 + x2, x12 + 0 with b = 2 b': 2 x1+ + 2 x2+ - 3 (x1 + x2)+ is the network with b = 1.5.
    half = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    skips = networks((3, 3), [*first, *half, 1.0, 1.0, -3.0], skip=True)
    assert float(exact_margins(skips)) == pytest.approx(1 / 3, abs=1e-7)


def brute_margins(some: Networks) -> torch.Tensor:
    """The largest ratio of a wrong point among a million on the square's edge."""
    ratio = (torch.arange(125_000, dtype=torch.float64) + 0.5) / 125_000
    worst = torch.zeros(len(some), dtype=torch.float64)
    for first in (1.0, -1.0):
        for second in (1.0, -1.0):
            for points in ([first + 0 * ratio, second * ratio], [first * ratio, second + 0 * ratio]):
                both = torch.stack(points, dim=1)
                with torch.no_grad():
                    says = some.scores(both.expand(len(some), -1, -1))[..., 0] > 0
                wrong = says != (signs_of(both) > 0)
                worst = torch.maximum(worst, torch.where(wrong, ratio, 0.0).amax(dim=1))
    return worst


@pytest.mark.parametrize("widths, skip", [((3,), False), ((9,), False), ((6, 3, 3), False), ((4, 4), True)])
def test_exact_margins_against_a_million_points(widths: tuple[int, ...], skip: bool) -> None:
    design = Design(widths=widths, skip=skip)
    trained, _ = train(design, Training(), 0.4, draws(count=5, name=str(design)))
    some = Networks(design, trained.parameters.double())
    assert torch.allclose(exact_margins(some), brute_margins(some), atol=2 / 125_000)


@settings(max_examples=20, deadline=None)
@given(scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
def test_margins_do_not_change_with_the_scale(scale: float, seed: int) -> None:
    some = Networks(Design(widths=(5, 3)), draw_ball(Design(widths=(5, 3)), 25.0, draws(0, 5, f"{seed}")))
    other = Networks(some.design, some.parameters.double() * scale)
    assert torch.allclose(exact_margins(some), exact_margins(other), atol=1e-6)


def test_a_network_fails_below_its_margin_given_enough_points() -> None:
    """With b = 1.5: right on 1,000 points of margin .34 > 1/3, wrong somewhere on 5,000 of margin .3."""
    one = networks((3,), [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.5])
    assert all_right(one, draw_points(draws(count=1), 0.34)).tolist() == [True]
    assert all_right(one, draw_points(draws(count=1), 0.3, 5000)).tolist() == [False]


def test_grid_margins_of_networks_that_are_not_homogeneous() -> None:
    """Thresholds do RXOR from a third on (the condition is 2 eps > 1 - eps): steep sigmoids at the corner
    a = b = 1 / (1 - eps) show it. The grid has steps of .0125: .3375 is right, .325 is wrong."""
    steep, eps = 4000.0, 1 / 3
    slope = 1.0 / (1.0 - eps)
    # Units: slope (x1 - x2) > 1 and slope (x2 - x1) > 1, joined by OR.
    row = [slope, -slope, -slope, slope, -1.0, -1.0]
    design = Design(widths=(2,), activation="sigmoid", bias=True)
    one = Networks(design, torch.tensor([[*(steep * v for v in row), 1.0, 1.0, -0.5]]))
    assert float(grid_margins(one)) == pytest.approx(0.325, abs=1e-6)
    # A homogeneous network on the grid: the largest grid value at or below 1/3 whose partner is 1.
    three = networks((3,), [1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.5])
    assert float(grid_margins(three)) == pytest.approx(0.325, abs=1e-6)


def test_how_many_are_trained_at_once_changes_nothing() -> None:
    design = Design(widths=(6,), dropout=0.3)
    whole, valid = train(design, Training(), 0.4, BlockDraws(Draws(3), 0, 600))
    parts = [train(design, Training(), 0.4, BlockDraws(Draws(3), first, 200)) for first in (0, 200, 400)]
    assert torch.allclose(whole.parameters, torch.cat([one.parameters for one, _ in parts]), atol=1e-4)
    assert torch.equal(valid, torch.cat([right for _, right in parts]))


def test_training_as_text() -> None:
    assert Training.read(None) == Training(rate=1.0, loss="bce", batch=50, steps=20, radius=25.0)
    assert Training.read("sgd(rate=0.1, loss=hinge)") == Training(rate=0.1, loss="hinge")
    with pytest.raises(UnknownName, match="setting of sgd 'rat': did you mean 'rate'"):
        Training.read("sgd(rat=1)")
    with pytest.raises(UnknownName, match="unknown loss 'hing'"):
        Training.read("sgd(loss=hing)")
    with pytest.raises(UnknownName, match="unknown training 'adam'"):
        Training.read("adam(rate=1)")
    for text, said in (("rate=0", "above 0"), ("batch=2.5", "an integer"), ("batch=2000", "at most 1,000")):
        with pytest.raises(InputError, match=said):
            Training.read(f"sgd({text})")
