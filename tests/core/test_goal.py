"""Goals: which way to step, and what counts as success."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.goal import Evade, Force, ForceNearest, Language, Prefix, Truth
from sottovoce.core.target import Target
from sottovoce.errors import InputError, MissingCapability, UnknownName
from sottovoce.testing import ToyAttention, ToyClassifier, clips_for

CLASSES = ("yes", "no", "up")
SCORES = torch.tensor([[3.0, 1.0, 2.0], [0.5, 4.0, 1.0]])


def test_evade() -> None:
    goal = Evade().bind(["yes", "yes"])
    assert goal.references == ("yes", "yes")
    assert goal.achieved(["yes", "no"]) == [False, True]
    assert goal.applies("yes")
    assert goal.wins(CLASSES).tolist() == [[False, True, True], [False, True, True]]
    # Best other score less the score of "yes": 2 - 3 and 4 - 0.5.
    assert goal.margin(SCORES, CLASSES).tolist() == [-1.0, 3.5]


def test_to_evade_where_the_truth_is_known_is_to_add_word_errors() -> None:
    said = "left on night down app"
    truth = Truth.of("left on right down up", "en", said)
    assert truth == Truth("left on right down up", "en", errors_before=2)
    goal = Evade().bind([said] * 4).knowing([truth, truth, truth, None])
    # Better (1 error), another 2 errors, 3 errors; and of the last clip nothing is known but that it changed.
    texts = ["left on right down app", "left off right down app", "left off night down app", "left on right"]
    assert goal.achieved(texts) == [False, False, True, True]
    assert goal.judged_by == ("errors", "errors", "errors", "change")
    assert goal.select([3, 2]).achieved(texts[:1:-1]) == [True, True]
    assert goal.select([3, 2]).judged_by == ("change", "errors")
    assert goal.bind(["yes"]).judged_by == ("change",)
    assert Force("stop").bind(["yes", "no"]).judged_by == ("goal", "goal")


def test_force() -> None:
    goal = Force("up").bind(["yes", "no"])
    assert goal.achieved(["up", "no"]) == [True, False]
    assert goal.applies("yes") and not goal.applies("up")
    assert goal.wins(CLASSES).tolist() == [[False, False, True]] * 2
    # Score of "up" less the best other score: 2 - 3 and 1 - 4.
    assert goal.margin(SCORES, CLASSES).tolist() == [-1.0, -3.0]


def test_nearness_of_texts_to_a_wanted_one_is_their_edit_distance() -> None:
    # One letter of three is another; of six one is another and three are too many.
    goal = Force("cat").bind(["a", "b", "c"])
    assert goal.nearness(["cab", "bat it", "cat"]) == pytest.approx([-1 / 3, -4 / 6, 0.0])
    prefixed = Prefix("stop").bind(["go on"] * 3)
    # To "stop go on": five letters are missing of ten; a text that starts with the word has succeeded.
    assert prefixed.nearness(["go on", "stop now", "stop go on"]) == pytest.approx([-0.5, 0.0, 0.0])
    assert Language("bb").bind(["aa", "aa"]).nearness(["aa", "bb"]) == [0.0, 1.0]


def test_nearness_of_evasion_is_word_errors_and_then_letters() -> None:
    goal = Evade().bind(["turn left now"] * 4)
    texts = ["turn left now", "turn let now", "turn right now", ""]
    # Letters: one of 13 is gone; of "left" and "right" one is shared, so 4 of 14 are others; all are gone.
    wanted = [0.0, 1 + 0.5 / 13, 1 + 0.5 * 4 / 14, 3.5]
    assert goal.nearness(texts) == pytest.approx(wanted)
    # Measured from the true text, not from what was said to the clean clip.
    truth = Truth.of("turn right now", "en", "turn left now")
    assert goal.select([0, 0]).knowing([truth, None]).nearness(["turn right now"] * 2) == pytest.approx(
        [0.0, 1 + 0.5 * 4 / 14]
    )


def test_select_keeps_the_settings() -> None:
    assert Force("up").bind(["a", "b", "c"]).select([2, 0]) == Force("up", references=("c", "a"))


def test_objectives_are_the_loss_and_its_opposite() -> None:
    toy, draws = ToyClassifier(), Draws(0)
    batch = clips_for(toy)
    references = ["north", "east", "south", "west"]
    loss = toy.loss(batch, references, draws=draws)
    assert torch.equal(Evade().bind(references).objective(toy, batch, draws=draws), loss)
    wanted = toy.loss(batch, ["east"] * 4, draws=draws)
    assert torch.equal(Force("east").bind(references).objective(toy, batch, draws=draws), -wanted)


def test_errors() -> None:
    with pytest.raises(InputError, match=r"expected a class of the model \(yes, no, up\), got 'maybe'"):
        Evade().bind(["maybe"]).wins(CLASSES)
    with pytest.raises(ValueError, match="zip"):
        Evade().bind(["yes"]).achieved(["yes", "no"])


class Fixed(Target):
    """Says the same to every clip."""

    sample_rate = 1000

    def loss(self, batch: AudioBatch, labels: Sequence[str], *, draws: Draws) -> Tensor:
        return batch.waveforms.sum(dim=1)

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        return ["go"] * len(batch)


class Shouting(Fixed):
    """Says words, and does not tell capitals apart."""

    says = "words"

    def canonical(self, text: str) -> str:
        return text.lower().rstrip(".")


def test_texts_are_compared_as_the_target_compares_them() -> None:
    goal = Evade().bind(["Go home."])
    assert goal.achieved(["go home"]) == [True]
    assert goal.heard_by(Shouting()).achieved(["go home"]) == [False]
    assert Force("go home").heard_by(Shouting()).bind(["x"]).achieved(["GO HOME."]) == [True]
    assert not Force("go home").heard_by(Shouting()).applies("Go home")


def test_the_nearest_length_is_forced() -> None:
    goal = ForceNearest(("no", "open it", "open the door now")).bind(
        ["four", "stop now", "a much longer text"]
    )
    assert goal.texts == ["no", "open it", "open the door now"]
    assert goal.achieved(["no", "no", "open the door now"]) == [True, False, True]
    # "abcd" lies between "ab" and "abcdef": the first of two equally near is taken.
    assert ForceNearest(("ab", "abcdef")).text_for("abcd") == "ab"
    with pytest.raises(InputError, match="at least one text"):
        ForceNearest(())


def test_a_prefix_is_a_whole_word() -> None:
    goal = Prefix("But").heard_by(Shouting()).bind(["go", "go", "go"])
    assert goal.texts == ["But go"] * 3
    assert goal.achieved(["but gone", "button", "But."]) == [True, False, True]
    assert goal.applies("go") and not goal.applies("But go")
    with pytest.raises(
        InputError,
        match=r"goal prefix needs a speech recogniser, but .* classifier \(Fixed\)",
    ):
        Prefix("But").check(Fixed())


def test_a_language_is_read_from_the_scores() -> None:
    toy = ToyAttention()
    clips = clips_for(toy)
    goal = Language("bb")
    read = goal.read(toy, clips, [""] * len(clips), draws=Draws(0))
    with torch.no_grad():
        scores = toy.language_scores(clips, draws=Draws(0))
    assert read == [("aa", "bb", "cc")[place] for place in scores.argmax(dim=1).tolist()]
    # The objective is the log probability of the language: e^s / sum e^s, by hand for the first clip.
    first = [math.exp(value) for value in scores[0].tolist()]
    value = float(goal.objective(toy, clips, draws=Draws(0))[0].detach())
    assert value == pytest.approx(math.log(first[1] / sum(first)), rel=1e-5)
    with pytest.raises(UnknownName, match="xx"):
        Language("xx").check(toy)
    with pytest.raises(MissingCapability):
        Language("bb").check(Fixed())


def test_an_empty_text_cannot_be_forced() -> None:
    for make in (lambda: Force(" "), lambda: Prefix(""), lambda: ForceNearest(("go", ""))):
        with pytest.raises(InputError, match="expected a text for the model to say"):
            make()
