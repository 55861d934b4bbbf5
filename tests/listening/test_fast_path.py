"""The short way of clips and answers: what it says is what the framework would have said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from fastapi.testclient import TestClient

from sottovoce.listening.server import app as server
from sottovoce.listening.server.fast_path import FastPath, Replies
from sottovoce.listening.server.limits import AddHeaders, LimitRates, Limits, LimitSizes


@pytest.fixture
def both(make_site: Any, tmp_path: Path) -> tuple[Any, TestClient]:
    """A study, and another way to it on which everything goes through the framework."""
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}")
    fast = site.app.app.app.app
    assert isinstance(fast, FastPath)
    limits = Limits()
    return site, TestClient(AddHeaders(LimitRates(LimitSizes(fast.app, limits), limits)))


def test_a_clip_is_the_same_either_way(both, slots):
    site, framework = both
    listener = site.listener()
    listener.until("abx")
    token = listener.token
    for slot in slots(listener.screen):
        path = f"/api/audio/{slot['audio']}"
        for query, headers in (
            (f"?token={token}", {}),
            ("", {"Authorization": f"Bearer {token}"}),
            ("", {"Authorization": f"bearer  {token}"}),
            ("?token=AAAA", {"Authorization": f"Bearer {token}"}),
            (f"?token=AAAA&token={token}", {}),
            (f"?token={token}", {"Authorization": "Basic eDp5"}),
        ):
            one, two = (client.get(path + query, headers=headers) for client in (site.client, framework))
            assert (one.status_code, two.status_code) == (200, 200), (query, headers)
            assert list(one.headers.items()) == list(two.headers.items())
            assert one.content == two.content


def test_what_the_short_way_is_not_sure_of_is_refused_alike(both, slots):
    site, framework = both
    listener = site.listener()
    listener.until("abx")
    path = f"/api/audio/{slots(listener.screen)[0]['audio']}"
    for method, query in (
        ("GET", ""),
        ("GET", "?token="),
        ("GET", "?token=%00"),
        ("GET", f"?token={listener.token}%20"),
        ("GET", "?token=AAAA"),
        ("GET", f"AAAA?token={listener.token}"),
        ("GET", f"?tokens={listener.token}"),
        ("HEAD", f"?token={listener.token}"),
        ("POST", f"?token={listener.token}"),
    ):
        one, two = (client.request(method, path + query) for client in (site.client, framework))
        assert one.status_code == two.status_code in (404, 405, 422), (method, query)
        assert one.content == two.content


def test_clips_that_do_not_fit_into_memory_are_the_same(make_site, slots, tmp_path: Path, monkeypatch):
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}")
    monkeypatch.setattr(server, "MOST_BYTES_READY", 0)
    made = site.open()
    listener = site.listener()
    listener.until("abx")
    for slot in slots(listener.screen):
        path = f"/api/audio/{slot['audio']}?token={listener.token}"
        one, two = site.client.get(path), made.client.get(path)
        assert (one.status_code, list(one.headers.items())) == (two.status_code, list(two.headers.items()))
        assert one.content == two.content
    made.engine.dispose()


class Nobody:
    """An application that is not to be asked."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(scope["path"])


def call(app: Any, method: str, path: str, *, query: bytes = b"", body: Any = None) -> tuple[int, bytes]:
    headers = [] if body is None else [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
    content = b"" if body is None else json.dumps(body).encode()
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    anyio.run(app, scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


def test_good_requests_do_not_enter_the_framework(site, slots):
    from sottovoce.listening.server.database import Database
    from sottovoce.listening.server.session_store import SessionStore

    books = SessionStore(Database(site.engine), site.study)
    fast = FastPath(Nobody(), Replies(books, site.shelf.wav))
    joined = books.join({})
    shown = joined.screen.model_dump()
    while shown["kind"] != "done":
        for slot in slots(shown):
            status, sound = call(
                fast, "GET", f"/api/audio/{slot['audio']}", query=f"token={joined.token}".encode()
            )
            assert status == 200 and sound[:4] == b"RIFF"
        given = {"kind": shown["kind"]}
        given |= {"choice": "a", "confidence": "low"} if shown["kind"] == "abx" else {}
        body = {"screen": shown["id"], "given": given}
        status, told = call(fast, "POST", f"/api/sessions/{joined.token}/answers", body=body)
        assert status == 200
        shown = json.loads(told)["screen"]
    assert len(site.rows()) == 7


def test_a_mistake_of_the_server_is_told_and_logged(site, monkeypatch: pytest.MonkeyPatch):
    from sottovoce.listening.server.session_store import SessionStore

    listener = site.listener()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(SessionStore, "answer", fail)
    reply = listener.post()
    assert (reply.status_code, reply.json()["code"]) == (500, "server-error")
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_an_answer_that_says_it_is_no_json_is_not_taken(site):
    listener = site.listener()
    path = f"/api/sessions/{listener.token}/answers"
    body = json.dumps({"screen": listener.screen["id"], "given": listener.plain()})
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        reply = site.client.post(path, content=body, headers={"Content-Type": kind})
        assert (reply.status_code, reply.json()["code"]) == (422, "bad-request")
    assert site.rows() == []
    reply = site.client.post(path, content=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert reply.status_code == 200


@pytest.mark.parametrize("seconds", ["NaN", "Infinity", "-Infinity", "1e999", '"1"x', "-1"])
def test_numbers_that_are_none_are_refused(site, seconds):
    listener = site.listener()
    given = json.dumps(listener.plain())
    reply = site.client.post(
        f"/api/sessions/{listener.token}/answers",
        content=f'{{"screen": "{listener.screen["id"]}", "given": {given}, "seconds": {seconds}}}',
        headers={"Content-Type": "application/json"},
    )
    assert (reply.status_code, reply.json()["code"]) == (422, "bad-request")
    assert site.rows() == []
