"""Goals: which way to step, and what counts as success."""

from __future__ import annotations

import pytest
import torch

from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force
from sottovoce.errors import InputError
from sottovoce.testing import ToyClassifier, clips_for

CLASSES = ("yes", "no", "up")
SCORES = torch.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, 1.0]])


def test_evade() -> None:
    goal = Evade().bind(["yes", "yes"])
    assert goal.references == ("yes", "yes")
    assert goal.achieved(["yes", "no"]) == [False, True]
    assert goal.applies("yes")
    assert goal.wins(CLASSES).tolist() == [[False, True, True], [False, True, True]]
    # Best other score less the score of "yes": 2 - 3 and 4 - 0.5.
    assert goal.margin(SCORES, CLASSES).tolist() == [-1.0, 3.5]


def test_force() -> None:
    goal = Force("up").bind(["yes", "no"])
    assert goal.achieved(["up", "no"]) == [True, False]
    assert goal.applies("yes") and not goal.applies("up")
    assert goal.wins(CLASSES).tolist() == [[False, False, True]] * 2
    # Score of "up" less the best other score: 2 - 3 and 1 - 4.
    assert goal.margin(SCORES, CLASSES).tolist() == [-1.0, -3.0]


def test_select_keeps_the_settings() -> None:
    assert Force("up").bind(["a", "b", "c"]).select([2, 0]) == Force("up", references=("c", "a"))


def test_objectives_are_the_loss_and_its_opposite() -> None:
    toy, draws = ToyClassifier(), Draws(0)
    batch = clips_for(toy)
    references = ["north", "east", "south", "west"]
    loss = toy.loss(batch, references, draws=draws)
    assert torch.equal(Evade().bind(references).objective(toy, batch, draws=draws), loss)
    wanted = toy.loss(batch, ["east"] * 4, draws=draws)
    assert torch.equal(Force("east").bind(references).objective(toy, batch, draws=draws), -wanted)


def test_errors() -> None:
    with pytest.raises(InputError, match=r"expected a class of the model \(yes, no, up\), got 'maybe'"):
        Evade().bind(["maybe"]).wins(CLASSES)
    with pytest.raises(ValueError, match="zip"):
        Evade().bind(["yes"]).achieved(["yes", "no"])
