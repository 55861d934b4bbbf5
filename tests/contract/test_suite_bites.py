"""The suite finds what it is for: each defect, planted on purpose, breaks the law that forbids it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.core.attack import Attack, Trial, climb
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, Budget, NormName, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Goal
from sottovoce.core.metric import Metric
from sottovoce.core.target import Target
from sottovoce.core.transform import Defended, Transform
from sottovoce.core.universal_attack import Perturbation, UniversalAttack
from sottovoce.core.vote import Passes, Vote, Voted
from sottovoce.defenses.votes import Majority
from sottovoce.targets.families.classifier import Classifier
from sottovoce.testing import (
    ContractError,
    Law,
    ToyAttention,
    ToyClassifier,
    ToyEndpoint,
    ToyNoise,
    ToyScorer,
    check_attack,
    check_budget,
    check_goal,
    check_metric,
    check_target,
    check_transform,
    check_universal,
    toy_random,
)


def breaks(law: Law, check: Callable[[], None]) -> None:
    with pytest.raises(ContractError, match=law.value[:20]) as caught:
        check()
    assert caught.value.law is law, caught.value


# Targets


@dataclass
class Crooked(Classifier):
    """A toy classifier with something done to the waveforms, or to the scores, on the way."""

    before: Callable[[AudioBatch, torch.nn.Module], AudioBatch] = lambda batch, module: batch
    after: Callable[[Tensor, AudioBatch], Tensor] = lambda scores, batch: scores
    toy: ToyClassifier = field(default_factory=ToyClassifier)

    classes = ToyClassifier.classes
    sample_rate = ToyClassifier.sample_rate

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        heard = self.before(batch, self.toy.module)
        return self.after(self.toy.scores(heard, draws=draws), batch)


@dataclass
class CrookedLoss(Target):
    """A toy classifier with its own idea of a loss."""

    reduce: Callable[[Tensor], Tensor]
    toy: ToyClassifier = field(default_factory=ToyClassifier)

    sample_rate = ToyClassifier.sample_rate

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.reduce(self.toy.loss(batch, labels, draws=draws))

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.toy.decode(batch, draws=draws)


def test_an_honest_wrapper_passes() -> None:
    check_target(Crooked())
    check_target(CrookedLoss(lambda loss: loss))


def test_features_pooled_over_the_batch() -> None:
    breaks(Law.ISOLATED, lambda: check_target(Crooked(after=lambda scores, _: scores - scores.mean(dim=0))))


def test_features_pooled_over_the_batch_behind_a_detach() -> None:
    def pooled(scores: Tensor, batch: AudioBatch) -> Tensor:
        return scores - scores.detach().mean(dim=0)

    breaks(Law.ALONE, lambda: check_target(Crooked(after=pooled)))


def test_a_loss_averaged_to_one_number() -> None:
    breaks(Law.SHAPE, lambda: check_target(CrookedLoss(lambda loss: loss.mean())))


def test_a_loss_averaged_and_spread_again() -> None:
    breaks(Law.ISOLATED, lambda: check_target(CrookedLoss(lambda loss: loss.mean().expand(len(loss)))))


def test_a_loss_scaled_by_the_batch_size() -> None:
    breaks(Law.ALONE, lambda: check_target(CrookedLoss(lambda loss: loss / len(loss))))


def test_energy_in_the_padding() -> None:
    def mean_over_width(scores: Tensor, batch: AudioBatch) -> Tensor:
        return scores + 100.0 * batch.waveforms.abs().mean(dim=1, keepdim=True) * torch.arange(4.0)

    breaks(Law.PADDING, lambda: check_target(Crooked(after=mean_over_width)))


def test_torch_global_randomness() -> None:
    noisy = Crooked(after=lambda scores, _: scores + 0.1 * torch.randn_like(scores))
    breaks(Law.GLOBAL_RANDOM, lambda: check_target(noisy))


def test_numpy_global_randomness_put_back_afterwards() -> None:
    def sneaky(scores: Tensor, batch: AudioBatch) -> Tensor:
        state = np.random.get_state()
        number = np.random.random()
        np.random.set_state(state)
        return scores * (1.0 + number)

    breaks(Law.GLOBAL_RANDOM, lambda: check_target(Crooked(after=sneaky)))


def test_randomness_with_a_memory() -> None:
    source = np.random.default_rng(0)
    moody = Crooked(after=lambda scores, _: scores * (1.0 + source.random()))
    breaks(Law.SEEDED, lambda: check_target(moody))


def test_rounding_without_straight_through() -> None:
    def rounded(batch: AudioBatch, module: torch.nn.Module) -> AudioBatch:
        return batch.with_waveforms((batch.waveforms * 128).round() / 128)

    breaks(Law.GRADIENT, lambda: check_target(Crooked(before=rounded)))


def test_features_without_a_gradient() -> None:
    def detached(batch: AudioBatch, module: torch.nn.Module) -> AudioBatch:
        return batch.with_waveforms(batch.waveforms.detach())

    breaks(Law.GRADIENT, lambda: check_target(Crooked(before=detached)))


def test_a_loss_without_a_gradient() -> None:
    breaks(Law.GRADIENT, lambda: check_target(CrookedLoss(lambda loss: loss.detach())))


class Unguarded(Classifier):
    """Runs its module in whatever mode it is in."""

    classes = ToyClassifier.classes
    sample_rate = ToyClassifier.sample_rate

    def __init__(self) -> None:
        self.module = ToyClassifier().module

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        scores: Tensor = self.module(batch.waveforms, batch.lengths)
        return scores


def test_batch_norm_that_drifts() -> None:
    breaks(Law.UNCHANGED, lambda: check_target(Unguarded()))


def test_batch_norm_that_drifts_under_attack() -> None:
    def drifting(batch: AudioBatch, module: torch.nn.Module) -> AudioBatch:
        module.norm.running_mean += 1e-6  # type: ignore[union-attr, operator]
        return batch

    breaks(Law.UNCHANGED, lambda: check_target(Crooked(before=drifting)))


def test_a_model_left_in_training_mode() -> None:
    def left(batch: AudioBatch, module: torch.nn.Module) -> AudioBatch:
        module.dropout.train()  # type: ignore[union-attr]
        return batch

    breaks(Law.UNCHANGED, lambda: check_target(Crooked(before=left)))


def test_gradients_left_on_the_model() -> None:
    def left(batch: AudioBatch, module: torch.nn.Module) -> AudioBatch:
        with torch.enable_grad():
            module.readout.square().sum().backward()  # type: ignore[union-attr, operator]
        return batch

    breaks(Law.UNCHANGED, lambda: check_target(Crooked(before=left)))


@dataclass
class CrookedAnswers(Classifier):
    """A toy classifier with its own idea of scores, of a loss, or of what to say."""

    score: Callable[[AudioBatch, Tensor], Tensor] = lambda batch, scores: scores
    lose: Callable[[Tensor, Tensor], Tensor] = lambda loss, scores: loss
    say: Callable[[AudioBatch, list[str]], list[str]] = lambda batch, texts: texts
    toy: ToyClassifier = field(default_factory=ToyClassifier)

    classes = ToyClassifier.classes
    sample_rate = ToyClassifier.sample_rate

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.score(batch, self.toy.scores(batch, draws=draws))

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        loss = self.toy.loss(batch, labels, draws=draws)
        return self.lose(loss, self.toy.scores(batch, draws=draws))

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.say(batch, self.toy.decode(batch, draws=draws))


Kept = TypeVar("Kept")


def remember(known: dict[str, Kept], batch: AudioBatch, found: Iterable[Kept]) -> list[Kept]:
    """What was found for each name the first time."""
    return [known.setdefault(name, each) for name, each in zip(batch.ids, found, strict=True)]


def test_honest_answers_pass() -> None:
    check_target(CrookedAnswers())


def remembering_texts() -> CrookedAnswers:
    known: dict[str, str] = {}
    return CrookedAnswers(say=lambda batch, texts: remember(known, batch, texts))


def test_an_answer_remembered_by_the_name_of_the_clip() -> None:
    breaks(Law.SOUND, lambda: check_target(remembering_texts()))


def test_an_answer_of_a_random_target_remembered_by_the_name_of_the_clip() -> None:
    breaks(Law.SOUND, lambda: check_target(Defended(remembering_texts(), (ToyNoise(),))))
    breaks(
        Law.SOUND,
        lambda: check_target(Voted(Defended(remembering_texts(), (ToyNoise(),)), Majority(passes=3))),
    )


def remembering_scores() -> CrookedAnswers:
    known: dict[str, Tensor] = {}
    return CrookedAnswers(
        score=lambda batch, scores: torch.stack(remember(known, batch, scores.detach().clone()))
    )


def test_scores_remembered_by_the_name_of_the_clip_without_a_gradient() -> None:
    breaks(Law.SOUND, lambda: check_target(remembering_scores()))
    breaks(Law.SOUND, lambda: check_target(Defended(remembering_scores(), (ToyNoise(),))))


def test_scores_without_a_gradient_beside_a_loss_with_one() -> None:
    breaks(Law.GRADIENT, lambda: check_target(CrookedAnswers(score=lambda batch, scores: scores.detach())))


def test_scores_pooled_over_the_batch_beside_a_loss_that_is_not() -> None:
    def pooled(batch: AudioBatch, scores: Tensor) -> Tensor:
        return scores + 0.01 * (scores.sum() - scores.sum().detach())

    breaks(Law.ISOLATED, lambda: check_target(CrookedAnswers(score=pooled)))


def test_a_loss_that_ignores_its_labels() -> None:
    unsure = CrookedAnswers(lose=lambda loss, scores: scores.logsumexp(dim=1))
    breaks(Law.LABEL, lambda: check_target(unsure))


# Targets that only answer, and scores without a gradient


@dataclass
class CrookedEndpoint(Target):
    """A toy that only answers, with something done to what it says."""

    say: Callable[[AudioBatch, list[str]], list[str]] = lambda batch, texts: texts
    toy: ToyEndpoint = field(default_factory=ToyEndpoint)

    sample_rate = ToyEndpoint.sample_rate
    says = "words"

    @property
    def shortest(self) -> int:
        return self.toy.shortest

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.say(batch, self.toy.decode(batch, draws=draws))


def test_an_honest_endpoint_passes() -> None:
    check_target(CrookedEndpoint())
    check_target(Defended(CrookedEndpoint(), (ToyNoise(),)))


def shared(batch: AudioBatch, texts: list[str]) -> list[str]:
    return [f"{text} {len(texts)}" for text in texts]


def padded(batch: AudioBatch, texts: list[str]) -> list[str]:
    return [f"{text} {batch.waveforms.shape[1]}" for text in texts]


def thrown(batch: AudioBatch, texts: list[str]) -> list[str]:
    return [f"{text} {np.random.random()}" for text in texts]


def loud_in_place(batch: AudioBatch, texts: list[str]) -> list[str]:
    batch.waveforms.mul_(0.999)
    return texts


@pytest.mark.parametrize(
    ("law", "say"),
    [
        (Law.ALONE, shared),
        (Law.PADDING, padded),
        (Law.GLOBAL_RANDOM, thrown),
        (Law.LENT, loud_in_place),
        (Law.SHAPE, lambda batch, texts: texts[1:]),
    ],
    ids=["counts its batch", "hears the padding", "throws dice", "writes into clips", "loses an answer"],
)
def test_an_endpoint_with_a_defect(law: Law, say: Callable[[AudioBatch, list[str]], list[str]]) -> None:
    breaks(law, lambda: check_target(CrookedEndpoint(say)))


def test_an_endpoint_that_remembers_the_names_of_clips() -> None:
    known: dict[str, str] = {}
    forgetful = CrookedEndpoint(lambda batch, texts: remember(known, batch, texts))
    breaks(Law.SOUND, lambda: check_target(forgetful))
    behind: dict[str, str] = {}
    noisy = Defended(CrookedEndpoint(lambda batch, texts: remember(behind, batch, texts)), (ToyNoise(),))
    breaks(Law.SOUND, lambda: check_target(noisy))


def test_an_endpoint_that_answers_in_turns() -> None:
    turns = iter(range(1000))
    breaks(Law.SEEDED, lambda: check_target(CrookedEndpoint(lambda batch, texts: [f"{next(turns)}"] * 4)))


class Talkative(Classifier):
    """Says that it gives answers alone, and has scores."""

    classes = ToyClassifier.classes
    sample_rate = ToyClassifier.sample_rate
    shows = "decisions"

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return ToyClassifier().scores(batch, draws=draws)


def test_a_target_that_shows_more_than_it_says() -> None:
    breaks(Law.CAPABILITY, lambda: check_target(Talkative()))


@dataclass
class CrookedScorer(Classifier):
    """Scores without a gradient, with something done to them."""

    after: Callable[[Tensor, AudioBatch], Tensor] = lambda scores, batch: scores

    classes = ToyScorer.classes
    sample_rate = ToyScorer.sample_rate
    shows = "scores"

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return self.after(ToyScorer().scores(batch, draws=draws), batch)


def test_scores_without_a_gradient() -> None:
    check_target(CrookedScorer())
    breaks(Law.ALONE, lambda: check_target(CrookedScorer(lambda scores, _: scores - scores.mean(dim=0))))
    width = CrookedScorer(lambda scores, batch: scores * batch.waveforms.shape[1])
    breaks(Law.PADDING, lambda: check_target(width))


@dataclass
class Boasting(CrookedScorer):
    """Says that it has a gradient, and has none."""

    shows = "gradient"


def test_a_gradient_that_is_promised_and_missing() -> None:
    breaks(Law.GRADIENT, lambda: check_target(Boasting()))


# Recognisers


@dataclass
class DeafRecogniser(Target):
    """A toy recogniser whose loss is that of one text, whatever the label."""

    toy: ToyAttention = field(default_factory=ToyAttention)

    sample_rate = ToyAttention.sample_rate
    says = "words"

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return self.toy.loss(batch, ["abc"] * len(labels), draws=draws)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return self.toy.decode(batch, draws=draws)


def test_a_recogniser_whose_loss_ignores_its_labels() -> None:
    breaks(Law.LABEL, lambda: check_target(DeafRecogniser()))


def test_a_decision_that_is_not_the_best_score() -> None:
    opposite = dict(zip(ToyClassifier.classes, reversed(ToyClassifier.classes), strict=True))
    turned = CrookedAnswers(say=lambda batch, texts: [opposite[text] for text in texts])
    breaks(Law.CAPABILITY, lambda: check_target(turned))
    unsure = CrookedAnswers(say=lambda batch, texts: ["unsure"] * len(texts))
    breaks(Law.CAPABILITY, lambda: check_target(unsure, labels=["north", "west", "south", "north"]))


def scale_in_place(batch: AudioBatch) -> None:
    with torch.no_grad():
        batch.waveforms.mul_(0.999)


def shorten_in_place(batch: AudioBatch) -> None:
    batch.lengths.sub_(1)


@pytest.mark.parametrize("write", [scale_in_place, shorten_in_place])
def test_a_target_that_writes_into_its_clips(write: Callable[[AudioBatch], None]) -> None:
    def say(batch: AudioBatch, texts: list[str]) -> list[str]:
        write(batch)
        return texts

    breaks(Law.LENT, lambda: check_target(CrookedAnswers(say=say)))

    def score(batch: AudioBatch, scores: Tensor) -> Tensor:
        write(batch)
        return scores

    breaks(Law.LENT, lambda: check_target(CrookedAnswers(score=score)))


def test_a_loss_that_writes_into_its_clips_where_a_gradient_is_taken() -> None:
    @dataclass
    class Clamped(CrookedAnswers):
        def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
            if batch.waveforms.requires_grad:
                batch.waveforms.clamp_(-0.1, 0.1)
            return super().loss(batch, labels, draws=draws)

    breaks(Law.LENT, lambda: check_target(Clamped()))


@dataclass(frozen=True)
class WritingVote(Vote):
    """The majority, at a level of its own."""

    passes: int = 3

    def elect(self, passes: Passes) -> list[str]:
        passes.batch.waveforms.mul_(0.999)
        return Majority(passes=self.passes).elect(passes)


def test_a_vote_that_writes_into_its_clips() -> None:
    breaks(Law.LENT, lambda: check_target(Voted(toy_random(), WritingVote())))


# Transforms


@dataclass(frozen=True)
class CrookedTransform(Transform):
    change: Callable[[AudioBatch], Tensor]

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return self.change(batch)


@pytest.mark.parametrize(
    ("law", "change"),
    [
        (Law.GRADIENT, lambda batch: (batch.waveforms * 128).round() / 128),
        (Law.GRADIENT, lambda batch: 0.5 * batch.waveforms.detach()),
        (Law.GLOBAL_RANDOM, lambda batch: batch.waveforms + 0.01 * torch.randn_like(batch.waveforms)),
        (Law.PADDING, lambda batch: batch.waveforms - 9 * batch.waveforms.mean(dim=1, keepdim=True)),
        (Law.ISOLATED, lambda batch: batch.waveforms / batch.waveforms.abs().max()),
        (Law.ALONE, lambda batch: batch.waveforms / len(batch)),
    ],
    ids=["rounded", "detached", "random", "mean over the padding", "loudest of the batch", "batch size"],
)
def test_transforms(law: Law, change: Callable[[AudioBatch], Tensor]) -> None:
    breaks(law, lambda: check_transform(CrookedTransform(change)))


def test_a_transform_that_writes_into_its_clips() -> None:
    def clip(batch: AudioBatch) -> Tensor:
        heard = 0.5 * batch.waveforms
        if not batch.waveforms.requires_grad:
            batch.waveforms.clamp_(-0.2, 0.2)
        return heard

    breaks(Law.LENT, lambda: check_transform(CrookedTransform(clip)))


def test_a_gain_remembered_by_the_name_of_the_clip() -> None:
    known: dict[str, Tensor] = {}

    def levelled(batch: AudioBatch) -> Tensor:
        gains = remember(known, batch, 0.05 / batch.waveforms.detach().norm(dim=1))
        return torch.stack(gains)[:, None] * batch.waveforms

    breaks(Law.SOUND, lambda: check_transform(CrookedTransform(levelled)))


def test_sound_in_the_padding_is_impossible() -> None:
    """`Transform.__call__` cuts it, so that a constant put everywhere passes."""
    check_transform(CrookedTransform(lambda batch: batch.waveforms + 0.01))


def test_a_target_behind_a_transform_without_a_gradient() -> None:
    rounded = CrookedTransform(lambda batch: (batch.waveforms * 128).round() / 128)
    breaks(Law.GRADIENT, lambda: check_target(Defended(ToyClassifier(), (rounded,))))


# Goals


@dataclass(frozen=True)
class Flipped(Goal):
    """Evasion that steps the wrong way."""

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return -target.loss(batch, self.references, draws=draws)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return Evade(references=self.references).achieved(texts)

    def applies(self, reference: str) -> bool:
        return True

    def wins(self, classes: Sequence[str]) -> Tensor:
        return Evade(references=self.references).wins(classes)


@dataclass(frozen=True)
class Backwards(Goal):
    """Evasion that takes failure for success."""

    def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return target.loss(batch, self.references, draws=draws)

    def achieved(self, texts: Sequence[str]) -> list[bool]:
        return [text == reference for text, reference in zip(texts, self.references, strict=True)]

    def applies(self, reference: str) -> bool:
        return True

    def wins(self, classes: Sequence[str]) -> Tensor:
        return Evade(references=self.references).wins(classes)


def test_a_flipped_objective() -> None:
    breaks(Law.SIGN, lambda: check_goal(Flipped()))


def test_a_goal_that_writes_into_its_clips() -> None:
    @dataclass(frozen=True)
    class Writing(Flipped):
        def read(self, target: Target, batch: AudioBatch, texts: Sequence[str], *, draws: Draws) -> list[str]:
            batch.waveforms.mul_(0.5)
            return list(texts)

    breaks(Law.LENT, lambda: check_goal(Writing()))


def test_failure_taken_for_success() -> None:
    breaks(Law.SUCCESS, lambda: check_goal(Backwards()))


def test_a_flipped_loss_of_a_target() -> None:
    @dataclass
    class FlippedLoss(Classifier):
        toy: ToyClassifier = field(default_factory=ToyClassifier)
        classes = ToyClassifier.classes
        sample_rate = ToyClassifier.sample_rate

        def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
            return self.toy.scores(batch, draws=draws)

        def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
            return -self.toy.loss(batch, labels, draws=draws)

    breaks(Law.SIGN, lambda: check_goal(Evade(), FlippedLoss()))


# Budgets


@dataclass(frozen=True)
class CrookedBudget(Budget):
    """At most 0.01 a sample, with a projection of its own."""

    projection: Callable[[Tensor, AudioBatch], Tensor]

    def excess(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        return delta.double().abs().amax(dim=1) / 0.01

    def project(self, delta: Tensor, clean: AudioBatch) -> Tensor:
        return self.projection(delta, clean)

    def __str__(self) -> str:
        return "crooked"


@pytest.mark.parametrize(
    ("law", "projection"),
    [
        (Law.PROJECTION, lambda delta, clean: delta.clamp(-0.0101, 0.0101)),
        (Law.PROJECTION, lambda delta, clean: 0.9 * delta.clamp(-0.01, 0.01)),
        (Law.PROJECTION, lambda delta, clean: 0.01 * delta / delta.abs().amax(dim=1, keepdim=True)),
        (Law.ALONE, lambda delta, clean: delta * (0.01 / delta.abs().max()).clamp(max=1.0)),
        (Law.PADDING, lambda delta, clean: (delta + (0.001 * (~clean.mask))).clamp(-0.01, 0.01)),
    ],
    ids=["too large", "shrinks", "moves what is inside", "loudest of the batch", "padding"],
)
def test_projections(law: Law, projection: Callable[[Tensor, AudioBatch], Tensor]) -> None:
    breaks(law, lambda: check_budget(CrookedBudget(projection)))


def test_a_budget_that_writes() -> None:
    def louder(delta: Tensor, clean: AudioBatch) -> Tensor:
        clean.waveforms.mul_(1.0001)
        return delta.clamp(-0.01, 0.01)

    breaks(Law.LENT, lambda: check_budget(CrookedBudget(louder)))
    breaks(Law.LENT, lambda: check_budget(CrookedBudget(lambda delta, clean: delta.clamp_(-0.01, 0.01))))


def test_a_level_remembered_by_the_name_of_the_clip() -> None:
    known: dict[str, Tensor] = {}

    @dataclass(frozen=True)
    class Remembered(Ball):
        norm, relative = "linf", True  # type: ignore[assignment]

        def radius(self, clean: AudioBatch) -> Tensor:
            return torch.stack(remember(known, clean, 0.1 * clean.peak))

        def __str__(self) -> str:
            return "remembered"

    breaks(Law.SOUND, lambda: check_budget(Remembered()))


def test_an_honest_budget_passes() -> None:
    check_budget(CrookedBudget(lambda delta, clean: delta.clamp(-0.01, 0.01)))


@dataclass(frozen=True)
class PaddedRatio(Ball):
    """An SNR in L-infinity that counts the padding as part of the clip."""

    @property
    def norm(self) -> NormName:
        return "linf"

    @property
    def relative(self) -> bool:
        return True

    def radius(self, clean: AudioBatch) -> Tensor:
        return 0.1 * clean.waveforms.double().square().mean(dim=1).sqrt()

    def __str__(self) -> str:
        return "padded ratio"


def test_a_level_that_counts_padding() -> None:
    breaks(Law.PADDING, lambda: check_budget(PaddedRatio()))


def test_a_goal_whose_nearness_leads_away() -> None:
    @dataclass(frozen=True)
    class Backward(Goal):
        def objective(self, target: Target, batch: AudioBatch, *, draws: Draws) -> Tensor:
            return target.loss(batch, self.references, draws=draws)

        def achieved(self, texts: Sequence[str]) -> list[bool]:
            return [text != reference for text, reference in zip(texts, self.references, strict=True)]

        def applies(self, reference: str) -> bool:
            return True

        def nearness(self, texts: Sequence[str]) -> list[float]:
            return [-float(reached) for reached in self.achieved(texts)]

    breaks(Law.SIGN, lambda: check_goal(Backward()))


# Attacks


@dataclass(frozen=True)
class CrookedAttack(Attack):
    change: Callable[[Target, AudioBatch, Goal, Draws], Tensor]

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        return self.change(target, clean, goal, draws)


def test_leaving_the_budget_is_impossible() -> None:
    """The base class projects, clamps and rounds, so that even this passes."""
    check_attack(CrookedAttack(lambda target, clean, goal, draws: 1e6 * draws.normal(clean)))


def test_an_attack_that_writes_into_its_clips() -> None:
    """In an audit it does no harm (`tests/core/test_lent_clips.py`); it is refused all the same."""

    def loud(target: Target, clean: AudioBatch, goal: Goal, draws: Draws) -> Tensor:
        _, slope = climb(target, clean, torch.zeros_like(clean.waveforms), goal, draws)
        clean.waveforms.add_(0.3 * slope.sign()).clamp_(-1.0, 1.0)
        return torch.zeros_like(clean.waveforms)

    breaks(Law.LENT, lambda: check_attack(CrookedAttack(loud)))

    def slightly(target: Target, clean: AudioBatch, goal: Goal, draws: Draws) -> Tensor:
        clean.waveforms.mul_(1.0001)
        return torch.zeros_like(clean.waveforms)

    breaks(Law.LENT, lambda: check_attack(CrookedAttack(slightly)))


@dataclass(frozen=True)
class Overdrawn(Attack):
    """Steepest ascent in a way of its own around the search: in a budget that is 1e-4 larger than asked for.

    floats: whether it does so for floats alone, where no grid is in the way.
    """

    floats: bool = False
    steps: int = 1

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Ball)
        _, slope = climb(target, clean, torch.zeros_like(clean.waveforms), goal, draws)
        return budget.fill(budget.steepest(slope, clean), clean)

    def __call__(self, target, clean, goal, budget, *, bits=16, **others):  # type: ignore[no-untyped-def, misc]
        if bits is None or not self.floats:
            budget = replace(budget, eps=1.0001 * budget.eps)
        return super().__call__(target, clean, goal, budget, bits=bits, **others)


@pytest.mark.parametrize("floats", [False, True])
def test_an_attack_that_overdraws_its_budget_by_a_ten_thousandth(floats: bool) -> None:
    breaks(Law.BUDGET, lambda: check_attack(Overdrawn(floats=floats), budgets=[L2(0.3)]))


def test_an_attack_that_tells_of_other_clean_clips() -> None:
    @dataclass(frozen=True)
    class Moved(Attack):
        """Measured against clips that lie nearer to its examples."""

        def perturb(
            self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws
        ) -> Tensor:
            return draws.normal(clean)

        def __call__(self, target, clean, goal, budget, **others):  # type: ignore[no-untyped-def, misc]
            trial = super().__call__(target, clean, goal, Snr(0.0), **others)
            near = trial.clean.with_waveforms(trial.clean.waveforms + 0.99 * trial.delta)
            return replace(trial, clean=near)

    breaks(Law.LENT, lambda: check_attack(Moved()))


def test_a_perturbation_that_is_no_number() -> None:
    empty = CrookedAttack(lambda target, clean, goal, draws: torch.full_like(clean.waveforms, torch.nan))
    breaks(Law.BUDGET, lambda: check_attack(empty))


def test_a_perturbation_of_another_shape() -> None:
    flat = CrookedAttack(lambda target, clean, goal, draws: torch.zeros(clean.waveforms.shape[1]))
    breaks(Law.SHAPE, lambda: check_attack(flat))


def test_a_whole_batch_that_shares_one_perturbation_size() -> None:
    def normalised(target: Target, clean: AudioBatch, goal: Goal, draws: Draws) -> Tensor:
        _, slope = climb(target, clean, torch.zeros_like(clean.waveforms), goal, draws)
        return 0.002 * slope / slope.abs().max()

    breaks(Law.ALONE, lambda: check_attack(CrookedAttack(normalised)))


def test_an_attack_with_global_randomness() -> None:
    loud = CrookedAttack(lambda target, clean, goal, draws: torch.randn_like(clean.waveforms))
    breaks(Law.GLOBAL_RANDOM, lambda: check_attack(loud))


def test_an_attack_that_trains_the_model() -> None:
    def careless(target: Target, clean: AudioBatch, goal: Goal, draws: Draws) -> Tensor:
        with torch.enable_grad():
            goal.objective(target, clean, draws=draws).sum().backward()
        return torch.zeros_like(clean.waveforms)

    breaks(Law.UNCHANGED, lambda: check_attack(CrookedAttack(careless)))


@dataclass(frozen=True, kw_only=True)
class Oscillating(Attack):
    """Steps up and back by turns; the last point is handed in, or the best one."""

    steps: int = 3
    keep_best: bool

    def perturb(self, target: Target, clean: AudioBatch, goal: Goal, budget: Budget, draws: Draws) -> Tensor:
        assert isinstance(budget, Ball)
        _, slope = climb(target, clean, torch.zeros_like(clean.waveforms), goal, draws)
        up = budget.steepest(slope, clean) * budget.radius(clean).to(slope.dtype)[:, None]
        return up if self.keep_best or self.steps % 2 else -up


def test_the_last_point_instead_of_the_best() -> None:
    breaks(Law.BEST, lambda: check_attack(Oscillating(keep_best=False)))
    check_attack(Oscillating(keep_best=True))


# Universal attacks


@dataclass(frozen=True)
class CrookedFit(UniversalAttack):
    find: Callable[[Sequence[AudioBatch]], Tensor]

    def fit(
        self, target: Target, clips: Sequence[AudioBatch], goal: Goal, budget: Budget, *, draws: Draws
    ) -> Perturbation:
        return Perturbation(self.find(clips), target.sample_rate)


def test_universal_perturbations() -> None:
    check_universal(CrookedFit(lambda clips: torch.linspace(-9.0, 9.0, 50)))
    breaks(Law.GLOBAL_RANDOM, lambda: check_universal(CrookedFit(lambda clips: torch.randn(50))))
    first = CrookedFit(lambda clips: clips[0].clip(0))
    breaks(Law.ALONE, lambda: check_universal(first))


def test_a_fit_that_writes_into_its_clips() -> None:
    def summed(clips: Sequence[AudioBatch]) -> Tensor:
        for batch in clips:
            batch.waveforms.mul_(0.5)
        return torch.linspace(-9.0, 9.0, 50)

    breaks(Law.LENT, lambda: check_universal(CrookedFit(summed)))


# Metrics


class CrookedMetric(Metric):
    name, title = "crooked", "crooked"

    def __init__(self, values: Callable[[Trial], Tensor]) -> None:
        self.values = values

    def measure(self, trial: Trial) -> Tensor:
        values = self.values(trial)
        return torch.stack([values, torch.ones_like(values)], dim=1)


@pytest.mark.parametrize(
    ("law", "values"),
    [
        (Law.PADDING, lambda trial: trial.delta.double().abs().mean(dim=1)),
        (Law.SHAPE, lambda trial: trial.delta.norm(dim=1)),
        (Law.ALONE, lambda trial: trial.delta.double().norm(dim=1) / trial.delta.double().norm()),
        (Law.GLOBAL_RANDOM, lambda trial: torch.rand(len(trial.clean), dtype=torch.float64)),
    ],
    ids=["counts padding", "single precision", "loudest of the batch", "random"],
)
def test_metrics(law: Law, values: Callable[[Trial], Tensor]) -> None:
    breaks(law, lambda: check_metric(CrookedMetric(values)))


def power(trial: Trial) -> Tensor:
    """Mean squares of what was added, some 1e-4: a metric of small figures."""
    return trial.delta.double().square().sum(dim=1) / trial.clean.lengths


@pytest.mark.parametrize(
    "values",
    [
        lambda trial: power(trial) - power(trial).mean(),
        lambda trial: power(trial) / power(trial).max(),
        lambda trial: power(trial) * (1.0 if len(trial.clean) < 5 else power(trial).argsort()),
        lambda trial: power(trial) * sum(trial.achieved) / len(trial.achieved),
        lambda trial: power(trial).roll(1),
    ],
    ids=[
        "mean of the batch",
        "largest of the batch",
        "rank in a large batch",
        "share of successes",
        "neighbour",
    ],
)
def test_metrics_whose_parts_depend_on_other_clips(values: Callable[[Trial], Tensor]) -> None:
    breaks(Law.ALONE, lambda: check_metric(CrookedMetric(values)))


def test_parts_that_depend_on_other_clips_and_are_remembered() -> None:
    known: dict[str, Tensor] = {}

    def share(trial: Trial) -> Tensor:
        return torch.stack(remember(known, trial.clean, power(trial) / power(trial).max()))

    breaks(Law.SOUND, lambda: check_metric(CrookedMetric(share)))


def test_small_figures_that_are_random() -> None:
    breaks(
        Law.GLOBAL_RANDOM,
        lambda: check_metric(
            CrookedMetric(lambda trial: 1e-9 * torch.rand(len(trial.clean), dtype=torch.float64))
        ),
    )


@pytest.mark.parametrize("which", ["clean", "adversarial"])
def test_a_metric_that_writes_into_its_clips(which: str) -> None:
    def levelled(trial: Trial) -> Tensor:
        values = power(trial)
        getattr(trial, which).waveforms.mul_(0.5)
        return values

    breaks(Law.LENT, lambda: check_metric(CrookedMetric(levelled)))


def test_an_honest_metric_passes() -> None:
    check_metric(CrookedMetric(power))
    check_metric(CrookedMetric(lambda trial: trial.delta.double().norm(dim=1)))


def test_the_message_names_the_law() -> None:
    with pytest.raises(AssertionError, match="law broken: padding gets no energy and no gradient"):
        check_metric(CrookedMetric(lambda trial: trial.delta.double().abs().mean(dim=1)))
