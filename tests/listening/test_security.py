"""What a listener, or somebody who is none, can find out and can break: nothing."""

from __future__ import annotations

import json
import re
import time
from datetime import datetime
from pathlib import Path

import anyio
import pytest
from sqlalchemy import text

from sottovoce.errors import InputError
from sottovoce.listening.server.limits import Buckets, Limits, LimitSizes

SECRETS = (
    "w0",
    "-adv",
    "clean",
    "adversarial",
    "anchor",
    "sentinel",
    "truth",
    "condition",
    "render",
    "hidden",
)


def fetch(site, listener, name, **more):
    headers = {"Authorization": f"Bearer {listener.token}", **more.pop("headers", {})}
    return site.client.get(f"/api/audio/{name}", headers=headers, **more)


@pytest.mark.parametrize("test", ["abx", "mushra", "same-different", "closer"])
def test_clips_of_a_screen_cannot_be_told_apart_from_outside(make_site, slots, tmp_path: Path, test):
    site = make_site(test, f"sqlite:///{tmp_path / 'a.db'}")
    listener = site.listener()
    names = []
    while listener.screen["kind"] != "done":
        shown = slots(listener.screen)
        replies = [fetch(site, listener, slot["audio"]) for slot in shown]
        assert len({tuple(sorted(reply.headers.items())) for reply in replies}) <= 1
        assert len({reply.content[:44] for reply in replies}) <= 1
        names += [slot["audio"] for slot in shown]
        listener.answer()
    # Names are as long as each other, and none is used twice, not even for the same clip.
    assert len(set(names)) == len(names) and {len(name) for name in names} == {24}
    # Names are random, and may have anything in them.
    told = re.sub(r'"(id|audio)": "[^"]*"', "", json.dumps(listener.seen))
    assert not [word for word in SECRETS if word in told]


def test_an_abx_plays_the_clips_that_are_kept(site, slots):
    listener = site.listener()
    while listener.screen["kind"] != "done":
        heard = {
            slot["label"]: fetch(site, listener, slot["audio"]).content for slot in slots(listener.screen)
        }
        listener.answer()
        row = site.rows()[-1]
        assert heard == {label: site.shelf.wav(key) for label, key in row.roles.items()}
        if row.kind == "abx":
            assert heard["X"] == heard[row.truth["choice"].upper()]


def test_headers_of_a_clip(site, slots):
    listener = site.listener()
    listener.until("abx")
    reply = fetch(site, listener, slots(listener.screen)[0]["audio"])
    assert reply.headers["content-type"] == "audio/wav"
    assert reply.headers["cache-control"] == "no-store"
    assert not {"etag", "last-modified", "content-disposition", "set-cookie"} & set(reply.headers)
    assert reply.content[:4] == b"RIFF" and int(reply.headers["content-length"]) == len(reply.content)


def test_a_clip_goes_to_its_own_session_and_screen_alone(site, slots):
    one, two = site.listener(), site.listener()
    one.until("abx")
    two.until("abx")
    name = slots(one.screen)[0]["audio"]
    assert fetch(site, one, name).status_code == 200
    assert site.client.get(f"/api/audio/{name}?token={one.token}").status_code == 200
    for reply in (fetch(site, two, name), fetch(site, one, "never-given"), fetch(site, one, "w0")):
        assert (reply.status_code, reply.json()["code"]) == (404, "unknown-audio")
    for reply in (
        site.client.get(f"/api/audio/{name}"),
        site.client.get(f"/api/audio/{name}?token=AAAA"),
        site.client.get(f"/api/audio/{name}", headers={"Authorization": "Bearer AAAA"}),
        site.client.get(f"/api/audio/{name}", headers=site.admin),
    ):
        assert (reply.status_code, reply.json()["code"]) == (404, "unknown-session")
    one.answer()
    assert fetch(site, one, name).status_code == 404


def test_tokens_are_not_kept(site, tmp_path: Path):
    listener = site.listener()
    listener.answer()
    assert len(listener.token) == 43
    for file in tmp_path.glob("answers.db*"):
        assert listener.token.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "/api/admin/progress",
        "/api/admin/answers.csv",
        "/api/admin/sessions.csv",
        "/results",
        "/results/report",
    ],
)
def test_results_need_the_admin_token(site, path):
    listener = site.listener()
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {listener.token}"},
        {"Authorization": "Basic eDp5"},
        {"Authorization": "Basic !!"},
        {"Authorization": "Bearer"},
    ):
        reply = site.client.get(path, headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (401, "unauthorised")
        assert reply.headers["www-authenticate"].startswith("Basic")
    assert site.client.get(f"{path}?token=an-admin-token-of-tests").status_code == 401


def test_a_browser_opens_the_results_with_a_password(site):
    reply = site.client.get("/results", auth=("anybody", "an-admin-token-of-tests"))
    assert reply.status_code == 200 and "SIMULATED" in reply.text
    assert site.client.get("/results", auth=("anybody", "another")).status_code == 401


def test_results_show_words_not_markup(make_site, tmp_path: Path):
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", title="<script>alert(1)</script>")
    text = site.client.get("/results", headers=site.admin).text
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_a_report_may_run_its_scripts_and_reach_nothing(make_site, tmp_path: Path):
    settings = {"report": lambda: "<p>figures</p>"}
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings=settings)
    reply = site.client.get("/results/report", headers=site.admin)
    assert reply.text == "<p>figures</p>"
    policy = reply.headers["content-security-policy"]
    assert (
        "default-src 'none'" in policy and "sandbox allow-scripts" in policy and "connect-src" not in policy
    )


def test_a_short_admin_token_is_refused(make_site, tmp_path: Path):
    with pytest.raises(InputError, match="16 characters"):
        make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings={"admin_token": "short"})


def test_headers_of_every_reply(site):
    for reply in (
        site.client.get("/healthz"),
        site.client.get("/nothing"),
        site.client.post("/api/sessions"),
    ):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["x-frame-options"] == "DENY"
        assert reply.headers["cache-control"] == "no-store"
        policy = reply.headers["content-security-policy"]
        assert "default-src 'self'" in policy and "frame-ancestors 'none'" in policy


def test_a_study_may_be_shown_in_a_frame(make_site, tmp_path: Path):
    settings = {"frames": ("https://www.mturkcontent.com",)}
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings=settings)
    reply = site.client.get("/healthz")
    assert "frame-ancestors https://www.mturkcontent.com" in reply.headers["content-security-policy"]
    assert "x-frame-options" not in reply.headers


@pytest.fixture
def page(tmp_path: Path) -> Path:
    folder = tmp_path / "inner" / "page"
    folder.mkdir(parents=True)
    (folder / "index.html").write_text("<p>hello</p>")
    (folder / "app.js").write_text("1")
    (folder / "secret.key").write_text("not for you")
    (tmp_path / "inner" / "outside.txt").write_text("outside")
    return folder


ATTEMPTS = (
    "/../outside.txt",
    "/..%2foutside.txt",
    "/%2e%2e/outside.txt",
    "/%2e%2e%2foutside.txt",
    "//outside.txt",
    "/page/../../outside.txt",
    "/app.js/../../outside.txt",
    "/..\\outside.txt",
    "/..%5coutside.txt",
    "/.%00./outside.txt",
    "/secret.key",
    "/index.html%00.js",
    "/api/audio/..%2f..%2foutside.txt",
    "/api/audio/../../outside.txt",
    "/api/sessions/..%2f..%2foutside.txt/screen",
    "/file:///etc/passwd",
    "/etc/passwd",
)


def test_no_address_leads_to_the_disk(make_site, tmp_path: Path, page: Path):
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings={"page": page})
    assert site.client.get("/").text == "<p>hello</p>"
    assert site.client.get("/app.js").headers["content-type"].startswith("text/javascript")
    for path in ATTEMPTS:
        # As it is on the wire: clients tidy up such addresses before they send them.
        status, body = raw_get(site.app, path)
        assert status in (404, 405), path
        assert b"outside" not in body and b"not for you" not in body and b"root:" not in body
    # What is added later is not found either.
    (page / "new.js").write_text("2")
    assert site.client.get("/new.js").status_code == 404


def raw_get(app, path: str) -> tuple[int, bytes]:
    """A request with exactly this path, taken apart as a server does."""
    from urllib.parse import unquote

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": unquote(path), "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(b"host", b"test")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    sent: list[dict] = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    async def call():
        await app(scope, receive, send)

    anyio.run(call)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def test_a_body_that_is_too_large_is_refused(site):
    listener = site.listener()
    url = f"/api/sessions/{listener.token}/answers"
    reply = site.client.post(url, content=b"x" * (64 * 1024 + 1))
    assert (reply.status_code, reply.json()["code"]) == (413, "too-large")

    def pieces():
        for _ in range(100):
            yield b"x" * 1024

    # Without a length, it is counted.
    reply = site.client.post(url, content=pieces())
    assert (reply.status_code, reply.json()["code"]) == (413, "too-large")
    # One that says it is short, and is not.
    reply = site.client.post(url, content=pieces(), headers={"Content-Length": "10"})
    assert reply.status_code in (413, 422)
    assert site.client.post(url, content=b" " * 64 * 1024).status_code == 422


def test_a_body_that_never_ends_is_refused():
    sent = []

    async def never():
        await anyio.sleep(60)

    async def send(message):
        sent.append(message)

    async def call():
        scope = {"type": "http", "headers": []}
        await LimitSizes(None, Limits(body_seconds=0.05))(scope, never, send)

    anyio.run(call)
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["code"] == "too-slow"


def test_nested_and_broken_bodies_are_refused(site):
    surrogate, infinite = b'{"arrived_with": {"a": "\\ud800"}}', b'{"arrived_with": {"a": 1e999}}'
    nested = b'{"arrived_with":' * 4000
    for body in (b"[" * 60_000, nested, surrogate, infinite, b"\xff\xfe", b"nan", b"", b"null"):
        reply = site.client.post("/api/sessions", content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code in (400, 422), body[:20]
        assert set(reply.json()) == {"code", "detail"}
    assert site.rows() == []


def test_a_bucket_fills_again():
    at = [100.0]
    buckets = Buckets(rate=2.0, burst=3.0, keys=2, clock=lambda: at[0])
    assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]
    at[0] += 0.5
    assert [buckets.take("a") for _ in range(2)] == [True, False]
    assert buckets.take("b")
    at[0] += 100
    assert [buckets.take("a") for _ in range(4)] == [True, True, True, False]
    # A third key pushes out the one that was not seen for the longest.
    buckets.take("c")
    assert "b" not in buckets and "a" in buckets


def test_rates_are_limited_for_each_session_and_for_strangers(make_site, tmp_path: Path):
    limits = Limits(session_rate=0.001, session_burst=5, address_rate=0.001, address_burst=6)
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings={"limits": limits})
    one, two = site.listener(), site.listener()

    def ask(listener) -> int:
        return site.client.get(f"/api/sessions/{listener.token}/screen").status_code

    # The first request of a session still counts for the address; from then on it has a bucket of its own.
    assert [ask(one) for _ in range(6)] == [200] * 5 + [429]
    assert ask(two) == 200
    # Two arrivals, two first requests, two guesses: the address has no more, but known sessions go on.
    assert [site.client.get("/api/sessions/guess/screen").status_code for _ in range(3)] == [404, 404, 429]
    reply = site.client.post("/api/sessions", json={})
    assert (reply.status_code, reply.json()["code"], reply.headers["retry-after"]) == (429, "too-many", "5")
    assert [ask(two) for _ in range(5)] == [200] * 4 + [429]


def test_the_api_offers_no_way_to_other_sessions(site):
    document = site.client.get("/api/openapi.json").json()
    assert set(document["paths"]) == {
        "/api/sessions",
        "/api/sessions/{token}/screen",
        "/api/sessions/{token}/answers",
        "/api/audio/{name}",
        "/healthz",
        "/api/admin/progress",
        "/api/admin/answers.csv",
        "/api/admin/sessions.csv",
        "/results",
        "/results/report",
    }
    assert "get" not in document["paths"]["/api/sessions"]
    for path, methods in document["paths"].items():
        for method in methods.values():
            if path.startswith(("/api/admin", "/results")):
                assert {"admin": []} in method["security"]
    # Every object that a client sends or gets is closed.
    for name, schema in document["components"]["schemas"].items():
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False, name
        for key, value in schema.get("properties", {}).items():
            if "patternProperties" in value:
                assert value["additionalProperties"] is False, (name, key)


def test_what_is_said_of_a_mistake_does_not_repeat_it(site):
    reply = site.client.post("/api/sessions", json={"arrived_with": {"a": "<b>" * 100}, "more": "<i>"})
    assert reply.status_code == 422 and "<" not in reply.text
    listener = site.listener()
    for given in ({"kind": "<b>"}, {"kind": "\ud800"}, {"kind": "mushra", "ratings": {"<b>": -1, "c": 3}}):
        reply = site.client.post(
            f"/api/sessions/{listener.token}/answers",
            content=json.dumps({"screen": listener.screen["id"], "given": given}),
        )
        assert reply.status_code == 422 and "<" not in reply.text


def test_no_reply_says_which_server_this_is(site):
    assert "server" not in site.client.get("/healthz").headers


def test_times_are_utc(site):
    site.listener()
    with site.engine.connect() as link:
        stored = datetime.fromisoformat(link.execute(text("SELECT created FROM session")).scalar_one())
    assert abs(stored.timestamp() - datetime.fromtimestamp(time.time()).timestamp()) < 86_400
