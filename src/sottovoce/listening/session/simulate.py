"""A dry run: simulated listeners take a study through its real server, over HTTP.

They see what people see: opaque names. They identify a clip only by its sound, which they fetch and compare
with the clips of the study. Every session is permanently marked as simulated when it starts.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, final

import numpy as np
import urllib3
from numpy.typing import NDArray
from pydantic import TypeAdapter

from sottovoce.core.draws import Draws
from sottovoce.errors import InputError, StoreError
from sottovoce.listening.analysis.jnd_searches import Files, sounds_of
from sottovoce.listening.session.answer_checks import slots_of
from sottovoce.listening.session.protocol import Next, Screen
from sottovoce.listening.session.simulated_persons import Hearing, Person
from sottovoce.listening.study.study_file import ListeningStudy
from sottovoce.listening.study.test_sounds import HEADER_BYTES

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from sottovoce.listening.server.connections import ConnectionLimits

MOST_SCREENS = 5000
TRIES = 20
PAUSE_SECONDS = 0.5
SCREEN: TypeAdapter[Screen] = TypeAdapter(Screen)
Tell = Callable[[float, str], None]


class Shelved(Files, Protocol):
    """What is needed of a `Shelf`."""

    def keys(self) -> Any: ...


class Sat(NamedTuple):
    """One simulated session. attentive: whether the listener was one who listens. screens: that were
    answered."""

    number: int
    attentive: bool
    screens: int


@final
class Catalogue:
    """The clips of a study by their sound. dither: whether they come with it."""

    def __init__(self, shelf: Shelved, dither: bool) -> None:
        self._exact: dict[bytes, str] = {}
        self._near: dict[bytes, list[tuple[str, NDArray[np.int16]]]] = {}
        for key in list(shelf.keys()):
            wav = shelf.wav(key)
            if self._exact.setdefault(sha256(wav).digest(), key) == key and dither:
                self._near.setdefault(wav[:HEADER_BYTES], []).append((key, _samples(wav)))

    def find(self, wav: bytes) -> str:
        """The key of a sound; of one that is dithered, the nearest of those that are a step off at most."""
        exact = self._exact.get(sha256(wav).digest())
        if exact is not None:
            return exact
        heard = _samples(wav)
        apart = {key: heard - clip.astype(np.int32) for key, clip in self._near.get(wav[:HEADER_BYTES], [])}
        near = {key: int((one**2).sum()) for key, one in apart.items() if np.abs(one).max() <= 1}
        if not near:
            raise InputError(
                "the server sent a sound that is not a clip of this study; is it running the same study file?"
            )
        return min(near, key=near.__getitem__)


def _samples(wav: bytes) -> NDArray[np.int16]:
    return np.frombuffer(wav, dtype="<i2", offset=HEADER_BYTES)


@final
class Wire:
    """Requests to a server of listening tests. A server that is busy or down for a moment is asked again."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._pool = urllib3.PoolManager(retries=False, timeout=30.0)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> bytes:
        sent = None if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"Content-Type": "application/json"}
        for _ in range(TRIES):
            try:
                reply = self._pool.request(method, self.url + path, body=sent, headers={**kind, **headers})
            except urllib3.exceptions.HTTPError as error:
                raise InputError(
                    f"{self.url}: no listening test server answers ({error}); start one with `sottovoce "
                    "listen serve`."
                ) from None
            if reply.status not in (429, 503):
                break
            time.sleep(float(reply.headers.get("Retry-After", PAUSE_SECONDS)))
        if reply.status >= 300:
            raise StoreError(
                f"{method} {path}: the server refused with {reply.status} "
                f"{reply.data[:200].decode(errors='replace')}; look at its log."
            )
        return reply.data

    def read(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        return json.loads(self.call(method, path, body, **headers))


def simulate(
    study: ListeningStudy,
    shelf: Shelved,
    url: str,
    listeners: int,
    *,
    ear: str = "auditory",
    inattentive: float = 0.1,
    d_prime: float | None = None,
    seed: int = 0,
    tell: Tell | None = None,
) -> list[Sat]:
    """Let this many simulated listeners take the study, one after the other.

    inattentive: the share that answers at random. d_prime: of ABX, instead of what the ear says.
    """
    if listeners < 1 or not 0.0 <= inattentive <= 1.0:
        raise InputError(
            f"expected --listeners of 1 or more and --inattentive from 0 to 1, got {listeners} and "
            f"{inattentive}."
        )
    hearing = Hearing(study, sounds_of(shelf, study), ear)
    wire = Wire(url)
    catalogue = Catalogue(shelf, study.dither)
    found = []
    for number in range(listeners):
        if tell is not None:
            tell(number / listeners, f"simulated listener {number + 1} of {listeners}")
        person = make_person(hearing, number, seed, inattentive, d_prime)
        found.append(Sat(number, person.lapse < 1.0, _sit(wire, person, catalogue)))
    return found


def make_person(
    hearing: Hearing, number: int, seed: int, inattentive: float, d_prime: float | None
) -> Person:
    """One of many: some hear better than others, and some do not listen."""
    source = Draws(seed).turn("persons").generator(str(number))
    asleep = bool(source.random() < inattentive)
    bias = float(source.normal(0.0, 0.25))
    lapse = 1.0 if asleep else 0.02
    return Person(hearing=hearing, number=number, seed=seed, bias=bias, lapse=lapse, d_prime=d_prime)


@contextmanager
def serving(app: ASGIApp, guard: ConnectionLimits | None = None) -> Iterator[str]:
    """The address of an application that is served on this machine alone, in a thread, for as long."""
    import uvicorn

    from sottovoce.listening.server.connections import ConnectionLimits
    from sottovoce.listening.server.limits import Limits

    guard = guard or ConnectionLimits(Limits())
    server = uvicorn.Server(guard.configure(app, host="127.0.0.1", port=0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise StoreError("the server did not start; see its messages above.")
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def _sit(wire: Wire, person: Person, catalogue: Catalogue) -> int:
    """A whole session; returns how many screens were answered."""
    arrived = {"arrived_with": {"simulated": str(person.number)}}
    joined = wire.read("POST", "/api/sessions", arrived, Simulated="true")
    token, screen = joined["token"], SCREEN.validate_python(joined["screen"])
    for place in range(MOST_SCREENS):
        if screen.kind == "done":
            return place
        clips = {
            slot.label: catalogue.find(
                wire.call("GET", f"/api/audio/{slot.audio}", Authorization=f"Bearer {token}")
            )
            for slot in slots_of(screen)
        }
        answer = {
            "screen": screen.id,
            "given": person.answer(screen, clips, place),
            "seconds": person.seconds(place),
            "plays": dict(Counter(clips.keys())),
        }
        screen = Next.model_validate(wire.read("POST", f"/api/sessions/{token}/answers", answer)).screen
    raise StoreError(f"the session did not end within {MOST_SCREENS} screens; check the study.")
