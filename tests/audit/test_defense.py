"""Defenses as text: what they become, and what is refused."""

from __future__ import annotations

import pytest

from sottovoce.audit.defense import Defense
from sottovoce.core.transform import Defended
from sottovoce.core.vote import Voted
from sottovoce.defenses.quantise import Quantise
from sottovoce.defenses.smoothing import GaussianNoise
from sottovoce.defenses.votes import Majority
from sottovoce.errors import InputError
from sottovoce.testing import ToyClassifier


def test_transforms_stand_in_order_and_the_vote_outside() -> None:
    defense = Defense.parse("quantise(bits=6) + gaussian(sigma=0.02)+majority(passes=3)")
    assert defense.parts == (Quantise(bits=6), GaussianNoise(sigma=0.02), Majority(passes=3))
    target = defense.around(ToyClassifier())
    assert isinstance(target, Voted)
    assert isinstance(target.target, Defended)
    assert target.target.transforms == (Quantise(bits=6), GaussianNoise(sigma=0.02))
    assert target.random


def test_no_defense_is_the_model_itself() -> None:
    toy = ToyClassifier()
    assert Defense.parse("none").around(toy) is toy
    assert Defense.parse("none").parts == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("majority+gaussian", "one vote at most, and it last, got 'majority\\+gaussian'"),
        ("gaussian+one+majority", "one vote at most"),
        ("gausian", "unknown defense 'gausian': did you mean 'gaussian'"),
        ("gaussian+majority(passes=0)", "1 to 100,000 passes, got 0"),
        ("gaussian(sigma=0)", "sigma above 0, got 0"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Defense.parse(text)


def test_a_vote_over_passes_that_are_all_the_same_is_refused() -> None:
    with pytest.raises(InputError, match="expected noise before a vote, got Majority"):
        Defense.parse("quantise+majority").around(ToyClassifier())
