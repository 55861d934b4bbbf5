"""Layouts: balance, squares, sentinels, the published design."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sottovoce.errors import InputError
from sottovoce.listening.study.blocks import SameDifferentBlock
from sottovoce.listening.study.seating import Planned, exposure, latin_square, lay_out
from sottovoce.listening.study.study_checks import check_v6
from sottovoce.listening.study.study_file import ListeningStudy, make_study

TESTS = ("naming", "abx", "same-different", "mushra", "preference", "closer")


def content(test: str, count: int, *, seed: int = 0, seats: int = 8, **entries: Any) -> dict[str, Any]:
    """A study that is never heard: its clips have no files."""
    clips: dict[str, Any] = {}
    for number in range(count):
        label, level = ("yes", "no")[number % 2], ("low", "high")[number % 2]
        clips[f"w{number}"] = {"path": "x", "label": label, "condition": "clean", "level": level}
        changed = {"condition": f"c{number % 3}", "reference": f"w{number}"}
        clips[f"v{number}"] = clips[f"w{number}"] | changed
    items: dict[str, Any] = {
        "naming": [f"v{n}" for n in range(count)],
        "abx": [f"v{n}" for n in range(count)],
        "same-different": [{"reference": f"w{n}", "direction": "white"} for n in range(count)],
        "mushra": [{"reference": f"w{n}", "clips": [f"v{n}"]} for n in range(count)],
        "preference": [{"a": f"w{n}", "b": f"v{n}"} for n in range(count)],
        "closer": [{"reference": f"w{n}", "a": f"w{n}", "b": f"v{n}"} for n in range(count)],
    }
    block: dict[str, Any] = {"test": test, "items": items[test]}
    if test == "naming":
        block["choices"] = ["yes", "no"]
    if test == "same-different":
        block["sentinels"] = 0
    return {"title": "T", "seed": seed, "seats": seats, "clips": clips, "blocks": [block | entries]}


def even(counts: Counter[Any], of: int) -> bool:
    """Whether `of` kinds were met equally often, or once more."""
    met = [*counts.values(), *[0] * (of - len(counts))]
    return len(met) == of and max(met) - min(met) <= 1


def test_williams_squares_by_hand() -> None:
    assert latin_square(1) == [[0]]
    assert latin_square(2) == [[0, 1], [1, 0]]
    assert latin_square(4) == [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]]


@given(st.integers(2, 11))
def test_squares_balance_places_and_neighbours(size: int) -> None:
    rows = latin_square(size)
    assert len(rows) == (size if size % 2 == 0 else 2 * size)
    times = len(rows) // size
    assert all(sorted(row) == list(range(size)) for row in rows)
    assert set(Counter((place, one) for row in rows for place, one in enumerate(row)).values()) == {times}
    neighbours = Counter(pair for row in rows for pair in pairwise(row))
    assert len(neighbours) == size * (size - 1)
    assert set(neighbours.values()) == {times}


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(TESTS), st.integers(1, 7), st.integers(0, 2**40), st.integers(0, 40))
def test_layouts_hang_on_seed_and_seat_alone(test: str, count: int, seed: int, seat: int) -> None:
    study = make_study(content(test, count, seed=seed))
    trials = lay_out(study, seat)
    assert trials == lay_out(make_study(content(test, count, seed=seed)), seat)
    assert [trial.place for trial in trials] == list(range(len(trials)))
    for trial in trials:
        assert all(key.rsplit(":", 1)[-1] in study.clips for key in trial.roles.values())


def test_another_seed_gives_another_layout() -> None:
    one, two = (lay_out(make_study(content("abx", 7, seed=seed)), 0) for seed in (1, 2))
    assert one != two


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 9), st.data(), st.integers(1, 20), st.integers(0, 999))
def test_no_clip_is_heard_more_than_once_oftener(
    count: int, data: st.DataObject, seats: int, seed: int
) -> None:
    each = data.draw(st.integers(1, count))
    study = make_study(content("naming", count, seed=seed, seats=seats, per_listener=each))
    heard = exposure(study)
    assert sum(heard.values()) == seats * each
    assert even(Counter({key: heard[key] for key in study.blocks[0].items}), count)
    assert all(heard[f"w{n}"] == 0 for n in range(count))
    assert all(len({trial.roles["clip"] for trial in lay_out(study, seat)}) == each for seat in range(seats))


def sides(trial: Planned) -> tuple[str, str]:
    return trial.truth["clean"], trial.truth["choice"]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 9), st.integers(1, 12), st.integers(0, 999))
def test_abx_sides_are_balanced_over_trials_and_listeners(count: int, seats: int, seed: int) -> None:
    study = make_study(content("abx", count, seed=seed))
    layouts = [lay_out(study, seat) for seat in range(seats)]
    for trials in layouts:
        assert even(Counter(map(sides, trials)), 4)
        for trial in trials:
            number = trial.facts["clip"][1:]
            clean = trial.truth["clean"]
            assert trial.roles[clean] == f"w{number}"
            assert {trial.roles["a"], trial.roles["b"]} == {f"w{number}", f"v{number}"}
            assert trial.roles["x"] == trial.roles[trial.truth["choice"]]
    for key in study.blocks[0].items:
        of_one = [sides(trial) for trials in layouts for trial in trials if trial.facts["clip"] == key]
        assert even(Counter(of_one), 4)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.data(), st.integers(1, 16), st.integers(0, 999))
def test_abx_sides_of_every_item_are_balanced_where_listeners_share(
    count: int, data: st.DataObject, seats: int, seed: int
) -> None:
    each = data.draw(st.integers(1, count))
    study = make_study(content("abx", count, seed=seed, per_listener=each))
    trials = [trial for seat in range(seats) for trial in lay_out(study, seat)]
    for key in study.blocks[0].items:
        met = Counter(sides(trial) for trial in trials if trial.facts["clip"] == key)
        assert even(met, 4)


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["preference", "closer"]), st.integers(1, 9), st.integers(1, 12), st.integers(0, 999))
def test_pairs_change_sides(test: str, count: int, seats: int, seed: int) -> None:
    study = make_study(content(test, count, seed=seed))
    layouts = [lay_out(study, seat) for seat in range(seats)]
    for trials in layouts:
        assert even(Counter(trial.roles["a"][0] for trial in trials), 2)
    for number in range(count):
        firsts = Counter(
            trial.roles["a"] for trials in layouts for trial in trials if trial.roles["a"][1:] == str(number)
        )
        assert even(firsts, 2)
    for trial in layouts[0]:
        assert trial.truth["conditions"]["a"] == study.clips[trial.roles["a"]].condition


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(2, 12), st.integers(0, 3), st.integers(0, 30), st.booleans())
def test_searches(tracks: int, comparisons: int, each: int, seat: int, interleaved: bool) -> None:
    each = min(each, comparisons - 1)
    study = make_study(
        content(
            "same-different", tracks, comparisons=comparisons, sentinels=each * tracks, teaching=2,
            interleaved=interleaved,
        )
    )  # fmt: skip
    teaching, trials = lay_out(study, seat)[:2], lay_out(study, seat)[2:]
    assert [trial.truth["different"] for trial in teaching] == [True, False]
    assert teaching[1].roles["changed"] == teaching[1].roles["reference"]
    assert len(trials) == tracks * comparisons
    assert not trials[0].sentinel
    for track in range(tracks):
        own = [trial for trial in trials if trial.facts["track"] == str(track)]
        assert len(own) == comparisons
        assert sum(trial.sentinel for trial in own) == each
        assert even(Counter(trial.truth["reference"] for trial in own), 2)
        for trial in own:
            assert ("changed" in trial.roles) == trial.sentinel
    if interleaved:
        for first in range(0, len(trials), tracks):
            assert len({trial.facts["track"] for trial in trials[first : first + tracks]}) == tracks


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 40), st.integers(0, 99))
def test_sentinels_are_never_first(items: int, sentinels: int, seat: int, seed: int) -> None:
    keys = [f"v{n}" for n in range(items + sentinels)]
    study = make_study(
        content(
            "abx", items + sentinels, seed=seed, items=keys[:items], sentinels=keys[items:], teaching=["v0"]
        )
    )
    trials = lay_out(study, seat)
    assert [trial.teaching for trial in trials] == [True, *[False] * (items + sentinels)]
    assert not trials[1].sentinel
    assert sorted(trial.facts["clip"] for trial in trials if trial.sentinel) == sorted(keys[items:])


def test_sentinels_come_at_every_place_but_the_first() -> None:
    study = make_study(content("abx", 5, items=["v0", "v1", "v2", "v3"], sentinels=["v4"]))
    places = {next(trial.place for trial in lay_out(study, seat) if trial.sentinel) for seat in range(60)}
    assert places == {1, 2, 3, 4}


def test_slots_of_mushra_are_shuffled_and_hold_reference_and_anchors() -> None:
    study = make_study(content("mushra", 2))
    hidden = Counter[str]()
    for seat in range(200):
        for trial in lay_out(study, seat):
            number = trial.facts["clip"][1:]
            assert sorted(trial.roles.values()) == sorted(
                [f"w{number}", f"w{number}", f"v{number}", f"anchor:3500:w{number}", f"anchor:7000:w{number}"]
            )
            slots = {chr(64 + place): trial.roles[f"c{place}"] for place in range(1, 5)}
            assert slots[trial.truth["hidden"]] == f"w{number}"
            assert {slots[slot]: hz for slot, hz in trial.truth["anchors"].items()} == {
                f"anchor:3500:w{number}": 3500,
                f"anchor:7000:w{number}": 7000,
            }
            assert sorted(trial.truth["conditions"].values()) == sorted(
                ["reference", "anchor 3.5 kHz", "anchor 7 kHz", study.clips[f"v{number}"].condition]
            )
            hidden[trial.truth["hidden"]] += 1
    # 400 draws over 4 slots: 100 each, give or take four standard deviations of 8.7.
    assert set(hidden) == {"A", "B", "C", "D"}
    assert all(abs(times - 100) < 35 for times in hidden.values())


def test_conditions_follow_a_latin_square() -> None:
    study = make_study(content("naming", 6, order="latin"))
    places = Counter[tuple[int, str]]()
    neighbours = Counter[tuple[str, str]]()
    for seat in range(6):
        conditions = [trial.facts["condition"] for trial in lay_out(study, seat)]
        order = list(dict.fromkeys(conditions))
        assert conditions == [name for name in order for _ in range(2)]
        places.update(enumerate(order))
        neighbours.update(pairwise(order))
    # Three conditions: six rows, each condition twice at each place and twice after each other.
    assert set(places.values()) == {2} and len(places) == 9
    assert set(neighbours.values()) == {2} and len(neighbours) == 6


def test_an_odd_number_of_comparisons_is_balanced_over_tracks() -> None:
    """Three comparisons of each of two tracks: one track has the reference first twice, the other once."""
    study = make_study(content("same-different", 2, comparisons=3, teaching=0))
    for seat in range(6):
        assert Counter(trial.truth["reference"] for trial in lay_out(study, seat)) == {
            "first": 3,
            "second": 3,
        }


def test_conditions_follow_a_latin_square_in_every_set() -> None:
    """Two conditions and two sets: of the listeners of each set, every other begins with the other one."""
    pools = {"one": ["v0", "v1"], "two": ["v3", "v4"]}
    study = make_study(content("naming", 5, order="latin", items=[], sets=pools))
    first = [lay_out(study, seat)[0].facts["condition"] for seat in range(4)]
    assert {first[0], first[2]} == {first[1], first[3]} == {"c0", "c1"}
    # And the sets do not begin alike, so that condition and set are not confounded over few listeners.
    assert first[0] != first[1]


def v6(seats: int = 18) -> ListeningStudy:
    """Nine sets of 12 and 6, in which no clip comes twice."""
    clips: dict[str, Any] = {}
    named: dict[str, list[str]] = {}
    compared: dict[str, list[str]] = {}
    for level in ("low", "medium", "high"):
        for number in (1, 2, 3):
            name = f"{level}-{number}"
            named[name], compared[name] = [], []
            for place in range(18):
                key = f"{name}-{place}"
                clips[key] = {"path": "x", "label": "yes", "level": level, "condition": "clean"}
                clips[f"{key}-adv"] = clips[key] | {"reference": key, "condition": "adversarial"}
                part = named if place < 12 else compared
                part[name].append(f"{key}-adv" if place >= 6 else key)
    blocks = [
        {"test": "naming", "sets": named, "choices": ["yes", "no"]},
        {"test": "abx", "sets": compared},
    ]
    return make_study({"title": "V6", "seats": seats, "preset": "v6", "clips": clips, "blocks": blocks})


def test_the_published_design() -> None:
    study = v6()
    check_v6(study)
    layouts = [lay_out(study, seat) for seat in range(18)]
    sets = [{trial.facts["set"] for trial in trials} for trials in layouts]
    assert all(len(one) == 1 for one in sets)
    # Nine experiments for two subjects each, three experiments a level.
    assert set(Counter(min(one) for one in sets).values()) == {2}
    levels = Counter(trials[0].facts["level"] for trials in layouts)
    assert levels == {"low": 6, "medium": 6, "high": 6}
    for trials in layouts:
        assert [trial.test for trial in trials] == ["naming"] * 12 + ["abx"] * 6
        assert len({trial.facts["level"] for trial in trials}) == 1
    # 216 clips named and 108 ABX trials, 36 a level, as published.
    abx = Counter(trial.facts["level"] for trials in layouts for trial in trials if trial.test == "abx")
    assert abx == {"low": 36, "medium": 36, "high": 36}
    heard = exposure(study)
    assert {times for times in heard.values() if times} == {2}
    assert layouts[0] != layouts[9]


def test_what_the_published_design_refuses() -> None:
    with pytest.raises(InputError, match="seats in multiples of 18, got 12"):
        check_v6(v6(12))
    study = v6()
    clips = study.clips | {"low-1-0": study.clips["high-1-0"]}
    with pytest.raises(InputError, match="clips of one level"):
        check_v6(study.model_copy(update={"clips": clips}))
    short = {name: items[:11] for name, items in study.blocks[0].sets.items()}
    block = study.blocks[0].model_copy(update={"sets": short})
    with pytest.raises(InputError, match=r"expected 12 clips in set 'low-1' of the naming block, got 11"):
        check_v6(study.model_copy(update={"blocks": [block, study.blocks[1]]}))


def test_seats_go_on_past_the_last_and_not_below_the_first() -> None:
    study = make_study(content("abx", 3, seats=2))
    assert len(lay_out(study, 50)) == 3
    with pytest.raises(InputError, match="expected a seat of 0 or more, got -1"):
        lay_out(study, -1)


def test_steps_are_played_at_their_strengths() -> None:
    study = make_study(
        content("same-different", 3, items=[{"reference": "w0", "steps": {20: "v0", 60: "v1"}}], teaching=1)
    )
    block = study.blocks[0]
    assert isinstance(block, SameDifferentBlock)
    assert block.levels(block.items[0]) == [20, 60]
    assert lay_out(study, 0)[0].roles == {"reference": "w0", "changed": "v1"}
