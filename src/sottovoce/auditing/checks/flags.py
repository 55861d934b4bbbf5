"""Doubts as data: the checks of the sanity pass, their results, and the test that they share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sottovoce.auditing.results.summary import plain
from sottovoce.core.statistics import exact_binomial_p

Kind = Literal[
    "repeats", "unasked", "attackers", "averaging", "adaptive", "black-box", "one-step", "unprobed", "steps",
    "passes", "gradients", "unfinished", "failures", "floats", "rounding", "no-noise", "noise", "few-clips",
    "ears",
]  # fmt: skip
STRENGTH: tuple[Kind, ...] = (
    "repeats", "attackers", "averaging", "adaptive", "black-box", "one-step", "unprobed", "steps", "passes",
    "gradients",
)  # fmt: skip
"""Questions about whether the attacks are as strong as they could be, and what they were judged on."""
LEVEL = 0.05
"""Significance level of a paired difference."""


@dataclass(frozen=True)
class Flag:
    """One doubt.

    cell: the id of the cell that it is about; "" for the whole run.
    evidence: the figures, and what they are figures of.
    advice: what to run next.
    """

    kind: Kind
    cell: str
    evidence: dict[str, Any]
    advice: str


@dataclass(frozen=True)
class SanityCheck:
    """One check of a run: how often it was made, and where it raised a doubt."""

    kind: Kind
    asked: int
    flags: list[Flag]

    @property
    def passed(self) -> bool:
        return not self.flags

    def to_json(self) -> dict[str, Any]:
        """As plain data, NaN as null."""
        flags = [
            {"cell": flag.cell, "evidence": plain(flag.evidence), "next": flag.advice} for flag in self.flags
        ]
        return {"kind": self.kind, "asked": self.asked, "passed": self.passed, "flags": flags}


@dataclass(frozen=True)
class PairedOutcomes:
    """The same clips under two attacks: how many are worse under each.

    p: the p-value of an exact sign test; for success, McNemar's.
    """

    clips: int
    more: int
    less: int

    @property
    def p(self) -> float:
        return exact_binomial_p(self.more, self.more + self.less, alternative="greater")

    @classmethod
    def of(cls, one: Mapping[str, float], other: Mapping[str, float]) -> PairedOutcomes:
        both = one.keys() & other.keys()
        more = sum(one[clip] > other[clip] for clip in both)
        less = sum(one[clip] < other[clip] for clip in both)
        return cls(len(both), more, less)
