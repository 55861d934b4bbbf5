"""Metrics of audio on two waveforms, without a trial."""

from __future__ import annotations

import doctest
import math

import pytest
import torch

import sottovoce as sv
from sottovoce import registry
from sottovoce.errors import MissingExtra

RATE = 16000
AUDIO = [name for name in registry.names("metric") if registry.find("metric", name).of == "audio"]
SAID = [name for name in registry.names("metric") if registry.find("metric", name).of == "decisions"]


def test_values_known_by_hand() -> None:
    clean = torch.full((2, 8000), 0.5)
    changed = clean + torch.tensor([[0.05], [-0.005]])
    # 0.5 to 0.05 is 20 dB, to 0.005 40 dB; 8,000 samples of 0.05 are sqrt(8000) * 0.05 long.
    assert sv.metrics.Snr()(clean, changed, sample_rate=RATE).tolist() == pytest.approx([20, 40], abs=1e-4)
    assert sv.metrics.LInfNorm()(clean, changed, sample_rate=RATE).tolist() == pytest.approx([0.05, 0.005])
    assert sv.metrics.L2Norm()(clean, changed, sample_rate=RATE).tolist() == pytest.approx(
        [math.sqrt(8000) * 0.05, math.sqrt(8000) * 0.005], rel=1e-5
    )
    assert sv.metrics.DbMax()(clean, changed, sample_rate=RATE).tolist() == pytest.approx(
        [-20, -40], abs=1e-4
    )
    assert sv.metrics.BelowAccepted()(clean, changed, sample_rate=RATE).tolist() == [0.0, 1.0]


def test_one_pair_has_one_value() -> None:
    clean = torch.full((8000,), 0.5)
    value = sv.metrics.Snr()(clean, 1.1 * clean, sample_rate=RATE)
    assert value.shape == () and value.dtype == torch.float64
    assert float(value) == pytest.approx(20, abs=1e-4)
    assert math.isinf(float(sv.metrics.Snr()(clean, clean, sample_rate=RATE)))
    # Silence has no envelope.
    assert math.isnan(float(sv.metrics.Stoi()(0 * clean, 0 * clean, sample_rate=RATE)))


def test_what_lies_past_a_length_is_not_heard() -> None:
    clean, changed = torch.full((2, 100), 0.5), torch.full((2, 100), 0.55)
    changed[1, 40:] = -1.0
    values = sv.metrics.LInfNorm()(clean, changed, sample_rate=RATE, lengths=[100, 40])
    assert values.tolist() == pytest.approx([0.05, 0.05])


@pytest.mark.parametrize("name", AUDIO)
def test_it_is_the_value_that_measure_gives(name: str) -> None:
    seconds = torch.arange(24000) / RATE
    clean = 0.3 * torch.sin(6.28 * 300 * seconds) * (0.6 + 0.4 * torch.sin(6.28 * 4 * seconds))
    changed = clean + 0.01 * torch.sin(6.28 * 900 * seconds)
    try:
        found = registry.find("metric", name)()(clean, changed, sample_rate=RATE)
    except MissingExtra as error:
        pytest.skip(str(error))
    expected = sv.measure(clean, changed, metrics=[name], sample_rate=RATE)[name]
    assert float(found) == pytest.approx(math.nan if expected is None else expected, nan_ok=True)


@pytest.mark.parametrize("name", SAID)
def test_what_was_said_is_not_in_two_waveforms(name: str) -> None:
    with pytest.raises(sv.errors.InputError, match=f"^{name} looks at what a model said"):
        registry.find("metric", name)()(torch.zeros(9), torch.zeros(9), sample_rate=RATE)


def test_two_shapes_are_refused() -> None:
    with pytest.raises(sv.errors.InputError, match=r"one shape.* got \(9,\) and \(8,\)"):
        sv.metrics.Snr()(torch.zeros(9), torch.zeros(8), sample_rate=RATE)


def test_the_example_runs() -> None:
    (found,) = doctest.DocTestFinder(recurse=False).find(sv.Metric.__call__, "call", globs={})
    assert len(found.examples) == 4
    assert doctest.DocTestRunner().run(found).failed == 0


def test_errors_of_two_texts() -> None:
    edits = sv.metrics.word_edits("turn on the light", "turn the lights")
    # "on" is lost and "light" became "lights": 2 of 4 words.
    assert (edits.hits, edits.substitutions, edits.deletions, edits.insertions) == (2, 1, 1, 0)
    assert edits.rate == 0.5
    assert sv.metrics.character_edits("abcd", "abd").rate == 0.25
