"""What happens to a batch on its way into training: noise, filters, and an adversary.

The adversary is an attack of the package on the learner as a target, through the same noise and filters: a
model is hardened with the same attacks that evaluate it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from torch import Tensor

from sottovoce.attacks.pgd import Pgd
from sottovoce.core.attack import Attack, within
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Budget
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.target import Target
from sottovoce.core.transform import Defended, Transform
from sottovoce.defenses.randomised_smoothing import Gaussian, MadNoise, Smoothing
from sottovoce.errors import InputError, UnknownName

NOISES: dict[str, Smoothing] = {"gaussian": Gaussian(), "mad": MadNoise()}
ADVERSARIES = ("fgsm", "pgd")
JUDGE_STEPS = 10


@final
@dataclass(frozen=True)
class TrainingNoise(Transform):
    """Noise of one kind, as loud as a deviation drawn for each clip between two sigmas.

    kind: where the noise comes from; its own level does not count.
    """

    kind: Smoothing
    sigma: tuple[float, float]

    random = True

    def __post_init__(self) -> None:
        low, high = self.sigma
        if not 0 <= low <= high < float("inf") or high == 0:
            raise InputError(
                f"expected sigma above 0, or a range from 0 on, got {low:g} to {high:g}; 0.02 is usual, and "
                "0:0.02 draws one for each clip."
            )

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        low, high = self.sigma
        level = low + (high - low) * draws.turn("sigma").fractions(batch, 1)
        return batch.waveforms + level * self.kind.draw(batch, draws)


def make_noise(kind: str, sigma: str | float | tuple[float, float]) -> TrainingNoise:
    """Noise by name: `gaussian` or `mad`. sigma: one, or a range, as numbers or as text, "0:0.02"."""
    if kind not in NOISES:
        raise UnknownName("noise", kind, NOISES)
    bounds = read_sigma(sigma) if isinstance(sigma, str) else sigma
    low, high = bounds if isinstance(bounds, tuple) else (bounds, bounds)
    return TrainingNoise(NOISES[kind], (low, high))


def read_sigma(text: str) -> tuple[float, float]:
    """ "0.02" is one sigma, "0:0.02" a range."""
    try:
        numbers = [float(part) for part in text.split(":")]
        low, high = numbers if len(numbers) == 2 else (*numbers, *numbers)
    except ValueError:
        raise InputError(
            f"expected sigma as a number or LOW:HIGH, got {text!r}; write for example 0.02 or 0:0.02."
        ) from None
    return low, high


@final
@dataclass(frozen=True)
class AdversarialShare:
    """How much of a batch is attacked, in equal stretches of training: (0.5, 0.8) is half, then four fifths.

    Olivier (2023), section 7.5.2, has those two.
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values or not all(0 <= value <= 1 for value in self.values):
            shown = ",".join(f"{value:g}" for value in self.values)
            raise InputError(
                f"expected shares from 0 to 1, got {shown!r}; write for example 0.5,0.8 for half of the "
                "clips in the first half of training and four fifths in the second."
            )

    @classmethod
    def parse(cls, text: str) -> AdversarialShare:
        try:
            values = tuple(float(part) for part in text.split(","))
        except ValueError:
            raise InputError(
                f"expected shares such as 0.5,0.8, got {text!r}; write numbers and commas."
            ) from None
        return cls(values)

    def __str__(self) -> str:
        return ",".join(f"{value:g}" for value in self.values)

    def at(self, spent: float) -> float:
        """The share when `spent` of training, from 0 to 1, is over."""
        # A third of three times is one stretch, also in binary.
        return self.values[min(int(spent * len(self.values) + 1e-9), len(self.values) - 1)]


def pick(clips: int, share: float, draws: Draws) -> list[int]:
    """Which of `clips` clips are attacked: the share of them, rounded, drawn at random, in order."""
    count = int(share * clips + 0.5)
    return sorted(draws.generator("attacked").permutation(clips)[:count].tolist())


@final
@dataclass(frozen=True)
class Adversary:
    """An attack that makes clips harder to learn from, on a share of each batch.

    judge: the attack that validation clips meet; None: the same.
    """

    attack: Attack
    budget: Budget
    share: AdversarialShare = AdversarialShare((1.0,))
    judge: Attack | None = None

    def as_judge(self) -> Adversary:
        """The adversary that validation clips meet."""
        return replace(self, attack=self.judge or self.attack)

    def disturb(
        self, target: Target, clean: AudioBatch, labels: Sequence[str], rows: Sequence[int], draws: Draws
    ) -> AudioBatch:
        """The batch with an adversarial example in each of the rows, inside the budget and [-1, 1].

        It is not rounded to 16 bits: that costs a pass and would change nothing that is learnt.
        """
        if not rows:
            return clean
        chosen = clean.select(rows)
        goal = Evade().bind([labels[row] for row in rows])
        delta = self.attack.perturb(target, chosen, goal, self.budget, draws).detach()
        delta = within(chosen, self.budget.project(delta, chosen))
        waveforms = clean.waveforms.clone()
        waveforms[list(rows), : delta.shape[1]] += delta
        return clean.with_waveforms(waveforms)


def make_adversary(
    kind: str, budget: Budget, *, steps: int = 7, share: AdversarialShare | None = None
) -> Adversary:
    """`fgsm`: one step of 1.25 radii from a random start (Wong et al. 2020); `pgd`: `steps` steps from one
    (Madry et al. 2018), 2.5 radii long in all.

    Both are judged by ten steps or more: a model can learn to withstand one step and nothing else.
    """
    if kind not in ADVERSARIES:
        raise UnknownName("attack to train against", kind, ADVERSARIES)
    if kind == "fgsm":
        steps = 1
    attack = Pgd(steps=steps, step=1.25 if steps == 1 else 2.5 / max(steps, 1), random_start=True)
    longer = max(steps, JUDGE_STEPS)
    judge = Pgd(steps=longer, step=2.5 / longer, random_start=True)
    return Adversary(attack, budget, share or AdversarialShare((1.0,)), judge)


@final
@dataclass(frozen=True, kw_only=True)
class Hardening:
    """All that a batch goes through.

    noise: added to every clip, after the adversary: it is part of the model that the adversary attacks.
    front: transforms that the model hears through, in training as in use, such as a low-pass filter.
    """

    noise: TrainingNoise | None = None
    front: tuple[Transform, ...] = ()
    adversary: Adversary | None = None

    def transforms(self, *, noisy: bool = True) -> tuple[Transform, ...]:
        """The transforms in front of the model, in order."""
        return (*([self.noise] if self.noise and noisy else []), *self.front)

    def around(self, target: Target, *, noisy: bool = True) -> Target:
        """The target as it hears: through the noise, if wanted, and the front."""
        transforms = self.transforms(noisy=noisy)
        return Defended(target, transforms) if transforms else target

    def check(self, target: Target) -> None:
        """Raise before any work where the adversary cannot attack this target."""
        if self.adversary:
            self.adversary.attack.check(self.around(target), Evade(), self.adversary.budget)

    def harden(
        self, target: Target, clean: AudioBatch, labels: Sequence[str], rows: Sequence[int], draws: Draws
    ) -> AudioBatch:
        """The input of the module in training: clips attacked in the rows, then noise, then the front."""
        batch = clean
        if self.adversary:
            batch = self.adversary.disturb(self.around(target), clean, labels, rows, draws.turn("adversary"))
        for place, transform in enumerate(self.transforms()):
            batch = transform(batch, draws=draws.turn("transform", place))
        return batch

    def describe(self) -> dict[str, str]:
        """In words, for a report."""
        about = {"noise": "none", "front": "none", "adversary": "none"}
        if self.noise:
            low, high = self.noise.sigma
            sigma = f"{high:g}" if low == high else f"{low:g}:{high:g}"
            about["noise"] = f"{type(self.noise.kind).__name__}, sigma {sigma}"
        if self.front:
            about["front"] = "+".join(repr(transform) for transform in self.front)
        if self.adversary:
            found = self.adversary
            about["adversary"] = f"{found.attack!r}, {found.budget}, share {found.share}"
        return about
