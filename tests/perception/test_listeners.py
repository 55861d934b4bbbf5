"""Simulated listeners: the chance that they were given is the one in their answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
import torch

from sottovoce.core.batch import AudioBatch
from sottovoce.errors import InputError
from sottovoce.perception.ears.auditory import Auditory
from sottovoce.perception.ears.ear import Ear
from sottovoce.perception.jnd.simulated_listeners import (
    CurveListener,
    InattentiveListener,
    Listener,
    PsychometricListener,
    SimulatedListener,
)

TRIALS = range(4000)


class FirstSample(Ear):
    """A distance that can be set by hand: how far the first samples lie apart."""

    name, title = "first", "first"

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> torch.Tensor:
        return (changed.waveforms - clean.waveforms)[:, 0].abs()

    def probability(self, distance: torch.Tensor) -> torch.Tensor:
        return distance.clamp(0.0, 1.0)


def pair(*distances: float, ids: list[str] | None = None) -> tuple[AudioBatch, AudioBatch]:
    clean = AudioBatch.of([[0.0]] * len(distances), 16000, ids)
    return clean, clean.with_waveforms(torch.tensor(distances)[:, None])


def share(listener: Listener, strength: float) -> float:
    return float(np.mean([listener.answer(strength, trial) for trial in TRIALS]))


@pytest.mark.parametrize(
    ("strength", "expected"),
    # 0.05 + 0.9 Phi(z), Phi(-1) = 0.158655, Phi(2) = 0.977250
    [(35.0, 0.192790), (40.0, 0.5), (50.0, 0.929525), (1000.0, 0.95), (-1000.0, 0.05)],
)
def test_psychometric_function(strength: float, expected: float) -> None:
    listener = PsychometricListener(mu=40.0, sigma=5.0, lapse=0.1)
    assert listener.probability(strength) == pytest.approx(expected, abs=1e-6)
    assert listener.probability(strength) == pytest.approx(0.05 + 0.9 * scipy.stats.norm.cdf(strength, 40, 5))
    # Four standard errors of a share of 4000 answers.
    assert share(listener, strength) == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 4000))


def test_curve_between_and_past_its_points() -> None:
    listener = CurveListener(strengths=(0.0, 10.0, 20.0), probabilities=(0.0, 0.5, 0.9), lapse=0.2)
    found = [listener.probability(strength) for strength in (-5.0, 0.0, 5.0, 15.0, 20.0, 99.0)]
    assert found == pytest.approx([0.1, 0.1, 0.3, 0.66, 0.82, 0.82])
    assert share(listener, 5.0) == pytest.approx(0.3, abs=0.03)


def test_a_coin() -> None:
    listener = InattentiveListener()
    assert [listener.probability(strength) for strength in (0.0, 100.0)] == [0.5, 0.5]
    assert share(listener, 100.0) == pytest.approx(0.5, abs=0.03)


def test_an_answer_hangs_on_seed_trial_and_strength_alone() -> None:
    first = PsychometricListener(mu=50.0, sigma=10.0, seed=1)
    again = PsychometricListener(mu=50.0, sigma=10.0, seed=1)
    other = PsychometricListener(mu=50.0, sigma=10.0, seed=2)
    answers = [first.answer(50.0, trial) for trial in range(200)]
    assert answers == [again.answer(50.0, trial) for trial in range(199, -1, -1)][::-1]
    assert answers != [other.answer(50.0, trial) for trial in range(200)]
    # A stronger change turns "same" into "different" in a trial and never the other way.
    assert all(first.answer(60.0, trial) >= answer for trial, answer in enumerate(answers))


def test_a_sharp_listener_never_errs() -> None:
    listener = PsychometricListener(mu=50.0, sigma=1e-6)
    assert [listener.answer(strength, 0) for strength in (0.0, 49.0, 51.0, 100.0)] == [
        False,
        False,
        True,
        True,
    ]


def test_simulated_listener_answers_with_the_chance_of_its_ear() -> None:
    listener = SimulatedListener(ear=FirstSample(), lapse=0.1, noise=0.0)
    clean, changed = pair(0.0, 0.25, 1.0)
    # 0.05 + 0.9 p
    assert listener.probability(clean, changed).tolist() == pytest.approx([0.05, 0.275, 0.95])
    answers = np.array([listener.answers(clean, changed, trial) for trial in range(2000)])
    assert answers.mean(axis=0) == pytest.approx([0.05, 0.275, 0.95], abs=0.045)


def test_bias_and_noise_scale_the_distance() -> None:
    clean, changed = pair(0.2)
    biased = SimulatedListener(ear=FirstSample(), lapse=0.0, noise=0.0, bias=math.log(2.0))
    assert float(biased.probability(clean, changed)) == pytest.approx(0.4)
    # The mean of a log-normal of sigma 0.3 is exp(0.045); few draws pass 1 / 0.2.
    wavering = SimulatedListener(ear=FirstSample(), lapse=0.0, noise=0.3)
    assert float(wavering.probability(clean, changed)) == pytest.approx(0.2 * math.exp(0.045), rel=1e-4)
    answers = [wavering.answers(clean, changed, trial)[0] for trial in range(4000)]
    assert np.mean(answers) == pytest.approx(0.2092, abs=0.026)


def test_pairs_are_answered_by_name_and_not_by_place() -> None:
    listener = SimulatedListener(ear=FirstSample(), noise=0.0)
    names = [str(number) for number in range(40)]
    together = listener.answers(*pair(*[0.5] * 40, ids=names))
    alone = [listener.answers(*pair(0.5, ids=[name]))[0] for name in names]
    assert together == alone
    assert 5 < sum(together) < 35


def test_the_default_ear_is_the_auditory_model() -> None:
    listener = SimulatedListener(lapse=0.0)
    assert listener.ear == Auditory()
    clip = AudioBatch.of([0.02 * np.random.default_rng(0).standard_normal(8000)], 16000)
    louder = clip.with_waveforms(2.0 * clip.waveforms)
    assert listener.answers(clip, louder) == [True]
    assert listener.answers(clip, clip) == [False]


def test_a_curve_of_the_same_listener() -> None:
    listener = SimulatedListener(lapse=0.3, seed=7, name="simulated-anna")
    curve = listener.curve([0, 100], [0.15, 0.85])
    assert (curve.name, curve.seed, curve.simulated) == ("simulated-anna", 7, True)
    # The lapses are in the table and do not count twice.
    assert curve.probability(50.0) == pytest.approx(0.5)
    assert curve.probability(100.0) == pytest.approx(0.85)


def test_all_are_called_simulated() -> None:
    listeners = (
        PsychometricListener(mu=1.0, sigma=1.0),
        CurveListener(strengths=(0.0, 1.0), probabilities=(0.0, 1.0)),
        InattentiveListener(),
        SimulatedListener(),
    )
    for listener in listeners:
        assert listener.simulated
        assert listener.name.startswith("simulated-")
    for make in (InattentiveListener, SimulatedListener):
        with pytest.raises(InputError, match="starts with 'simulated-'"):
            make(name="anna")


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="sigma above 0"):
        PsychometricListener(mu=1.0, sigma=0.0)
    with pytest.raises(InputError, match="lapse rate from 0 to 1"):
        PsychometricListener(mu=1.0, sigma=1.0, lapse=1.5)
    with pytest.raises(InputError, match="two strengths or more"):
        CurveListener(strengths=(0.0, 1.0), probabilities=(0.0,))
    with pytest.raises(InputError, match="rising strengths"):
        CurveListener(strengths=(1.0, 1.0), probabilities=(0.0, 1.0))
    with pytest.raises(InputError, match="probabilities from 0 to 1"):
        CurveListener(strengths=(0.0, 1.0), probabilities=(0.0, 1.1))
    with pytest.raises(InputError, match="noise of 0 or more"):
        SimulatedListener(noise=-1.0)
    with pytest.raises(InputError, match="one length"):
        SimulatedListener().answers(AudioBatch.of([[0.0]], 16000), AudioBatch.of([[0.0, 0.0]], 16000))
