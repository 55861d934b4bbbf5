"""The imperceptible attack: the second stage hides what the first has found, and loses nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sottovoce.attacks.carlini_wagner_asr import CarliniWagnerAsr
from sottovoce.attacks.imperceptible import Imperceptible
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force
from sottovoce.core.target import Target
from sottovoce.errors import InputError
from sottovoce.perception.masking.threshold import Masker
from sottovoce.testing import ToyAttention, ToyCtc, check_attack, clips_for

DRAWS = Draws(0)


@pytest.mark.parametrize(("toy", "text"), [(ToyCtc, "cad"), (ToyAttention, "cad")])
def test_the_text_is_still_said_and_hidden_better(toy: type[Target], text: str) -> None:
    target, goal, budget = toy(), Force(text), LInf(0.1)
    clean = clips_for(target)
    attack = Imperceptible(steps=80, masking_steps=100)
    loud = attack.first_stage(target, clean, goal, budget, draws=DRAWS)
    hidden = attack(target, clean, goal, budget, draws=DRAWS)
    assert hidden.adversarial_texts == (text,) * 4
    masker = Masker(clean.sample_rate)
    threshold = masker.threshold(hidden.clean)
    # The draws of both differ, but these targets take none.
    before = masker.exceedance_loss(loud.delta, threshold)
    after = masker.exceedance_loss(hidden.delta, threshold)
    assert bool((after <= before).all())
    # Where something stood out, most of its power is gone.
    assert float(before.sum()) > 0.0
    assert float(after.sum()) < 0.5 * float(before.sum())


def test_a_clip_without_success_keeps_what_the_first_stage_came_to() -> None:
    target, goal, budget = ToyCtc(), Force("ab", references=("",) * 4), Snr(40.0)
    clean = clips_for(target)
    first = CarliniWagnerAsr(steps=15).perturb(target, clean, goal, budget, DRAWS)
    both = Imperceptible(steps=15, masking_steps=20).perturb(target, clean, goal, budget, DRAWS)
    np.testing.assert_array_equal(first, both)


def test_what_is_masked_already_is_left_alone() -> None:
    # The clip says the text by itself, so that nothing is added and nothing stands out.
    target = ToyAttention()
    clean = clips_for(target).select([1])
    trial = Imperceptible(steps=5, masking_steps=20)(target, clean, Force("b"), LInf(0.1), draws=DRAWS)
    assert trial.clean_texts == ("b",) and trial.achieved == (True,) and not trial.delta.any()


def test_alpha_goes_up_every_20_steps_that_win_and_down_every_50_that_do_not() -> None:
    attack, won = Imperceptible(), torch.tensor([True, False])
    changes = {steps: attack._turn(won, steps).tolist() for steps in (10, 20, 40, 50, 100)}
    expected = {10: (1.0, 1.0), 20: (1.2, 1.0), 40: (1.2, 1.0), 50: (1.0, 0.8), 100: (1.2, 0.8)}
    for steps, (up, down) in expected.items():
        assert changes[steps] == pytest.approx([up, down])


@pytest.mark.parametrize("toy", [ToyCtc, ToyAttention])
def test_laws(toy: type[Target]) -> None:
    attack = Imperceptible(steps=20, masking_steps=10)
    check_attack(attack, toy(), [LInf(0.1), Snr(10.0)], goals=[Force("a"), Force("ab")])


def test_a_silent_clip_and_a_short_one_give_finite_answers() -> None:
    clean = AudioBatch.of([np.zeros(300), 0.1 * np.sin(np.arange(60))], 1000)
    trial = Imperceptible(steps=30, masking_steps=20)(
        ToyAttention(), clean, Force("a"), LInf(0.2), draws=DRAWS
    )
    assert bool(trial.delta.isfinite().all())


def test_goals_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="forces a text, got the goal evade"):
        Imperceptible()(ToyCtc(), clips_for(ToyCtc()), Evade(), LInf(0.1), draws=DRAWS)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"steps": 0}, {"shrink": 1.0}, {"masking_steps": 0}, {"masking_rate": 0.0}, {"alpha": 0.0}),
        *({"raise_by": 0.9}, {"lower_by": 1.1}, {"lower_by": 0.0}, {"raise_every": 15}, {"lower_every": 0}),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}="):
        Imperceptible(**wrong)  # type: ignore[arg-type]
