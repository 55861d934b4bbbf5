"""Connections, before there is a request: how long one may take to ask, and how many an address may have.

uvicorn waits for the rest of a request for as long as somebody keeps it waiting: its own timeouts are for
connections between requests. What is asked in time is answered for as long as it takes to fetch the answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, final

from starlette.types import ASGIApp
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sottovoce.errors import InputError
from sottovoce.listening.server.limits import TOO_SLOW, Limits, group_address
from sottovoce.listening.session.protocol import Problem

Network = IPv4Network | IPv6Network
KEEP_ALIVE_SECONDS = 75
"""Connections outlast a long trial: one that the server closes just as it is used again fails its request."""
LOOPBACK = ("127.0.0.0/8", "::1/128")


@final
class ConnectionLimits:
    """What the connections of one process share. proxies: may have as many as they like, as they have those
    of many listeners."""

    def __init__(self, limits: Limits, proxies: Sequence[str] = ()) -> None:
        self.limits = limits
        self.proxies = tuple(map(parse_proxy, proxies))
        self.open = Counter[str]()

    def configure(self, app: ASGIApp, **settings: Any) -> Config:
        """How uvicorn serves an application behind this guard."""
        protocol: Any = partial(GuardedProtocol, guard=self)
        # Addresses hold the tokens of sessions, so that they are not logged.
        usual: dict[str, Any] = {
            "log_level": "warning",
            "access_log": False,
            "server_header": False,
            "ws": "none",
            "proxy_headers": bool(self.proxies),
            "forwarded_allow_ips": [str(one) for one in self.proxies],
            "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        }
        return Config(app, http=protocol, **(usual | settings))

    def enter(self, address: str) -> bool:
        """Whether an address may have one connection more; then it has."""
        free = self.open[address] < self.limits.connections
        self.open[address] += free
        return free

    def leave(self, address: str) -> None:
        self.open[address] -= 1
        if not self.open[address]:
            del self.open[address]

    def is_proxy(self, address: str) -> bool:
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        plain = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(plain in network for network in self.proxies)


@final
class GuardedProtocol(HttpToolsProtocol):
    """Closes a connection whose request does not come to an end in time.

    A request begins with the first byte after the last one, or with the connection. How often a byte comes
    changes nothing.
    """

    def __init__(self, *arguments: Any, guard: ConnectionLimits, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._guard = guard
        self._address: str | None = None
        self._due: asyncio.TimerHandle | None = None
        self._begun = self._headed = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        peer = self.client[0] if self.client else ""
        if not self._guard.is_proxy(peer):
            address = group_address(peer)
            if not self._guard.enter(address):
                most = self._guard.limits.connections
                self._refuse(429, "too-many", f"expected at most {most} connections from one address.")
                return
            self._address = address
        self._wait(self._guard.limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._done()
        if self._address is not None:
            self._guard.leave(self._address)
            self._address = None

    def data_received(self, data: bytes) -> None:
        if self._due is None:
            self._wait(self._guard.limits.head_seconds)
        super().data_received(data)
        if self._due is not None and not self._headed:
            self._head_bytes += len(data)
            if self._head_bytes > self._guard.limits.head_bytes:
                most = self._guard.limits.head_bytes
                self._refuse(431, "too-large", f"expected a head of at most {most} bytes.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun, self._headed, self._head_bytes = True, False, 0
        if self._due is None:
            # Right behind the last request, in the same piece.
            self._wait(self._guard.limits.head_seconds)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._headed = True
        # Sooner a body is refused in words, by `LimitSizes`. This is for one that nobody reads any more.
        self._wait(self._guard.limits.head_seconds + self._guard.limits.body_seconds)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._begun = False
        self._done()

    def _wait(self, seconds: float) -> None:
        self._done()
        self._due = self.loop.call_later(seconds, self._expire)

    def _done(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _expire(self) -> None:
        self._due = None
        if self._is_answering():
            self._wait(self._guard.limits.head_seconds)
        elif self._begun and not self._headed:
            self._refuse(408, "too-slow", TOO_SLOW)
        else:
            self.transport.close()

    def _is_answering(self) -> bool:
        """Whether the answer to an earlier request is still being made, which is not to be cut off."""
        earlier = not self._headed and self.cycle is not None and not self.cycle.response_complete
        return bool(self.pipeline) or earlier

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Say why, and close. What was sent before is sent to its end."""
        self._done()
        if self.transport.is_closing():
            return
        body = Problem(code=code, detail=detail).model_dump_json()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nretry-after: 5\r\nconnection: close\r\n\r\n"
        )
        self.transport.write((head + body).encode())
        self.transport.close()


def parse_proxy(text: str) -> Network:
    """An address or a network, of --proxy."""
    try:
        return ip_network(text.strip())
    except ValueError:
        raise InputError(
            f"expected --proxy such as 127.0.0.1 or 10.0.0.0/8, got {text!r}; give the address of the proxy "
            "in "
            "front of this server."
        ) from None
