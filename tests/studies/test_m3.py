"""The study of the learned metric, on tiny networks and a handful of answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sottovoce.data.load import Clip
from sottovoce.errors import InputError
from sottovoce.perception.ears import learned
from sottovoce.perception.ears.auditory import Auditory
from sottovoce.perception.ears.learned_network import EarShape, LearnedNetwork, save_network
from sottovoce.perception.jnd.answers import SameDifferentAnswer, write_answers
from sottovoce.studies.manocha2020.learned_metric import STUDY, check, open_bench, ordered
from sottovoce.studies.study import Choice
from sottovoce.training.ear.answer_pairs import AnswerPairs, Store

RATE = 16_000


def quiet(share: float, what: str) -> None:
    return None


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Tiny weights as if they were shipped, and an answers folder."""
    monkeypatch.setattr(learned, "FOLDER", tmp_path / "weights")
    for variant in learned.VARIANTS:
        network = LearnedNetwork(EarShape(bands=8, channels=(4, 4)))
        save_network(
            tmp_path / "weights" / f"learned-{variant}.safetensors", network, {"listeners": "simulated"}
        )
    clips, answers = [], []
    for number in range(4):
        source = np.random.default_rng(number)
        samples = 0.1 * source.standard_normal(4000)
        for place, gain in enumerate((0.0, 1e-4, 0.01, 0.1)):
            grid = np.rint((samples + gain * source.standard_normal(4000)).clip(-1, 0.999) * 32768) / 32768
            clips.append(Clip(f"r{number}/{place}", torch.from_numpy(grid.astype(np.float32)), RATE, ""))
            answers.append(
                SameDifferentAnswer(
                    listener="simulated-1",
                    simulated=True,
                    reference=f"r{number}/0",
                    changed=f"r{number}/{place}",
                    different=gain > 0.005,
                    strength=25.0 * place,
                    direction="white",
                )
            )
    write_answers(tmp_path / "answers", answers, clips, "test")
    return tmp_path


def test_a_study_of_given_answers(folder: Path) -> None:
    bench = open_bench(Choice(data=str(folder / "answers")), folder / "out", "cpu", quiet)
    result = STUDY.run(bench)
    _, told, known = result.sheets
    assert [row[0] for row in told.rows] == [
        "ours, pre", "ours, lin", "ours, fin", "ours, scratch", "auditory model",
    ]  # fmt: skip
    # White noise that grows: every ear that hears at all puts it in order, and what is heard above.
    figures = result.values["figures"]["auditory model"]
    assert (figures["answers"], figures["pairs"], figures["auc"]) == (12, 12, 1.0)
    assert result.values["order"]["auditory model"] == 1.0
    assert [row[-1] for row in told.rows] == ["83.9", "83.6", "80.3", "71.78", "–"]
    assert all(row[-1] == "yes" for row in known.rows)
    assert any("SIMULATED" in line for line in bench.scope(STUDY))


def test_order_by_hand() -> None:
    store = Store(torch.zeros(1, dtype=torch.int16), torch.zeros(5), torch.zeros(5), RATE)
    none = torch.zeros(5)
    groups, strengths = torch.tensor([0, 0, 0, 1, 1]), torch.tensor([1.0, 2.0, 3.0, 5.0, 5.0])
    pairs = AnswerPairs(store, none, none, none, none, groups, strengths)
    # Of group 0: 1 < 2 right, 1 < 3 a tie, 2 < 3 wrong; group 1 cannot be ordered.
    assert ordered(np.array([1.0, 2.0, 1.0, 7.0, 8.0]), pairs) == pytest.approx(1.5 / 3)


def test_checks_of_the_auditory_model() -> None:
    found = check(Auditory(), 0)
    assert found.at_zero == 0.0
    assert found.rises is True
    assert found.alone < 1e-3
    # White noise at 40 dB is heard in the pauses of speech, half the gain everywhere, a shift of 1/16 ms not.
    assert found.noise > 1 and found.noise * found.gain > 1 > found.noise * found.shift_millisecond
    assert found.shift_one < min(1, found.gain)


def test_bad_options(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="DPAM's published weights"):
        open_bench(Choice(model=str(tmp_path)), None, "cpu", quiet)
    with pytest.raises(InputError, match="does not use --attack"):
        open_bench(Choice(attack="uap"), None, "cpu", quiet)
