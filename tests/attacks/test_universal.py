"""Universal perturbations on linear models, where the best direction and the reach are known by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sottovoce.attacks.universal_deepfool import Accumulation, Crowd, Leader, Uap, UapHc
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import L2, DbMax, LInf, Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force
from sottovoce.core.target import Target
from sottovoce.core.universal_attack import Perturbation
from sottovoce.errors import InputError, MissingCapability
from sottovoce.targets.families.classifier import Classifier

RATE = 16000
TIME = 400
BOTH = pytest.mark.parametrize("attack", [Uap(), UapHc()], ids=["uap", "uap-hc"])


class Plane(Classifier):
    """Two classes, "no" at 0 and "yes" at `w x`, with w = 1 on the first 100 samples: ||w||_2 = 10."""

    classes = ("no", "yes")
    sample_rate = RATE

    def __init__(self) -> None:
        self.heard = 0

    def scores(self, batch: AudioBatch, *, draws: Draws) -> Tensor:
        self.heard += len(batch)
        score = batch.waveforms[:, :100].sum(dim=1)
        return torch.stack([torch.zeros_like(score), score], dim=1)


class Deaf(Target):
    """A target without scores."""

    sample_rate = RATE

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return batch.waveforms.sum(dim=1)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return ["deaf"] * len(batch)


def clip(margin: float, samples: int = TIME) -> Tensor:
    """A clip at distance `margin / 10` from the boundary of `Plane`."""
    return torch.full((samples,), margin / 100)


def margins(count: int, low: float = -0.9, high: float = -0.1) -> AudioBatch:
    """Clips that say "no", between 0.01 and 0.09 away from the boundary in L2."""
    values = torch.linspace(low, high, count).tolist()
    return AudioBatch.of([clip(value) for value in values], RATE, [f"c{place:03}" for place in range(count)])


def facts(perturbation: Perturbation) -> dict[str, object]:
    return dict(json.loads(perturbation.made_by))


@BOTH
def test_all_clips_are_fooled_along_the_only_direction(attack: Accumulation) -> None:
    found = attack.fit(Plane(), [margins(30)], Evade(), L2(0.1), draws=Draws(0))
    direction = torch.zeros(TIME)
    direction[:100] = 0.1
    assert float(found.waveform @ direction / found.waveform.norm()) > 0.99
    assert float(found.waveform.norm()) <= 0.1 * (1 + 1e-6)
    # The farthest clip needs 0.09; DeepFool goes a tenth beyond what it lacks.
    assert float(found.waveform.norm()) > 0.09
    assert (facts(found)["fooled"], facts(found)["clips"]) == (30, 30)
    trial = found(Plane(), margins(30), Evade(), L2(0.1), draws=Draws(1))
    assert trial.achieved == (True,) * 30


@BOTH
def test_only_clips_within_reach_are_fooled(attack: Accumulation) -> None:
    """A radius of 0.05 moves the score by 0.5 at most: 0.1, 0.2, 0.3 and 0.4 are in reach, 0.6 to 0.9 not."""
    values = [-0.9, -0.8, -0.7, -0.6, -0.4, -0.3, -0.2, -0.1]
    batch = AudioBatch.of([clip(value) for value in values], RATE)
    found = attack.fit(Plane(), [batch], Evade(), L2(0.05), draws=Draws(0))
    assert facts(found)["fooled"] == 4
    trial = found(Plane(), batch, Evade(), L2(0.05), draws=Draws(0))
    assert trial.achieved == (False,) * 4 + (True,) * 4


@BOTH
def test_out_of_reach_is_said(attack: Accumulation) -> None:
    found = attack.fit(Plane(), [margins(8, -0.9, -0.6)], Evade(), L2(0.05), draws=Draws(0))
    assert (facts(found)["fooled"], facts(found)["clips"]) == (0, 8)
    assert float(found.waveform.abs().max()) == 0.0


@BOTH
def test_linf_radius(attack: Accumulation) -> None:
    """In L-infinity 0.008 on 100 samples moves the score by 0.8, and not by 0.9."""
    batch = AudioBatch.of([clip(-0.9), clip(-0.7), clip(-0.5)], RATE)
    found = attack.fit(Plane(), [batch], Evade(), LInf(0.008), draws=Draws(0))
    assert facts(found)["fooled"] == 2
    assert float(found.waveform.abs().max()) <= 0.008 * (1 + 1e-6)


@BOTH
def test_opposite_clips_cannot_both_be_fooled(attack: Accumulation) -> None:
    """Raising the score fools the three "no", lowering it the one "yes": the best v fools three of four."""
    batch = AudioBatch.of([clip(-0.5), clip(-0.4), clip(-0.3), clip(0.4)], RATE)
    found = attack.fit(Plane(), [batch], Evade(), L2(0.1), draws=Draws(3))
    trial = found(Plane(), batch, Evade(), L2(0.1), draws=Draws(3))
    assert sum(trial.achieved) == facts(found)["fooled"]
    assert facts(found)["fooled"] == 3


@BOTH
def test_force_counts_the_text(attack: Accumulation) -> None:
    """A "yes" with score 0.4 is forced already; the two "no" are brought there as well."""
    batch = AudioBatch.of([clip(-0.5), clip(-0.3), clip(0.4)], RATE)
    found = attack.fit(Plane(), [batch], Force("yes"), L2(0.1), draws=Draws(0))
    assert facts(found)["fooled"] == 3
    assert facts(found)["goal"] == {"kind": "Force", "text": "yes"}


def test_references_come_in_the_order_of_the_clips() -> None:
    """Bound to "yes", a clip that says "no" counts as fooled from the start; the other one must be won: at
    0.07 the clip "a" can be, which is 0.05 away from its boundary, and "z" cannot, which is 0.09 away.
    """
    batches = [AudioBatch.of([clip(-0.9)], RATE, ["z"]), AudioBatch.of([clip(-0.5)], RATE, ["a"])]
    far = UapHc().fit(Plane(), batches, Evade(references=("no", "yes")), L2(0.07), draws=Draws(0))
    assert facts(far)["fooled"] == 1
    near = UapHc().fit(Plane(), batches, Evade(references=("yes", "no")), L2(0.07), draws=Draws(0))
    assert facts(near)["fooled"] == 2
    with pytest.raises(InputError, match="needs 2 references, one for each clip, got 1"):
        UapHc().fit(Plane(), batches, Evade(references=("no",)), L2(0.05), draws=Draws(0))


def test_hill_climbing_never_goes_down() -> None:
    seen: list[tuple[int, int, float]] = []
    batch = AudioBatch.of([clip(value) for value in np.linspace(-0.9, 0.9, 40).tolist()], RATE)
    found = UapHc(epochs=2).fit(
        Plane(), [batch], Evade(), L2(0.06), draws=Draws(0), progress=lambda *now: seen.append(now)
    )
    ratios = [ratio for _, _, ratio in seen]
    assert len(seen) == 80 and [place for _, place, _ in seen[:40]] == list(range(1, 41))
    assert ratios == sorted(ratios)
    assert ratios[0] > 0 and ratios[-1] * 40 == facts(found)["fooled"]


def test_uap_returns_the_best_epoch() -> None:
    """Two clips that pull v in opposite ways: whichever came last wins, and one of two is always fooled."""
    batch = AudioBatch.of([clip(-0.9), clip(0.9)], RATE)
    for epochs in (1, 2, 3):
        found = Uap(epochs=epochs).fit(Plane(), [batch], Evade(), L2(0.1), draws=Draws(0))
        assert facts(found)["fooled"] == 1


@BOTH
def test_more_epochs_are_never_worse(attack: Accumulation) -> None:
    batch = AudioBatch.of([clip(value) for value in np.linspace(-0.9, 0.9, 21).tolist()], RATE)
    counts = [
        facts(type(attack)(epochs=epochs).fit(Plane(), [batch], Evade(), L2(0.05), draws=Draws(5)))["fooled"]
        for epochs in (1, 2, 4)
    ]
    assert counts == sorted(counts, key=int)


@BOTH
def test_how_the_clips_were_batched_leaves_no_trace(attack: Accumulation) -> None:
    generator = torch.Generator().manual_seed(0)
    rows = [0.01 * torch.randn(320 + 10 * place, generator=generator) for place in range(12)]
    names = [f"clip {place}" for place in range(12)]
    whole = AudioBatch.of(rows, RATE, names)
    parts = [
        AudioBatch.of([rows[p] for p in group], RATE, [names[p] for p in group])
        for group in ((7, 2, 11), (0,), (1, 3, 4, 5, 6, 8, 9, 10))
    ]
    first = attack.fit(Plane(), [whole], Evade(), L2(0.02), draws=Draws(0))
    again = attack.fit(Plane(), iter(parts), Evade(), L2(0.02), draws=Draws(0))
    assert torch.equal(first.waveform, again.waveform) and first.made_by == again.made_by
    assert len(first.waveform) == 430


def test_the_seed_decides() -> None:
    batch = AudioBatch.of([clip(value) for value in np.linspace(-0.9, 0.9, 20).tolist()], RATE)
    fits = [Uap(epochs=1).fit(Plane(), [batch], Evade(), L2(0.03), draws=Draws(seed)) for seed in (1, 1, 2)]
    assert torch.equal(fits[0].waveform, fits[1].waveform)
    assert [facts(fit)["seed"] for fit in fits] == [1, 1, 2]


def test_saved_and_laid_over_other_lengths(tmp_path: Path) -> None:
    found = UapHc().fit(Plane(), [margins(10)], Evade(), L2(0.1), draws=Draws(0))
    found.save(tmp_path / "v.safetensors")
    loaded = Perturbation.load(tmp_path / "v.safetensors")
    assert torch.equal(loaded.waveform, found.waveform) and loaded.made_by == found.made_by
    # 320 samples hear v cut short, 900 hear it twice and a quarter: all have the 100 that count.
    others = AudioBatch.of([clip(-0.5, 320), clip(-0.5, 900)], RATE)
    laid = loaded.over(others)
    assert torch.equal(laid[1, 400:800], found.waveform) and torch.equal(laid[1, 800:], found.waveform[:100])
    assert not laid[0, 320:].any()
    # Over 900 samples v sounds three times, so that its norm is sqrt(3) 0.1 and not cut at 0.2.
    assert loaded(Plane(), others, Evade(), L2(0.2), draws=Draws(0)).achieved == (True, True)


def test_relative_budgets_bind_v_on_each_clip() -> None:
    """At 20 dB a clip may take a tenth of its level. Constant clips of 400 samples at -0.005 and -0.05 have a
    norm of 0.1 and 1, so radii of 0.01 and 0.1; their boundaries are at 0.05 and 0.5: neither is in reach.
    With only the 100 samples that count at -0.005 and silence elsewhere, 6 dB are not enough, -6 dB are.
    """
    constant = AudioBatch.of([clip(-0.5), clip(-5.0)], RATE)
    found = UapHc().fit(Plane(), [constant], Evade(), Snr(20.0), draws=Draws(0))
    assert facts(found)["fooled"] == 0
    short = torch.zeros(TIME)
    short[:100] = -0.005
    batch = AudioBatch.of([short, 10 * short], RATE)
    assert facts(Uap().fit(Plane(), [batch], Evade(), Snr(6.0), draws=Draws(0)))["fooled"] == 0
    for attack in (Uap(), UapHc()):
        found = attack.fit(Plane(), [batch], Evade(), Snr(-6.0), draws=Draws(0))
        assert facts(found)["fooled"] == 2
        # v itself may be as large as the louder clip allows: twice its norm of 0.5.
        assert float(found.waveform.norm()) <= 10 ** (6 / 20) * 0.5 * (1 + 1e-6)
        trial = found(Plane(), batch, Evade(), Snr(-6.0), draws=Draws(0))
        assert trial.achieved == (True, True)
        assert bool((Snr(-6.0).excess(trial.delta, trial.clean) <= 1).all())


def test_db_max() -> None:
    """Peaks 6 dB above the clip's turn its 100 constant samples around; 1 dB below they do not."""
    batch = AudioBatch.of([clip(-0.5), clip(-5.0)], RATE)
    assert facts(UapHc().fit(Plane(), [batch], Evade(), DbMax(6.0), draws=Draws(0)))["fooled"] == 2
    assert facts(UapHc().fit(Plane(), [batch], Evade(), DbMax(-1.0), draws=Draws(0)))["fooled"] == 0


def test_a_lost_challenge_ends_early() -> None:
    """The leader misses 8 of 40 clips. A v of zeros misses all, so the first 8 clips settle it: one batch."""
    target = Plane()
    batch = AudioBatch.of([clip(-0.9)] * 8 + [clip(-0.1)] * 32, RATE)
    crowd = Crowd(target, [batch], Evade(), L2(0.1), Draws(0), batch_clips=4)
    good = torch.zeros(TIME)
    good[:100] = 0.005
    leader = Leader(crowd, crowd.silence())
    leader.challenge(good)
    assert leader.count == 32 and leader.v is good
    target.heard = 0
    leader.challenge(crowd.silence())
    assert target.heard == 8
    assert leader.v is good and leader.count == 32


def test_a_tie_does_not_win() -> None:
    crowd = Crowd(Plane(), [margins(5)], Evade(), L2(0.1), Draws(0), batch_clips=2)
    first = torch.zeros(TIME)
    first[:100] = 0.005
    leader = Leader(crowd, first)
    before = leader.count
    leader.challenge(first.clone())
    assert leader.v is first and leader.count == before


def test_a_lost_push_is_not_tried_twice() -> None:
    """Out of reach, five epochs cost what one does: clean and silent decisions, 6 pushes, 6 challenges."""
    costs = []
    for epochs in (1, 5):
        target = Plane()
        UapHc(epochs=epochs).fit(target, [margins(6, -0.9, -0.6)], Evade(), L2(0.05), draws=Draws(0))
        costs.append(target.heard)
    assert costs[0] == costs[1]


@BOTH
def test_bad_input(attack: Accumulation) -> None:
    with pytest.raises(MissingCapability, match="needs class scores, but the model"):
        attack.fit(Deaf(), [margins(2)], Evade(), L2(0.1), draws=Draws(0))
    with pytest.raises(InputError, match="got none"):
        attack.fit(Plane(), [], Evade(), L2(0.1), draws=Draws(0))
    with pytest.raises(InputError, match="different ids"):
        attack.fit(Plane(), [margins(2), margins(2)], Evade(), L2(0.1), draws=Draws(0))
    slow = AudioBatch.of([clip(-0.5)], 8000, ["slow"])
    with pytest.raises(InputError, match="one sample rate"):
        attack.fit(Plane(), [margins(2), slow], Evade(), L2(0.1), draws=Draws(0))
    with pytest.raises(InputError, match="16000 Hz, got 8000 Hz"):
        attack.fit(Plane(), [slow], Evade(), L2(0.1), draws=Draws(0))
    for settings in ({"epochs": 0}, {"deepfool_steps": 0}, {"batch_clips": 0}, {"overshoot": -0.1}):
        with pytest.raises(InputError, match=rf"\({next(iter(settings))}="):
            type(attack)(**settings)  # type: ignore[arg-type]
