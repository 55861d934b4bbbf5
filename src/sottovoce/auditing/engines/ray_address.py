"""Whether a Ray cluster answers at an address. Ray itself would try for minutes, and not say why."""

from __future__ import annotations

import os
import socket

from sottovoce.errors import InputError

SECONDS = 5.0
CLIENT = "ray://"
# Ray speaks HTTP/2: a client opens with this text and an empty frame of settings (RFC 9113, 3.4), and a
# server answers with a frame of its own settings, whose fourth byte is 4.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_SETTINGS = 4


def check_address(address: str) -> None:
    """Raise where nothing answers, or something else than Ray."""
    host, port = split(address)
    try:
        with socket.create_connection((host, port), timeout=SECONDS) as link:
            if os.environ.get("RAY_USE_TLS", "0") == "1":
                return
            link.sendall(_PREFACE)
            answer = _read(link, 9)
    except OSError as error:
        raise _refuse(address, f"no answer ({error})") from None
    if len(answer) < 9 or answer[3] != _SETTINGS:
        raise _refuse(address, "another kind of server")


def split(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"expected an --address such as 10.0.0.1:6379, got {address!r}.")
    return host.strip("[]"), int(port)


def loopback_only(address: str) -> bool:
    """Whether a cluster answers on loopback and not at this machine's own address, where Ray would look."""
    if address == "auto" or address.startswith(CLIENT):
        return False
    host, port = split(address)
    try:
        if not socket.gethostbyname(host).startswith("127."):
            return False
        with socket.create_connection((_own_address(), port), timeout=1.0):
            return False
    except OSError:
        return True


def _own_address() -> str:
    """What this machine calls itself towards others. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        link.connect(("10.255.255.255", 1))
        return str(link.getsockname()[0])


def _read(link: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        piece = link.recv(count - len(content))
        if not piece:
            break
        content += piece
    return content


def _refuse(address: str, got: str) -> InputError:
    return InputError(
        f"expected a Ray cluster at {address}, got {got}; check the address, or start one with "
        "ray start --head, or leave the address out to run on this machine."
    )
