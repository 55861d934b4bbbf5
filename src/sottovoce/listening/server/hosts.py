"""Which server a request is for: only names that are this server's own.

A page of somebody else's can point a name of theirs at an address that only the listener's machine reaches
(DNS rebinding), and then talk to the server there as if it were its own. Its requests name that host.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Sequence
from ipaddress import ip_address
from typing import final

from starlette.types import ASGIApp, Receive, Scope, Send

from sottovoce.errors import InputError

OWN = ("localhost", "127.0.0.1", "::1")
NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:@/]+))(?::\d{0,5})?")
REFUSED = (
    "This server does not answer to the name in this address. Whoever runs it can add the name: sottovoce "
    "listen serve --host-name NAME.\n"
)


@final
class CheckHost:
    """Refuses what is meant for another host. names: as of `allowed_hosts`.

    The address that a connection was made to is always right: no name was looked up to get there.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self.app, self.names = app, frozenset({*OWN, *names})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._is_ours(scope):
            await self.app(scope, receive, send)
            return
        body = REFUSED.encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            # What is left of the request is not read.
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 421, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _is_ours(self, scope: Scope) -> bool:
        said = [value for name, value in scope["headers"] if name == b"host"]
        if len(said) != 1:
            return False
        host = _host_of(said[0].decode("latin-1"))
        return host in self.names or (host is not None and host == _local(scope))


def allowed_hosts(host: str, names: Sequence[str] = ()) -> tuple[str, ...]:
    """What a server that listens at `host` may be called, beside `OWN`. names: of --host-name."""
    for name in names:
        if not (_is_address(name) or NAME.fullmatch(_plain(name))):
            raise InputError(
                f"expected --host-name such as study.example.org, without https:// and port, got {name!r}; "
                "write the name alone."
            )
    own = [host]
    if _is_address(host) and ip_address(host).is_unspecified:
        # All addresses of this machine: each connection says which; and the machine's name in its network.
        own = [socket.gethostname()]
    return tuple(dict.fromkeys(_plain(name) for name in (*own, *names)))


def _host_of(said: str) -> str | None:
    """The host of a header, without its port; None where it is none."""
    found = HOST.fullmatch(said.strip().lower())
    return None if found is None else _plain(found[1] or found[2])


def _local(scope: Scope) -> str | None:
    """The address that a connection was made to."""
    server = scope.get("server")
    return _plain(server[0]) if server and _is_address(server[0]) else None


def _plain(name: str) -> str:
    """A name as it is compared: small letters, no dot at the end; addresses in their one short form."""
    name = name.strip().lower().strip("[]").removesuffix(".")
    if not _is_address(name):
        return name
    address = ip_address(name)
    return str(getattr(address, "ipv4_mapped", None) or address)


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
