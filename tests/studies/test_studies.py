"""V2 to V5 on a model of one sample, where every figure can be worked out by hand.

A clip of height 0.15 at its first sample is "yes" until more than 0.15 is taken away there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sottovoce import __version__
from sottovoce.studies.draw import boxes
from sottovoce.studies.kept_results import read_kept
from sottovoce.studies.study_page import write
from sottovoce.studies.vadillo2022 import distortion_by_part as v5
from sottovoce.studies.vadillo2022 import fooling_by_distortion as v3
from sottovoce.studies.vadillo2022 import fooling_ratio as v2
from sottovoce.studies.vadillo2022 import standard_distortion as v4
from sottovoce.studies.vadillo2022.universal_setup import UniversalSetup, best

Maker = Callable[[dict[str, Any], dict[str, Any]], UniversalSetup]
SAMPLES = 400


def spike(place: int, height: float, *, peak: float = 0.0) -> np.ndarray:
    """Zeros with one sample of some height, and if asked a louder one at the end that sets the peak."""
    row = np.zeros(SAMPLES)
    row[place] = height
    if peak:
        row[-1] = peak
    return row


def test_fooling_ratios_and_which_perturbation_is_the_best(make_bench: Maker) -> None:
    # Of the clips 0.05, 0.05, 0.2, 0.2 the first perturbation (0.1) takes two below zero, the second none.
    clips = [spike(0, height) for height in (0.05, 0.05, 0.2, 0.2)]
    bench = make_bench({"yes": clips}, {"yes": [(spike(0, -0.1), 5), (spike(0, 0.1), 0)]})
    row = v2.judge(bench, "yes", bench.perturbations()["yes"])
    assert (row.max_train, row.mean_train, row.train) == (0.5, 0.25, [0.5, 0.0])
    assert (row.max_valid.value, row.mean_valid.value, row.valid) == (0.5, 0.25, [0.5, 0.0])
    assert (row.max_valid_16bit, row.mean_valid_16bit) == (0.5, 0.25)
    assert best(bench.perturbations()["yes"]) == 0


def test_a_perturbation_below_half_a_step_fools_in_floats_only(make_bench: Maker) -> None:
    # A clip of one 16-bit step is turned by -1.4 steps in floats, but as a file it becomes 0: "yes" still.
    step = 1 / 32768
    bench = make_bench({"yes": [spike(0, step)] * 2}, {"yes": [(spike(0, -1.4 * step), 1)] * 2})
    row = v2.judge(bench, "yes", bench.perturbations()["yes"])
    assert (row.max_valid.value, row.max_valid_16bit) == (1.0, 0.0)


def test_sweep_crosses_where_it_must(make_bench: Maker) -> None:
    # Norm: fooled above 0.15. Level: 0.15 is 20 log10(0.15 / 0.5) = -10.46 dB under the peak of 0.5.
    clips = [spike(0, 0.15, peak=0.5) for _ in range(4)]
    bench = make_bench({"yes": clips}, {"yes": [(spike(0, 0.02), 0), (spike(0, -0.02), 9)]})
    values = v3.run(bench).values
    norms = {point["at"]: point["float"]["value"] for point in values["l2"]["yes"]}
    assert norms == {0.01: 0, 0.02: 0, 0.05: 0, 0.1: 0, 0.2: 1, 0.5: 1, 1.0: 1, 2.0: 1}
    levels = {point["at"]: point["float"]["value"] for point in values["db_max"]["yes"]}
    assert levels[-10.0] == 1
    assert {value for level, value in levels.items() if level < -10} == {0}
    assert all(point["16bit"] == point["float"] for point in values["l2"]["yes"])


def test_standard_evaluation_by_hand(make_bench: Maker) -> None:
    # A peak of 0.005 is 40 dB under 0.5 and 20 dB under 0.05: half of the clips below -32 dB, mean -30 dB.
    clips = [spike(0, 0.1, peak=0.5), spike(0, 0.01, peak=0.05)]
    bench = make_bench({"yes": clips}, {"yes": [(spike(3, 0.005), 1), (spike(7, -0.005), 1)]})
    found = v4.run(bench).values["classes"]["yes"]
    assert found["mean_db"]["value"] == pytest.approx(-30.0, abs=0.01)
    assert (found["below"]["value"], found["below"]["n"]) == (0.5, 2)


def test_perturbations_of_zeros_are_left_out_and_named(make_bench: Maker) -> None:
    zeros = np.zeros(SAMPLES)
    clips = {"yes": [spike(0, 0.5)] * 2, "no": [spike(0, -0.5)] * 2}
    bench = make_bench(clips, {"yes": [(spike(0, 0.005), 1), (zeros, 0)], "no": [(zeros, 0), (zeros, 0)]})
    result = v4.run(bench)
    assert result.values["classes"]["yes"]["mean_db"]["value"] == pytest.approx(-40.0, abs=0.01)
    assert "yes 1 of 2, no 2 of 2" in result.notes[-1]
    assert "no" not in v5.run(bench).values["levels_db"]["background_mean"]
    assert list(v3.run(bench).values["l2"]) == ["yes"]


def burst(loud: float, quiet: float) -> np.ndarray:
    """100 samples at `loud` in the middle of 300 at `quiet`."""
    row = np.full(SAMPLES, quiet)
    row[150:250] = loud
    return row


def test_parts_by_hand(make_bench: Maker) -> None:
    # v is 1/256 throughout. Vocal part, at 1/2: 20 log10(2/256) = -42.14 dB. Background, at 1/64: -12.04 dB.
    # The shortest range with 95 % of the energy drops some of the burst's ends, but no level changes by that
    # except the background's, whose few loud samples lower it: it has a mean of its own to be worked out.
    clips = {"yes": [burst(0.5, 1 / 64)] * 2, "silence": [burst(0.5, 1 / 64)] * 2}
    flat = (np.full(SAMPLES, 1 / 256), 1)
    bench = make_bench(clips, {"yes": [flat] * 2, "silence": [flat] * 2})
    values = v5.run(bench).values
    levels = values["levels_db"]
    assert np.array(levels["vocal_mean"]["yes"]) == pytest.approx(np.full((2, 2), -42.14), abs=0.01)
    assert np.array(levels["vocal_max"]["yes"]) == pytest.approx(np.full((2, 2), -42.14), abs=0.01)
    # Energy: 100 / 4 + 300 / 4096 = 25.07, of which 95 % is 23.82: 96 loud samples, so 4 are background.
    # Mean level there: (4 / 2 + 300 / 64) / 304 = 0.02200; 20 log10((1 / 256) / 0.02200) = -15.01 dB.
    assert np.array(levels["background_mean"]["yes"]) == pytest.approx(np.full((2, 2), -15.01), abs=0.01)
    assert list(levels["vocal_mean"]) == ["yes"] and list(levels["background_mean"]) == ["yes", "silence"]
    shares = {(one["measure"], one["above_db"]): (one["value"], one["n"]) for one in values["shares"]}
    assert shares[("background_mean", -32.0)] == shares[("background_mean", -20.0)] == (1.0, 4)
    assert shares[("vocal_mean", -32.0)] == (0.0, 2)


def test_a_class_has_one_height_in_every_panel() -> None:
    levels = {"silence": np.array([-10.0, -12.0]), "yes": np.array([-30.0, -34.0])}
    figure = boxes([[("vocal", {"yes": levels["yes"]}), ("background", levels)]])
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["silence", "yes"]
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "."]
    assert [round(float(np.mean(line.get_ydata()))) for line in dots] == [1]


def test_pages_say_what_made_them(make_bench: Maker) -> None:
    bench = make_bench({"yes": [spike(0, 0.15)] * 2}, {"yes": [(spike(0, -0.1), 1)] * 2})
    page = write(v2.STUDY, bench, v2.run(bench), seconds=89.6)
    text = page.read_text("utf-8")
    assert "NOT the paper&#39;s scale" in text and "data embedded" in text and "scale mini" in text
    assert "too few to generalise" in text
    assert "74.50" in text and "66.40" in text
    assert "http" not in text.replace("http://www.w3.org", "")
    facts = json.loads((page.parent / "results.json").read_text("utf-8"))
    assert facts["setting"]["scale"]["name"] == "mini" and facts["study"] == "V2"
    found = read_kept(page.parent / "results.json")
    assert (found.stem, found.seconds, found.version) == ("V2-mini", 90, __version__)
    assert [one.name for one in found.figures] == ["fooling"]
    assert (page.parent / "fooling.png").stat().st_size > 1000
