"""Limits in front of the application: sizes, rates, and headers that every answer carries.

Plain ASGI, so that nothing is read or computed for a request that is refused.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv6Address, ip_address
from math import ceil
from typing import final
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sottovoce.listening.session.protocol import Problem

ARRIVALS = "/api/sessions"
"""Where a POST begins a session."""
TOKEN = re.compile(rb"token=([A-Za-z0-9_-]{1,64})")
"""The query of a clip, as the page writes it."""
TOO_SLOW = "expected the whole request sooner."


@final
@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much is let through.

    Sessions: requests of one that is known, a second on the long run and at once. Addresses: requests without
    a known session (arriving, guessing); many listeners may sit behind one, in a classroom or a lab.
    head_seconds, body_seconds: until the head of a request is there, and then its body. connections: that an
    address may have open. joins_an_hour: sessions that it may begin. wrong_tokens: of the admin, that cost it
    nothing; each after that doubles how long it has to wait, up to longest_wait seconds.
    """

    head_bytes: int = 64 * 1024
    head_seconds: float = 15.0
    body_bytes: int = 64 * 1024
    body_seconds: float = 20.0
    connections: int = 1000
    joins_an_hour: float = 600.0
    wrong_tokens: int = 5
    longest_wait: float = 300.0
    session_rate: float = 20.0
    session_burst: float = 400.0
    address_rate: float = 50.0
    address_burst: float = 5000.0


@final
class Buckets:
    """A token bucket a key; keys that were not seen for the longest are forgotten, which fills them again."""

    def __init__(
        self, rate: float, burst: float, keys: int = 20_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst, self.keys, self.clock = rate, burst, keys, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._levels

    def take(self, key: str) -> bool:
        """Whether one more is let through now."""
        at = self.clock()
        level, before = self._levels.get(key, (self.burst, at))
        level = min(self.burst, level + self.rate * (at - before))
        free = level >= 1.0
        self._levels[key] = (level - 1.0 if free else level, at)
        self._levels.move_to_end(key)
        if len(self._levels) > self.keys:
            self._levels.popitem(last=False)
        return free

    def wait(self, key: str) -> int:
        """Whole seconds until one more is let through, of a key that was just refused."""
        return max(1, ceil((1.0 - self._levels[key][0]) / self.rate))


@final
class Guesses:
    """Wrong tokens by address: some cost nothing, each after that doubles the wait before the next.

    Who was quiet for an hour begins anew. While an address waits no token of its is looked at, not even the
    right one: it would tell that the others were wrong. Other addresses are not kept waiting.
    """

    FORGET_SECONDS = 3600.0

    def __init__(
        self, free: int, longest: float, keys: int = 20_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.free, self.longest, self.keys, self.clock = free, longest, keys, clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait(self, key: str) -> int:
        """Whole seconds until a token is looked at again; 0: now."""
        count, last = self._wrong.get(key, (0, 0.0))
        if count < self.free:
            return 0
        until = last + min(self.longest, 2.0 ** min(count - self.free, 60))
        return max(0, ceil(until - self.clock()))

    def add(self, key: str) -> None:
        """One more that was wrong."""
        at = self.clock()
        count, last = self._wrong.get(key, (0, at))
        self._wrong[key] = (1 if at - last > self.FORGET_SECONDS else count + 1, at)
        self._wrong.move_to_end(key)
        if len(self._wrong) > self.keys:
            self._wrong.popitem(last=False)

    def clear(self, key: str) -> None:
        """It had the right one."""
        self._wrong.pop(key, None)


@final
class LimitSizes:
    """Refuses a body that is too long or too slow, before anything looks into it."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                body = await self._read(scope, receive)
        except TimeoutError:
            await refuse(send, 408, "too-slow", TOO_SLOW)
            return
        except ConnectionAbortedError:
            return
        if body is None:
            most = self.limits.body_bytes
            await refuse(send, 413, "too-large", f"expected a request of at most {most} bytes.")
            return
        waiting = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, replay, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | None:
        """The body; None of one that is too long."""
        said = header(scope, b"content-length")
        if said is not None and (not said.isdigit() or int(said) > self.limits.body_bytes):
            return None
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                # What came is not all of it.
                raise ConnectionAbortedError
            body += message.get("body", b"")
            if len(body) > self.limits.body_bytes:
                return None
            if not message.get("more_body", False):
                return bytes(body)


@final
class LimitRates:
    """A bucket for each session that has proved to be one, and one for each address for everything else; one
    more for the sessions that an address begins."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app = app
        self.joins = Buckets(limits.joins_an_hour / 3600, limits.joins_an_hour)
        self.sessions = Buckets(limits.session_rate, limits.session_burst)
        self.addresses = Buckets(limits.address_rate, limits.address_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        session = _session_of(scope)
        address = address_of(scope)
        known = session is not None and session in self.sessions
        free = self.sessions.take(session) if known and session else self.addresses.take(address)
        if not free:
            await refuse(send, 429, "too-many", "expected fewer requests.", (b"retry-after", b"5"))
            return
        if scope["method"] == "POST" and scope["path"] == ARRIVALS and not self.joins.take(address):
            most, wait = self.joins.burst, self.joins.wait(address)
            detail = f"expected at most {most:g} new sessions an hour from one address; wait {wait} seconds."
            await refuse(send, 429, "too-many", detail, (b"retry-after", str(wait).encode()))
            return

        async def watch(message: Message) -> None:
            good = message["type"] == "http.response.start" and message["status"] < 300
            if good and session is not None and not known:
                self.sessions.take(session)
            await send(message)

        await self.app(scope, receive, watch)


@final
class AddHeaders:
    """Headers for a page that needs nothing but its own server, and is shown in nobody else's frame."""

    def __init__(self, app: ASGIApp, frames: tuple[str, ...] = ()) -> None:
        self.app = app
        ancestors = " ".join(frames) or "'none'"
        policy = (
            "default-src 'self'; base-uri 'none'; form-action 'none'; object-src 'none'; "
            f"frame-ancestors {ancestors}"
        )
        self.headers = [
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
            *(() if frames else ((b"x-frame-options", b"DENY"),)),
        ]
        self.policy = (b"content-security-policy", policy.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                names = {name for name, _ in headers}
                own = () if self.policy[0] in names else (self.policy,)
                stored = () if b"cache-control" in names else ((b"cache-control", b"no-store"),)
                message = {**message, "headers": [*headers, *self.headers, *own, *stored]}
            await send(message)

        await self.app(scope, receive, add if scope["type"] == "http" else send)


async def refuse(send: Send, status: int, code: str, detail: str, *more: tuple[bytes, bytes]) -> None:
    """Answer with a problem, without the application."""
    body = Problem(code=code, detail=detail).model_dump_json().encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
    if status in (408, 413):
        # What is left of the request is not read.
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def bearer(scope: Scope) -> str | None:
    """The token of an `Authorization: Bearer` header."""
    said = header(scope, b"authorization")
    kind, _, token = (said or "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else None


def token_of(scope: Scope) -> str | None:
    """The session token of a request for a clip: of a header, or of the query."""
    query: bytes = scope["query_string"]
    said = bearer(scope)
    if said or not query:
        return said
    plain = TOKEN.fullmatch(query)
    return plain[1].decode() if plain else parse_qs(query.decode("latin-1")).get("token", [None])[-1]


def address_of(scope: Scope) -> str:
    """The key under which the sender of a request is counted."""
    return group_address(scope["client"][0]) if scope.get("client") else ""


@lru_cache(maxsize=4096)
def group_address(address: str) -> str:
    """An address as it is counted: of IPv6 the first 64 bits, as whoever has one has all that begin so."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{IPv6Address(int(parsed) >> 64 << 64)}/64"


def _session_of(scope: Scope) -> str | None:
    """The hash of the session token of a request, wherever it is: in the path, a header or the query."""
    path: str = scope["path"]
    token: str | None = None
    if path.startswith("/api/sessions/"):
        token = path.split("/", 4)[3]
    elif path.startswith("/api/audio/"):
        token = token_of(scope)
    return None if not token else sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _has_body(scope: Scope) -> bool:
    """Whether anything may come after the headers (RFC 9112, section 6.3)."""
    told = any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])
    return told or scope.get("method") != "GET"


def header(scope: Scope, name: bytes) -> str | None:
    """What a header says; the first, where there are several."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)
