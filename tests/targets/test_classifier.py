"""Any torch module as a classifier: its scores, its decisions, and the laws of a target."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.target import Scores, check_clips
from sottovoce.errors import InputError, UnknownName
from sottovoce.targets.families.classifier import ModuleClassifier

DRAWS = Draws(0)


class MeanAndWidth(nn.Module):
    """Two scores that give padding away: a clip's mean, and the number of samples that were seen."""

    def __init__(self) -> None:
        super().__init__()
        self.widths: list[int] = []

    def forward(self, waveforms: Tensor) -> Tensor:
        self.widths.append(waveforms.shape[1])
        mean = waveforms.mean(dim=1)
        return torch.stack([mean, torch.full_like(mean, waveforms.shape[1])], dim=1)


class Fixed(nn.Module):
    """Hands back what it was given, whatever it hears."""

    def __init__(self, scores: object) -> None:
        super().__init__()
        self.given = scores

    def forward(self, waveforms: Tensor) -> object:
        return self.given


class Normed(nn.Module):
    """A linear layer behind batch normalisation and dropout, left in training mode by its owner."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = nn.Dropout(0.5)
        self.output = nn.Linear(4, 2)

    def forward(self, waveforms: Tensor) -> Tensor:
        return self.output(self.drop(self.norm(waveforms)))


def test_one_line_makes_a_target_with_scores_losses_and_decisions() -> None:
    target = ModuleClassifier(nn.Identity(), ["yes", "no"], sample_rate=2)
    batch = AudioBatch.of([[0.5, 0.0], [-0.5, 0.25]], 2)
    assert target.capability(Scores).scores(batch, draws=DRAWS).tolist() == [[0.5, 0.0], [-0.5, 0.25]]
    assert target.decode(batch, draws=DRAWS) == ["yes", "no"]
    # -log softmax: log(1 + exp(-0.5)) for the first clip, log(1 + exp(0.75)) for the second.
    losses = target.loss(batch, ["yes", "yes"], draws=DRAWS)
    assert losses.tolist() == pytest.approx([0.474077, 1.136871], abs=1e-5)


def test_clips_of_each_length_run_apart_and_come_back_in_order() -> None:
    module = MeanAndWidth()
    target = ModuleClassifier(module, ["mean", "width"], sample_rate=4)
    batch = AudioBatch.of([[0.3, 0.6, 0.9], [0.5], [0.2, 0.4], [0.9, 0.6, 0.0], [-1.0]], 4)
    scores = target.scores(batch, draws=DRAWS)
    expected = torch.tensor([[0.6, 3], [0.5, 1], [0.3, 2], [0.5, 3], [-1.0, 1]])
    torch.testing.assert_close(scores, expected)
    assert module.widths == [1, 2, 3]


def test_clips_of_one_length_share_a_run() -> None:
    module = MeanAndWidth()
    ModuleClassifier(module, ["mean", "width"], 4).scores(AudioBatch.of([[0.1, 0.2]] * 3, 4), draws=DRAWS)
    assert module.widths == [2]


def test_clip_samples_pads_every_clip_with_zeros_and_bounds_its_length() -> None:
    target = ModuleClassifier(MeanAndWidth(), ["mean", "width"], sample_rate=4, clip_samples=4)
    scores = target.scores(AudioBatch.of([[0.4, 0.8], [0.4]], 4), draws=DRAWS)
    torch.testing.assert_close(scores, torch.tensor([[0.3, 4], [0.1, 4]]))
    assert target.longest == 4
    with pytest.raises(InputError, match="at most 4 samples"):
        check_clips(target, AudioBatch.of([[0.1] * 5], 4))


def test_the_gradient_reaches_the_clip_and_never_its_padding() -> None:
    target = ModuleClassifier(MeanAndWidth(), ["mean", "width"], sample_rate=4)
    batch = AudioBatch.of([[0.3, 0.6, 0.9], [0.5]], 4)
    delta = torch.zeros(2, 3, requires_grad=True)
    scores = target.scores(batch.with_waveforms(batch.waveforms + delta), draws=DRAWS)
    (gradient,) = torch.autograd.grad(scores[:, 0].sum(), delta)
    torch.testing.assert_close(gradient, torch.tensor([[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("scores", "got"), [(torch.zeros(1, 3), r"got \(1, 3\)"), ((torch.zeros(1, 2),), "got tuple")]
)
def test_a_module_with_other_outputs_is_refused(scores: object, got: str) -> None:
    target = ModuleClassifier(Fixed(scores), ["yes", "no"], sample_rate=2)
    with pytest.raises(InputError, match=rf"shape \(1, 2\).*{got}"):
        target.decode(AudioBatch.of([[0.1, 0.2]], 2), draws=DRAWS)


@pytest.mark.parametrize("classes", [[], ["yes"], ["yes", "no", "yes"]])
def test_class_names_must_tell_outputs_apart(classes: list[str]) -> None:
    with pytest.raises(InputError, match="two or more different names"):
        ModuleClassifier(nn.Identity(), classes, sample_rate=2)


def test_an_unknown_label_is_refused_with_the_nearest_name() -> None:
    target = ModuleClassifier(nn.Identity(), ["left", "right"], sample_rate=2)
    target.check_labels(["left", "right"])
    with pytest.raises(UnknownName, match="did you mean 'right'"):
        target.check_labels(["left", "rigth"])
    with pytest.raises(UnknownName, match="unknown class"):
        target.loss(AudioBatch.of([[0.1, 0.2]], 2), ["up"], draws=DRAWS)


def test_a_module_in_training_mode_is_left_as_it_was_found() -> None:
    module = Normed()
    module.train()
    module.drop.eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    target = ModuleClassifier(module, ["yes", "no"], sample_rate=4)
    batch = AudioBatch.of([[0.1, 0.2, 0.3, 0.4], [0.9, 0.1, 0.2, 0.3]], 4)
    together = target.scores(batch, draws=DRAWS)
    assert (module.training, module.norm.training, module.drop.training) == (True, True, False)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    # Statistics of the batch, or dropout, would give a lone clip other scores.
    alone = target.scores(batch.select([0]), draws=DRAWS)
    torch.testing.assert_close(alone[0], together[0])


def test_a_module_that_fails_gets_its_training_mode_back() -> None:
    module = Normed().train()
    target = ModuleClassifier(module, ["yes", "no"], sample_rate=4)
    with pytest.raises(RuntimeError):
        target.scores(AudioBatch.of([[0.1, 0.2, 0.3]], 4), draws=DRAWS)
    assert module.training and module.norm.training
