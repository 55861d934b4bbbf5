"""Votes of speakers, from records made by hand."""

from __future__ import annotations

import math

import pytest

from sottovoce.core.record import Record
from sottovoce.errors import InputError
from sottovoce.metrics.speaker_votes import SpeakerVote, over_seeds, speaker_accuracy, speaker_votes


def record(clip: str, speaker: str, chance: float, label: str = "control", **more: object) -> Record:
    facts = {"speaker": speaker} if speaker else {}
    return Record(
        cell="cell",
        clip=clip,
        status="ok",
        label=label,
        facts=facts,
        parts={"chance": [chance, 1.0], "clean-chance": [1.0 - chance, 1.0]},
        **more,  # type: ignore[arg-type]
    )


def test_a_vote_is_the_mean_probability_of_the_right_class() -> None:
    # Two of Ann's three clips are wrong, yet the mean (0.9 + 0.4 + 0.4) / 3 is above one half.
    records = [record("a1", "ann", 0.9), record("a2", "ann", 0.4), record("a3", "ann", 0.4)]
    records += [record("b1", "bob", 0.6, "pathological"), record("b2", "bob", 0.1, "pathological")]
    ann, bob = speaker_votes(reversed(records))
    assert (ann.speaker, ann.label, ann.clips, ann.right) == ("ann", "control", 3, True)
    assert ann.chance == pytest.approx(17 / 30)
    assert (bob.speaker, bob.label, bob.clips, bob.right) == ("bob", "pathological", 2, False)
    assert bob.chance == pytest.approx(0.35)
    assert speaker_votes(records, "clean-chance")[1].chance == pytest.approx(0.65)


def test_a_tie_is_not_right() -> None:
    (vote,) = speaker_votes([record("1", "ann", 0.75), record("2", "ann", 0.25)])
    assert vote.chance == 0.5
    assert not vote.right


def test_clips_may_weigh_what_they_last() -> None:
    records = [record("1", "ann", 0.8, seconds=1.0), record("2", "ann", 0.2, seconds=3.0)]
    (vote,) = speaker_votes(records, weigh=lambda one: one.seconds or 0.0)
    assert vote.chance == pytest.approx((0.8 + 3 * 0.2) / 4)


def test_clips_without_a_value_do_not_vote() -> None:
    failed = Record(cell="cell", clip="3", status="failed", reason="too short", facts={"speaker": "cay"})
    votes = speaker_votes([record("1", "ann", 0.8), record("2", "ann", math.nan), failed])
    assert votes == [SpeakerVote("ann", "control", 0.8, 1)]


def test_accuracy_counts_speakers_with_an_exact_interval() -> None:
    votes = [SpeakerVote(str(place), "control", 0.9 if place < 8 else 0.1, 5) for place in range(10)]
    found = speaker_accuracy(votes)
    # Clopper and Pearson (1934) for 8 of 10.
    assert found == pytest.approx((0.8, 0.4439, 0.9748, 10), abs=5e-5)


def test_deviation_over_seeds_is_the_papers() -> None:
    # Table 2, KG: 0.8 +- 0.7 %; of five whole percentages that add up to 4 only these have it.
    found = over_seeds([0.0, 0.0, 1.0, 1.0, 2.0])
    assert found == pytest.approx((0.8, 0.7483, 5), abs=5e-5)
    assert over_seeds([0.25]) == (0.25, 0.0, 1)
    assert math.isnan(over_seeds([]).mean)


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([record("1", "", 0.5)], r"clip '1': expected a speaker among its facts"),
        ([record("1", "ann", 0.5), record("1", "ann", 0.5)], r"clip '1': expected one record a clip"),
        (
            [record("1", "ann", 0.5), record("2", "ann", 0.5, "pathological")],
            r"speaker 'ann': expected one label, got 'control' and 'pathological'",
        ),
        (
            [Record(cell="c", clip="1", status="ok", facts={"speaker": "ann"}, parts={"snr": [1.0, 1.0]})],
            r"expected the metric 'chance' in its record, got snr",
        ),
    ],
)
def test_records_that_cannot_vote_are_named(records: list[Record], message: str) -> None:
    with pytest.raises(InputError, match=message):
        speaker_votes(records)
