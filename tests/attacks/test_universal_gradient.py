"""Universal gradient ascent on models whose best direction is known by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from sottovoce.attacks.universal_gradient import UniversalGradient, folded
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, Ball, Budget, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, Goal, Language, Prefix
from sottovoce.core.target import Languages, Target
from sottovoce.core.universal_attack import Perturbation
from sottovoce.errors import InputError, MissingCapability
from sottovoce.targets.families.classifier import Classifier
from sottovoce.testing import ToyAttention, ToyClassifier, ToyCtc, check_universal

RATE = 16000
TIME = 400


class Plane(Classifier):
    """Two classes, "no" at 0 and "yes" at `w x`, with w = 1 on the first 100 samples: ||w||_2 = 10."""

    classes = ("no", "yes")
    sample_rate = RATE

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        score = batch.waveforms[:, :100].sum(dim=1)
        return torch.stack([torch.zeros_like(score), score], dim=1)


class Ear(Target, Languages):
    """Says "but why" or "why", and hears "it" or "en", by the sign of x0 - x1 + x2 - x3 ... to the end."""

    sample_rate = RATE
    says = "words"
    languages = ("en", "it")

    def __init__(self) -> None:
        self.decoded = 0

    def _score(self, batch: AudioBatch) -> Tensor:
        signs = torch.ones(batch.waveforms.shape[1])
        signs[1::2] = -1.0
        return batch.waveforms @ signs

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        toward = torch.tensor([1.0 if label.startswith("but") else -1.0 for label in labels])
        return torch.nn.functional.softplus(-toward * self._score(batch))

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        self.decoded += 1
        return ["but why" if score > 0 else "why" for score in self._score(batch).tolist()]

    def language_scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        return torch.stack([torch.zeros(len(batch)), self._score(batch)], dim=1)


def clip(margin: float, samples: int = TIME) -> Tensor:
    """A clip at distance `margin / 10` from the boundary of `Plane`."""
    return torch.full((samples,), margin / 100)


def batch_of(*margins: float) -> AudioBatch:
    return AudioBatch.of(
        [clip(margin) for margin in margins], RATE, [f"c{i:03}" for i in range(len(margins))]
    )


def low(*lengths: int) -> AudioBatch:
    """Clips on which the score of `Ear` is -0.1: 0.1 on the second sample, a little sound elsewhere."""
    rows = [torch.full((length,), 1e-3) for length in lengths]
    for row in rows:
        row[1] += 0.1
    return AudioBatch.of(rows, RATE, [f"c{place}" for place in range(len(rows))])


def facts(perturbation: Perturbation) -> dict[str, object]:
    return dict(json.loads(perturbation.made_by))


def test_l2_direction() -> None:
    """The steepest direction is 0.1 on each of the first 100 samples: 0.01 at a radius of 0.1."""
    clips = batch_of(*torch.linspace(-0.9, -0.1, 30).tolist())
    found = UniversalGradient(epochs=10).fit(Plane(), [clips], Evade(), L2(0.1), draws=Draws(0))
    wanted = torch.zeros(TIME)
    wanted[:100] = 0.01
    torch.testing.assert_close(found.waveform, wanted, atol=1e-6, rtol=0)
    assert (facts(found)["fooled"], facts(found)["clips"]) == (30, 30)


def test_linf_corner() -> None:
    """The corner of the cube: 0.008 on the first 100 samples moves the score by 0.8, and not by 0.9."""
    clips = batch_of(-0.9, -0.7, -0.5)
    found = UniversalGradient(epochs=10).fit(Plane(), [clips], Force("yes"), LInf(0.008), draws=Draws(0))
    wanted = torch.zeros(TIME)
    wanted[:100] = 0.008
    torch.testing.assert_close(found.waveform, wanted, atol=1e-9, rtol=0)
    assert facts(found)["fooled"] == 2


def test_sure_clips_count_as_much_as_others() -> None:
    """Two clips that say "no" with scores of -20 against one that says "yes" at 0.1. The gradient of the loss
    of the two is e^-20 of that of the one; by plain sums v would go down for the one and never come back."""
    clips = AudioBatch.of([clip(-20.0), clip(-20.0), clip(0.1)], RATE)
    found = UniversalGradient(epochs=3, batch_clips=3).fit(
        Plane(), [clips], Evade(), LInf(0.25), draws=Draws(0)
    )
    assert float(found.waveform[:100].min()) > 0
    assert facts(found)["fooled"] == 2


def test_played_at_the_level_of_each_clip() -> None:
    """A clip at a constant -m / 100 has a norm of 0.2 m. As much along w moves the score by 10 x 0.2 m = 2 m,
    twice what is needed: 20 log10(2) = 6.02 dB is the limit, for loud and quiet clips alike."""
    clips = batch_of(-0.5, -5.0, -50.0)
    for db, fooled in ((6.1, 0), (5.9, 3)):
        found = UniversalGradient(epochs=10).fit(Plane(), [clips], Evade(), Snr(db), draws=Draws(0))
        assert facts(found)["fooled"] == fooled


def test_the_best_is_kept() -> None:
    """Raising the score fools the three "no", lowering it the one "yes": the best v fools three of four."""
    clips = batch_of(-0.5, -0.4, -0.3, 0.4)
    found = UniversalGradient(epochs=5, batch_clips=1).fit(Plane(), [clips], Evade(), L2(0.1), draws=Draws(3))
    trial = found(Plane(), clips, Evade(), L2(0.1), draws=Draws(3))
    assert sum(trial.achieved) == facts(found)["fooled"] == 3


def test_ceiling_stops_the_push() -> None:
    """A loss of 0.8 is reached at a score of log(e^0.8 - 1) = 0.20. The first step, half of the radius, moves
    the score by 0.5 and past it, and there v stays: 0.05 on ten units of w."""
    clips = batch_of(-0.01)
    found = UniversalGradient(ceiling=0.8, momentum=0.0).fit(
        Plane(), [clips], Evade(), L2(0.1), draws=Draws(0)
    )
    assert float(found.waveform.norm()) == pytest.approx(0.05, rel=1e-4)


def test_folding() -> None:
    gradient = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.0, 1.0, 0.0, 0.0]])
    assert folded(gradient, 2).tolist() == [[9.0, 6.0], [2.0, 1.0]]
    assert folded(gradient, 5).tolist() == gradient.tolist()
    assert folded(gradient, 7).tolist() == [
        [1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0],
        [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0],
    ]


@pytest.mark.parametrize("goal", [Evade(), Prefix("but"), Force("but why")], ids=["evade", "prefix", "force"])
@pytest.mark.parametrize("budget", [LInf(0.001), Snr(5.0)], ids=["linf", "snr"])
def test_a_short_waveform_repeats(goal: Goal, budget: Ball) -> None:
    """Ten milliseconds, 160 samples, over clips of 400 to 1000 samples: the best v alternates, +-+-, because
    that is what the recogniser listens to in every repeat."""
    attack = UniversalGradient(seconds=0.01, epochs=5, batch_clips=2)
    found = attack.fit(Ear(), [low(400, 1000, 640)], goal, budget, draws=Draws(0))
    assert len(found.waveform) == 160
    assert (found.waveform.sign() == torch.tensor([1.0, -1.0]).repeat(80)).all()
    assert found(Ear(), low(333, 5000), goal, budget, draws=Draws(0)).achieved == (True, True)


def test_language_is_heard_without_decoding() -> None:
    target = Ear()
    found = UniversalGradient(epochs=3).fit(
        target, [low(400, 500)], Language("it"), LInf(0.001), draws=Draws(0)
    )
    assert facts(found)["fooled"] == 2 and target.decoded == 0
    assert facts(found)["goal"] == {"kind": "Language", "code": "it"}
    trial = found(target, low(600), Language("it"), LInf(0.001), draws=Draws(0))
    assert trial.references == ("en",) and trial.achieved == (True,)


def test_references_follow_their_clips() -> None:
    """Bound references come in the order of the clips, whatever their ids."""
    first = AudioBatch.of([clip(-0.5)], RATE, ["z"])
    second = AudioBatch.of([clip(-0.1), clip(-0.5)], RATE, ["b", "a"])
    goal = Evade().bind(["no", "yes", "no"])
    found = UniversalGradient(epochs=5).fit(Plane(), [first, second], goal, L2(0.1), draws=Draws(0))
    # The clip bound to "yes" says "no" already and stays fooled only while the score is below 0.
    assert facts(found)["fooled"] == 2


def test_rarely_judged_is_judged_at_the_end() -> None:
    attack = UniversalGradient(epochs=3, judge_every=100)
    found = attack.fit(Plane(), [batch_of(-0.5, -0.4)], Evade(), L2(0.1), draws=Draws(0))
    assert facts(found)["fooled"] == 2


def test_progress_is_told() -> None:
    told: list[tuple[int, int, float]] = []
    attack = UniversalGradient(epochs=2, batch_clips=2)
    attack.fit(
        Plane(),
        [batch_of(-0.5, -0.4, -0.3)],
        Evade(),
        L2(0.1),
        draws=Draws(0),
        progress=lambda *news: told.append(news),
    )
    assert told == [(0, 2, 0.0), (0, 3, 0.0), (1, 2, 1.0), (1, 3, 1.0)]


@pytest.mark.parametrize("target", [ToyClassifier(), ToyCtc(), ToyAttention()], ids=["class", "ctc", "att"])
def test_contract(target: Target) -> None:
    check_universal(UniversalGradient(epochs=4, batch_clips=3), target)


def test_bad_input() -> None:
    class Whole(Budget):
        def excess(self, delta: Tensor, clean: AudioBatch) -> Tensor:
            return torch.zeros(len(clean))

        def project(self, delta: Tensor, clean: AudioBatch) -> Tensor:
            return delta

        def __str__(self) -> str:
            return "everything"

    attack, clips = UniversalGradient(), [batch_of(-0.5)]
    with pytest.raises(InputError, match=r"needs a budget with a norm, .*, got everything"):
        attack.fit(Plane(), clips, Evade(), Whole(), draws=Draws(0))
    with pytest.raises(MissingCapability, match="language needs language scores"):
        attack.fit(Plane(), clips, Language("it"), L2(0.1), draws=Draws(0))
    with pytest.raises(InputError, match="at least one batch"):
        attack.fit(Plane(), [], Evade(), L2(0.1), draws=Draws(0))
    with pytest.raises(InputError, match="needs 1 references, one for each clip, got 2"):
        attack.fit(Plane(), clips, Evade().bind(["no", "no"]), L2(0.1), draws=Draws(0))
    for settings in (
        {"epochs": 0},
        {"judge_every": 0},
        {"batch_clips": 0},
        {"step": 0.0},
        {"momentum": 1.0},
        {"seconds": 0.0},
    ):
        with pytest.raises(InputError, match=rf"\({next(iter(settings))}="):
            UniversalGradient(**settings)  # type: ignore[arg-type]
