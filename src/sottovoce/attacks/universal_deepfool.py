"""Universal perturbations from DeepFool: small steps, clip after clip, added up to one waveform.

The loop is that of Moosavi-Dezfooli et al. (2017, "Universal adversarial perturbations", algorithm 1): for
every clip that v does not fool, add the smallest perturbation that does, and project v back onto the budget.
`Uap` accepts every such step. `UapHc` is a hill climb (Vadillo and Santana 2019, "Universal adversarial
examples in speech command classification"): it accepts a step only if that raises the fooling ratio over all
clips.

Cost, for n clips and e epochs: at most `e n` runs of DeepFool on one clip. Uap adds `e n` decisions on one
clip and `e` passes over the set. UapHc adds one pass for each step, so at most `e n^2` decisions; a pass ends
as soon as its step can no longer win, after `n - fooled` decisions at best (see `Leader.challenge`), and a
step that has lost is not tried again before v has changed.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from sottovoce.attacks.deepfool import nearest_boundary
from sottovoce.core.attack import decode, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, Budget, LInf
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Goal
from sottovoce.core.target import Scores, Target, check_clips, require_capabilities, require_sight
from sottovoce.core.universal_attack import Perturbation, UniversalAttack, check_norm
from sottovoce.errors import InputError

Progress = Callable[[int, int, float], None]
"""Called after every clip with the epoch, the clips done in it, and the best fooling ratio so far."""


@final
class Crowd:
    """The clips of a fit, sorted by id, and their answers to a perturbation v `(time,)`.

    The samples stay in memory (64 MB for 1,000 clips of a second); the target hears `batch_clips` at a time.
    The batches that the clips came in do not matter, because they are joined and divided again.
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
                f"the goal needs {len(places)} references, one for each clip, got {len(goal.references)}."
            )
        goal = goal.heard_by(target)
        self.goal = goal.select(places) if goal.references else goal.bind(self._say(self.clips))
        # A budget relative to the clip bounds v where it is added; v itself is bounded by the largest radius.
        limit = float(budget.radius(self.clips).max())
        self.bound: Ball = L2(limit) if budget.norm == "l2" else LInf(limit)

    def __len__(self) -> int:
        return len(self.clips)

    def silence(self) -> Tensor:
        """A v of zeros, as long as the longest clip."""
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
        """How a perturbation was made, as JSON: the settings, and how many clips it fools."""
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
        """V plus the smallest step that fools the clip, inside the bound; v itself if nothing changes."""
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
        # The clip hears v scaled to its own level, so the step is scaled the other way.
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

        Exact, and short if v loses: v cannot win once it has missed as many clips as the leader misses. So
        the clips that the leader misses are tested first, then those that earlier challengers missed.
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
    """The loop that both attacks share; a subclass decides which steps to accept.

    Of all v that were measured over the whole set, the one that fools most clips is returned: zeros if none
    fools any. `made_by` holds the settings and how many clips were fooled, as JSON.
    """

    epochs: int = field(default=5, metadata=limits(at_least=1))
    deepfool_steps: int = field(default=100, metadata=limits(at_least=1))
    overshoot: float = field(default=0.1, metadata=limits(at_least=0))
    batch_clips: int = field(default=64, metadata=limits(at_least=1))

    needs: ClassVar[tuple[type, ...]] = (Scores,)

    @abstractmethod
    def follow(self, leader: Leader, pushed: Tensor) -> Tensor:
        """The v to continue with after a step."""

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
        require_sight(self, self.sees, target)
        require_capabilities(self, self.needs, target, "Use universal-gradient.")
        check_norm(self, budget)
        assert isinstance(budget, Ball)
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
                # The same v gives the same step, so a second try would lose again.
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
    """One perturbation for all clips (Moosavi-Dezfooli et al. 2017), for classifiers.

    Clip after clip, the smallest perturbation that fools it is added, and the sum projected onto the budget.
    `fit` finds it on some clips; the result is an attack for any others, and can be saved.

    epochs: passes through the clips, each in another order.
    deepfool_steps, overshoot: settings of DeepFool, which finds the step for each clip.
    batch_clips: clips in one forward pass when fooling is measured; limits the memory.

    >>> model = sv.testing.ToyClassifier()
    >>> clips = sv.testing.clips_for(model)
    >>> found = sv.attacks.Uap(epochs=2).fit(
    ...     model, [clips], sv.goals.Evade(), sv.budgets.Snr(0), draws=sv.Draws(0))
    >>> found.sample_rate, len(found.waveform) == clips.waveforms.shape[1]
    (1000, True)
    >>> any(sv.attack(model, clips, found, budget="snr(db=0)").achieved)
    True
    """

    name: ClassVar[str] = "uap"

    def follow(self, leader: Leader, pushed: Tensor) -> Tensor:
        return pushed


@final
@dataclass(frozen=True, kw_only=True)
class UapHc(Accumulation):
    """One perturbation for all clips by hill climbing (Vadillo & Santana 2019), for classifiers.

    As `uap`, but a step is accepted only if it raises the fooling ratio over all clips. Slower,
    because each step is measured on all of them. Settings are those of `uap`.

    >>> model = sv.testing.ToyClassifier()
    >>> clips = sv.testing.clips_for(model)
    >>> found = sv.attacks.UapHc(epochs=1).fit(
    ...     model, [clips], sv.goals.Evade(), sv.budgets.Snr(0), draws=sv.Draws(0))
    >>> any(sv.attack(model, clips, found, budget="snr(db=0)").achieved)
    True
    """

    name: ClassVar[str] = "uap-hc"

    def follow(self, leader: Leader, pushed: Tensor) -> Tensor:
        leader.challenge(pushed)
        return leader.v


def _gather(batches: Iterable[AudioBatch]) -> tuple[AudioBatch, list[int]]:
    """All clips in one batch sorted by id, and the original position of each."""
    found = list(batches)
    if not found:
        raise InputError("clips must have at least one batch to fit on, got none.")
    rates = {batch.sample_rate for batch in found}
    if len(rates) > 1:
        raise InputError(f"expected clips of one sample rate, got {sorted(rates)} Hz; resample them first.")
    ids = [name for batch in found for name in batch.ids]
    rows = [batch.clip(row) for batch in found for row in range(len(batch))]
    places = sorted(range(len(ids)), key=ids.__getitem__)
    waveforms = torch.nn.utils.rnn.pad_sequence([rows[place] for place in places], batch_first=True)
    lengths = torch.tensor([len(rows[place]) for place in places], device=waveforms.device)
    return AudioBatch(waveforms, lengths, rates.pop(), tuple(ids[place] for place in places)), places
