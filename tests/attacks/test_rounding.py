"""Attacks that stop at the boundary must stop on the side of it that a 16-bit file can hold."""

from __future__ import annotations

import pytest

from sottovoce.attacks.carlini_wagner import CarliniWagner
from sottovoce.attacks.deepfool import DeepFool
from sottovoce.core.attack import Attack
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.data.embedded import embedded
from sottovoce.data.load import collate
from sottovoce.targets.zoo.keyword_cnn import keyword


@pytest.mark.parametrize("attack", [DeepFool(), CarliniWagner(steps=40, binary_search=2)])
def test_minimal_attacks_survive_the_file(attack: Attack) -> None:
    corpus = embedded().limit(8)
    clean = collate([corpus.load(entry, 16000) for entry in corpus])
    trial = attack(keyword(), clean, Evade(), Snr(20), draws=Draws(0))
    # What is returned lies on the grid already, so that rounding has nothing left to undo.
    assert trial.achieved == trial.achieved_unrounded
    assert sum(trial.achieved) >= 7


def test_without_it_they_do_not() -> None:
    corpus = embedded().limit(8)
    clean = collate([corpus.load(entry, 16000) for entry in corpus])
    trial = DeepFool(bits=None)(keyword(), clean, Evade(), Snr(20), draws=Draws(0))
    assert sum(trial.achieved_unrounded) == 8
    assert sum(trial.achieved) < 8
