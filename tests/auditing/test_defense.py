"""Defenses as text: what they become, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from sottovoce.auditing.certificates.certify_run import vote_passes
from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.core.transform import Defended
from sottovoce.core.vote import Voted
from sottovoce.defenses.defense_text import Defense
from sottovoce.defenses.denoiser import FOLDER, Denoise
from sottovoce.defenses.quantise import Quantise
from sottovoce.defenses.randomised_smoothing import Gaussian
from sottovoce.defenses.votes import Majority
from sottovoce.errors import InputError
from sottovoce.leaderboard.certificate_rows import transforms as certificate_transforms
from sottovoce.testing import ToyClassifier


def test_transforms_stand_in_order_and_the_vote_outside() -> None:
    defense = Defense.parse("quantise(bits=6) + gaussian(sigma=0.02)+majority(passes=3)")
    assert defense.parts == (Quantise(bits=6), Gaussian(sigma=0.02), Majority(passes=3))
    target = defense.around(ToyClassifier())
    assert isinstance(target, Voted)
    assert isinstance(target.target, Defended)
    assert target.target.transforms == (Quantise(bits=6), Gaussian(sigma=0.02))
    assert target.random


def test_no_defense_is_the_model_itself() -> None:
    toy = ToyClassifier()
    assert Defense.parse("none").around(toy) is toy
    assert Defense.parse("none").parts == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "majority+gaussian",
            "expected at most one vote, at the end of the defense, got 'majority\\+gaussian'",
        ),
        ("gaussian+one+majority", "at most one vote"),
        ("gausian", "unknown defense 'gausian': did you mean 'gaussian'"),
        ("gaussian+majority(passes=0)", "passes must be from 1 to 100,000, got 0"),
        ("gaussian(sigma=0)", "above 0, got 0"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Defense.parse(text)


def test_a_vote_over_passes_that_are_all_the_same_is_refused() -> None:
    with pytest.raises(InputError, match="majority needs a random model"):
        Defense.parse("quantise+majority").around(ToyClassifier())


@pytest.mark.parametrize("text", ["gaussian(sigma=1e+0)", "gaussian(sigma=1.0e+0) + quantise(bits=8)"])
def test_a_plus_in_a_number_joins_nothing(text: str) -> None:
    assert Defense.parse(text).parts[0] == Gaussian(sigma=1.0)


def test_a_plus_in_a_path_joins_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a+b" / "c.safetensors"
    file.parent.mkdir()
    file.write_bytes((FOLDER / "denoiser-l1.safetensors").read_bytes())
    for written in (str(file), f'"{file}"', f"'{file}'"):
        found = Defense.parse(f"quantise(bits=8)+denoise(weights={written})+gaussian+majority(passes=3)")
        assert found.parts == (
            Quantise(bits=8), Denoise(weights=str(file)), Gaussian(), Majority(passes=3),
        )  # fmt: skip
    plan = make_plan({"defenses": [f"denoise(weights={file})"], "attacks": ["noise"]})
    assert {cell.defense for cell in plan.cells()} == {f"denoise(weights={file})"}
    assert certificate_transforms(f"denoise(weights={file})+majority(passes=3)") == [
        f"denoise(weights={file})"
    ]
    assert vote_passes("gaussian(sigma=1e+0)+majority(passes=3)") == 3


@pytest.mark.parametrize("text", ["gaussian++majority", "gaussian+", "+gaussian"])
def test_nothing_cannot_be_joined(text: str) -> None:
    with pytest.raises(InputError, match="expected name"):
        Defense.parse(text)
