"""Universal perturbations: DeepFool's pushes, clip after clip, gathered into one waveform.

The loop is that of Moosavi-Dezfooli et al. (2017, "Universal adversarial perturbations", algorithm 1): clip
after clip, where v does not fool yet, v takes the smallest extra perturbation that would, and is projected
back onto the budget. `Uap` follows every such push. `UapHc` climbs a hill (Vadillo and Santana 2019,
"Universal adversarial examples in speech command classification"): it follows a push only where that raises
the fooling ratio over all clips.

Cost, for n clips and e epochs: at most `e n` runs of DeepFool on one clip. Uap adds `e n` decisions on one
clip and `e` passes over the set. UapHc adds one pass for each push, so at most `e n^2` decisions; a pass ends
as soon as its push can no longer win, after `n - fooled` decisions at best (see `Leader.challenge`), and a
push that has lost is not tried again before v has moved.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from sottovoce.attacks.deepfool import nearest_boundary
from sottovoce.core.attack import decode, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, Budget, LInf
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Goal
from sottovoce.core.target import Scores, Target, check_clips
from sottovoce.core.universal_attack import Perturbation, UniversalAttack
from sottovoce.errors import InputError

Progress = Callable[[int, int, float], None]
"""Called after every clip with the epoch, the clips seen in it, and the best fooling ratio so far."""


@final
class Crowd:
    """The clips of a fit, sorted by id, and how they take a perturbation v `(time,)`.

    The samples stay in memory (64 MB for 1,000 clips of a second); the target hears `batch_clips` at a time.
    How the clips came in batches leaves no trace, because they are gathered and cut anew.
    """

    def __init__(
        self,
        target: Target,
        clips: Iterable[AudioBatch],
        goal: Goal,
        budget: Ball,
        draws: Draws,
        batch_clips: int,
    ) -> None:
        self.target, self.budget, self.draws, self.batch_clips = target, budget, draws, batch_clips
        self.clips, places = _gather(clips)
        check_clips(target, self.clips)
        if goal.references and len(goal.references) != len(places):
            raise InputError(
                f"expected {len(places)} references, got {len(goal.references)}; bind one a clip."
            )
        goal = goal.heard_by(target)
        self.goal = goal.select(places) if goal.references else goal.bind(self._say(self.clips))
        # A budget that is relative to the clip binds v as laid on each; v itself has the widest radius.
        limit = float(budget.radius(self.clips).max())
        self.bound: Ball = L2(limit) if budget.norm == "l2" else LInf(limit)

    def __len__(self) -> int:
        return len(self.clips)

    def silence(self) -> Tensor:
        """The v of zeros, as long as the longest clip."""
        return torch.zeros_like(self.clips.waveforms[0])

    def order(self, epoch: int) -> list[int]:
        """All rows, shuffled."""
        source = self.draws.turn("epoch", epoch).generator("order")
        return [int(row) for row in source.permutation(len(self))]

    def fooled(self, v: Tensor, rows: Sequence[int]) -> list[bool]:
        """Whether v reaches the goal on each of these clips."""
        texts: list[str] = []
        for first in range(0, len(rows), self.batch_clips):
            clean = self.clips.select(rows[first : first + self.batch_clips])
            delta = within(clean, Perturbation(v, clean.sample_rate).played(clean, self.budget))
            texts += decode(self.target, clean.with_waveforms(clean.waveforms + delta), self.draws)
        return self.goal.select(rows).achieved(texts)

    def story(self, attack: Any, fooled: int) -> str:
        """How a perturbation was made, as JSON: the settings, and how many of the clips it fools."""
        settings = [item.name for item in fields(self.goal) if not item.metadata.get("bound")]
        aim = {name: getattr(self.goal, name) for name in settings}
        facts = {
            "attack": {"kind": type(attack).__name__, **asdict(attack)},
            "goal": {"kind": type(self.goal).__name__, **aim},
            "budget": str(self.budget),
            "seed": self.draws.seed,
            "fooled": fooled,
            "clips": len(self),
        }
        return json.dumps(facts)

    def push(self, v: Tensor, row: int, steps: int, overshoot: float) -> Tensor:
        """v with what the clip lacks to be fooled, inside the bound; v itself where nothing changes."""
        clean = self.clips.select([row])
        perturbation = Perturbation(v, clean.sample_rate)
        laid, heard = perturbation.over(clean), perturbation.played(clean, self.budget)
        extra = nearest_boundary(
            self.target,
            clean,
            within(clean, heard),
            self.goal.select([row]),
            self.draws.turn("boundary"),
            steps=steps,
            overshoot=overshoot,
            norm=self.budget.norm,
        )
        # The clip hears v turned up or down to its own level: the push goes the other way to match.
        level = float(self.budget.size(heard))
        gain = float(self.budget.size(laid)) / level if level > 0 else 1.0
        pushed = v.clone()
        pushed[: extra.shape[1]] += gain * extra[0]
        pushed = self.bound.project(pushed[None], clean)[0]
        return v if torch.equal(pushed, v) else pushed

    def _say(self, clips: AudioBatch) -> list[str]:
        rows = range(len(clips))
        cuts = [rows[first : first + self.batch_clips] for first in rows[:: self.batch_clips]]
        return [text for cut in cuts for text in decode(self.target, clips.select(cut), self.draws)]


@final
class Leader:
    """The best v so far, and which clips it fools."""

    def __init__(self, crowd: Crowd, v: Tensor) -> None:
        self._crowd = crowd
        self._queue = list(range(len(crowd)))
        self.v = v
        self.fooled = crowd.fooled(v, self._queue)

    @property
    def count(self) -> int:
        return sum(self.fooled)

    def challenge(self, v: Tensor) -> None:
        """Make v the leader if it fools more clips than the leader does.

        Exact, and short where v loses: v cannot win once it has missed as many clips as the leader misses.
        So the clips that the leader misses come first, then those that earlier challengers have lost.
        """
        if v is self.v:
            return
        fooled = [True] * len(self._crowd)
        spare = len(self._crowd) - self.count
        for first in range(0, len(self._queue), self._crowd.batch_clips):
            rows = self._queue[first : first + self._crowd.batch_clips]
            for row, hit in zip(rows, self._crowd.fooled(v, rows), strict=True):
                fooled[row] = hit
                spare -= not hit
            if spare <= 0:
                break
        else:
            self.v, self.fooled = v, fooled
        self._queue.sort(key=lambda row: (self.fooled[row], fooled[row]))


@dataclass(frozen=True, kw_only=True)
class Accumulation(UniversalAttack):
    """The loop that both attacks share; a subclass says where to go on from a push.

    Of all v that were measured over the whole set, the one that fools most clips is returned: zeros where
    none fools any. `made_by` tells the settings and how many clips were fooled, as JSON.

    epochs: passes through the clips, each in an order of its own.
    deepfool_steps, overshoot: of DeepFool's search for the smallest push.
    batch_clips: clips that the target hears at once when fooling is measured; bounds the memory.
    """

    epochs: int = 5
    deepfool_steps: int = 100
    overshoot: float = 0.1
    batch_clips: int = 64

    needs: ClassVar[tuple[type, ...]] = (Scores,)

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.deepfool_steps < 1 or self.batch_clips < 1:
            raise InputError(
                f"expected at least 1 epoch, 1 step of DeepFool and 1 clip a batch, got {self.epochs}, "
                f"{self.deepfool_steps} and {self.batch_clips}; raise them."
            )
        if self.overshoot < 0:
            raise InputError(f"expected an overshoot from 0, got {self.overshoot}; 0.1 is usual.")

    @abstractmethod
    def follow(self, leader: Leader, pushed: Tensor) -> Tensor:
        """The v to go on with after a push."""

    @final
    def fit(
        self,
        target: Target,
        clips: Sequence[AudioBatch] | Iterable[AudioBatch],
        goal: Goal,
        budget: Budget,
        *,
        draws: Draws,
        progress: Progress | None = None,
    ) -> Perturbation:
        """One perturbation for all clips, as long as the longest of them.

        A goal without references is bound to what the target says to the clean clips; one with references
        has one for each clip, in the order of `clips`.
        """
        for kind in self.needs:
            target.power(kind)
        if not isinstance(budget, Ball):
            raise InputError(
                f"{type(self).__name__} expected a budget of kind Ball, got {budget}; choose l2, linf, snr "
                "or dbmax."
            )
        crowd = Crowd(target, clips, goal, budget, draws, self.batch_clips)
        leader = self._search(crowd, progress)
        return Perturbation(leader.v, crowd.clips.sample_rate, crowd.story(self, leader.count))

    def _search(self, crowd: Crowd, progress: Progress | None) -> Leader:
        v = crowd.silence()
        leader = Leader(crowd, v)
        tried: set[int] = set()
        for epoch in range(self.epochs):
            for seen, row in enumerate(crowd.order(epoch), start=1):
                known = leader.fooled[row] if v is leader.v else None
                # From the same v the same push comes again, so that a second try would lose again.
                if row not in tried and not (crowd.fooled(v, [row])[0] if known is None else known):
                    tried.add(row)
                    pushed = crowd.push(v, row, self.deepfool_steps, self.overshoot)
                    following = self.follow(leader, pushed)
                    if following is not v:
                        v = following
                        tried.clear()
                if progress is not None:
                    progress(epoch, seen, leader.count / len(crowd))
            leader.challenge(v)
            if leader.count == len(crowd):
                break
        return leader


@final
@dataclass(frozen=True, kw_only=True)
class Uap(Accumulation):
    """Moosavi-Dezfooli et al. (2017): follow every push. The set is measured at the end of each epoch."""

    def follow(self, leader: Leader, pushed: Tensor) -> Tensor:
        return pushed


@final
@dataclass(frozen=True, kw_only=True)
class UapHc(Accumulation):
    """Vadillo and Santana (2019): follow a push only where it raises the fooling ratio over all clips."""

    def follow(self, leader: Leader, pushed: Tensor) -> Tensor:
        leader.challenge(pushed)
        return leader.v


def _gather(batches: Iterable[AudioBatch]) -> tuple[AudioBatch, list[int]]:
    """All clips in one batch sorted by id, and the place that each of them came from."""
    found = list(batches)
    if not found:
        raise InputError("expected at least one batch of clips to fit on, got none; give some.")
    rates = {batch.sample_rate for batch in found}
    if len(rates) > 1:
        raise InputError(f"expected clips of one sample rate, got {sorted(rates)} Hz; resample them first.")
    ids = [name for batch in found for name in batch.ids]
    rows = [batch.clip(row) for batch in found for row in range(len(batch))]
    places = sorted(range(len(ids)), key=ids.__getitem__)
    waveforms = torch.nn.utils.rnn.pad_sequence([rows[place] for place in places], batch_first=True)
    lengths = torch.tensor([len(rows[place]) for place in places], device=waveforms.device)
    return AudioBatch(waveforms, lengths, rates.pop(), tuple(ids[place] for place in places)), places
