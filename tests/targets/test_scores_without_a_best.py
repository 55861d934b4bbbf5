"""NaN and infinite scores are no answer, in any family; other files here try the same on their models."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sottovoce import registry
from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Language, detect_languages
from sottovoce.core.target import Target, Timings, best_places, check_scores
from sottovoce.core.transform import Averaged, Defended, Transform
from sottovoce.core.vote import Passes, Vote, Voted
from sottovoce.defenses.noisy_passes import Smoothed
from sottovoce.defenses.rover import Rover
from sottovoce.defenses.votes import Average, Majority, OneSentence
from sottovoce.errors import ScoreError
from sottovoce.targets.families.classifier import ModuleClassifier
from sottovoce.targets.families.ctc import Ctc, Vocabulary
from sottovoce.testing import ToyAttention, ToyClassifier, ToyCtc, ToyNoise, ToyTransducer, clips_for

CheckNan = Callable[[Target, AudioBatch], None]
DRAWS = Draws(3)
NAN, INFINITY = torch.nan, torch.inf


class Peaks(torch.nn.Module):
    """Peak, level and a constant."""

    def forward(self, waveforms: Tensor) -> Tensor:
        peak, level = waveforms.amax(dim=1), waveforms.square().mean(dim=1)
        return torch.stack([peak, level, torch.zeros_like(peak)], dim=1)


TARGETS: dict[str, Callable[[], Target]] = {
    "module": lambda: ModuleClassifier(Peaks(), ["peak", "level", "none"], 1000),
    "keyword": lambda: registry.build("target", "keyword"),
    "speaker": lambda: registry.build("target", "speaker"),
    "recogniser": lambda: registry.build("target", "recogniser"),
    "detector": lambda: registry.build("target", "detector"),
    "toy classifier": ToyClassifier,
    "ctc, greedy": ToyCtc,
    "ctc, beams": lambda: ToyCtc(beams=3),
    "attention": ToyAttention,
    "transducer": ToyTransducer,
    "defended": lambda: Defended(ToyClassifier(), (ToyNoise(),)),
    "averaged": lambda: Averaged(Defended(ToyCtc(), (ToyNoise(),)), passes=2),
}


@pytest.mark.parametrize("name", TARGETS)
def test_no_family_answers(check_nan: CheckNan, name: str) -> None:
    target = TARGETS[name]()
    check_nan(target, clips_for(target))


@pytest.mark.parametrize(
    ("toy", "vote"),
    [
        (ToyClassifier, Majority(passes=3)),
        (ToyClassifier, Average(passes=3)),
        (ToyClassifier, OneSentence()),
        (ToyCtc, Average(passes=3)),
        (ToyCtc, Majority(passes=3)),
        (ToyCtc, Rover(passes=3)),
        (ToyAttention, Rover(passes=3)),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_no_vote_elects(check_nan: CheckNan, toy: type[Target], vote: Vote) -> None:
    """Each pass has a name of its own; the error tells the clip's."""
    target = Voted(Defended(toy(), (ToyNoise(),)), vote)
    check_nan(target, clips_for(target))


class Silenced(Transform):
    """NaN everywhere."""

    def apply(self, batch: AudioBatch, draws: Draws) -> Tensor:
        return torch.full_like(batch.waveforms, NAN)


def test_languages_timings_and_means_of_passes_are_refused_too() -> None:
    target = Defended(ToyAttention(), (Silenced(),))
    batch = clips_for(target)
    with pytest.raises(ScoreError, match="clip 'example-0'"):
        detect_languages(target, batch, draws=DRAWS)
    with pytest.raises(ScoreError, match="clip 'example-0'"):
        Language("bb").read(target, batch, [""] * 4, draws=DRAWS)
    ctc = Defended(ToyCtc(), (Silenced(),))
    with pytest.raises(ScoreError, match="clip 'example-0'"):
        ctc.capability(Timings).timings(batch, draws=DRAWS)
    with pytest.raises(ScoreError, match="clip 'example-0'"):
        Passes(ctc, batch, DRAWS, 2).mean_log_probs()
    with pytest.raises(ScoreError, match="clip 'example-0'"):
        Passes(Defended(ToyClassifier(), (Silenced(),)), batch, DRAWS, 2).mean_scores()


@pytest.mark.parametrize("toy", [ToyClassifier, ToyCtc])
def test_no_certificate_counts_them(toy: type[Target]) -> None:
    target = toy()
    clip = clips_for(target).select([2])
    smoothed = Smoothed(target=target, sigma=0.01, transforms=(Silenced(),))
    with pytest.raises(ScoreError, match=r"^clip 'example-2': "):
        list(smoothed.texts(clip, "count", 10))
    with pytest.raises(ScoreError, match=r"^clip 'example-2': "):
        smoothed.elect(clip, Majority(passes=3))


class Fixed(torch.nn.Module):
    """The same scores for every clip."""

    def __init__(self, *scores: float) -> None:
        super().__init__()
        self.scores = torch.tensor(scores)

    def forward(self, waveforms: Tensor) -> Tensor:
        return self.scores.expand(len(waveforms), -1)


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ((0.0, NAN, 1.0), "got NaN"),
        ((NAN, NAN, NAN), "got NaN"),
        ((INFINITY, 0.0, 1.0), "got infinity"),
        ((INFINITY, NAN, 1.0), "got NaN"),
        ((-INFINITY, -INFINITY, -INFINITY), "got minus infinity for every choice"),
        ((-INFINITY, NAN, -INFINITY), "got NaN"),
    ],
)
def test_what_is_no_answer(scores: tuple[float, ...], told: str) -> None:
    target = ModuleClassifier(Fixed(*scores), ["a", "b", "c"], 1000)
    with pytest.raises(
        ScoreError, match=rf"^clip 'example-0': expected scores with a finite best one, {told}"
    ):
        target.decode(clips_for(target), draws=DRAWS)


@pytest.mark.parametrize(
    ("scores", "answer"),
    [((-INFINITY, 2.0, 1.0), "b"), ((-INFINITY, -INFINITY, -3.0e38), "c"), ((3.4e38, -INFINITY, 0.0), "a")],
)
def test_classes_that_are_ruled_out_leave_an_answer(scores: tuple[float, ...], answer: str) -> None:
    target = ModuleClassifier(Fixed(*scores), ["a", "b", "c"], 1000)
    assert target.decode(clips_for(target), draws=DRAWS) == [answer] * 4


def test_the_row_and_the_place_that_count() -> None:
    frames = torch.zeros(2, 3, 2)
    frames[1, 1, 0] = NAN
    assert check_scores(frames, ["a", "b"], torch.tensor([3, 1])) is frames
    with pytest.raises(ScoreError, match=r"^clip 'b': "):
        check_scores(frames, ["a", "b"], torch.tensor([3, 2]))
    with pytest.raises(ScoreError, match=r"^clip 'b': "):
        check_scores(frames, ["a", "b\x1f7"])
    assert best_places(torch.tensor([[[1.0, 2.0], [3.0, -INFINITY]]]), ["a"]).tolist() == [[1, 0]]


def test_frames_behind_a_clip_are_not_looked_at() -> None:
    """A model may leave anything there."""

    class Padded(Ctc):
        sample_rate, frame_seconds = 1000, 0.05  # type: ignore[assignment]
        vocabulary = Vocabulary(("", "a"))

        def log_probs(self, batch: AudioBatch, *, draws: Draws) -> tuple[Tensor, Tensor]:
            scores = torch.tensor(
                [[[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [NAN, NAN], [NAN, 0.0]]]
            )
            return scores.log_softmax(dim=-1), torch.tensor([3, 1])

    assert Padded().decode(clips_for(ToyCtc()).select([0, 1]), draws=DRAWS) == ["aa", "a"]
