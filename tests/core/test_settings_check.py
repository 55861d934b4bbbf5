"""Types and limits of settings: what is said of each kind of limit, and that the edges count as written."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest

from sottovoce.core.files.settings_check import CheckedSettings, limits
from sottovoce.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Knobs(CheckedSettings):
    count: int = field(default=3, metadata=limits(at_least=1))
    size: float = field(default=0.5, metadata=limits(above=0))
    share: float = field(default=0.2, metadata=limits(above=0, at_most=1))
    pull: float = field(default=0.9, metadata=limits(at_least=0, below=1))
    odds: float = field(default=0.25, metadata=limits(above=0, below=1, hint="a quarter is usual"))
    level: float = field(default=20.0, metadata=limits())
    shape: str = field(default="round", metadata=limits(one_of=("round", "flat")))
    seconds: float | None = field(default=None, metadata=limits(above=0))


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("count", 0, "Knobs(count=0): expected a number of at least 1; the default is 3."),
        ("count", "many", "Knobs(count='many'): expected an integer."),
        ("size", 0.0, "Knobs(size=0.0): expected a number above 0; the default is 0.5."),
        ("share", 1.5, "Knobs(share=1.5): expected a number above 0 and at most 1; the default is 0.2."),
        ("pull", 1.0, "Knobs(pull=1.0): expected a number of at least 0 and below 1; the default is 0.9."),
        ("odds", 1, "Knobs(odds=1): expected a number between 0 and 1; a quarter is usual."),
        ("level", math.inf, "Knobs(level=inf): expected a finite number; the default is 20.0."),
        ("size", math.nan, "Knobs(size=nan): expected a number above 0; the default is 0.5."),
        ("shape", "square", "Knobs(shape='square'): expected 'round' or 'flat'; the default is round."),
        ("seconds", 0.0, "Knobs(seconds=0.0): expected a number above 0."),
    ],
)  # fmt: skip
def test_a_bad_setting_is_named_with_what_was_expected(setting: str, value: object, message: str) -> None:
    with pytest.raises(InputError) as raised:
        Knobs(**{setting: value})  # type: ignore[arg-type]
    assert str(raised.value) == message


def test_the_edges_that_belong_to_a_limit_are_taken() -> None:
    knobs = Knobs(count=1, share=1.0, pull=0.0, shape="flat", seconds=None)
    assert (knobs.count, knobs.share, knobs.pull, knobs.shape, knobs.seconds) == (
        1,
        1.0,
        0.0,
        "flat",
        None,
    )


def test_limits_hold_in_subclasses_with_checks_of_their_own() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Even(Knobs):
        def __post_init__(self) -> None:
            if self.count % 2:
                raise InputError("expected an even count.")

    with pytest.raises(InputError, match=r"Even\(count=0\): expected a number of at least 1"):
        Even(count=0)
    with pytest.raises(InputError, match="expected an even count"):
        Even(count=3)
