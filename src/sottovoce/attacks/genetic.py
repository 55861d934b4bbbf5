"""A genetic search, which needs no gradient.

Alzantot, Balaji and Srivastava (2018), "Did you hear that? Adversarial examples against automatic speech
recognition". Two things differ. The original changes the eight lowest bits of a sample; here the budget
limits the change. The original picks parents by the probability of success, which is flat where the model is
confident; here they are picked by its logarithm. On recognisers the goal's objective takes its place, as in
Olivier (2023), appendix D.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Best, decode, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Ball, Budget
from sottovoce.core.draws import Draws
from sottovoce.core.files.settings_check import limits
from sottovoce.core.goal import Evade, Goal
from sottovoce.core.target import Scores, Sight, Target
from sottovoce.errors import InputError

CONFIRMATIONS = 4
"""Fresh answers of a random target that must all reach the goal before a clip leaves. The best of many noisy
estimates is mostly luck; a clip that was only lucky fails at the first or second."""


@final
class Contest:
    """Many perturbations for each clip, judged without a gradient; clips leave when they are done.

    A classifier is judged by its class scores: a clip is done when its margin is above zero. Any other
    target, and any goal about more than the text, is judged by the goal's objective: a clip is done when the
    decoded text of its best perturbation reaches the goal. A target that gives answers alone is judged by
    them: a transcript by how near it is to the goal, a class by whether it reaches it. To evade a recogniser
    is never done: more words can still go wrong.

    If the target is random, a score is an estimate. The survivors of a generation are judged again with new
    noise, so that no lucky score lasts, and a clip leaves only if several fresh answers confirm it.

    alive: rows of the clips that are left.
    crowd: each of these clips once for each of its perturbations, `(alive * members, time)`.
    texts: the last decoded text of each clip's best perturbation; None before that, and for class scores.
    """

    def __init__(self, target: Target, clean: AudioBatch, goal: Goal, members: int, batch_clips: int) -> None:
        self.best = Best(torch.zeros_like(clean.waveforms))
        self.alive = list(range(len(clean)))
        self.crowd = repeated(clean, members)
        self.texts: list[str | None] = [None] * len(clean)
        self.by_texts = goal.about == "text" and target.shows == "decisions"
        self.by_scores = goal.about == "text" and not self.by_texts and target.offers(Scores)
        self.endless = target.says == "words" and isinstance(goal, Evade)
        self._target, self._clean, self._goal = target, clean, goal
        self._members, self._batch_clips = members, batch_clips
        self._improved = [False] * len(clean)
        self._said: list[list[str]] = []

    def judge(self, herd: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
        """The fitness for ranking and the log weight for breeding, both `(alive, members)`; keeps the best.

        herd: `(alive, members, time)`.
        """
        batch = self.crowd.with_waveforms(self.crowd.waveforms + herd.flatten(0, 1))
        goal = self._goal.select([row for row in self.alive for _ in range(self._members)])
        if self.by_texts:
            value = weight = self._read(batch, goal, draws)
        else:
            cuts = in_cuts(batch, self._batch_clips)
            parts = [self._scored(cut, goal.select(rows), draws) for rows, cut in cuts]
            value, weight = (torch.cat(column).view(-1, self._members) for column in zip(*parts, strict=True))
        self._note(herd, value)
        return value, weight

    def leave(self, draws: Draws) -> list[int]:
        """Remove the clips that are done; returns the positions in `alive` of those that stay."""
        if self.endless:
            return list(range(len(self.alive)))
        if not self.by_scores:
            self._listen(draws)
        done = self._done()
        going = [row for row in self.alive if done[row]]
        if self._target.random:
            going = self._confirmed(going, draws)
        left = [place for place, row in enumerate(self.alive) if row not in going]
        if 0 < len(left) < len(self.alive):
            self.alive = [self.alive[place] for place in left]
            self.crowd = repeated(self._clean.select(self.alive), self._members)
        return left

    def leaders(self) -> Tensor:
        """The best perturbation of each clip that is left, `(alive, time)`."""
        return self.best.delta[self.alive, : self.crowd.waveforms.shape[1]]

    def _read(self, batch: AudioBatch, goal: Goal, draws: Draws) -> Tensor:
        """The fitness `(alive, members)` by the answers alone; each clip's best one is kept."""
        cuts = in_cuts(batch, self._batch_clips)
        texts = [text for _, cut in cuts for text in self._target.decode(cut, draws=draws)]
        worth = goal.nearness(texts) if self._target.says == "words" else map(float, goal.achieved(texts))
        value = torch.tensor(list(worth), dtype=torch.float64, device=batch.device).view(-1, self._members)
        self._said = [texts[first : first + self._members] for first in range(0, len(texts), self._members)]
        return value

    def _scored(self, batch: AudioBatch, goal: Goal, draws: Draws) -> tuple[Tensor, Tensor]:
        if not self.by_scores:
            value = goal.objective(self._target, batch, draws=draws)
            return value, value.double()
        scorer = self._target.capability(Scores)
        scores = scorer.scores(batch, draws=draws)
        wins = goal.wins(scorer.classes).to(scores.device)
        chance = scores.double().log_softmax(dim=1).masked_fill(~wins, -torch.inf).logsumexp(dim=1)
        return goal.margin(scores, scorer.classes), chance

    def _note(self, herd: Tensor, value: Tensor) -> None:
        """Keep the best perturbation of each clip that is left; the others stay as they are."""
        top, member = value.max(dim=1)
        delta, level = self.best.delta.clone(), self.best.value.clone()
        delta[self.alive, : herd.shape[2]] = herd[torch.arange(len(herd)), member]
        level[self.alive] = top.to(level.dtype)
        if self._target.random:
            self.best = Best(self.best.delta)
        better = self.best.update(delta, level).tolist()
        for place, row in enumerate(self.alive):
            if better[row] and self.by_texts:
                self.texts[row] = self._said[place][int(member[place])]
            elif better[row]:
                self._improved[row] = True

    def _listen(self, draws: Draws) -> None:
        """Decode the clips whose best perturbation has changed."""
        rows = [row for row in self.alive if self._improved[row]]
        if not rows:
            return
        for row, text in zip(rows, self._heard(rows, draws), strict=True):
            self.texts[row] = text
            self._improved[row] = False

    def _confirmed(self, rows: list[int], draws: Draws) -> list[int]:
        """The rows whose best perturbation reaches the goal every time, each time with other noise."""
        for turn in range(CONFIRMATIONS):
            if rows:
                reached = self._goal.select(rows).achieved(self._heard(rows, draws.turn("confirm", turn)))
                rows = [row for row, won in zip(rows, reached, strict=True) if won]
        return rows

    def _heard(self, rows: list[int], draws: Draws) -> list[str]:
        """What the goal judges of the best perturbations of some rows."""
        clean = self._clean.select(rows)
        batch = clean.with_waveforms(clean.waveforms + self.best.delta[rows, : clean.waveforms.shape[1]])
        texts = decode(self._target, batch, draws) if self._goal.about == "text" else [""] * len(rows)
        return self._goal.select(rows).read(self._target, batch, texts, draws=draws.turn("judge"))

    def _done(self) -> list[bool]:
        if self.by_scores:
            return [float(value) > 0.0 for value in self.best.value]
        reached = self._goal.achieved([text or "" for text in self.texts])
        return [text is not None and won for text, won in zip(self.texts, reached, strict=True)]


def in_cuts(batch: AudioBatch, size: int) -> Iterator[tuple[range, AudioBatch]]:
    """A batch as smaller ones of at most `size` clips, each with its rows."""
    if len(batch) <= size:
        yield range(len(batch)), batch
        return
    for first in range(0, len(batch), size):
        rows = range(first, min(first + size, len(batch)))
        yield rows, batch.select(rows)


def repeated(clean: AudioBatch, members: int) -> AudioBatch:
    """Every clip once for each of its perturbations, `(batch * members, time)`."""
    return AudioBatch(
        clean.waveforms.repeat_interleave(members, dim=0),
        clean.lengths.repeat_interleave(members),
        clean.sample_rate,
        tuple(f"{name}/{member}" for name in clean.ids for member in range(members)),
    )


def offspring(herd: Tensor, weight: Tensor, temperature: float, crowd: AudioBatch, draws: Draws) -> Tensor:
    """Children of two parents each, `(batch * members, time)`: each sample comes from one of them.

    herd: `(batch, members, time)`; weight: `(batch, members)`, whose softmax at `temperature` picks parents.
    """
    wheel = (weight / temperature).softmax(dim=1).cumsum(dim=1)
    spins = draws.turn("parents").fractions(crowd, 2).to(wheel).view(len(herd), -1)
    picks = torch.searchsorted(wheel, spins, right=True).clamp(max=herd.shape[1] - 1)
    pairs = herd[torch.arange(len(herd))[:, None], picks].view(-1, 2, herd.shape[2])
    heads = draws.turn("mix").uniform(crowd) < 0
    return torch.where(heads, pairs[:, 0], pairs[:, 1])


def check_elite(elite: int, population: int) -> None:
    """Raise if nothing would be left to replace."""
    if elite >= population:
        raise InputError(
            f"expected an elite below the population, got elite={elite} and population={population}."
        )


@final
@dataclass(frozen=True, kw_only=True)
class Genetic(Attack):
    """Genetic search (Alzantot et al. 2018): needs the model's scores, or its answers alone, but no gradient.

    Each clip has a population of perturbations. Fitter ones have more children; a child mixes two parents and
    changes a few samples at random. A clip is done once it is fooled, except that evading a recogniser uses
    all steps to make the transcript worse. The best perturbation of each clip is kept. Where a model gives
    answers alone, transcripts are ranked by edit distance: to the wanted text, or away from the right one.

    steps: generations after the first. Every generation scores the whole population.
    population: perturbations for each clip.
    elite: how many of the fittest survive unchanged.
    temperature: of the softmax that picks the parents; lower is greedier.
    mutation_rate: share of a child's samples that are changed at random.
    mutation_size: size of such a change, as a share of the sample's level in noise that fills the budget.
    batch_clips: perturbed clips in one forward pass; limits the memory.

    >>> model = sv.testing.ToyClassifier()  # a real model takes hundreds of generations
    >>> attack = sv.attacks.Genetic(steps=20, population=10)
    >>> sv.attack(model, sv.testing.clips_for(model), attack, budget="snr(db=0)").achieved
    (True, True, True, True)
    """

    name: ClassVar[str] = "genetic"

    steps: int = field(default=500, metadata=limits(at_least=1))
    population: int = 20
    elite: int = field(default=2, metadata=limits(at_least=1))
    temperature: float = field(default=0.1, metadata=limits(above=0))
    mutation_rate: float = field(default=5e-3, metadata=limits(above=0, at_most=1))
    mutation_size: float = field(default=1.0, metadata=limits(above=0))
    batch_clips: int = field(default=512, metadata=limits(at_least=1))

    budgets: ClassVar[tuple[type[Budget], ...]] = (Ball,)
    sees: ClassVar[Sight] = "scores"
    least: ClassVar[Sight | None] = "decisions"

    def __post_init__(self) -> None:
        check_elite(self.elite, self.population)

    @torch.no_grad()
    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Ball)
        contest = Contest(target, clean, goal, self.population, self.batch_clips)
        herd = self._found(contest.crowd, budget, draws.turn("first"))
        for step in range(self.steps + 1):
            turn = draws.turn("generation", step)
            fitness, weight = contest.judge(herd, turn)
            if step == self.steps:
                break
            left = contest.leave(turn)
            if not left:
                break
            crowd = contest.crowd
            herd = herd[left, :, : crowd.waveforms.shape[1]]
            herd = self._breed(herd, fitness[left], weight[left], crowd, budget, turn)
        return contest.best.delta

    def _found(self, crowd: AudioBatch, budget: Ball, draws: Draws) -> Tensor:
        """The first generation, `(batch, population, time)`: no change at all, and random ones."""
        herd = within(crowd, budget.sample(crowd, draws)).view(-1, self.population, crowd.waveforms.shape[1])
        herd[:, 0] = 0.0
        return herd

    def _breed(
        self, herd: Tensor, fitness: Tensor, weight: Tensor, crowd: AudioBatch, budget: Ball, draws: Draws
    ) -> Tensor:
        """The next generation, `(batch, population, time)`: the elite, then children."""
        child = offspring(herd, weight, self.temperature, crowd, draws)
        # One draw decides both which samples change and, by its sign and size, how.
        lot = draws.turn("kick").uniform(crowd)
        kick = budget.steepest(lot.masked_fill(lot.abs() > self.mutation_rate, 0.0), crowd)
        # A share p of the samples of L2 noise has sqrt(p) of its norm; in L-infinity all reach the radius.
        reach = self.mutation_size * (1.0 if budget.norm == "linf" else self.mutation_rate**0.5)
        moved = child + reach * budget.radius(crowd).to(herd.dtype)[:, None] * kick
        bred = within(crowd, budget.project(moved, crowd)).view_as(herd)
        fittest = fitness.argsort(dim=1, descending=True, stable=True)[:, : self.elite]
        bred[:, : self.elite] = herd.gather(1, fittest[:, :, None].expand(-1, -1, herd.shape[2]))
        return bred
