"""Sessions over HTTP: answers are kept once and in order, whatever is repeated, raced or cut off."""

from __future__ import annotations

import csv
import io
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import event, select

from sottovoce.listening.server.database import read_answers
from sottovoce.listening.server.tables import SESSION, STEP, now

WHOLE = {
    "consent": "You will hear words.",
    "instructions": "Sit still.",
    "volume": True,
    "headphones": {"trials": 2, "need": 1, "retries": 0, "fail": "note"},
    "attention": [{"clip": "w0", "choices": ["yes", "no"], "answer": "yes"}],
    "questionnaire": [
        {"name": "age", "text": "How old are you?", "kind": "number"},
        {"name": "ears", "text": "How is your hearing?", "kind": "choice", "choices": ["good", "bad"]},
        {"name": "note", "text": "Anything else?", "required": False},
    ],
    "completion": {"link": "https://example.org/done?cc={code}&who={PROLIFIC_PID}"},
}


class Clock:
    """A time that can be moved."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self):
        return now() + self.ahead


def sessions(site):
    with site.engine.connect() as link:
        return link.execute(select(SESSION).order_by(SESSION.c.created)).all()


def test_a_whole_session(make_site, database_url):
    site = make_site("abx", database_url, **WHOLE)
    listener = site.listener(PROLIFIC_PID="p 1&x")
    end = listener.finish()
    kinds = ["consent", "notice", "volume", "headphones", "headphones", "attention", "notice"]
    assert [row.kind for row in site.rows()] == [*kinds, *["abx"] * 6, "questionnaire"]
    assert [row.place for row in site.rows()] == list(range(14))
    assert all(row.seconds == 1.5 and row.accepted and not row.simulated for row in site.rows())
    assert site.rows()[-1].given["answers"] == {"age": 30.0, "ears": "good", "note": "words"}
    assert end["progress"] == 1.0 and len(end["code"]) == 10
    assert end["link"] == f"https://example.org/done?cc={end['code']}&who=p%201%26x"
    assert sessions(site)[0].arrived_with == {"PROLIFIC_PID": "p 1&x"}


@pytest.mark.parametrize("test", ["naming", "same-different", "mushra", "preference", "closer"])
def test_every_test_runs_to_its_end(make_site, tmp_path: Path, test):
    site = make_site(test, f"sqlite:///{tmp_path / 'a.db'}", block={"break_after": 2})
    listener = site.listener()
    listener.finish()
    given = [row for row in site.rows() if row.kind == test]
    shown = [screen for screen in listener.seen if screen["kind"] == test]
    assert len(given) == len(shown) > 1
    assert all(set(row.roles) for row in given)


def test_a_repeated_answer_gets_the_same_reply_and_no_second_row(make_site, database_url):
    site = make_site("abx", database_url)
    listener = site.listener()
    listener.until("abx")
    first = listener.post({"kind": "abx", "choice": "a", "confidence": "high"}, plays={"A": 2, "X": 1})
    again = listener.post({"kind": "abx", "choice": "a", "confidence": "high"}, plays={"A": 2, "X": 1})
    assert first.status_code == again.status_code == 200
    assert first.content == again.content
    rows = [row for row in site.rows() if row.kind == "abx"]
    assert [(row.given["choice"], row.given["confidence"], row.plays) for row in rows] == [
        ("a", "high", {"A": 2, "X": 1})
    ]


def test_the_first_answer_stays(site):
    listener = site.listener()
    listener.until("abx")
    first = listener.post({"kind": "abx", "choice": "a", "confidence": "high"})
    other = listener.post({"kind": "abx", "choice": "b", "confidence": "low"})
    assert other.content == first.content
    assert [row.given["choice"] for row in site.rows() if row.kind == "abx"] == ["a"]


def test_a_tab_that_fell_behind_is_told_where_the_session_is(site):
    listener = site.listener()
    listener.until("abx")
    old = listener.screen["id"]
    listener.answer()
    listener.answer()
    reply = site.client.post(
        f"/api/sessions/{listener.token}/answers", json={"screen": old, "given": listener.plain()}
    )
    assert reply.json()["screen"] == listener.screen


def test_teaching_says_what_was_right_and_says_it_again(make_site, tmp_path: Path):
    block = {"teaching": ["w0"], "items": ["w1", "w1-adv"]}
    site = make_site("naming", f"sqlite:///{tmp_path / 'a.db'}", block=block)
    listener = site.listener()
    assert listener.until("naming")["teaching"]
    first = listener.post({"kind": "naming", "choice": "no", "naturalness": 3})
    assert first.json()["feedback"] == {"right": False, "text": "Not quite: the answer is yes."}
    assert listener.post({"kind": "naming", "choice": "yes", "naturalness": 3}).content == first.content


def test_tabs_that_race_make_one_row(make_site, database_url):
    site = make_site("abx", database_url)
    # Two servers on one database share no memory: only its constraints stand between them.
    other = site.open()
    listener = site.listener()
    url = f"/api/sessions/{listener.token}/answers"
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4):
            body = {"screen": listener.screen["id"], "given": listener.plain()}
            clients = [site.client, other.client] * 4
            replies = list(pool.map(lambda client, body=body: client.post(url, json=body), clients))
            assert {reply.status_code for reply in replies} <= {200, 503}
            told = {reply.content for reply in replies if reply.status_code == 200}
            assert len(told) == 1
            listener.screen = json.loads(told.pop())["screen"]
    assert [row.place for row in site.rows()] == [0, 1, 2, 3]
    with site.engine.connect() as link:
        assert sorted(link.scalars(select(STEP.c.place))) == [0, 1, 2, 3, 4]
    other.engine.dispose()


def test_a_session_that_is_served_by_two_in_turn(make_site, slots, database_url):
    """As behind two processes: each has in memory what it saw last."""
    site = make_site("same-different", database_url, block={"comparisons": 6, "sentinels": 3})
    other = site.open()
    listener = site.listener()
    number = 0
    while listener.screen["kind"] != "done":
        number += 1
        first, second = (site, other) if number % 3 else (other, site)
        for place, slot in enumerate(slots(listener.screen)):
            client = (first, second)[place % 2].client
            assert client.get(f"/api/audio/{slot['audio']}?token={listener.token}").status_code == 200
        for one in (first, second):
            shown = one.client.get(f"/api/sessions/{listener.token}/screen").json()
            assert shown == {"screen": listener.screen, "feedback": None, "title": "A test"}
        listener.client = first.client
        told = listener.post().content
        # A tab that sends the same to the other one is told the same, and makes no second row.
        listener.client = second.client
        assert listener.post().content == told
        listener.screen = json.loads(told)["screen"]
    assert [row.place for row in site.rows()] == list(range(number))
    other.engine.dispose()


TOKEN = "T" * 43


def test_an_arrival_that_is_sent_again_takes_no_second_seat(make_site, database_url):
    site = make_site("abx", database_url)
    other = site.open()
    body = {"arrived_with": {"PROLIFIC_PID": "p1"}, "token": TOKEN}
    with ThreadPoolExecutor(8) as pool:
        clients = [site.client, other.client] * 4
        replies = list(pool.map(lambda client: client.post("/api/sessions", json=body), clients))
    told = [reply.json() for reply in replies if reply.status_code == 201]
    assert {reply.status_code for reply in replies} <= {201, 503} and told
    assert all(one == {"token": TOKEN, "title": "A test", "screen": told[0]["screen"]} for one in told)
    assert [(row.seat, row.arrived_with) for row in sessions(site)] == [(0, {"PROLIFIC_PID": "p1"})]
    # It is told where the session stands, however late it comes.
    listener = site.listener()
    listener.token, listener.screen = TOKEN, told[0]["screen"]
    listener.answer()
    again = other.client.post("/api/sessions", json=body)
    assert (again.status_code, again.json()["screen"]) == (201, listener.screen)
    assert [row.seat for row in sessions(site)] == [0, 1]
    other.engine.dispose()


def test_a_token_that_was_used_for_another_study_is_refused(make_site, tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    clock = Clock()
    site = make_site("abx", url)
    assert site.client.post("/api/sessions", json={"token": TOKEN}).status_code == 201
    changed = make_site("abx", url, instructions="New words.", settings={"clock": clock})
    refused = changed.client.post("/api/sessions", json={"token": TOKEN})
    assert (refused.status_code, refused.json()["code"]) == (404, "unknown-session")
    other = {"token": "U" * 43}
    assert changed.client.post("/api/sessions", json=other).status_code == 201
    clock.ahead = timedelta(days=31)
    assert changed.client.post("/api/sessions", json=other).status_code == 404
    assert len(sessions(site)) == 2


@pytest.mark.parametrize("token", ["", "short", "T" * 42, "T" * 44, "T" * 42 + "!", 43])
def test_a_token_that_could_be_guessed_is_refused(site, token):
    reply = site.client.post("/api/sessions", json={"token": token})
    assert (reply.status_code, reply.json()["code"]) == (422, "bad-request")
    assert sessions(site) == []


def test_a_session_goes_on_after_a_restart(make_site, database_url):
    site = make_site("same-different", database_url, block={"comparisons": 6, "sentinels": 3})
    listener = site.listener()
    for number in range(9):
        listener.answer(
            {"kind": "same-different", "different": number % 2 == 0}
            if listener.screen["kind"] == "same-different"
            else None
        )
    again = site.open()
    shown = again.client.get(f"/api/sessions/{listener.token}/screen").json()["screen"]
    assert shown == listener.screen
    listener.client = again.client
    listener.finish()
    assert [row.place for row in site.rows()] == list(range(len(site.rows())))
    again.engine.dispose()


def test_seats_are_taken_once(make_site, database_url):
    site = make_site("abx", database_url)
    other = site.open()
    with ThreadPoolExecutor(8) as pool:
        clients = [site.client, other.client] * 10
        replies = list(pool.map(lambda client: client.post("/api/sessions", json={}), clients))
    assert [reply.status_code for reply in replies] == [201] * 20
    assert len({reply.json()["token"] for reply in replies}) == 20
    # The study has 8 seats: the third round of them has begun.
    assert sorted(row.seat for row in sessions(site)) == list(range(20))
    people = site.client.get("/api/admin/progress", headers=site.admin).json()["people"]
    assert (people["begun"], people["open"], people["seats_held"], people["rounds"]) == (20, 20, 20, 3)
    other.engine.dispose()


def test_an_abandoned_seat_goes_to_the_next(make_site, database_url):
    clock = Clock()
    site = make_site("abx", database_url, settings={"clock": clock, "abandon_after": timedelta(hours=1)})
    early, late = site.listener(), site.listener()
    clock.ahead = timedelta(minutes=50)
    late.answer()
    clock.ahead = timedelta(minutes=70)
    following = site.listener()
    assert [(row.seat, row.held, row.state) for row in sessions(site)] == [
        (0, None, "abandoned"),
        (1, 1, "open"),
        (0, 0, "open"),
    ]
    # Who comes back goes on, and is counted, although somebody else has the seat now.
    early.finish()
    following.finish()
    late.finish()
    assert [(row.seat, row.held, row.accepted) for row in sessions(site)] == [
        (0, None, True),
        (1, 1, True),
        (0, 0, True),
    ]


def test_who_comes_back_to_a_free_seat_has_it_again(make_site, database_url):
    clock = Clock()
    site = make_site("abx", database_url, settings={"clock": clock, "abandon_after": timedelta(hours=1)})
    first, second = site.listener(), site.listener()
    clock.ahead = timedelta(hours=2)
    site.listener()
    second.answer()
    assert [(row.seat, row.held, row.state) for row in sessions(site)] == [
        (0, None, "abandoned"),
        (1, 1, "open"),
        (0, 0, "open"),
    ]
    assert site.listener().token != first.token
    assert sessions(site)[-1].seat == 2


def test_a_discarded_session_gives_its_seat_away(make_site, database_url):
    site = make_site("abx", database_url, consent="May we?")
    listener = site.listener()
    told = listener.answer({"kind": "consent", "agreed": False})
    assert told["screen"]["kind"] == "done"
    row = sessions(site)[0]
    assert (row.state, row.accepted, row.reason, row.held) == ("finished", False, "consent refused", None)
    site.listener()
    assert [row.seat for row in sessions(site)] == [0, 0]
    people = site.client.get("/api/admin/progress", headers=site.admin).json()["people"]
    assert (people["discarded"], people["accepted"], people["open"]) == (1, 0, 1)


def test_simulated_sessions_are_marked_and_take_nobodys_seat(site):
    site.listener()
    reply = site.client.post("/api/sessions", json={}, headers={"Simulated": "true"})
    assert reply.status_code == 201
    assert [(row.seat, row.simulated) for row in sessions(site)] == [(0, False), (0, True)]
    listener = site.listener()
    listener.token, listener.screen = reply.json()["token"], reply.json()["screen"]
    listener.answer()
    assert [row.simulated for row in site.rows()] == [True]
    progress = site.client.get("/api/admin/progress", headers=site.admin).json()
    assert (progress["people"]["answers"], progress["simulated"]["answers"]) == (0, 1)


def test_tokens_expire_and_others_are_unknown(make_site, database_url):
    clock = Clock()
    site = make_site("abx", database_url, settings={"clock": clock, "expire_after": timedelta(days=2)})
    listener = site.listener()
    clock.ahead = timedelta(days=1)
    listener.answer()
    clock.ahead = timedelta(days=2, minutes=1)
    for token in (listener.token, "A" * 43, "x", "%00", "é"):
        for reply in (
            site.client.get(f"/api/sessions/{token}/screen"),
            site.client.post(
                f"/api/sessions/{token}/answers",
                json={"screen": listener.screen["id"], "given": listener.plain()},
            ),
        ):
            assert (reply.status_code, reply.json()["code"]) == (404, "unknown-session")
    assert len(site.rows()) == 1


def test_an_answer_to_a_screen_that_was_not_given_out(site):
    one, two = site.listener(), site.listener()
    one.until("abx")
    two.until("abx")
    for screen in (two.screen["id"], "never-heard-of"):
        reply = site.client.post(
            f"/api/sessions/{one.token}/answers", json={"screen": screen, "given": one.plain()}
        )
        assert (reply.status_code, reply.json()["code"]) == (409, "not-given")
    end = one.finish()
    before = len(site.rows())
    reply = site.client.post(
        f"/api/sessions/{one.token}/answers", json={"screen": end["id"], "given": {"kind": "notice"}}
    )
    assert (reply.status_code, reply.json()["code"]) == (409, "not-given")
    assert len(site.rows()) == before


@pytest.mark.parametrize(
    ("test", "given"),
    [
        ("naming", {"kind": "naming", "choice": "yes", "naturalness": 6}),
        ("naming", {"kind": "naming", "choice": "yes", "naturalness": 0}),
        ("naming", {"kind": "naming", "choice": "perhaps", "naturalness": 3}),
        ("naming", {"kind": "abx", "choice": "a", "confidence": "low"}),
        ("naming", {"kind": "naming", "choice": "yes", "naturalness": 3, "more": 1}),
        ("abx", {"kind": "abx", "choice": "x", "confidence": "low"}),
        ("abx", {"kind": "abx", "choice": "a", "confidence": "certain"}),
        ("same-different", {"kind": "same-different", "different": 1}),
        ("mushra", {"kind": "mushra", "ratings": {"A": 101, "B": 50, "C": 50, "D": 50}}),
        ("mushra", {"kind": "mushra", "ratings": {"A": 50, "B": 50, "C": 50}}),
        ("mushra", {"kind": "mushra", "ratings": {"A": 5, "B": 5, "C": 5, "D": 5, "Reference": 5}}),
        ("preference", {"kind": "closer", "choice": "a"}),
    ],
)
def test_an_answer_out_of_range_changes_nothing(make_site, tmp_path: Path, test, given):
    site = make_site(test, f"sqlite:///{tmp_path / 'a.db'}")
    listener = site.listener()
    listener.until(test)
    before = len(site.rows())
    reply = listener.post(given)
    assert reply.status_code == 422
    assert reply.json()["code"] in ("bad-answer", "bad-request") and isinstance(reply.json()["detail"], str)
    assert len(site.rows()) == before
    listener.answer()


def test_plays_of_slots_that_are_not_there_are_refused(site):
    listener = site.listener()
    listener.until("abx")
    assert listener.post(plays={"A": 1, "B": 2, "X": 3, "Y": 1}).status_code == 422
    assert listener.post(plays={"A": -1}).status_code == 422
    assert listener.post(plays={"A": 1, "B": 2, "X": 3}).status_code == 200


@pytest.mark.parametrize(
    "answers",
    [
        {"age": 30, "ears": "good", "other": "x"},
        {"age": 30},
        {"age": 30, "ears": "excellent"},
        {"age": "thirty", "ears": "good"},
        {"age": float("inf"), "ears": "good"},
        {"age": float("nan"), "ears": "good"},
        {"age": 30, "ears": " "},
        {"age": 30, "ears": "good", "note": 3},
    ],
)
def test_a_questionnaire_takes_what_it_asks_for(make_site, tmp_path: Path, answers):
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", **WHOLE)
    listener = site.listener()
    listener.until("questionnaire")
    body = {"screen": listener.screen["id"], "given": {"kind": "questionnaire", "answers": answers}}
    reply = site.client.post(f"/api/sessions/{listener.token}/answers", content=json.dumps(body))
    assert reply.status_code == 422
    assert listener.answer({"kind": "questionnaire", "answers": {"age": 3, "ears": "bad"}})


def test_text_that_databases_find_hard(make_site, database_url):
    site = make_site("abx", database_url, **WHOLE)
    listener = site.listener(workerId="\x00\u2028'; DROP TABLE answer; --")
    listener.until("questionnaire")
    note = "\x00 \U0001f442 \u202e \\u0000 ' \" %s :x {code}"
    listener.answer({"kind": "questionnaire", "answers": {"age": 1, "ears": "good", "note": note}})
    assert site.rows()[-1].given["answers"]["note"] == note
    assert sessions(site)[0].arrived_with["workerId"] == "\x00\u2028'; DROP TABLE answer; --"


def test_a_full_disk_asks_to_try_again(site):
    listeners = [site.listener() for _ in range(6)]
    full = [True]

    @event.listens_for(site.engine, "begin")
    def _shrink(link):
        pages = link.exec_driver_sql("PRAGMA page_count").scalar_one()
        link.exec_driver_sql(f"PRAGMA max_page_count = {pages if full[0] else 100_000}")

    acknowledged = 0
    for listener in listeners * 6:
        reply = listener.post()
        if reply.status_code != 200:
            break
        acknowledged += 1
        listener.screen = reply.json()["screen"]
    assert (reply.status_code, reply.json()["code"]) == (503, "try-again")
    assert reply.headers["retry-after"] == "2"
    assert len(site.rows()) == acknowledged
    assert site.client.get(f"/api/sessions/{listener.token}/screen").json()["screen"] == listener.screen
    full[0] = False
    for listener in listeners:
        listener.finish()
    assert sorted((row.seat, row.place) for row in site.rows()) == [
        (seat, place) for seat in range(6) for place in range(7)
    ]


def test_a_changed_study_does_not_go_on_with_old_sessions(make_site, tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    site = make_site("abx", url)
    listener = site.listener()
    listener.answer()
    changed = make_site("abx", url, instructions="New words.")
    assert changed.client.get(f"/api/sessions/{listener.token}/screen").status_code == 404
    changed.listener()
    assert [row.seat for row in sessions(site)] == [0, 0]
    assert len(read_answers(site.engine, site.study.digest)) == 1
    assert read_answers(site.engine, changed.study.digest) == []


def test_answers_as_csv(make_site, database_url):
    site = make_site("abx", database_url)
    site.listener().finish()
    reply = site.client.get("/api/admin/answers.csv", headers=site.admin)
    assert reply.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(reply.text)))
    assert [row["kind"] for row in rows] == ["notice"] + ["abx"] * 6
    stored = site.rows()[1]
    assert json.loads(rows[1]["roles"]) == stored.roles and json.loads(rows[1]["truth"]) == stored.truth
    assert json.loads(rows[1]["given"]) == {"kind": "abx", "choice": "a", "confidence": "low"}
    assert (rows[1]["seat"], rows[1]["simulated"], rows[1]["accepted"]) == ("0", "False", "True")


def test_sessions_as_csv(make_site, database_url):
    attention = [{"clip": "w0", "choices": ["yes", "no"], "answer": "no", "fail": "note"}]
    site = make_site("abx", database_url, attention=attention, completion={})
    first = site.listener(PROLIFIC_PID="p1")
    code = first.finish()["code"]
    site.listener(workerId="w7")
    site.client.post("/api/sessions", json={}, headers={"Simulated": "true"})
    reply = site.client.get("/api/admin/sessions.csv", headers=site.admin)
    assert reply.headers["content-type"].startswith("text/csv")
    one, two, bot = csv.DictReader(io.StringIO(reply.text))
    assert (one["seat"], one["state"], one["accepted"], one["reason"]) == ("0", "finished", "True", "")
    assert one["notes"] == "attention test failed: w0"
    assert (one["code"], json.loads(one["arrived_with"])) == (code, {"PROLIFIC_PID": "p1"})
    assert abs(datetime.fromisoformat(one["finished"]) - now()) < timedelta(minutes=1)
    assert (two["seat"], two["state"], two["accepted"], two["code"]) == ("1", "open", "", "")
    assert json.loads(two["arrived_with"]) == {"workerId": "w7"} and two["finished"] == ""
    assert (one["listeners"], bot["listeners"]) == ("people", "SIMULATED listeners, not people")
    assert {row.notes for row in site.rows()} == {"attention test failed: w0"}


def test_health(site):
    assert site.client.get("/healthz").json() == {"ok": True}
