"""Models to find examples on that others judge: several together, with dropout left on, kept by a third."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sottovoce as sv
from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.run_cell import assemble
from sottovoce.core.draws import Draws
from sottovoce.core.target import Matches
from sottovoce.core.transform import Defended
from sottovoce.defenses.transfer_target import Several, Transfer
from sottovoce.errors import InputError, MissingCapability
from sottovoce.targets.adapters.kept_dropout import Dropping
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.testing import (
    ToyAttention,
    ToyClassifier,
    ToyCtc,
    ToyEndpoint,
    ToyNoise,
    check_target,
    clips_for,
)

DRAWS = Draws(3)


class Deaf(ToyCtc):
    """A recogniser that writes the same text whatever it hears, and counts how often it is asked."""

    asked = 0

    def __init__(self, text: str = "e") -> None:
        super().__init__()
        self.text = text

    def log_probs(self, batch: sv.AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
        type(self).asked += 1
        scores, frames = super().log_probs(batch, draws=draws)
        wanted = self.vocabulary.encode(self.text)
        path = torch.tensor([*wanted, *[self.vocabulary.blank] * scores.shape[1]])[: scores.shape[1]]
        sure = torch.nn.functional.one_hot(path, scores.shape[2]) * 40.0
        return (sure + 0.0 * scores).log_softmax(dim=2), frames


def test_several_of_one_is_the_model() -> None:
    model, clips = ToyCtc(), clips_for(ToyCtc())
    alone = Several([model])
    texts = model.decode(clips, draws=DRAWS)
    assert alone.decode(clips, draws=DRAWS) == texts
    assert torch.equal(alone.loss(clips, texts, draws=DRAWS), model.loss(clips, texts, draws=DRAWS))
    loss, match = alone.capability(Matches).loss_and_match(clips, texts, draws=DRAWS)
    assert match.all() and torch.equal(loss, model.loss(clips, texts, draws=DRAWS))
    assert alone.capability(Matches).exact


def test_losses_are_added_and_all_must_match() -> None:
    one, two = ToyCtc(), Deaf("e")
    both, clips = Several([one, two]), clips_for(one)
    texts = one.decode(clips, draws=DRAWS)
    found = both.loss(clips, texts, draws=DRAWS)
    torch.testing.assert_close(
        found, one.loss(clips, texts, draws=DRAWS) + two.loss(clips, texts, draws=DRAWS)
    )
    loss, match = both.loss_and_match(clips, texts, draws=DRAWS)
    torch.testing.assert_close(loss, found)
    assert match.tolist() == [text == "e" for text in texts]
    assert both.loss_and_match(clips, ["e"] * 4, draws=DRAWS)[1].tolist() == [text == "e" for text in texts]
    # Where they differ there is no text, so that none is taken for what was wanted.
    assert both.decode(clips, draws=DRAWS) == [text if text == "e" else "" for text in texts]


def test_several_keep_the_laws() -> None:
    check_target(Several([ToyCtc(), ToyAttention()]))
    check_target(Several([ToyClassifier(), ToyClassifier()]))


def test_several_show_as_much_as_the_least_of_them() -> None:
    assert Several([ToyCtc(), ToyEndpoint()]).shows == "decisions"
    with pytest.raises(MissingCapability):
        Several([ToyCtc(), ToyEndpoint()]).capability(Matches)
    with pytest.raises(InputError, match="several: models need the same says, got words and class"):
        Several([ToyCtc(), ToyClassifier()])
    with pytest.raises(InputError, match="expected one model or more, got none"):
        sv.open_model("several(models=[])", device="cpu")


def test_several_by_their_text() -> None:
    found = sv.open_model('several(models=[keyword, "keyword(variant=pgd)"])', device="cpu")
    clips = sv.open_data("embedded", model="keyword", limit=2).batch()
    apart = [sv.open_model(name, device="cpu") for name in ("keyword", "keyword(variant=pgd)")]
    wanted = sum(model.loss(clips, ["go", "go"], draws=DRAWS) for model in apart)
    torch.testing.assert_close(found.loss(clips, ["go", "go"], draws=DRAWS), wanted)


def test_an_attack_in_transfer_has_the_source_in_hand_and_asks_the_judge_for_a_verdict_alone() -> None:
    source, judge = ToyCtc(), Deaf("e")
    both, clips = Transfer(source, judge), clips_for(source)
    assert both.known is source
    Deaf.asked = 0
    attack = sv.attacks.CarliniWagnerAsr(steps=100, eps=1.0, learning_rate=0.2)
    trial = sv.attack(both, clips, attack, goal="force(text=ab)", budget="snr(db=0)")
    # The clean clips, the example as it was found, and as it was rounded.
    assert Deaf.asked == 3
    assert source.decode(trial.adversarial, draws=DRAWS) == ["ab"] * 4
    assert trial.adversarial_texts == ("e",) * 4 and not any(trial.achieved)
    assert Defended(both, (ToyNoise(),)).known == Defended(source, (ToyNoise(),))
    assert source.known is source


def test_plans_know_the_source(tmp_path: Path) -> None:
    plan = make_plan(
        {
            "attacks": ["cw-asr", "kenansville"],
            "goals": ["force(text=ab)"],
            "budgets": ["snr(db=0)"],
            "probe": 0,
        }
        | {"model": "recogniser"}
    )
    source = ToyCtc()
    works = [assemble(plan, cell, Transfer(source, Deaf())) for cell in plan.cells()]
    assert [work.through is source for work in works] == [True, True]
    assert all(isinstance(work.judge, Transfer) for work in works)


class Ones(nn.Module):
    """Two layers of ones: four frames of three features, each dropped or not, then their mean as a score."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.9)
        self.seen: list[Tensor] = []

    def forward(self, waveforms: Tensor) -> Tensor:
        whole = torch.ones(len(waveforms), 4, 3) + 0.0 * waveforms.sum()
        self.seen.append(self.drop(self.norm(whole)))
        mean = self.seen[-1].mean(dim=(1, 2))
        return torch.stack([mean, 1.0 - mean], dim=1)


def ones() -> tuple[Ones, ModuleClassifier]:
    module = Ones().eval()
    module.norm.weight.data.fill_((1.0 + module.norm.eps) ** 0.5)
    return module, ModuleClassifier(module, ["a", "b"], 1000)


def test_dropped_features_by_hand() -> None:
    module, target = ones()
    clips = sv.AudioBatch.of([torch.zeros(100)] * 50, sample_rate=1000)
    state = {name: value.clone() for name, value in module.state_dict().items()}
    Dropping(target, share=0.25).scores(clips, draws=DRAWS)
    # Features are 0 or 1 / 0.75; of 600 about 450 stay: five deviations of sqrt(600 x 0.25 x 0.75) are 53.
    seen = module.seen[-1]
    assert sorted(seen.unique().tolist()) == pytest.approx([0.0, 4 / 3])
    assert abs(int((seen > 0).sum()) - 450) < 53
    assert not torch.equal(seen[0], seen[1])
    # The network is as it was: in evaluation mode, its batch norm untouched, no layer hooked.
    assert not module.training and not module.drop.training
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert not module.drop._forward_hooks
    target.scores(clips, draws=DRAWS)
    assert torch.equal(module.seen[-1], torch.ones(50, 4, 3))


def test_masks_follow_the_draws_of_the_clip() -> None:
    module, target = ones()
    clips = sv.AudioBatch.of([torch.zeros(100)] * 3, sample_rate=1000)
    dropping = Dropping(target, share=0.5)
    dropping.scores(clips, draws=DRAWS)
    dropping.scores(clips.select([2, 0]), draws=DRAWS)
    whole, some = module.seen[-2:]
    assert torch.equal(some, whole[[2, 0]])
    dropping.scores(clips, draws=DRAWS.turn("step", 1))
    assert not torch.equal(module.seen[-1], whole)


def test_without_a_share_nothing_changes() -> None:
    model = sv.open_model("keyword", device="cpu")
    clips = sv.open_data("embedded", model="keyword", limit=2).batch()
    same = sv.open_model("dropout(model=keyword, share=0)", device="cpu")
    assert not same.random
    assert torch.equal(
        same.loss(clips, ["go", "go"], draws=DRAWS), model.loss(clips, ["go", "go"], draws=DRAWS)
    )
    other = sv.open_model("dropout(model=keyword)", device="cpu")
    assert other.random
    assert not torch.equal(
        other.loss(clips, ["go", "go"], draws=DRAWS), model.loss(clips, ["go", "go"], draws=DRAWS)
    )


@pytest.mark.parametrize(
    "model", ["dropout(model=keyword, share=0.3)", "dropout(model=recogniser, share=0.2)"]
)
def test_dropout_keeps_the_laws(model: str) -> None:
    check_target(sv.open_model(model, device="cpu"))


@pytest.mark.parametrize(
    "target, share, told",
    [(ToyCtc, 0.1, "has dropout layers, got ToyCtc"), (ToyCtc, 1.0, "to below 1, got 1")],
)
def test_what_cannot_be_dropped_is_told(target: Any, share: float, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Dropping(target(), share)


THIRD = """
from sottovoce.testing import ToyCtc

HEARD = []


class Third(ToyCtc):
    def spell(self, log_probs, frames):
        return [HEARD.pop(0)] * len(frames) if HEARD else super().spell(log_probs, frames)


def make():
    return Third()
"""


def test_the_perturbation_that_the_third_model_hears_best_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "third_model.py").write_text(THIRD)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "third_model", raising=False)
    import third_model  # type: ignore[import-not-found]

    clips = clips_for(ToyCtc())

    def run(heard: Sequence[str], **settings: Any) -> sv.Trial:
        third_model.HEARD[:] = heard
        attack = sv.attacks.CarliniWagnerAsr(eps=1.0, keep_by="python:third_model:make", **settings)
        return sv.attack(ToyCtc(), clips, attack, goal="force(text=ab)", budget="snr(db=0)")

    # Heard after steps 2, 4 and 6; "ac" is one letter of two away, "ab" is what is wanted.
    kept = run(["ac", "ab", "ac"], steps=6, keep_every=2)
    assert torch.equal(kept.delta, run(["ab"], steps=4, keep_every=4).delta)
    assert not torch.equal(kept.delta, run(["ab"], steps=2, keep_every=2).delta)
    # Of two equally near the first, and the last step is always heard.
    assert torch.equal(
        run(["ac", "ac"], steps=4, keep_every=2).delta, run(["ac"], steps=2, keep_every=2).delta
    )
    assert torch.equal(
        run(["dd", "ab"], steps=3, keep_every=2).delta, run(["ab"], steps=3, keep_every=3).delta
    )


def test_a_third_model_of_another_rate_is_refused() -> None:
    attack = sv.attacks.CarliniWagnerAsr(steps=1, keep_by="keyword")
    with pytest.raises(InputError, match="expected a model that writes words at 1000 Hz"):
        sv.attack(ToyCtc(), clips_for(ToyCtc()), attack, goal="force(text=ab)", budget="snr(db=0)")
