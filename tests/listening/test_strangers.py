"""Whoever is no listener: connections that never ask, arrivals by the hundred, guessed tokens."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
import urllib3
from fastapi.testclient import TestClient

from sottovoce.errors import InputError
from sottovoce.listening.server import connections
from sottovoce.listening.server.connections import ConnectionLimits, parse_proxy
from sottovoce.listening.server.hosts import CheckHost, allowed_hosts
from sottovoce.listening.server.limits import Guesses, Limits, LimitSizes, group_address
from sottovoce.listening.session.simulate import serving

PATIENCE_SECONDS = 30.0
"""After which a test gives up on a connection that the server does not close."""
HASTY = Limits(head_seconds=1.5, body_seconds=1.0)
NOTHING, HALF_A_HEAD = b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
HALF_A_BODY = (
    b"POST /api/sessions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 100\r\n\r\n{"arrived_with'
)
BIG = 16 * 2**20
"""More than the buffers of the system hold."""


def place_of(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").partition(":")
    return host, int(port)


@contextmanager
def connect(url: str, said: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(place_of(url), timeout=PATIENCE_SECONDS) as link:
        link.sendall(said)
        yield link


def read_all(link: socket.socket) -> bytes:
    """What comes until the server closes; raises where it does not."""
    pieces = []
    with suppress(ConnectionResetError):
        while piece := link.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


class Caller:
    """What a `Listener` needs of a client, over a socket."""

    def __init__(self, url: str) -> None:
        self.url, self.pool = url, urllib3.PoolManager(retries=False)

    def post(self, path: str, json: Any) -> Any:
        reply = self.pool.request("POST", self.url + path, json=json)
        reply.status_code, reply.text = reply.status, reply.data.decode()
        return reply


def test_half_open_requests_are_closed_while_listeners_are_served(make_site, listen, tmp_path: Path):
    """300 connections: without a word, with half a head, with half a body."""
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings={"limits": HASTY})
    with serving(site.app, ConnectionLimits(HASTY)) as url, ExitStack() as stack:
        links = [
            stack.enter_context(connect(url, said))
            for said in (NOTHING, HALF_A_HEAD, HALF_A_BODY)
            for _ in range(100)
        ]
        assert listen(Caller(url)).finish()["kind"] == "done"
        heard = [read_all(link) for link in links]
    assert heard[:100] == [b""] * 100
    assert {one.split(b"\r\n")[0] for one in heard[100:]} == {b"HTTP/1.1 408 Request Timeout"}
    assert all(b'"code":"too-slow"' in one for one in heard[100:])
    assert {row.kind for row in site.rows()} == {"notice", "abx"}


@pytest.mark.parametrize(
    ("begin", "drop"),
    [(HALF_A_HEAD, b"x"), (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n")],
)
def test_a_byte_now_and_then_keeps_nothing_open(site, begin, drop):
    """Neither one of a head, nor empty lines after a request that was answered."""
    with serving(site.app, ConnectionLimits(Limits(head_seconds=0.7))) as url, connect(url, begin) as link:
        end = time.monotonic() + PATIENCE_SECONDS
        with pytest.raises(OSError, match=r"reset|pipe|abort"):
            while time.monotonic() < end:
                link.sendall(drop)
                time.sleep(0.02)


def test_a_body_that_nobody_reads_keeps_nothing_open(make_site, tmp_path: Path):
    """A refusal needs no body: what is left of it comes too late, byte by byte."""
    settings = {"limits": Limits(joins_an_hour=1)}
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings=settings)
    site.client.post("/api/sessions", json={}, headers={"X": "the one of this hour"})
    head = HALF_A_BODY.partition(b"{")[0]
    guard = ConnectionLimits(Limits(head_seconds=0.7, body_seconds=0.1))
    with serving(site.app, guard) as url, connect(url, head) as link:
        # From another address than that of the first: one is let in, the next is not.
        link.sendall(b'{"arrived_with": {}}' + b" " * 80)
        assert link.recv(65536).startswith(b"HTTP/1.1 201")
        link.sendall(head)
        assert link.recv(65536).startswith(b"HTTP/1.1 429")
        assert read_all(link) == b""


@pytest.mark.parametrize(("pieces", "more"), [(1, b""), (1, HALF_A_HEAD), (256, HALF_A_HEAD)])
def test_a_slow_download_is_not_cut_off(monkeypatch, pieces, more):
    """16 MiB, read over several times what a request may take; the next request may be half sent already."""
    monkeypatch.setattr(connections, "KEEP_ALIVE_SECONDS", 0.2)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        length = (b"content-length", str(BIG).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        for left in reversed(range(pieces)):
            body = bytes(BIG // pieces)
            await send({"type": "http.response.body", "body": body, "more_body": left > 0})

    guard = ConnectionLimits(Limits(head_seconds=0.5, body_seconds=0.1))
    said = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + more
    with serving(app, guard) as url, connect(url, said) as link:
        got = b""
        for _ in range(5):
            got += link.recv(65536)
            time.sleep(0.25)
        got += read_all(link)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert body[:BIG] == bytes(BIG) and len(body) >= BIG


def test_an_address_has_so_many_connections(site):
    guard = ConnectionLimits(Limits(connections=3))
    with serving(site.app, guard) as url:
        place = place_of(url)
        three = [socket.create_connection(place, timeout=PATIENCE_SECONDS) for _ in range(3)]
        for link in three:
            link.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert link.recv(65536).startswith(b"HTTP/1.1 200")
        with connect(url) as fourth:
            told = read_all(fourth)
        assert told.startswith(b"HTTP/1.1 429 Too Many Requests\r\n") and b"\r\nretry-after: 5\r\n" in told
        assert b"expected at most 3 connections from one address." in told
        three.pop().close()
        end = time.monotonic() + PATIENCE_SECONDS
        while guard.open["127.0.0.1"] == 3 and time.monotonic() < end:
            time.sleep(0.01)
        with connect(
            url, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ) as another:
            assert read_all(another).startswith(b"HTTP/1.1 200")
        for link in three:
            link.close()


def test_a_proxy_has_the_connections_of_many(site):
    with (
        serving(site.app, ConnectionLimits(Limits(connections=1), ["127.0.0.1"])) as url,
        ExitStack() as stack,
    ):
        links = [
            stack.enter_context(connect(url, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"))
            for _ in range(5)
        ]
        assert [link.recv(65536)[:12] for link in links] == [b"HTTP/1.1 200"] * 5


def test_a_head_without_end_is_refused(site):
    with serving(site.app, ConnectionLimits(Limits())) as url, connect(url, HALF_A_HEAD) as link:
        with suppress(OSError):
            for _ in range(64):
                link.sendall(b"x" * 65536)
        told = read_all(link)
    # Whoever is still sending may be told by a reset alone.
    assert told[:12] in (b"", b"HTTP/1.1 431")


def test_a_request_that_breaks_off_is_not_passed_on():
    """Half a body may well be JSON by itself."""
    came = [
        {"type": "http.request", "body": b"{}", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return came.pop(0)

    async def call() -> None:
        scope = {"type": "http", "method": "POST", "headers": [(b"content-length", b"100")]}
        # There is neither an application nor anybody to reply to.
        await LimitSizes(None, Limits())(scope, receive, None)

    anyio.run(call)
    assert came == []


def client_at(site: Any, address: str) -> TestClient:
    return TestClient(site.app, client=(address, 50000), raise_server_exceptions=False)


def test_an_address_begins_so_many_sessions_an_hour(make_site, tmp_path: Path):
    settings = {"limits": Limits(joins_an_hour=2)}
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings=settings)
    one, other = client_at(site, "10.0.0.1"), client_at(site, "10.0.0.2")
    joined = [one.post("/api/sessions", json={}) for _ in range(3)]
    assert [reply.status_code for reply in joined] == [201, 201, 429]
    # Two an hour are one in 1800 seconds.
    assert joined[2].headers["retry-after"] == "1800"
    assert joined[2].json() == {
        "code": "too-many",
        "detail": "expected at most 2 new sessions an hour from one address; wait 1800 seconds.",
    }
    # Those inside go on, and other addresses are let in.
    token = joined[0].json()["token"]
    assert one.get(f"/api/sessions/{token}/screen").status_code == 200
    assert other.post("/api/sessions", json={}).status_code == 201
    assert len(site.rows()) == 0


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80::/64"),
        ("testclient", "testclient"),
    ],
)
def test_addresses_that_are_counted_as_one(address, group):
    assert group_address(address) == group


def test_a_forwarded_address_is_believed_of_a_proxy_alone(make_site, tmp_path: Path):
    settings = {"limits": Limits(joins_an_hour=1)}
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings=settings)

    def join(url: str, forwarded: str) -> int:
        headers = {"X-Forwarded-For": forwarded}
        return urllib3.request("POST", f"{url}/api/sessions", json={}, headers=headers, retries=False).status

    with serving(site.app, ConnectionLimits(Limits())) as url:
        assert [join(url, "203.0.113.1"), join(url, "203.0.113.2")] == [201, 429]
    with serving(site.app, ConnectionLimits(Limits(), ["127.0.0.1"])) as url:
        assert [join(url, "203.0.113.1"), join(url, "203.0.113.2")] == [201, 201]
        # A proxy adds what it saw on the right; what is left of it the stranger has made up.
        assert [join(url, "198.51.100.1, 203.0.113.2"), join(url, "198.51.100.2")] == [429, 201]
    with serving(site.app, ConnectionLimits(Limits(), ["203.0.113.0/24"])) as url:
        assert join(url, "198.51.100.3") == 429


def test_proxies_are_addresses_and_networks():
    assert [str(parse_proxy(text)) for text in ("10.0.0.1", "10.0.0.0/8", "::1")] == [
        "10.0.0.1/32",
        "10.0.0.0/8",
        "::1/128",
    ]
    for text in ("nginx", "*", "10.0.0.1/8", ""):
        with pytest.raises(InputError, match=r"expected --proxy such as 127\.0\.0\.1"):
            parse_proxy(text)


def test_guesses_wait_ever_longer():
    at = [1000.0]
    guesses = Guesses(free=3, longest=10.0, keys=2, clock=lambda: at[0])
    waits = []
    for _ in range(8):
        guesses.add("a")
        waits.append(guesses.wait("a"))
        at[0] += guesses.wait("a")
    assert waits == [0, 0, 1, 2, 4, 8, 10, 10]
    assert (guesses.wait("a"), guesses.wait("b")) == (0, 0)
    # After an hour the first ones are free again.
    at[0] += 3601
    guesses.add("a")
    assert guesses.wait("a") == 0
    for _ in range(3):
        guesses.add("a")
    assert guesses.wait("a") == 2
    guesses.clear("a")
    assert guesses.wait("a") == 0


def test_wrong_admin_tokens_keep_their_own_address_waiting(site):
    one, other = client_at(site, "10.0.0.1"), client_at(site, "10.0.0.2")
    path, wrong = "/api/admin/progress", {"Authorization": "Bearer not-the-admin-token"}
    # A browser that asks without a token has not guessed.
    assert [one.get("/results").status_code for _ in range(20)] == [401] * 20
    assert [one.get(path, headers=wrong).status_code for _ in range(6)] == [401] * 5 + [429]
    refused = one.get(path, headers=site.admin)
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
        429,
        "too-many",
        "1",
    )
    assert other.get(path, headers=site.admin).status_code == 200
    assert one.post("/api/sessions", json={}).status_code == 201


def test_the_right_token_ends_the_count(site):
    path, wrong = "/api/admin/progress", {"Authorization": "Bearer not-the-admin-token"}
    for _ in range(3):
        assert [site.client.get(path, headers=wrong).status_code for _ in range(4)] == [401] * 4
        assert site.client.get(path, headers=site.admin).status_code == 200


def ask(host: list[str], *, server: str = "192.168.1.5", names: tuple[str, ...] = ()) -> tuple[int, bytes]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"in"})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def call() -> None:
        headers = [(b"host", one.encode()) for one in host]
        scope = {"type": "http", "headers": headers, "server": (server, 8765)}
        await CheckHost(app, names)(scope, None, send)

    anyio.run(call)
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8765",
        "127.0.0.1:8765",
        "[::1]:8765",
        "[0:0:0:0:0:0:0:1]",
        "192.168.1.5",
        "192.168.1.5:80",
        "study.example.org",
        "Study.Example.org.:443",
    ],
)
def test_a_request_for_this_server_is_let_in(host):
    assert ask([host], names=allowed_hosts("127.0.0.1", ["study.example.org"])) == (200, b"in")


@pytest.mark.parametrize(
    "host",
    [
        ["evil.example"],
        ["evil.example:8765"],
        ["localhost.evil.example"],
        ["evil.example@localhost"],
        ["192.168.1.6"],
        ["127.0.0.1.evil.example"],
        ["other.study.example.org"],
        ["localhost/"],
        ["[::1"],
        [""],
        [],
        ["localhost", "evil.example"],
    ],
)
def test_a_request_for_another_server_is_refused(host):
    status, body = ask(host, names=allowed_hosts("127.0.0.1", ["study.example.org"]))
    assert status == 421
    assert b"--host-name NAME" in body and b"evil" not in body


def test_names_of_a_server(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "LabServer")
    assert allowed_hosts("127.0.0.1") == ("127.0.0.1",)
    assert allowed_hosts("10.0.0.7", ["Study.example.org", "[::2]"]) == (
        "10.0.0.7",
        "study.example.org",
        "::2",
    )
    for everywhere in ("0.0.0.0", "::"):
        assert allowed_hosts(everywhere) == ("labserver",)
    # Of a connection to all addresses, each is told by the connection, IPv4 over IPv6 too.
    assert ask(["192.168.1.5:8765"], server="::ffff:192.168.1.5")[0] == 200
    assert ask(["evil.example"], server="evil.example")[0] == 421
    for name in ("https://study.example.org", "study.example.org:443", "a/b", "", "*", "-x", "a b"):
        with pytest.raises(InputError, match=r"expected --host-name such as study\.example\.org"):
            allowed_hosts("127.0.0.1", [name])


def test_the_page_of_somebody_else_reaches_nothing(make_site, tmp_path: Path):
    """DNS rebinding: the browser sends the name that it looked up."""
    settings = {"hosts": allowed_hosts("127.0.0.1")}
    site = make_site("abx", f"sqlite:///{tmp_path / 'a.db'}", settings=settings)
    with serving(site.app) as url:
        for method, path in (
            ("POST", "/api/sessions"),
            ("GET", "/"),
            ("GET", "/results"),
            ("GET", "/healthz"),
        ):
            reply = urllib3.request(method, url + path, headers={"Host": "evil.example"}, retries=False)
            assert reply.status == 421 and reply.headers["content-type"] == "text/plain; charset=utf-8"
            assert reply.headers["x-content-type-options"] == "nosniff"
        assert urllib3.request("GET", f"{url}/healthz", retries=False).status == 200
    with site.engine.connect() as link:
        assert link.exec_driver_sql("SELECT count(*) FROM session").scalar_one() == 0
