"""What a study is asked to run, and how that becomes audit plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar, final

from sottovoce.auditing.plan.plan_file import Plan
from sottovoce.registry.part_text import Part
from sottovoce.studies.identify import has_frames, has_speakers, is_strings

ScaleName = Literal["mini", "full"]
Attacker = Literal["adaptive", "transfer"]
Plans = dict[str, Plan]
Value = TypeVar("Value")

METRICS = (
    "wer", "clean-wer", "cer", "clean-cer", "wer-clips", "sentence-error", "uasr-word", "tasr-word",
    "language-confusion", "success", "snr", "segmental-snr", "linf", "db-max",
)  # fmt: skip
SENTENCES = [
    "really short test string",
    "please open the front door and leave it so until ten",
    "read every message of the last week aloud and then send all of them to everybody that i have ever met",
]
"""Three texts to force. The thesis has three as well; only the first is known, from its section 7.3."""


@final
@dataclass(frozen=True, kw_only=True)
class Ask:
    """What a study is asked to run.

    fit: clips to fit universal attacks on; None: every other clip of the data.
    clips: largest number of clips; None: the scale's own number.
    steps: largest number of steps of attacks on a defended model; None: the scale's own number.
    batch: clips attacked at once.
    small, frames, strings, speakers: whether the model is a Whisper of the small sizes, and has scores of
        frames; whether the clips are the shipped strings, and of speakers that the speaker models know. None:
        the model and the data are asked.
    """

    scale: ScaleName
    model: str
    data: str
    fit: str | None = None
    clips: int | None = None
    steps: int | None = None
    seed: int = 0
    batch: int = 8
    small: bool | None = None
    frames: bool | None = None
    strings: bool | None = None
    speakers: bool | None = None

    @cached_property
    def has_frames(self) -> bool:
        return has_frames(self.model) if self.frames is None else self.frames

    @cached_property
    def on_strings(self) -> bool:
        return is_strings(self.data, self.model) if self.strings is None else self.strings

    @cached_property
    def has_speakers(self) -> bool:
        return has_speakers(self.data) if self.speakers is None else self.speakers

    def take(self, mini: Value, full: Value) -> Value:
        return full if self.scale == "full" else mini

    def pgd(self, mini: int, full: int, *, ball: bool = False) -> str:
        """PGD with this many steps; where they are few, they are longer.

        In L-infinity they are 2.5 radii or more in all: a sample gets to the edge where its sign holds. That
        is not the end of what an attack can do there.

        ball: whether the budget is L2 or an SNR. Steps there lead every way, and k of them come only about
        sqrt(k) times as far as one: they are so long that all of them together end at the edge.
        """
        steps = self.at_most(mini, full)
        step = 2.0 / steps**0.5 if ball else 2.5 / steps
        return f"pgd(steps={steps}, step={max(0.1, round(step, 3)):g})"

    def at_most(self, mini: int, full: int) -> int:
        """The scale's number of steps, or the one asked for where that is less."""
        wanted = self.take(mini, full)
        return wanted if self.steps is None else min(wanted, self.steps)

    def plan(
        self,
        *,
        attacks: Sequence[str],
        budgets: Sequence[str],
        goals: Sequence[str | Part] = ("evade",),
        clips: int | None,
        slow: bool = False,
        fit: bool = False,
        metrics: Sequence[str] = (),
        model: str | None = None,
        data: str | None = None,
        defenses: Sequence[str] = ("none",),
        attacker: Attacker = "adaptive",
        average: int | None = None,
        audio: Literal["all", "none"] = "none",
        bits: int | None = 16,
    ) -> Plan:
        """clips: the study's own number; where the attack is `slow`, no other is more.
        fit: whether an attack of the plan is fitted on clips. metrics: beyond those of every plan.
        model, data: where they are not those asked for.
        attacker: what attacks behind a defense know of it. average: passes a gradient is the mean of; None:
        16 where the target is random.
        """
        wanted = self.clips or clips
        if slow and clips and self.clips:
            wanted = min(clips, self.clips)
        return Plan.model_validate(
            {
                "model": self.model if model is None else model,
                "data": self.data if data is None else data,
                "fit": self.fit if fit else None,
                "limit": wanted,
                "defenses": defenses,
                "average": average,
                "attackers": [attacker],
                "attacks": attacks,
                "goals": goals,
                "budgets": budgets,
                "metrics": (*METRICS, *metrics),
                "seed": self.seed,
                "batch": self.batch,
                "bits": bits,
                "audio": audio,
                "probe": 0,
            }
        )


def cw(*, steps: int, c: float, eps: float = 0.1, times: int = 8, first_token: float = 0.0) -> str:
    """Radius 0.1, shrunk by 0.7 up to 8 times, steps of 0.01, which is 0.1 of that radius (section 5.3.1)."""
    return str(
        Part(
            "cw-asr",
            {
                "steps": steps, "learning_rate": 0.1, "c": c, "eps": eps, "shrink": 0.7, "times": times,
                "first_token": first_token,
            },
        )
    )  # fmt: skip


def nearest() -> Part:
    return Part("force-nearest", {"choices": SENTENCES})


def snr(levels_db: Sequence[float]) -> list[str]:
    return [f"snr(db={level})" for level in levels_db]


def linf(radii: Sequence[float]) -> list[str]:
    return [f"linf(eps={radius})" for radius in radii]
