"""The genetic attack on models whose best perturbation is known by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from sottovoce.attacks.genetic import Contest, Genetic
from sottovoce.core.attack import Trial
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal, Language
from sottovoce.core.target import Languages, Target
from sottovoce.errors import InputError
from sottovoce.targets.families.classifier import Classifier
from sottovoce.testing import ToyAttention, ToyCtc, check_attack

RATE = 16000
TIME = 320
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0])


class Four(Classifier):
    """Scores 0 for "no" and `x0 - x1 + x2 - x3 - gap` for "yes": four samples count. It has no loss."""

    classes = ("no", "yes")
    sample_rate = RATE

    def __init__(self, gap: float = 1.0) -> None:
        self.gap = gap
        self.heard: list[tuple[str, ...]] = []

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        if torch.is_grad_enabled() or batch.waveforms.requires_grad:
            raise RuntimeError("a search on scores asked for a gradient")
        self.heard.append(batch.ids)
        score = batch.waveforms[:, :4] @ SIGNS - self.gap
        return torch.stack([torch.zeros_like(score), score], dim=1)

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        raise RuntimeError("a search on scores asked for the loss")


class Quiet(Classifier):
    """The best perturbation is none: every change makes the decision for "no" firmer."""

    classes = ("no", "yes")
    sample_rate = RATE

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        score = -1.0 - batch.waveforms.abs().sum(dim=1)
        return torch.stack([torch.zeros_like(score), score], dim=1)


class Speller(Target):
    """A recogniser that only answers: letter i of "stop going" where sample i is above 0.3, else an x."""

    sample_rate = RATE
    says = "words"
    wanted = "stop going"

    def __init__(self) -> None:
        self.asked = 0

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        self.asked += len(batch)
        rows = batch.waveforms[:, : len(self.wanted)] > 0.3
        return [
            "".join(letter if right else "x" for letter, right in zip(self.wanted, row, strict=True))
            for row in rows.tolist()
        ]


def test_texts_alone_lead_letter_by_letter_to_the_wanted_one() -> None:
    model, clean = Speller(), silent(TIME, TIME)
    attack = Genetic(steps=60, population=20, mutation_rate=0.1)
    trial = attack(model, clean, Force("stop going"), LInf(0.6), draws=Draws(0))
    # Noise that fills the budget says a letter in one of four tries, and all ten in one of a million.
    assert trial.clean_texts == ("xxxxxxxxxx",) * 2
    assert trial.adversarial_texts == ("stop going",) * 2 and trial.achieved == (True, True)
    # Each generation is asked once and no clip after it has succeeded; beside it the clean clip, the example,
    # and the example before it was rounded.
    assert (model.asked - 3 * 2) % 20 == 0 and model.asked < 2 * 20 * 61


def test_texts_alone_lead_away_from_the_right_one() -> None:
    model, clean = Speller(), silent(TIME)
    loud = clean.with_waveforms(clean.waveforms + 0.35)
    trial = Genetic(steps=60, population=10, mutation_rate=0.1)(
        model, loud, Evade(), LInf(0.2), draws=Draws(0)
    )
    assert trial.clean_texts == ("stop going",)
    (text,) = trial.adversarial_texts
    # No word of it is right, and hardly a letter.
    assert not {"stop", "going"} & set(text.split()) and text.count("x") >= 8


class OnlyClasses(Target):
    """Says "yes" where the first sample is above 0.3, else "no"."""

    sample_rate = RATE

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return ["yes" if above else "no" for above in (batch.waveforms[:, 0] > 0.3).tolist()]


def test_classes_alone_are_searched_until_one_succeeds() -> None:
    attack = Genetic(steps=20, population=10, mutation_rate=0.1)
    trial = attack(OnlyClasses(), silent(TIME, TIME), Force("yes"), LInf(0.4), draws=Draws(0))
    assert trial.adversarial_texts == ("yes", "yes")
    unmoved = attack(OnlyClasses(), silent(TIME, TIME), Force("yes"), LInf(0.2), draws=Draws(0))
    assert unmoved.achieved == (False, False)


class Ear(Target):
    """A recogniser that says "go" where `x0 - x1 + x2 - x3` is above `gap`, else "no". It has no gradient.

    The loss of "go" is what is missing to the gap, that of any other text the opposite.
    """

    sample_rate = RATE
    says = "words"

    def __init__(self, gap: float = 0.4) -> None:
        self.gap = gap
        self.judged: list[int] = []
        self.decoded: list[tuple[str, ...]] = []

    def _above(self, batch: AudioBatch) -> Tensor:
        if torch.is_grad_enabled() and batch.waveforms.requires_grad:
            raise RuntimeError("a black-box search asked for a gradient")
        return batch.waveforms[:, :4] @ SIGNS - self.gap

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        if torch.is_grad_enabled():
            raise RuntimeError("a black-box search asked for a gradient")
        self.judged.append(len(batch))
        toward = torch.tensor([-1.0 if label == "go" else 1.0 for label in labels])
        return toward * self._above(batch)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        self.decoded.append(batch.ids)
        return ["go" if value > 0 else "no" for value in self._above(batch).tolist()]


class Tongue(Classifier, Languages):
    """Classes that never change, and the language "it" where `x0 - x1 + x2 - x3` is above 0.2."""

    classes = ("no", "yes")
    languages = ("en", "it")
    sample_rate = RATE

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return torch.tensor([[1.0, 0.0]]).expand(len(batch), 2)

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        score = batch.waveforms[:, :4] @ SIGNS - 0.2
        return torch.stack([torch.zeros_like(score), 10 * score], dim=1)


class Wavering(Classifier):
    """Scores "yes" with `mean`, whatever it hears, plus normal noise of deviation 1; "no" with 0."""

    classes = ("no", "yes")
    sample_rate = RATE
    random = True

    def __init__(self, mean: float) -> None:
        self.mean = mean
        self.heard: list[int] = []

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        self.heard.append(len(batch))
        noise = [float(draws.generator(name).normal()) for name in batch.ids]
        score = self.mean + torch.tensor(noise)
        return torch.stack([torch.zeros_like(score), score], dim=1)


def silent(*lengths: int) -> AudioBatch:
    return AudioBatch.of([torch.zeros(length) for length in lengths], RATE)


def gain(trial: Trial) -> list[float]:
    """How far each perturbation moved the score of `Four`."""
    return (trial.delta[:, :4] @ SIGNS).tolist()


def test_linf_optimum() -> None:
    """With 0.125 a sample the score can rise by 4 x 0.125 = 0.5, at one corner of the cube alone."""
    attack = Genetic(steps=60, mutation_rate=0.25)
    trial = attack(Four(), silent(TIME, 400), Evade(), LInf(0.125), draws=Draws(0))
    assert gain(trial) == [0.5, 0.5]
    assert trial.achieved == (False, False)


def test_l2_optimum() -> None:
    """The score rises by at most radius x ||w|| = 0.5 x 2, with 0.25 on each of the four samples."""
    attack = Genetic(steps=300, mutation_rate=0.01)
    trial = attack(Four(gap=2.0), silent(TIME), Evade(), L2(0.5), draws=Draws(0), bits=None)
    assert 0.75 < gain(trial)[0] <= 1.0 + 1e-6
    assert float(trial.delta.norm()) <= 0.5 * (1 + 1e-6)


@pytest.mark.parametrize("goal", [Evade(), Force("yes")], ids=["evade", "force"])
@pytest.mark.parametrize("budget", [LInf(0.25), L2(0.75)], ids=["linf", "l2"])
def test_in_reach_it_succeeds(goal: Goal, budget: Ball) -> None:
    """A gap of 0.9 needs nearly all of the cube's 4 x 0.25 = 1; the ball reaches 0.75 x 2 = 1.5."""
    attack = Genetic(steps=300, mutation_rate=0.02)
    trial = attack(Four(gap=0.9), silent(TIME, 500), goal, budget, draws=Draws(0))
    assert trial.adversarial_texts == ("yes", "yes")
    assert trial.achieved == (True, True)


def test_more_generations_are_never_worse() -> None:
    values = []
    for steps in (1, 2, 4, 8, 16, 32):
        attack = Genetic(steps=steps, mutation_rate=0.05, population=6)
        values.append(gain(attack(Four(), silent(TIME), Evade(), LInf(0.125), draws=Draws(3), bits=None))[0])
    assert values == sorted(values)
    assert values[-1] > values[0]


def test_no_change_is_the_floor() -> None:
    trial = Genetic(steps=5)(Quiet(), silent(TIME), Evade(), LInf(0.1), draws=Draws(0))
    assert not trial.delta.any()


def test_alone_as_in_a_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [0.1 * torch.randn(length, generator=generator) for length in (400, 320, 350)]
    batch = AudioBatch.of(rows, RATE, ["a", "b", "c"])
    attack = Genetic(steps=12, population=8, mutation_rate=0.02)
    target = Four(gap=0.6)
    together = attack(target, batch, Evade(), LInf(0.06), draws=Draws(0))
    for row, name in enumerate("abc"):
        alone = attack(target, AudioBatch.of([rows[row]], RATE, [name]), Evade(), LInf(0.06), draws=Draws(0))
        assert torch.equal(alone.delta[0], together.delta[row, : len(rows[row])])
    assert not together.delta[1, 320:].any()


def test_a_fooled_clip_leaves() -> None:
    """The first clip says "yes" under the smallest change, the second one cannot be won."""
    easy, hard = torch.zeros(TIME), torch.zeros(400)
    easy[:4] = 0.25 * SIGNS
    target = Four(gap=1.0001)
    batch = AudioBatch.of([easy, hard], RATE, ["easy", "hard"])
    trial = Genetic(steps=3, population=10)(target, batch, Evade(), LInf(0.01), draws=Draws(0))
    assert trial.achieved == (True, False)
    generations = [ids for ids in target.heard if "hard/0" in ids]
    assert [len(ids) for ids in generations] == [20, 10, 10, 10]


def test_a_lucky_score_does_not_let_a_clip_leave() -> None:
    """One pass says "yes" with a chance of 0.067, so that the best of ten claims it in every other generation
    (1 - 0.933^10); four answers in a row do so with one of 2e-5. All eleven generations are heard."""
    target = Wavering(-1.5)
    goal = Evade(references=("no",))
    Genetic(steps=10, population=10)(target, silent(TIME), goal, LInf(0.1), draws=Draws(0))
    assert target.heard.count(10) == 11


def test_a_clip_that_is_fooled_in_spite_of_noise_leaves() -> None:
    """At a mean of 6 deviations every pass says "yes": one generation, and four answers that confirm it."""
    target = Wavering(6.0)
    goal = Evade(references=("no",))
    trial = Genetic(steps=10, population=10)(target, silent(TIME), goal, LInf(0.1), draws=Draws(0))
    # The clean clip, the search, and the two judgements: of the example, and of it before it was rounded.
    assert target.heard == [1, 10, 1, 1, 1, 1, 1, 1]
    assert trial.achieved == (True,)


def test_a_lucky_score_does_not_last() -> None:
    """What stands for a clip is the best of the newest generation, though an older one had a higher score."""
    target, clean = Wavering(-5.0), silent(TIME)
    contest = Contest(target, clean, Evade(references=("no",)), 1, 8)
    for turn, mean in enumerate((0.0, -5.0)):
        target.mean = mean
        contest.judge(torch.full((1, 1, TIME), 0.1 * (turn + 1)), Draws(0).turn("generation", turn))
    assert contest.leaders()[0, 0] == pytest.approx(0.2)
    assert float(contest.best.value[0]) < -1.0


def test_the_seed_decides() -> None:
    attack = Genetic(steps=3)
    deltas = [attack(Four(), silent(TIME), Evade(), LInf(0.1), draws=Draws(seed)).delta for seed in (1, 1, 2)]
    assert torch.equal(deltas[0], deltas[1])
    assert not torch.equal(deltas[0], deltas[2])


def test_budget_relative_to_the_clip() -> None:
    loud = torch.full((400,), 0.1)
    trial = Genetic(steps=5)(
        Four(), AudioBatch.of([loud, 0.1 * loud], RATE), Evade(), Snr(20.0), draws=Draws(0)
    )
    # 20 dB below norms of 2 and 0.2.
    sizes = trial.delta.norm(dim=1)
    assert 0 < float(sizes[0]) <= 0.2 * (1 + 1e-6) and 0 < float(sizes[1]) <= 0.02 * (1 + 1e-6)


@pytest.mark.parametrize("goal", [Evade(), Force("go")], ids=["evade", "force"])
def test_recogniser(goal: Goal) -> None:
    """4 x 0.125 = 0.5 is above the gap of 0.4: the search on losses ends where "go" is heard."""
    target = Ear()
    attack = Genetic(steps=100, mutation_rate=0.05)
    trial = attack(target, silent(TIME, 400), goal, LInf(0.125), draws=Draws(0))
    assert trial.adversarial_texts == ("go", "go") and trial.achieved == (True, True)
    assert all(0.4 < value <= 0.5 for value in gain(trial))


def test_recogniser_optimum() -> None:
    """A gap of 0.6 is out of reach of 4 x 0.125; the search goes on to the corner of the cube."""
    trial = Genetic(steps=60, mutation_rate=0.25)(
        Ear(0.6), silent(TIME), Force("go"), LInf(0.125), draws=Draws(0)
    )
    assert gain(trial) == [0.5] and trial.achieved == (False,)


def test_only_what_got_better_is_decoded() -> None:
    """A clip's best is decoded once a generation at most, and not again where it is as it was: the corner of
    the cube, where nothing gets better, comes before the twentieth generation."""
    target = Ear(10.0)
    attack = Genetic(steps=20, population=10, mutation_rate=0.25)
    attack(target, silent(TIME), Force("go"), LInf(0.125), draws=Draws(0))
    searched = target.decoded[1:-2]  # Before and after come the clean clips and the finished ones.
    assert 1 <= len(searched) < 20 and all(len(ids) == 1 for ids in searched)
    assert sum(target.judged) == 21 * 10


def test_languages_are_heard_and_not_classes() -> None:
    trial = Genetic(steps=100, mutation_rate=0.05)(
        Tongue(), silent(TIME), Language("it"), LInf(0.125), draws=Draws(0)
    )
    assert trial.references == ("en",) and trial.achieved == (True,)
    assert 0.2 < gain(trial)[0] <= 0.5


def test_memory_is_bounded() -> None:
    """Two clips of ten members each, seven at a time: 7, 7 and 6."""
    target = Ear(10.0)
    attack = Genetic(steps=1, population=10, batch_clips=7)
    trial = attack(target, silent(TIME, 400), Force("go"), LInf(0.125), draws=Draws(0))
    assert target.judged == [7, 7, 6] * 2
    whole = Genetic(steps=1, population=10)
    again = whole(Ear(10.0), silent(TIME, 400), Force("go"), LInf(0.125), draws=Draws(0))
    assert torch.equal(trial.delta, again.delta)


@pytest.mark.parametrize("target", [ToyCtc(), ToyAttention()], ids=["ctc", "attention"])
def test_contract_on_recognisers(target: Target) -> None:
    check_attack(Genetic(steps=4, population=6), target, [LInf(0.01)])


def test_bad_input() -> None:
    for settings in (
        {"steps": 0},
        {"elite": 20},
        {"elite": 0},
        {"temperature": 0.0},
        {"mutation_rate": 0.0},
        {"mutation_rate": 1.5},
        {"mutation_size": 0.0},
        {"batch_clips": 0},
    ):
        with pytest.raises(InputError, match=f"{next(iter(settings))}="):
            Genetic(**settings)  # type: ignore[arg-type]
