"""ROVER against networks worked out by hand, NIST's published example, and laws.

Costs without times: a word beside the same word 0, beside another 4, beside silence 3. In a slot these are
summed over the passes that are already there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.core.draws import Draws
from sottovoce.core.target import Target, TimedWord
from sottovoce.core.transform import Defended
from sottovoce.core.vote import Vote, Voted
from sottovoce.defenses.rover import Rover, rover
from sottovoce.defenses.word_network import Align, build_network
from sottovoce.errors import InputError, MissingCapability
from sottovoce.testing import ToyAttention, ToyClassifier, ToyCtc, ToyNoise, check_target, clips_for

DRAWS = Draws(0)
Slots = list[list[tuple[str, int]]]
ALIGNS: tuple[Align, Align] = ("mean", "nearest")


def split(*texts: str) -> list[list[str]]:
    return [text.split() for text in texts]


def votes(
    hypotheses: Sequence[Sequence[str | TimedWord]], *, timed: bool = False, align: Align = "mean"
) -> Slots:
    return [[arc[:2] for arc in slot] for slot in build_network(hypotheses, timed=timed, align=align)]


def sure(text: str, confidence: float) -> TimedWord:
    return TimedWord(text, 0.0, 1.0, confidence)


def at(text: str, start: float) -> TimedWord:
    return TimedWord(text, start, start + 0.5)


@pytest.mark.parametrize("align", ALIGNS)
def test_a_substitution_stands_beside_the_word(align: Align) -> None:
    # One substitution, 4, is cheaper than leaving b out and x in, 6.
    said = split("a b c", "a x c", "a b c")
    assert votes(said, align=align) == [[("a", 3)], [("b", 2), ("x", 1)], [("c", 3)]]
    assert rover(said, align=align) == ["a", "b", "c"]


@pytest.mark.parametrize("align", ALIGNS)
def test_an_insertion_opens_a_slot_in_which_those_before_are_silent(align: Align) -> None:
    said = split("a c", "a b c", "a b c")
    assert votes(said, align=align) == [[("a", 3)], [("b", 2), ("", 1)], [("c", 3)]]
    assert rover(said, align=align) == ["a", "b", "c"]


@pytest.mark.parametrize("align", ALIGNS)
def test_a_deletion_is_silence_in_the_slot(align: Align) -> None:
    said = split("a b c", "a c", "a c")
    assert votes(said, align=align) == [[("a", 3)], [("b", 1), ("", 2)], [("c", 3)]]
    assert rover(said, align=align) == ["a", "c"]


@pytest.mark.parametrize("align", ALIGNS)
def test_an_empty_hypothesis_is_silent_everywhere(align: Align) -> None:
    said = split("a b", "", "a")
    assert votes(said, align=align) == [[("a", 2), ("", 1)], [("b", 1), ("", 2)]]
    assert rover(said, align=align) == ["a"]
    # As the first, it leaves the others to open the slots: the same votes.
    assert votes(split("", "a b", "a"), align=align) == votes(said, align=align)
    assert rover(split("", "", "a b"), align=align) == []


@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize("said", [[], [[]], [[], [], []]])
def test_where_nothing_is_said_nothing_is_elected(said: list[list[str]], align: Align) -> None:
    assert build_network(said, align=align) == []
    assert rover(said, align=align) == []


@pytest.mark.parametrize("align", ALIGNS)
def test_a_shifted_sentence_is_found_again(align: Align) -> None:
    # Words 2 to 5 of the first are words 1 to 4 of the second: one deletion and one insertion, 6, against
    # five substitutions, 20.
    said = split("a b c d e", "b c d e f")
    slots = [[("a", 1), ("", 1)], [("b", 2)], [("c", 2)], [("d", 2)], [("e", 2)], [("f", 1), ("", 1)]]
    assert votes(said, align=align) == slots


def test_a_slot_weighs_all_passes_or_the_nearest_of_them() -> None:
    # After three passes: [a 2, silence 1] [b 2, silence 1] [c 3]. The fourth says b a c.
    # Mean: b in slot 1 and a in slot 2 cost 2 * 4 + 3 each, 22; past slot 1 (2 * 3), b into slot 2 (3) and a
    # into a new slot (3 * 3) cost 18.
    # Nearest: a new word costs 1 where some pass is silent, so 2; a new slot alone would cost 3.
    said = split("a b c", "a b c", "c", "b a c")
    assert votes(said) == [[("a", 2), ("", 2)], [("b", 3), ("", 1)], [("a", 1), ("", 3)], [("c", 4)]]
    crossed = [[("a", 2), ("", 1), ("b", 1)], [("b", 2), ("", 1), ("a", 1)], [("c", 4)]]
    assert votes(said, align="nearest") == crossed


def test_confidence_turns_a_vote() -> None:
    # cat: 2/3 of the votes and mean confidence 0.35; dog: 1/3 and 0.9.
    said = [[sure("cat", 0.4)], [sure("cat", 0.3)], [sure("dog", 0.9)]]
    assert [arc.confidence for arc in build_network(said)[0]] == pytest.approx([0.35, 0.9])
    assert rover(said, alpha=1.0) == ["cat"]
    # alpha 1/2: cat 1/3 + 0.175 = 0.508, dog 1/6 + 0.45 = 0.617.
    assert rover(said, alpha=0.5) == ["dog"]
    # They are level at 2a/3 + 0.35 (1 - a) = a/3 + 0.9 (1 - a), so a = 0.55 / (1/3 + 0.55) = 0.6226.
    assert rover(said, alpha=0.62) == ["dog"]
    assert rover(said, alpha=0.63) == ["cat"]


def test_the_confidence_of_silence_is_given() -> None:
    # alpha 1/2: the word 1/3 + 0.1 = 0.433, silence 1/6 + half its confidence: level at 0.5333.
    said = [[sure("um", 0.2)], [sure("um", 0.2)], []]
    assert rover(said, alpha=0.5, null_confidence=0.53) == ["um"]
    assert rover(said, alpha=0.5, null_confidence=0.54) == []
    assert rover(said, alpha=1.0, null_confidence=1.0) == ["um"]


def test_times_align_other_words_than_texts_do() -> None:
    # The second pass says two when the first says one. By text two meets two, one silence: 3.
    # By time: two in the slot of one 0.001, past the slot of two 0.5; the other way 0.5 and 2 * 1.0 s apart.
    said = [[at("one", 0.0), at("two", 1.0)], [at("two", 0.0)], []]
    assert votes(said) == [[("one", 1), ("", 2)], [("two", 2), ("", 1)]]
    assert rover(said) == ["two"]
    for align in ALIGNS:
        assert votes(said, timed=True, align=align) == [
            [("one", 1), ("two", 1), ("", 1)],
            [("two", 1), ("", 2)],
        ]
        assert rover(said, timed=True, align=align) == ["one"]


def test_a_repeated_word_goes_where_it_was_said() -> None:
    # By text, go meets the later of two equals; by time the one that it is at.
    said = [[at("go", 0.0), at("go", 2.0)], [at("go", 0.1)]]
    assert votes(said) == [[("go", 1), ("", 1)], [("go", 2)]]
    assert votes(said, timed=True) == [[("go", 2)], [("go", 1), ("", 1)]]


def test_the_time_of_a_slot_is_the_mean_of_its_words() -> None:
    # z joins x: 2 * 0.4 and 0.001 against two words of 0.5 alone. That moves the slot to 0.2 s.
    # w at 0.65 is twice 2 * 0.45 from it, 1.8, against twice two words alone, 2.0; w at 0.75 is 2.2 from it.
    # From x alone both would be too far, from z alone neither.
    x, y, z = at("x", 0.0), at("y", 2.0), at("z", 0.4)
    joined = votes([[x, y], [z, y], [at("w", 0.65), y]], timed=True)
    assert joined == [[("x", 1), ("z", 1), ("w", 1)], [("y", 3)]]
    apart = votes([[x, y], [z, y], [at("w", 0.75), y]], timed=True)
    assert apart == [[("x", 1), ("z", 1), ("", 1)], [("w", 1), ("", 2)], [("y", 3)]]


@pytest.mark.parametrize("align", ALIGNS)
def test_a_short_word_meets_itself_though_its_time_wavers(align: Align) -> None:
    # The second a is 2 * 0.06 s from the first, the third 2 * 0.09 from the mean of both; alone, in slots of
    # their own, two words would cost twice 0.25.
    said = [
        [TimedWord("take", 0.0, 0.3), TimedWord("a", start, start + 0.02), TimedWord("left", 0.6, 0.9)]
        for start in (0.40, 0.46, 0.52)
    ]
    assert votes(said, timed=True, align=align) == [[("take", 3)], [("a", 3)], [("left", 3)]]
    assert rover(said, timed=True, align=align) == ["take", "a", "left"]


@pytest.mark.parametrize("align", ALIGNS)
def test_a_word_that_lasts_no_time_is_heard(align: Align) -> None:
    said = [[TimedWord("a", 0.5 + 0.001 * turn, 0.5 + 0.001 * turn)] for turn in range(5)]
    assert votes(said, timed=True, align=align) == [[("a", 5)]]


@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize(("later", "slots"), [(0.24, 1), (0.26, 2)])
def test_a_short_word_further_off_is_another(later: float, slots: int, align: Align) -> None:
    # Twice 0.24 is less than twice 0.25, twice 0.26 is more.
    said = [[TimedWord("a", 0.5, 0.52)], [TimedWord("a", 0.5 + later, 0.52 + later)]]
    assert len(votes(said, timed=True, align=align)) == slots


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (("b", "x"), "b"),
        (("x", "b"), "x"),
        (("a b", "a"), "a b"),  # the word stood there before silence did
        (("a", "a b"), "a b"),  # and so it does in the slot that it opens
        (("x", "y", "z"), "x"),
        # Slot two: x, then the silence of the first pass, then y twice, then silence: two each.
        (("a", "a x", "a y", "a y", "a"), "a"),
        (("a", "a y", "a x", "a y", "a"), "a y"),
    ],
)
def test_of_equals_the_one_that_stood_in_the_slot_first_wins(said: tuple[str, ...], words: str) -> None:
    assert rover(split(*said)) == words.split()


def test_words_of_one_canonical_form_are_one_and_spelled_as_most_spell_them() -> None:
    said = split("Stop now", "stop now", "stop. now", "stop now", "go now", "go now", "go now")
    # Four of stop in three spellings against three of go.
    assert rover(said) == ["go", "now"]
    assert rover(said, same=lambda word: word.lower().strip(".")) == ["stop", "now"]
    # A word of which nothing is left is still a word.
    assert rover(split("um", "um"), same=lambda word: "") == ["um"]


# NIST's example, doc/rover_demo of SCTK: a to g eight times over in four seconds, from which three systems
# leave words out, and what its program elects. Given are the times of the words that are missing.
LETTERS = "abcdefg" * 8
TIMES = [round(0.5 * turn + start, 2) for turn in range(8) for start in (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45)]
Missing = tuple[float, ...]
NIST: list[tuple[Missing, Missing, Missing, Missing]] = [
    ((0.2, 0.5, 0.55, 1.9, 1.95), (0.45,), (), (0.45,)),
    ((1.0,), (0.45,), (), ()),
    ((1.5, 2.1), (0.45,), (), ()),
    ((2.0, 3.4), (0.45,), tuple(TIMES), (0.45, 2.0, 3.4)),
    # Where one system says g and the other f, and the third nothing at all, the first wins.
    ((0.4, 1.05, 2.5, 2.55, 2.8, 2.9, 3.5), (0.45,), tuple(TIMES), (0.4, 1.05, 2.5, 2.55, 2.8, 2.9, 3.5)),
]


def without(missing: Missing, end: float = 4.0) -> list[str]:
    assert set(missing) <= set(TIMES)
    both = zip(LETTERS, TIMES, strict=True)
    return [letter for letter, time in both if time not in missing and time < end]


@pytest.mark.parametrize("align", ALIGNS)
@pytest.mark.parametrize("case", NIST)
def test_nists_example(case: tuple[Missing, Missing, Missing, Missing], align: Align) -> None:
    *systems, elected = case
    assert rover([without(missing) for missing in systems], align=align) == without(elected)


def test_nists_example_with_a_tie_of_ways() -> None:
    # The program cuts this one where the first system ends, at 3.95 s; what follows is said by two of three.
    # At 2.2 to 2.4 s the ways d-e-f against d-e and f cost the same: it goes over the arc that came first.
    first, second = (0.0, 0.05, 1.3, 2.4, 3.95), (0.0, 0.45, 1.0, 2.2, 2.3, 3.45, 3.8, 3.9)
    said = [without(first), without(second, 3.95), without((), 3.95)]
    assert rover(said, align="nearest") == without((0.0, 2.4), 3.95)


def noisy(count: int, share: float, seed: int) -> list[list[str]]:
    """Passes over w0 ... w19 in which a share of words is lost, replaced, or followed by another."""
    source = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        kinds = source.choice(4, size=20, p=[1 - share, share / 3, share / 3, share / 3])
        others = source.integers(50, size=20)
        words = [
            ([f"w{place}"], [], [f"x{other}"], [f"w{place}", f"x{other}"])[kind]
            for place, (kind, other) in enumerate(zip(kinds, others, strict=True))
        ]
        found.append([word for group in words for word in group])
    return found


@pytest.mark.parametrize("count", [48, 200, 1000])
def test_many_noisy_passes_elect_the_sentence(count: int) -> None:
    for seed in range(3):
        assert rover(noisy(count, 0.3, seed)) == [f"w{place}" for place in range(20)]


def test_where_most_words_are_wrong_all_passes_must_weigh() -> None:
    said = noisy(1000, 0.6, 0)
    assert rover(said) == [f"w{place}" for place in range(20)]
    assert rover(said, align="nearest") != [f"w{place}" for place in range(20)]


sentences = st.lists(st.sampled_from("abcd"), max_size=6)
laws = settings(deadline=None, max_examples=60)


@laws
@given(sentences, st.integers(1, 9), st.sampled_from(ALIGNS))
def test_equal_sentences_elect_that_sentence(sentence: list[str], count: int, align: Align) -> None:
    assert rover([sentence] * count, align=align) == sentence
    timed = [[at(word, 0.5 * place) for place, word in enumerate(sentence)]] * count
    assert rover(timed, timed=True, align=align) == sentence


@laws
@given(st.data(), st.lists(st.sampled_from("abcd"), min_size=1, max_size=5), st.sampled_from(ALIGNS))
def test_equal_sentences_whose_times_waver_elect_that_sentence(
    data: st.DataObject, sentence: list[str], align: Align
) -> None:
    # Words half a second apart, each moved by up to 0.1 s in each pass: two passes of a word are at most
    # 2 * 0.2 s apart, two words at least 2 * 0.3, and two words alone cost twice 0.25 or more.
    lasts = [data.draw(st.floats(0.0, 0.4)) for _ in sentence]
    moves = st.lists(st.floats(-0.1, 0.1), min_size=len(sentence), max_size=len(sentence))
    said = [
        [
            TimedWord(word, 0.5 * place + move, 0.5 * place + move + last)
            for place, (word, move, last) in enumerate(zip(sentence, moved, lasts, strict=True))
        ]
        for moved in data.draw(st.lists(moves, min_size=1, max_size=8))
    ]
    assert rover(said, timed=True, align=align) == sentence


@laws
@given(st.lists(sentences, min_size=1, max_size=8), st.sampled_from(ALIGNS), st.booleans())
def test_every_pass_votes_once_in_every_slot_and_reads_as_it_was_said(
    said: list[list[str]], align: Align, timed: bool
) -> None:
    words = [[at(word, 0.4 * place) for place, word in enumerate(words)] for words in said]
    slots = build_network(words, timed=timed, align=align)
    assert all(sum(arc.votes for arc in slot) == len(said) for slot in slots)
    assert all(len({arc.word for arc in slot}) == len(slot) for slot in slots)
    assert max(map(len, said)) <= len(slots) <= sum(map(len, said))
    for letter in "abcd":
        total = sum(arc.votes for slot in slots for arc in slot if arc.word == letter)
        assert total == sum(words.count(letter) for words in said)
    elected = rover(words, timed=timed, align=align)
    assert len(elected) <= len(slots)
    assert set(elected) <= {word for words in said for word in words}


@laws
@given(st.lists(sentences, min_size=1, max_size=6), st.sampled_from(ALIGNS))
def test_the_first_pass_reads_along_the_slots(said: list[list[str]], align: Align) -> None:
    # An empty pass changes no word's place, and silence never comes first in a slot.
    slots = build_network(said, align=align)
    assert all(slot[0].word for slot in slots)
    quiet = build_network([*said, []], align=align)
    assert [[arc.word for arc in slot if arc.word] for slot in slots] == [
        [arc.word for arc in slot if arc.word] for slot in quiet
    ]


@laws
@given(st.lists(st.lists(st.integers(0, 2), min_size=5, max_size=5), min_size=3, max_size=9))
def test_without_lost_words_a_strict_majority_wins_in_any_order(marks: list[list[int]]) -> None:
    # Words of different places differ, so that none is worth moving.
    said = [[f"{place}-{mark}" for place, mark in enumerate(row)] for row in marks]
    for hypotheses in (said, said[::-1], said[1:] + said[:1]):
        elected = rover(hypotheses)
        assert len(elected) == 5
        for place in range(5):
            counts = [sum(row[place] == mark for row in marks) for mark in range(3)]
            if 2 * max(counts) > len(marks):
                assert elected[place] == f"{place}-{counts.index(max(counts))}"


def test_an_order_of_passes_without_ties_changes_nothing() -> None:
    said = split("a b c", "a b c", "a x c", "a b", "a b c d")
    assert {tuple(rover(order)) for order in permutations(said)} == {("a", "b", "c")}


def test_passes_vote_on_times_where_the_target_tells_them() -> None:
    target = Defended(ToyCtc(), (ToyNoise(sigma=0.1),))
    batch = clips_for(target)
    for vote in (Rover(passes=5), Rover(passes=5, timings=False), Rover(passes=5, alpha=0.3)):
        together = Voted(target, vote).decode(batch, draws=DRAWS)
        alone = [Voted(target, vote).decode(batch.select([row]), draws=DRAWS)[0] for row in range(4)]
        assert alone == together
        assert Voted(target, vote, at_once=3).decode(batch, draws=DRAWS) == together


@pytest.mark.parametrize("target", [ToyCtc(), ToyAttention()])
def test_a_target_without_noise_elects_what_it_says(target: Target) -> None:
    batch = clips_for(target)
    said = target.decode(batch, draws=DRAWS)
    assert Voted(target, Rover(passes=3)).decode(batch, draws=DRAWS) == said
    assert Voted(target, Rover(passes=3, timings=False)).decode(batch, draws=DRAWS) == said


def test_a_target_that_elects_keeps_the_laws() -> None:
    target = Voted(Defended(ToyCtc(), (ToyNoise(),)), Rover(passes=3))
    check_target(target, labels=["a", "b", "c", "d"])


@pytest.mark.parametrize("vote", [Rover(timings=True), Rover(alpha=0.5)])
def test_times_and_confidences_need_a_target_that_tells_them(vote: Vote) -> None:
    with pytest.raises(MissingCapability, match="ToyAttention has no word timings"):
        Voted(ToyAttention(), vote)


def test_classes_have_no_words_to_vote_on() -> None:
    with pytest.raises(MissingCapability, match="rover votes on words, but this model is a classifier"):
        Voted(ToyClassifier(), Rover())


@pytest.mark.parametrize("count", [0, -1, 100_001])
def test_passes_must_be_a_sensible_number(count: int) -> None:
    with pytest.raises(InputError, match=f"got {count};"):
        Voted(ToyCtc(), Rover(passes=count))


@pytest.mark.parametrize(
    "settings_",
    [
        {"alpha": -0.1},
        {"alpha": 1.1},
        {"null_confidence": float("nan")},
        {"timings": "yes"},
        {"align": "far"},
    ],
)
def test_settings_out_of_range_are_refused(settings_: dict[str, object]) -> None:
    (name,) = settings_
    with pytest.raises(InputError, match=f"{name}: expected"):
        Rover(**settings_)  # type: ignore[arg-type]


def test_bare_texts_have_no_times_and_no_confidences() -> None:
    with pytest.raises(InputError, match="words with times"):
        rover(split("a", "b"), timed=True)
    with pytest.raises(InputError, match="words with confidences"):
        rover(split("a", "b"), alpha=0.5)
    with pytest.raises(InputError, match="an empty text"):
        rover([["a", ""]])
