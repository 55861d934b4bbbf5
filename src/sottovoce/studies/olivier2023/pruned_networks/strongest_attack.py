"""A classifier under several attacks, clip by clip the strongest: what one attack has fooled is left alone.

Results are kept in a file, a budget at a time: a run that was killed goes on behind the last of them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, final

import torch

from sottovoce.core.attack import climb, decode
from sottovoce.core.budget import Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.statistics import Interval, clopper_pearson
from sottovoce.core.target import Target
from sottovoce.errors import InputError
from sottovoce.registry.part_text import Part
from sottovoce.training.checkpoint import write_whole
from sottovoce.training.sources import ClipsInMemory

CLEAN = "clean"
"""Stands for an attack where a clip was not understood to begin with."""
PGD = "pgd"
SEARCH = "genetic"
Tick = Callable[[str], None]


@final
@dataclass(frozen=True, kw_only=True)
class Attackers:
    """Attacks in order, as texts, the first of them on every clip; and how a model is asked.

    bits: of the finished example; None: floats. batch: clips at once.
    """

    attacks: tuple[str, ...]
    budgets: Mapping[str, str]
    bits: int | None = 16
    batch: int = 50
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        return {"attacks": list(self.attacks), "budgets": dict(self.budgets), "seed": self.seed}


@dataclass(kw_only=True)
class JudgedNetwork:
    """What became of each clip. truth, said: the class of each clip, and what is heard in it.

    fell: by budget, for each clip the attack that fooled the model, `clean` where none was needed, or "".
    ended: by budget, what the model hears in each clip in the end.
    flat: the share of clips where the loss has a gradient of zero.
    """

    truth: list[str]
    said: list[str]
    flat: float
    fell: dict[str, list[str]] = field(default_factory=dict)
    ended: dict[str, list[str]] = field(default_factory=dict)

    @property
    def clean(self) -> Interval:
        return _rate([one == two for one, two in zip(self.truth, self.said, strict=True)])

    def stands(self, budget: str, attacks: Sequence[str] | None = None) -> list[bool]:
        """Which clips none of some attacks fooled; None: of all."""
        return [
            one == "" or (one != CLEAN and attacks is not None and one not in attacks)
            for one in self.fell[budget]
        ]

    def accuracy(self, budget: str, attacks: Sequence[str] | None = None) -> Interval:
        return _rate(self.stands(budget, attacks))

    def beyond(self, budget: str, attack: str) -> int:
        """Clips that an attack fooled where those before it had not."""
        return self.fell[budget].count(attack)

    def one_class(self, budget: str | None = None) -> float:
        """The share of the commonest class in what is heard."""
        said = self.said if budget is None else self.ended[budget]
        return Counter(said).most_common(1)[0][1] / len(said)


def judge(
    target: Target, clips: ClipsInMemory, attackers: Attackers, kept: Path, tick: Tick
) -> JudgedNetwork:
    """Attack a model with every budget. kept: the file of what is done. tick: told after each budget."""
    setting = {**attackers.describe(), "clips": clips.describe()}
    judged = _read(kept, setting)
    if judged is None:
        judged = _listen(target, clips, attackers)
        _write(kept, judged, setting)
    for title, budget in attackers.budgets.items():
        if title not in judged.fell:
            judged.fell[title], judged.ended[title] = _attacked(target, clips, attackers, budget, judged)
            _write(kept, judged, setting)
        tick(title)
    return judged


def _listen(target: Target, clips: ClipsInMemory, attackers: Attackers) -> JudgedNetwork:
    said: list[str] = []
    flat: list[bool] = []
    draws = Draws(attackers.seed)
    for heard in clips.in_order(attackers.batch):
        said += decode(target, heard.batch, draws)
        goal = Evade().heard_by(target).bind(heard.labels)
        still = torch.zeros_like(heard.batch.waveforms)
        _, slope = climb(target, heard.batch, still, goal, draws.turn("slope"))
        flat += (slope.abs().amax(dim=1) == 0).tolist()
    return JudgedNetwork(truth=list(clips.labels), said=said, flat=sum(flat) / len(flat))


def _attacked(
    target: Target, clips: ClipsInMemory, attackers: Attackers, budget: str, judged: JudgedNetwork
) -> tuple[list[str], list[str]]:
    fell = ["" if one == two else CLEAN for one, two in zip(judged.truth, judged.said, strict=True)]
    ended = list(judged.said)
    ball: Budget = Part.parse(budget).build("budget")
    for text in attackers.attacks:
        part = Part.parse(text)
        attack = part.build("attack")
        left = [place for place, one in enumerate(fell) if one == ""]
        for first in range(0, len(left), attackers.batch):
            places = left[first : first + attackers.batch]
            heard = clips.batch(places)
            trial = attack(
                target,
                heard.batch,
                Evade().bind(heard.labels),
                ball,
                draws=Draws(attackers.seed).turn(text),
                labels=heard.labels,
                bits=attackers.bits,
            )
            for place, won, says in zip(places, trial.achieved, trial.adversarial_texts, strict=True):
                ended[place] = says
                fell[place] = part.name if won else ""
    return fell, ended


def _read(path: Path, setting: Mapping[str, Any]) -> JudgedNetwork | None:
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        made, judged = content.pop("setting"), JudgedNetwork(**content)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: expected verdicts of this study, got {type(error).__name__} ({error}); remove the file."
        ) from error
    if made != setting:
        raise InputError(
            f"{path}: expected verdicts on the same clips by the same attacks, got others; choose another "
            "--out, or remove the file."
        )
    return judged


def _write(path: Path, judged: JudgedNetwork, setting: Mapping[str, Any]) -> None:
    text = json.dumps({"setting": setting, **asdict(judged)})
    write_whole(path, lambda place: place.write_text(text, encoding="utf-8"))


def _rate(hits: Sequence[bool]) -> Interval:
    return clopper_pearson(sum(hits), len(hits))
