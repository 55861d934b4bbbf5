"""The statistics of listening tests on literal answers: the published counts give the published figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from sottovoce.core.batch import AudioBatch
from sottovoce.data.load import Clip
from sottovoce.errors import InputError
from sottovoce.listening.analysis.answer_rows import (
    AnswerRow,
    choose,
    counted,
    order_conditions,
    order_levels,
)
from sottovoce.listening.analysis.counted_answers import (
    HitRate,
    RatingCounts,
    abx_confidence,
    abx_success,
    choices,
    compare_naturalness,
    name_accuracy,
    naturalness,
    side_bias,
)
from sottovoce.listening.analysis.ear_calibration import ComparedPair, calibrate, predict, read_pairs
from sottovoce.listening.analysis.jnd_searches import export, read_searches, summarise, to_answers
from sottovoce.listening.analysis.mushra_stats import (
    Rating,
    Screened,
    differences,
    means,
    read_ratings,
    screen_listeners,
    t_interval,
)
from sottovoce.perception.ears.ear import Ear
from sottovoce.perception.jnd.answers import read_answers


def row(kind: str, given: dict[str, Any], truth: dict[str, Any], **more: Any) -> AnswerRow:
    plain: dict[str, Any] = {
        "session": "s1",
        "seat": 0,
        "simulated": False,
        "accepted": True,
        "place": 0,
        "block": 0,
        "teaching": False,
        "sentinel": False,
        "roles": {},
        "facts": {},
        "seconds": 1.0,
    }
    return AnswerRow(kind=kind, given=given, truth=truth, **(plain | more))


def abx(level: str, right: bool, confidence: str = "high") -> AnswerRow:
    return row(
        "abx",
        {"choice": "a" if right else "b", "confidence": confidence},
        {"choice": "a", "clean": "b"},
        facts={"condition": "adversarial", "level": level},
    )


def name(condition: str, level: str, right: bool, naturalness: int) -> AnswerRow:
    return row(
        "naming",
        {"choice": "yes" if right else "no", "naturalness": naturalness},
        {"choice": "yes"},
        facts={"condition": condition, "level": level},
    )


# Vadillo and Santana 2020, section 5.2.3: 36 trials a level.
PUBLISHED = {
    "low": (35, 97.2, (0.85, 0.99)),
    "medium": (33, 91.7, (0.78, 0.98)),
    "high": (20, 55.6, (0.38, 0.72)),
}


def test_abx_of_the_paper() -> None:
    rows = [abx(level, number < hits) for level, (hits, _, _) in PUBLISHED.items() for number in range(36)]
    found = {rate.group[1]: rate for rate in abx_success(rows)}
    assert list(found) == ["all", "low", "medium", "high"]
    for level, (hits, percent, bounds) in PUBLISHED.items():
        rate = found[level]
        assert (rate.hits, rate.n) == (hits, 36)
        assert round(100 * rate.interval.value, 1) == percent
        # The paper cuts 0.9993 to .99 and rounds the others.
        assert rate.interval.low == pytest.approx(bounds[0], abs=0.005)
        assert rate.interval.high == pytest.approx(bounds[1], abs=0.0095)
    assert round(found["high"].p_greater, 2) == 0.31
    assert round(found["high"].p_two_sided, 2) == 0.62
    assert (found["all"].hits, found["all"].n) == (88, 108)


def test_abx_confidence() -> None:
    rows = [
        abx("low", True, "high"),
        abx("low", False, "high"),
        abx("low", True, "low"),
        abx("high", False, "low"),
    ]
    every, low, high = abx_confidence(rows)
    assert every.answers == {"low": 2, "medium": 0, "high": 2}
    assert low.right == {"low": 1, "medium": 0, "high": 1}
    assert high.answers == {"low": 1, "medium": 0, "high": 0}
    assert high.right == {"low": 0, "medium": 0, "high": 0}


def test_naming_of_the_paper() -> None:
    # 13 of 216 wrong, 9 of them clean: about 94 % right. Table 3: 110 clean clips, 106 adversarial.
    rows = [name("clean", "low", number >= 9, 4) for number in range(110)]
    rows += [name("adversarial", "low", number >= 4, 2) for number in range(106)]
    clean, adversarial = name_accuracy(rows)
    assert (clean.group, clean.hits, clean.n) == (("clean", "all"), 101, 110)
    assert (adversarial.group, adversarial.hits, adversarial.n) == (("adversarial", "all"), 102, 106)
    total = HitRate(("all",), clean.hits + adversarial.hits, clean.n + adversarial.n)
    assert round(100 * total.interval.value) == 94


def test_naturalness_by_level() -> None:
    rows = [name("clean", "low", True, 5), name("clean", "high", True, 4), name("clean", "high", True, 4)]
    rows += [name("adversarial", "low", True, 1), name("adversarial", "low", True, 2)]
    found = {(one.level, one.condition): one.counts for one in naturalness(rows)}
    assert found == {
        ("all", "clean"): (0, 0, 0, 2, 1),
        ("all", "adversarial"): (1, 1, 0, 0, 0),
        ("low", "clean"): (0, 0, 0, 0, 1),
        ("low", "adversarial"): (1, 1, 0, 0, 0),
        ("high", "clean"): (0, 0, 0, 2, 0),
    }
    scores = RatingCounts("all", "clean", (1, 2, 3, 4, 10))
    assert (scores.natural.hits, scores.natural.n) == (14, 20)


def test_naturalness_against_clean() -> None:
    # Clean: half 4, half 5. Adversarial: two 5s. Multinomial with halves: (0,2) has 1/4, so has (2,0): 1/2.
    # Two rows: columns 2 (rating 4) and 4 (rating 5), two in the row: C(4,2) / C(6,2) = 6/15 for the
    # observed, (1,1) 8/15, (2,0) 1/15: 7/15.
    scores = [
        RatingCounts("all", "clean", (0, 0, 0, 2, 2)),
        RatingCounts("all", "adversarial", (0, 0, 0, 0, 2)),
    ]
    (found,) = compare_naturalness(scores)
    assert (found.level, found.condition, found.clean) == ("all", "adversarial", "clean")
    assert found.multinomial.p == pytest.approx(0.5)
    assert found.two_rows.p == pytest.approx(7 / 15)
    # A rating that no clean clip got: half an answer more for 1, 4 and 5, shares of 1, 5 and 5 elevenths. One
    # each of 1 and 5 has 10/121; no likelier are two 1s (1) and one each of 1 and 4 (10).
    scores[1] = RatingCounts("all", "adversarial", (1, 0, 0, 0, 1))
    assert compare_naturalness(scores)[0].multinomial.p == pytest.approx(21 / 121)
    assert compare_naturalness(scores[1:]) == []


def test_naturalness_at_the_size_of_the_paper_is_exact() -> None:
    # Table 3: 110 clean and 106 adversarial answers; 65.5 % and 33 % of them 4 or 5.
    scores = [
        RatingCounts("all", "clean", (8, 12, 18, 32, 40)),
        RatingCounts("all", "adversarial", (33, 26, 12, 15, 20)),
    ]
    (found,) = compare_naturalness(scores)
    assert found.multinomial.method == found.two_rows.method == "exact"
    assert found.multinomial.p < 0.01 and found.two_rows.p < 0.01
    assert found.two_rows.p == pytest.approx(
        stats.chi2_contingency([scores[0].counts, scores[1].counts]).pvalue, rel=0.5
    )


def prefer(
    chosen: str, level: str, *, swapped: bool, conditions: tuple[str, str] = ("ours", "wiener")
) -> AnswerRow:
    sides = dict(zip("ba" if swapped else "ab", conditions, strict=True))
    choice = next((side for side, condition in sides.items() if condition == chosen), chosen)
    return row(
        "preference",
        {"choice": choice},
        {"conditions": sides},
        facts={"level": level, "condition": "ours / wiener"},
        roles={"A": f"clip-{sides['a']}", "B": f"clip-{sides['b']}"},
    )


def test_preference_by_tranche() -> None:
    rows = [prefer("ours", "0 dB", swapped=bool(n % 2)) for n in range(9)]
    rows += [prefer("wiener", "0 dB", swapped=True)]
    rows += [prefer("wiener", "15 dB", swapped=bool(n % 2)) for n in range(3)]
    rows += [prefer("ours", "5 dB", swapped=False)]
    found = choices(rows, "preference")
    assert [(rate.group, rate.hits, rate.n) for rate in found] == [
        (("ours", "wiener", "all"), 10, 14),
        (("ours", "wiener", "0 dB"), 9, 10),
        (("ours", "wiener", "5 dB"), 1, 1),
        (("ours", "wiener", "15 dB"), 0, 3),
    ]
    # 9 of 10: two-sided 22/1024; Clopper-Pearson as in tables.
    assert found[1].p_two_sided == pytest.approx(22 / 1024)
    assert (round(found[1].interval.low, 4), round(found[1].interval.high, 4)) == (0.5550, 0.9975)
    assert side_bias(rows, "preference").n == 14
    assert choices(rows, "closer") == []


def test_choices_of_one_condition_go_by_clip() -> None:
    rows = [
        row(
            "closer",
            {"choice": "b"},
            {"conditions": {"a": "", "b": ""}},
            roles={"Reference": "r", "A": "two", "B": "one"},
        )
    ]
    assert [(rate.group, rate.hits, rate.n) for rate in choices(rows, "closer")] == [
        (("one", "two", "all"), 1, 1)
    ]


def mushra(
    session: str, item: str, ratings: dict[str, int], *, hidden: str = "A", mid: str | None = "B"
) -> AnswerRow:
    names = {"A": "reference", "B": "anchor 7 kHz", "C": "codec", "D": "noise"}
    return row(
        "mushra",
        {"ratings": ratings},
        {
            "hidden": hidden,
            "anchors": {} if mid is None else {mid: 7000},
            "conditions": {slot: names[slot] for slot in ratings},
        },
        session=session,
        facts={"clip": item},
    )


def test_post_screening() -> None:
    good = [mushra("good", f"i{n}", {"A": 100, "B": 50}) for n in range(20)]
    # 3 of 20 is 15 %, which is allowed; 4 is not. 90 itself is neither below nor above 90.
    edge = [mushra("edge", f"i{n}", {"A": 89 if n < 3 else 90, "B": 90}) for n in range(20)]
    deaf = [mushra("deaf", f"i{n}", {"A": 89 if n < 4 else 100, "B": 50}) for n in range(20)]
    high = [mushra("high", f"i{n}", {"A": 100, "B": 91 if n < 4 else 40}) for n in range(20)]
    found = {one.listener: one for one in screen_listeners([*good, *edge, *deaf, *high])}
    assert {name: one.kept for name, one in found.items()} == {
        "good": True,
        "edge": True,
        "deaf": False,
        "high": False,
    }
    assert found["deaf"].reasons == ["hidden reference below 90 on 4 of 20 items"]
    assert found["high"].reasons == ["mid anchor above 90 on 4 of 20 items"]
    assert screen_listeners([mushra("s", "i", {"A": 95, "B": 99}, mid=None)]) == [Screened("s", 1, 0, None)]


def test_mushra_means() -> None:
    # Listeners' means of "codec": 60, 70, 80: t(2) at 97.5 % is 4.302653, s = 10.
    rows = [mushra("l1", "i1", {"A": 100, "C": 50}), mushra("l1", "i2", {"A": 100, "C": 70})]
    rows += [mushra("l2", "i1", {"A": 100, "C": 70}), mushra("l3", "i1", {"A": 100, "C": 80})]
    reference, codec = means(read_ratings(rows))
    assert (reference.condition, codec.condition) == ("reference", "codec")
    assert codec.by_t.value == codec.by_bootstrap.value == 70.0
    assert codec.by_t.low == pytest.approx(70 - 4.302653 * 10 / 3**0.5, abs=1e-4)
    assert codec.by_t.n == 3 and len(codec.ratings) == 4
    assert 60.0 <= codec.by_bootstrap.low < 70.0 < codec.by_bootstrap.high <= 80.0
    assert [one.condition for one in means(read_ratings(rows, frozenset({"l1", "l2"})))] == [
        "reference",
        "codec",
    ]


def test_t_interval_is_scipys() -> None:
    values = np.array([41.0, 55.0, 38.0, 60.0, 47.0])
    low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert t_interval(values)[1:3] == pytest.approx((low, high))
    assert np.isnan(t_interval(values[:1]).low)


def test_mushra_differences() -> None:
    # Six listeners, all of whom put codec above noise and reference above codec: two-sided p = 2/64 for each
    # of three pairs; Holm: times 3, and the others can be no smaller.
    ratings = []
    for number in range(6):
        for condition, value in (
            ("reference", 100.0),
            ("codec", 70.0 + number),
            ("noise", 20.0 + 3 * number),
        ):
            ratings += [
                Rating(f"l{number}", "i1", condition, value),
                Rating(f"l{number}", "i2", condition, value),
            ]
    found = differences(ratings)
    assert [(one.first, one.second) for one in found] == [
        ("reference", "codec"),
        ("reference", "noise"),
        ("codec", "noise"),
    ]
    assert [one.p for one in found] == pytest.approx([2 / 64] * 3)
    assert [one.p_holm for one in found] == pytest.approx([6 / 64] * 3)
    assert found[2].median == 45.0 and found[2].listeners == 6


def compare(
    session: str,
    place: int,
    strength: float,
    different: bool,
    *,
    track: str = "0",
    direction: str = "white",
    **more: Any,
) -> AnswerRow:
    side = "first" if place % 2 else "second"
    changed = f"render:{direction}:{strength:g}:speech{track}"
    roles = {"First": f"speech{track}", "Second": changed}
    if side == "second":
        roles = {"First": changed, "Second": f"speech{track}"}
    truth = {"reference": side, "strength": strength, "different": True}
    facts = {"track": track, "direction": direction}
    return row(
        "same-different",
        {"different": different},
        truth,
        **({"session": session, "place": place, "roles": roles, "facts": facts} | more),
    )


def search(session: str, threshold: float, *, track: str = "0", direction: str = "white") -> list[AnswerRow]:
    """Someone who hears everything above a threshold."""
    return [
        compare(session, place, float(strength), strength > threshold, track=track, direction=direction)
        for place, strength in enumerate((10, 90, 30, 70, 40, 60, 45, 55))
    ]


def test_searches() -> None:
    rows = [*search("one", 50), *search("two", 42), *search("two", 62, track="1", direction="mp3")]
    rows += [compare("one", 20, 100.0, True, sentinel=True), compare("one", 21, 0.0, False, teaching=True)]
    found = read_searches(rows)
    assert [(one.session, one.reference, one.direction, len(one.trials)) for one in found] == [
        ("one", "speech0", "white", 8),
        ("two", "speech0", "white", 8),
        ("two", "speech1", "mp3", 8),
    ]
    assert found[0].found.mu == pytest.approx(50.0, abs=3)
    every, mp3, white = summarise(found)
    assert (every.searches, every.undetermined) == (3, 0)
    # Above 50: 90, 70, 60, 55. Above 42: 45 as well. Above 62: 90 and 70.
    assert tuple(every.balance) == (4 + 3 + 6, 4 + 5 + 2)
    assert every.agreement == 1.0
    assert (mp3.direction, mp3.reference, white.searches) == ("mp3", "speech1", 2)
    assert white.mu.value == pytest.approx(46.0, abs=3)
    assert summarise([]) == []


def test_an_undetermined_search_is_counted_apart() -> None:
    never = [compare("deaf", place, 100.0, False) for place in range(5)]
    (found, white) = summarise(read_searches([*search("one", 50), *never]))
    assert (found.searches, found.undetermined, found.mu.n) == (2, 1, 1)
    assert white.mu.value == pytest.approx(50.0, abs=3)


def tone(key: str) -> Clip:
    """As many samples for all, louder with the length of the key."""
    samples = torch.full((1600,), len(key) / 1024)
    return Clip(key, samples, 16_000, "")


def test_export_is_what_training_reads(tmp_path: Any) -> None:
    rows = [*search("one", 50), compare("one", 9, 100.0, True, sentinel=True)]
    rows += [compare("one", 10, 0.0, True, teaching=True), compare("out", 0, 20.0, True, accepted=False)]
    rows += [compare("going", 0, 20.0, True, accepted=None)]
    rows += [compare("bot", 0, 30.0, True, simulated=True)]
    summary = export(rows, tone, tmp_path / "answers")
    back = read_answers(tmp_path / "answers")
    assert back.summary() == summary
    assert (summary.answers, summary.sentinels, summary.wrong_sentinels) == (10, 1, 0)
    assert (summary.same, summary.different, summary.listeners, summary.simulated) == (4, 5, 2, 1)
    first = back.answers[0]
    assert (first.reference, first.changed) == ("speech0", "render:white:10:speech0")
    assert (first.strength, first.direction, first.different) == (10.0, "white", False)
    assert {one.listener for one in back.answers} == {"one", "simulated-bot"}
    assert np.allclose(back.clip("speech0"), 7 / 1024)


def test_export_of_nothing(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="of accepted sessions to export"):
        export([compare("out", 0, 20.0, True, accepted=False)], tone, tmp_path / "answers")


def test_answers_on_a_clip_against_itself_are_right_when_same() -> None:
    (one,) = to_answers([compare("s", 1, 0.0, False, roles={"First": "speech0", "Second": "speech0"})])
    assert one.right


class Level(Ear):
    """Hears the difference of levels, in 1024ths, as hundredths of a chance."""

    name, title = "level", "level"

    def distance(self, clean: AudioBatch, changed: AudioBatch) -> torch.Tensor:
        return 1024 * (changed.waveforms - clean.waveforms).abs().mean(dim=1)

    def probability(self, distance: torch.Tensor) -> torch.Tensor:
        return distance / 100


def test_pairs_and_predictions() -> None:
    rows = [compare("a", 0, 30.0, True), compare("b", 1, 30.0, False), compare("a", 2, 5.0, False)]
    rows += [compare("a", 3, 100.0, True, sentinel=True)]
    pairs = read_pairs(rows)
    assert [(one.changed, one.different, one.asked) for one in pairs] == [
        ("render:white:30:speech0", 1, 2),
        ("render:white:5:speech0", 0, 1),
    ]
    # Keys of 23 and 22 letters against 7.
    assert predict(Level(), pairs, tone) == pytest.approx([0.16, 0.15])


def test_what_was_predicted_before_is_not_asked_again() -> None:
    known = {("speech0", "render:white:30:speech0"): 0.4}
    asked = []

    def sound(key: str) -> Clip:
        asked.append(key)
        return tone(key)

    pairs = read_pairs([compare("a", 0, 30.0, True), compare("a", 1, 5.0, False)])
    assert predict(Level(), pairs, sound, known) == pytest.approx([0.4, 0.15])
    assert set(asked) == {"speech0", "render:white:5:speech0"}
    assert known["speech0", "render:white:5:speech0"] == pytest.approx(0.15)
    asked.clear()
    assert predict(Level(), pairs, sound, known) == pytest.approx([0.4, 0.15])
    assert asked == []


def test_predictions_at_two_rates() -> None:
    def sound(key: str) -> Clip:
        clip = tone(key)
        return Clip(key, clip.waveform, 8000 if key.endswith("speech1") else 16_000, "")

    rows = [compare("a", 0, 30.0, True, track="1"), compare("a", 1, 5.0, False), compare("a", 2, 30.0, True)]
    assert predict(Level(), read_pairs(rows), sound) == pytest.approx([0.16, 0.15, 0.16])
    assert len(predict(Level(), [], sound)) == 0


def test_calibration_by_hand() -> None:
    pairs = [
        ComparedPair("r", "1", "white", 10, 1, 10),
        ComparedPair("r", "2", "white", 20, 3, 10),
        ComparedPair("r", "3", "mp3", 90, 8, 10),
    ]
    every, mp3, white = calibrate(pairs, np.array([0.12, 0.18, 0.90]))
    # Two bins: P 0.15 against 4/20 = 0.2, twenty answers; 0.9 against 0.8, ten: (20 * 0.05 + 10 * 0.1) / 30.
    assert every.figures.calibration == pytest.approx(2 / 30)
    assert [(one.low, one.high, one.heard.n) for one in every.bins] == [(0.1, 0.2, 20), (0.9, 1.0, 10)]
    assert every.bins[0].predicted == pytest.approx(0.15)
    low, high = stats.binomtest(4, 20).proportion_ci()
    assert every.bins[0].heard[:3] == pytest.approx((0.2, low, high))
    assert every.predicted == pytest.approx(0.4) and every.heard.value == pytest.approx(12 / 30)
    assert (mp3.direction, mp3.figures.calibration) == ("mp3", pytest.approx(0.1))
    assert white.pairs == 2


def test_people_and_simulated_listeners_are_not_mixed_by_mistake() -> None:
    people, made = abx("low", True), row("abx", {}, {}, simulated=True, session="s2")
    with pytest.raises(InputError, match="1 of 2 sessions are simulated\\): choose --who people, simulated"):
        choose([people, made])
    assert choose([people, made], "people") == ([people], "people")
    assert choose([people, made], "simulated") == ([made], "simulated")
    assert choose([people, made], "mixed") == ([people, made], "mixed")
    assert choose([made], "mixed") == ([made], "simulated")
    assert choose([people]) == ([people], "people")
    assert choose([]) == ([], "people")


def test_what_counts() -> None:
    rows = [row("abx", {}, {}, accepted=accepted) for accepted in (True, False, None)]
    rows += [row("abx", {}, {}, teaching=True), row("abx", {}, {}, sentinel=True)]
    assert counted(rows) == rows[:1]
    assert counted(rows, unfinished=True) == [rows[0], rows[2]]


def test_orders() -> None:
    assert order_levels(["high", "low", "medium", "low"]) == ["low", "medium", "high"]
    assert order_levels(["10 dB", "-5 dB", "2.5 dB"]) == ["-5 dB", "2.5 dB", "10 dB"]
    assert order_levels(["quiet", "loud"]) == ["quiet", "loud"]
    assert order_conditions(["pgd", "clean", "cw"]) == ["clean", "cw", "pgd"]


def test_a_slot_that_is_not_there() -> None:
    with pytest.raises(InputError, match="expected a slot 'first'"):
        row("abx", {}, {}, roles={"A": "x"}).clip("first")
