"""Whole sessions with scripted answers: the order of screens, checks, sentinels, searches, the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from pydantic import TypeAdapter

from sottovoce.listening.analysis.answer_rows import AnswerRow
from sottovoce.listening.analysis.jnd_searches import read_searches, summarise
from sottovoce.listening.session import protocol
from sottovoce.listening.session.answer_checks import find_fault
from sottovoce.listening.session.protocol import Given, Screen
from sottovoce.listening.session.session_course import SessionCourse, Step, screen
from sottovoce.listening.study.study_file import ListeningStudy, make_study
from sottovoce.perception.jnd.jnd_rule import JndTrial, estimate

TESTS = ("naming", "abx", "same-different", "mushra", "preference", "closer")
GIVEN: TypeAdapter[Any] = TypeAdapter(Given)
SCREEN: TypeAdapter[Any] = TypeAdapter(Screen)

Answerer = Callable[[Step], dict[str, Any]]
Done = list[tuple[Step, Any]]


def right(step: Step) -> dict[str, Any]:
    """Somebody who agrees, wears headphones and hears everything."""
    answers: dict[str, dict[str, Any]] = {
        "consent": {"agreed": True},
        "naming": {"naturalness": 3, "choice": step.truth.get("choice")},
        "abx": {"choice": step.truth.get("choice"), "confidence": "low"},
        "mushra": {
            "ratings": {
                slot: 100 if slot == step.truth.get("hidden") else 20
                for slot in step.roles
                if slot != "Reference"
            }
        },
        "preference": {"choice": step.truth.get("choice", "a")},
        "closer": {"choice": step.truth.get("choice", "a")},
        "same-different": {
            "different": bool(step.truth.get("different")) and step.truth.get("strength", 100) > 45
        },
        "headphones": {"choice": step.truth.get("choice")},
        "attention": {"choice": step.truth.get("choice")},
        "questionnaire": {"answers": {"age": 40}},
    }
    return {"kind": step.kind, **answers.get(step.kind, {})}


def show(study: ListeningStudy, step: Step) -> Any:
    names = {label: f"n{step.place}-{place}" for place, label in enumerate(step.roles)}
    return screen(step, names, study, 0.5, id=f"s{step.place}")


def walk(course: SessionCourse, answer: Answerer = right, most: int = 400) -> Done:
    """Answer until the end, through JSON each time as a server would."""
    done: Done = []
    for _ in range(most):
        step = course.next_step(done)
        if step.kind == "done":
            return done
        given = GIVEN.validate_python(answer(step))
        shown = show(course.study, step)
        assert find_fault(shown, protocol.Answer(screen=shown.id, given=given)) is None
        kept = Step.from_json(json.loads(json.dumps(step.to_json())))
        assert kept == step
        done.append((kept, GIVEN.validate_json(given.model_dump_json())))
    raise AssertionError("no end")


def kinds(done: Done) -> list[str]:
    return [step.kind for step, _ in done]


def full(maker: Any, test: str, **entries: Any) -> dict[str, Any]:
    """A study with everything around the block."""
    return maker.content(test, **entries) | {
        "consent": "Do you agree?",
        "instructions": "Listen.",
        "volume": True,
        "headphones": {},
        "attention": [{"clip": "w0", "choices": ["tea", "sea"], "answer": "sea"}],
        "questionnaire": [{"name": "age", "text": "How old are you?", "kind": "number"}],
        "completion": {"code": "C0DE", "link": "https://example.org/done?cc={code}&id={PROLIFIC_PID}"},
    }


TRIALS = {"naming": 12, "abx": 6, "same-different": 32, "mushra": 2, "preference": 6, "closer": 6}


@pytest.mark.parametrize("test", TESTS)
def test_a_whole_session_of_every_test(maker: Any, test: str) -> None:
    course = SessionCourse(make_study(full(maker, test)), seat=1)
    done = walk(course)
    around = ["consent", "notice", "volume", *["headphones"] * 6, "attention", "notice"]
    assert kinds(done) == [*around, *[test] * TRIALS[test], "questionnaire"]
    assert [step.place for step, _ in done] == list(range(len(done)))
    last = course.next_step(done)
    assert last.facts == {"outcome": "finished", "code": "C0DE"}
    assert course.verdict(done) == (True, "")


@pytest.mark.parametrize("test", TESTS)
def test_progress_rises_to_one(maker: Any, test: str) -> None:
    course = SessionCourse(make_study(full(maker, test)), seat=0)
    done = walk(course)
    shares = [course.progress(done[:count]) for count in range(len(done) + 1)]
    assert shares[0] == 0.0 and shares[-1] == 1.0
    assert all(one < two for one, two in pairwise(shares))


@pytest.mark.parametrize("test", TESTS)
def test_a_session_goes_on_from_any_place(maker: Any, test: str) -> None:
    study = make_study(full(maker, test))
    done = walk(SessionCourse(study, seat=2, seed=9))
    for place in range(len(done)):
        again = SessionCourse(make_study(full(maker, test)), seat=2, seed=9)
        assert again.next_step(done[:place]) == done[place][0]


def screens_of(study: ListeningStudy, done: Done) -> list[Any]:
    return [show(study, step) for step, _ in done]


@pytest.mark.parametrize("test", TESTS)
def test_screens_show_opaque_names_and_nothing_of_the_truth(maker: Any, test: str) -> None:
    content = full(maker, test, teaching=0 if test == "same-different" else [])
    if test in ("naming", "abx"):
        content["blocks"][0] |= {"items": ["w0-adv", "w1-adv"], "sentinels": ["w2-adv"]}
    study = make_study(content)
    done = walk(SessionCourse(study, seat=0))
    trials = []
    for (step, _), shown in zip(done, screens_of(study, done), strict=True):
        text = SCREEN.dump_json(shown).decode()
        assert SCREEN.validate_json(text) == shown
        for key in (
            *study.clips,
            "adversarial",
            "render:",
            "anchor:",
            "tone:",
            "truth",
            "sentinel",
            "strength",
        ):
            assert key not in text
        if step.kind == test:
            trials.append(shown.model_dump() | {"id": ""})
    if test == "same-different":
        assert any(step.sentinel for step, _ in done)
    # But for the names of clips, which were numbered by place, all trials are one and the same screen.
    assert len({json.dumps(_blank(one), sort_keys=True) for one in trials}) == 1


def _blank(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: "" if key == "audio" else _blank(value) for key, value in content.items()}
    return [_blank(one) for one in content] if isinstance(content, list) else content


def test_slots_of_the_screens(maker: Any) -> None:
    expected = {
        "naming": ["Clip"],
        "abx": ["A", "B", "X"],
        "same-different": ["First", "Second"],
        "mushra": ["Reference", "A", "B", "C", "D"],
        "preference": ["A", "B"],
        "closer": ["A", "B", "Reference"],
    }
    for test, labels in expected.items():
        done = walk(SessionCourse(make_study(maker.content(test)), seat=0))
        trial = next(step for step, _ in done if step.kind == test)
        assert sorted(trial.roles) == sorted(labels)


def test_a_refusal_ends_it(maker: Any) -> None:
    study = make_study(full(maker, "abx"))
    course = SessionCourse(study, seat=0)
    done = walk(course, lambda step: {"kind": "consent", "agreed": False})
    assert kinds(done) == ["consent"]
    last = course.next_step(done)
    assert last.facts == {"outcome": "refused"}
    assert course.verdict(done) == (False, "consent refused")
    shown = screen(last, {}, study, 1.0, id="s")
    assert isinstance(shown, protocol.Done)
    assert shown.code is None and shown.link is None


def over_loudspeakers(step: Step) -> dict[str, Any]:
    """The antiphase tone seems the quietest."""
    if step.kind != "headphones":
        return right(step)
    return {"kind": "headphones", "choice": list(step.roles.values()).index("tone:antiphase")}


def test_loudspeakers_fail_twice_and_end_it(maker: Any) -> None:
    course = SessionCourse(make_study(full(maker, "abx")), seat=0)
    done = walk(course, over_loudspeakers)
    assert kinds(done) == ["consent", "notice", "volume", *["headphones"] * 12]
    assert course.next_step(done).facts == {"outcome": "headphones"}
    assert course.verdict(done) == (False, "headphone check failed")


def test_loudspeakers_may_be_noted_only(maker: Any) -> None:
    content = full(maker, "abx") | {"headphones": {"fail": "note"}}
    course = SessionCourse(make_study(content), seat=0)
    done = walk(course, over_loudspeakers)
    assert kinds(done).count("headphones") == 12
    assert course.verdict(done).accepted
    last = course.next_step(done)
    assert last.facts == {"outcome": "finished", "code": "C0DE", "notes": "headphone check failed"}
    assert "failed" not in SCREEN.dump_json(show(course.study, last)).decode()


def test_every_check_that_is_noted_is_told_apart(maker: Any) -> None:
    tests = [
        {"clip": clip, "choices": ["tea", "sea"], "answer": answer, "fail": "note"}
        for clip, answer in (("w0", "sea"), ("w1", "tea"), ("w2", "sea"))
    ]
    course = SessionCourse(make_study(full(maker, "abx") | {"headphones": None, "attention": tests}), seat=0)
    done = walk(course, lambda step: right(step) | ({"choice": "tea"} if step.kind == "attention" else {}))
    notes = course.next_step(done).facts["notes"]
    assert notes == "attention test failed: w0; attention test failed: w2"
    assert course.verdict(done) == (True, "")


@pytest.mark.parametrize(("wrong", "trials"), [(1, 6), (2, 12)])
def test_five_of_six_pass_and_a_second_row_may_be_tried(maker: Any, wrong: int, trials: int) -> None:
    course = SessionCourse(make_study(full(maker, "abx")), seat=0)
    slips = iter([True] * wrong + [False] * 20)

    def answer(step: Step) -> dict[str, Any]:
        return over_loudspeakers(step) if step.kind == "headphones" and next(slips) else right(step)

    done = walk(course, answer)
    assert kinds(done).count("headphones") == trials
    assert course.verdict(done).accepted


def test_the_tones_of_a_row_stand_in_different_orders(maker: Any) -> None:
    done = walk(SessionCourse(make_study(full(maker, "abx")), seat=0), over_loudspeakers)
    orders = {tuple(step.roles.values()) for step, _ in done if step.kind == "headphones"}
    assert len(orders) > 2
    assert all(sorted(order) == ["tone:antiphase", "tone:plain", "tone:quiet"] for order in orders)


def test_a_word_not_heard_ends_it(maker: Any) -> None:
    content = full(maker, "abx")
    content["completion"]["screened_code"] = "OUT"
    study = make_study(content)
    course = SessionCourse(study, seat=0)
    done = walk(course, lambda step: right(step) | ({"choice": "tea"} if step.kind == "attention" else {}))
    assert kinds(done)[-1] == "attention"
    last = course.next_step(done)
    assert last.facts == {"outcome": "attention", "code": "OUT"}
    assert course.verdict(done).reason == "attention test failed"


def test_one_wrong_sentinel_discards_and_nobody_is_told(maker: Any) -> None:
    study = make_study(full(maker, "same-different"))
    course = SessionCourse(study, seat=0)
    slips = iter([True] + [False] * 20)

    def answer(step: Step) -> dict[str, Any]:
        return {"kind": step.kind, "different": False} if step.sentinel and next(slips) else right(step)

    done, good = walk(course, answer), walk(course)
    assert kinds(done) == kinds(good)
    assert course.next_step(done) == course.next_step(good)
    assert course.verdict(done) == (False, "1 of 6 sentinels wrong")
    assert all(course.feedback(step, given) is None for step, given in done if not step.teaching)
    allowed = SessionCourse(make_study(full(maker, "same-different") | {"wrong_sentinels": 1}), seat=0)
    assert allowed.verdict(done).accepted


@pytest.mark.parametrize("test", ["naming", "abx", "preference", "closer"])
def test_sentinels_of_other_tests_discard_too(maker: Any, test: str) -> None:
    pair = {"a": "w5", "b": "w5-adv", "reference": "w5", "better": "a"}
    sentinel = "w5-adv" if test in ("naming", "abx") else pair
    items = maker.content(test)["blocks"][0]["items"][:3]
    course = SessionCourse(make_study(maker.content(test, items=items, sentinels=[sentinel])), seat=3)
    other = {"a": "b", "b": "a", "yes": "no", "no": "yes"}

    def answer(step: Step) -> dict[str, Any]:
        return right(step) | ({"choice": other[step.truth["choice"]]} if step.sentinel else {})

    assert course.verdict(walk(course)).accepted
    assert course.verdict(walk(course, answer)) == (False, "1 of 1 sentinels wrong")


def test_one_answer_to_everything_is_no_answer(maker: Any) -> None:
    course = SessionCourse(make_study(maker.content("same-different")), seat=0)

    def always(step: Step) -> dict[str, Any]:
        return {"kind": step.kind, "different": True} if step.kind == "same-different" else right(step)

    # 3 tracks of 10 less 2 sentinels: 24 comparisons.
    assert course.verdict(walk(course, always)) == (False, "all 24 comparisons called 'different'")


LADDERS = [
    {"reference": "w0", "steps": {0: "w0", 25: "w1", 50: "w3", 100: "w1-adv"}},
    {"reference": "w0", "steps": {0: "w0", 25: "w2", 50: "w4", 100: "w2-adv"}},
]


def saying(different: Callable[[Step], bool]) -> Answerer:
    """Hears every sentinel, and of comparisons says as told."""

    def answer(step: Step) -> dict[str, Any]:
        if step.kind != "same-different":
            return right(step)
        return {"kind": step.kind, "different": step.sentinel or different(step)}

    return answer


def test_one_answer_to_a_ladder_of_clips(maker: Any) -> None:
    """Two ladders of 10 comparisons less 3 sentinels each: 14. An attack that nobody hears is no fault."""
    course = SessionCourse(make_study(maker.content("same-different", items=LADDERS)), seat=0)
    always, never = (walk(course, saying(lambda step, said=said: said)) for said in (True, False))
    assert course.verdict(always) == (False, "all 14 comparisons called 'different'")
    assert course.verdict(never) == (True, "")
    assert course.verdict(walk(course, saying(lambda step: step.facts["track"] == "0"))) == (True, "")


def test_a_ladder_that_never_came_to_its_weakest_step(maker: Any) -> None:
    """The search begins at 50; from there 0 is further than it ever asks: 50 may be heard every time."""
    items = [{"reference": "w0", "steps": {0: "w0", 50: "w1", 100: "w1-adv"}}]
    course = SessionCourse(make_study(maker.content("same-different", items=items)), seat=0)
    done = walk(course, saying(lambda step: True))
    assert {step.truth["strength"] for step, _ in done if "strength" in step.truth} == {50.0}
    assert course.verdict(done) == (True, "")


def test_a_ladder_beside_directions_excuses_nobody(maker: Any) -> None:
    """A ladder and a direction, 10 comparisons less 3 sentinels each."""
    items = [LADDERS[0], {"reference": "w3", "direction": "white"}]
    course = SessionCourse(make_study(maker.content("same-different", items=items)), seat=0)
    assert course.verdict(walk(course)) == (True, "")
    always, never = (walk(course, saying(lambda step, said=said: said)) for said in (True, False))
    assert course.verdict(always) == (False, "all 14 comparisons called 'different'")
    assert course.verdict(never) == (False, "all 7 comparisons called 'same'")


def test_ladders_of_one_reference_are_reported_apart(maker: Any) -> None:
    done = walk(SessionCourse(make_study(maker.content("same-different", items=LADDERS)), seat=0))
    rows = [
        AnswerRow(
            session="s", seat=0, simulated=False, accepted=True, place=step.place, kind=step.kind,
            block=step.block, teaching=step.teaching, sentinel=step.sentinel, roles=step.roles,
            truth=step.truth, facts=step.facts, given=given.model_dump(), seconds=1.0,
        )
        for step, given in done
    ]  # fmt: skip
    found = [(one.direction, one.reference, one.searches) for one in summarise(read_searches(rows))]
    assert found == [("all", "all", 2), ("steps to w1-adv", "w0", 1), ("steps to w2-adv", "w0", 1)]


def test_an_unfinished_session_does_not_count(maker: Any) -> None:
    course = SessionCourse(make_study(maker.content("abx")), seat=0)
    done = walk(course)
    assert course.verdict(done[:-1]) == (False, f"not finished: {len(done) - 1} screens answered")


def test_the_search_ends_near_what_the_listener_hears(maker: Any) -> None:
    """A listener who hears from 45 on, asked 28 times along each track in steps of 5."""
    content = maker.content("same-different", comparisons=30, strengths=21)
    course = SessionCourse(make_study(content), seat=0)
    done = walk(course)
    for track in ("0", "1", "2"):
        answers = [
            JndTrial(step.truth["strength"], given.different)
            for step, given in done
            if step.kind == "same-different" and step.facts["track"] == track and "strength" in step.truth
        ]
        assert len(answers) == 28
        assert all(strength % 5 == 0 for strength, _ in answers)
        assert abs(estimate(answers).mu - 47.5) < 3.0


def test_a_search_follows_its_own_answers_alone(maker: Any) -> None:
    """Another answer along one track changes no strength along the others."""
    course = SessionCourse(make_study(maker.content("same-different")), seat=0)

    def deaf_on_first(step: Step) -> dict[str, Any]:
        if step.facts.get("track") == "0" and "strength" in step.truth:
            return {"kind": step.kind, "different": False}
        return right(step)

    def strengths(done: Sequence[tuple[Step, Any]], track: str) -> list[float]:
        own = [step for step, _ in done if step.facts.get("track") == track]
        return [step.truth["strength"] for step in own if "strength" in step.truth]

    one, two = walk(course), walk(course, deaf_on_first)
    assert strengths(one, "1") == strengths(two, "1")
    assert strengths(one, "0") != strengths(two, "0")
    assert max(strengths(two, "0")) > 80


def test_what_is_played_is_what_the_truth_says(maker: Any) -> None:
    done = walk(SessionCourse(make_study(maker.content("same-different")), seat=5))
    for step, _ in done:
        if step.kind != "same-different":
            continue
        changed = step.roles["Second" if step.truth["reference"] == "first" else "First"]
        reference = step.roles["First" if step.truth["reference"] == "first" else "Second"]
        assert reference == step.planned.roles["reference"]  # type: ignore[union-attr]
        if "strength" in step.truth:
            assert changed == f"render:{step.facts['direction']}:{step.truth['strength']:g}:{reference}"


def test_teaching_comes_first_with_feedback(maker: Any) -> None:
    study = make_study(maker.content("abx", teaching=["w0-adv"], items=["w1-adv", "w2-adv"]))
    course = SessionCourse(study, seat=0)
    done = walk(course)
    step, given = done[2]
    assert [one.teaching for one, _ in done] == [False, False, True, False, False]
    feedback = course.feedback(step, given)
    assert feedback is not None and feedback.right
    assert feedback.text == f"Right: X is {step.truth['choice'].upper()}."
    wrong = GIVEN.validate_python(
        {"kind": "abx", "choice": {"a": "b", "b": "a"}[step.truth["choice"]], "confidence": "low"}
    )
    feedback = course.feedback(step, wrong)
    assert feedback is not None and not feedback.right
    assert screens_of(study, done)[2].teaching


def test_feedback_of_every_test(maker: Any) -> None:
    teaching: dict[str, Any] = {
        "naming": ["w0"],
        "same-different": 2,
        "mushra": [{"reference": "w5", "clips": ["w5-adv"]}],
        "closer": [{"reference": "w5", "a": "w5", "b": "w5-adv", "better": "a"}],
        "preference": [{"a": "w5", "b": "w5-adv"}],
    }
    for test, entry in teaching.items():
        course = SessionCourse(make_study(maker.content(test, teaching=entry)), seat=0)
        taught = [(step, given) for step, given in walk(course) if step.teaching]
        assert taught
        assert all(course.feedback(*one).right for one in taught)  # type: ignore[union-attr]


def test_breaks(maker: Any) -> None:
    study = make_study(maker.content("naming", break_after=5, rest_seconds=20, teaching=["w0"]))
    done = walk(SessionCourse(study, seat=0))
    assert kinds(done) == [
        "volume", "notice", *["naming"] * 6, "notice", *["naming"] * 5, "notice", *["naming"] * 2
    ]  # fmt: skip
    assert screens_of(study, done)[8].rest_seconds == 20


def test_the_link_back_is_filled_in_and_cannot_be_bent(maker: Any) -> None:
    study = make_study(full(maker, "abx"))
    last = SessionCourse(study, seat=0).next_step(walk(SessionCourse(study, seat=0)))
    came = {"PROLIFIC_PID": "a/b&cc=evil", "code": "mine"}
    shown = screen(last, {}, study, 1.0, id="s", arrived_with=came)
    assert shown.link == "https://example.org/done?cc=C0DE&id=a%2Fb%26cc%3Devil"
    assert screen(last, {}, study, 1.0, id="s").link == "https://example.org/done?cc=C0DE&id="


def test_codes_of_ones_own(maker: Any) -> None:
    study = make_study(maker.content("abx") | {"completion": {}})
    codes = set()
    for seat in range(20):
        course = SessionCourse(study, seat=seat, seed=5)
        codes.add(course.next_step(walk(course)).facts["code"])
    assert len(codes) == 20
    assert all(len(code) == 10 and not set(code) & set("IO01") for code in codes)
