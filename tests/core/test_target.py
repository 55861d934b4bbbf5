"""Targets: capabilities, limits on clips, and modules that come back as they were."""

from __future__ import annotations

import pytest
import torch

from sottovoce import registry
from sottovoce.attacks.pgd import Pgd
from sottovoce.attacks.taori import Taori
from sottovoce.attacks.universal_gradient import UniversalGradient
from sottovoce.auditing.estimate.pass_counter import Counted
from sottovoce.core.batch import AudioBatch
from sottovoce.core.budget import Snr
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade
from sottovoce.core.target import RUNS, Scores, Sight, Target, check_clips, evaluating, require_sight
from sottovoce.core.transform import Averaged, Defended, Unsteady
from sottovoce.core.universal_attack import Perturbation
from sottovoce.core.vote import Voted
from sottovoce.defenses.noisy_passes import Gaussian
from sottovoce.defenses.transfer_target import Transfer
from sottovoce.defenses.votes import Majority
from sottovoce.errors import InputError, MissingCapability
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.testing import ToyClassifier, ToyCtc, ToyEndpoint, ToyScorer, clips_for


def silence(samples: int, sample_rate: int = 1000) -> AudioBatch:
    return AudioBatch.of([torch.zeros(100), torch.zeros(samples)], sample_rate, ["fine", "odd"])


def test_clips_that_cannot_be_heard() -> None:
    toy = ToyClassifier()
    check_clips(toy, silence(20))
    with pytest.raises(InputError, match="the model expects audio at 1000 Hz, got 16000 Hz; resample"):
        check_clips(toy, silence(100, 16000))
    with pytest.raises(InputError, match=r"clip 'odd': expected at least 20 samples \(20 ms\), got 19"):
        check_clips(toy, silence(19))
    fixed = ModuleClassifier(torch.nn.Linear(200, 2), ["a", "b"], 1000, clip_samples=200)
    check_clips(fixed, silence(200))
    with pytest.raises(InputError, match=r"clip 'odd': expected at most 200 samples \(0.2 s\), got 201"):
        check_clips(fixed, silence(201))


def test_capabilities() -> None:
    toy = ToyClassifier()
    assert toy.capability(Scores) is toy
    with pytest.raises(MissingCapability, match="ToyCtc has no class scores: it is a speech recogniser"):
        ToyCtc().capability(Scores)


def test_what_a_target_shows() -> None:
    assert [each.shows for each in (ToyClassifier(), ToyCtc(), ToyScorer(), ToyEndpoint())] == [
        "gradient", "gradient", "scores", "decisions",
    ]  # fmt: skip
    # A defense, an average, a vote and a counter show what is inside; a transfer, what its source does.
    quiet = Gaussian(sigma=0.1)
    for inside in (ToyEndpoint(), ToyScorer(), ToyCtc()):
        noisy = Defended(inside, (quiet,))
        for wrapped in (noisy, Averaged(noisy), Unsteady(inside), Voted(noisy, Majority()), Counted(inside)):
            assert wrapped.shows == inside.shows
    assert Transfer(ToyCtc(), ToyEndpoint()).shows == "gradient"
    assert Transfer(ToyEndpoint(), ToyCtc()).shows == "decisions"


def test_a_target_that_only_answers_has_no_loss() -> None:
    toy = ToyEndpoint()
    with pytest.raises(MissingCapability, match="ToyEndpoint gives answers alone: it has no loss"):
        toy.loss(clips_for(toy), ["a"] * 4, draws=Draws(0))


REFUSED = {
    "scores": {"apgd", "apgd-dlr", "cw", "cw-asr", "deepfool", "fgsm", "imperceptible", "pgd"},
    "decisions": {"apgd", "apgd-dlr", "cw", "cw-asr", "deepfool", "fgsm", "imperceptible", "pgd", "taori"},
}


@pytest.mark.parametrize(("target", "shows"), [(ToyScorer(), "scores"), (ToyEndpoint(), "decisions")])
def test_attacks_that_need_more_are_refused_with_those_that_run(target: Target, shows: Sight) -> None:
    refused = set()
    for name in sorted(set(registry.names("attack")) - {"replay", "replay-noise"}):
        attack = registry.build("attack", name)
        try:
            require_sight(attack, attack.least or attack.sees, target)
        except MissingCapability as error:
            refused.add(name)
            assert f"Use {RUNS[shows]}, or examples made on another model" in str(error)
        else:
            known = RUNS[shows].replace(",", "").split()
            assert name == "none" or name.removesuffix("-ssa") in known
    assert refused == REFUSED[shows]


def test_the_message_of_an_attack_that_needs_more() -> None:
    toy = ToyEndpoint()
    with pytest.raises(MissingCapability) as caught:
        Pgd()(toy, clips_for(toy), Evade(), Snr(20.0), draws=Draws(0))
    assert str(caught.value) == (
        "pgd needs gradients, but the model (ToyEndpoint) gives answers alone. Use noise, kenansville, "
        "yeehaw or genetic, or examples made on another model: --model 'transfer(source=..., judge=...)' "
        "attacks one and asks the other, and --examples RUN takes those of a run."
    )
    with pytest.raises(MissingCapability, match=r"taori needs scores, but the model \(ToyEndpoint\) gives"):
        Taori()(toy, clips_for(toy), Evade(), Snr(20.0), draws=Draws(0))
    scorer = ToyScorer()
    with pytest.raises(MissingCapability, match=r"pgd needs gradients, .* gives scores without gradients"):
        Pgd()(scorer, clips_for(scorer), Evade(), Snr(20.0), draws=Draws(0))
    with pytest.raises(MissingCapability, match="universal-gradient needs gradients"):
        UniversalGradient().fit(toy, [clips_for(toy)], Evade(), Snr(20.0), draws=Draws(0))


def test_a_perturbation_that_is_there_already_needs_nothing() -> None:
    toy = ToyEndpoint()
    found = Perturbation(torch.linspace(-1.0, 1.0, 50), toy.sample_rate)
    trial = found(toy, clips_for(toy), Evade(), Snr(0.0), draws=Draws(0))
    assert bool(trial.delta.any())


def test_evaluating_hands_back_every_mode() -> None:
    module = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.BatchNorm1d(2)).train()
    module[0].eval()
    with pytest.raises(RuntimeError), evaluating(module):
        assert [part.training for part in module.modules()] == [False, False, False]
        raise RuntimeError
    assert [part.training for part in module.modules()] == [True, False, True]
