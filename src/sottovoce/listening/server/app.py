"""The server: sessions and their clips over HTTP, the page, and the researcher's view.

Listeners are known by a random token alone, and reach nothing but their own session. Clips are ready before
the first listener comes; the cost of a request does not depend on the clip that it asks for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel
from sqlalchemy import Engine, text
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from sottovoce import __version__
from sottovoce.errors import InputError
from sottovoce.listening.server import admin
from sottovoce.listening.server.database import Database
from sottovoce.listening.server.fast_path import FastPath, Replies
from sottovoce.listening.server.hosts import CheckHost
from sottovoce.listening.server.limits import ARRIVALS, AddHeaders, Guesses, LimitRates, Limits, LimitSizes
from sottovoce.listening.server.problems import add_handlers
from sottovoce.listening.server.session_store import SessionStore, unknown_session
from sottovoce.listening.server.tables import now
from sottovoce.listening.session.protocol import Answer, Join, Joined, Message, Name, Next, Problem, Standing
from sottovoce.listening.study.study_file import ListeningStudy

PAGE = Path(__file__).parents[1] / "page"
TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
DOOR: RunVar[CapacityLimiter] = RunVar("door")
THREADS = 32
MOST_BYTES_READY = 512 * 2**20
"""Clips up to this size are kept as files in memory; more are put together whenever they are asked for."""


class ClipStore(Protocol):
    """What the server needs of a `Shelf`."""

    def keys(self) -> Any: ...

    def wav(self, key: str) -> bytes: ...

    def seconds(self, key: str) -> float: ...

    def rate(self, key: str) -> int: ...


class Health(Message):
    ok: bool


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Refusals for the OpenAPI document; any request may be too many, too large or too slow."""
    return {status: {"model": Problem} for status in sorted({*statuses, 408, 413, 429, 503})}


def _door() -> CapacityLimiter:
    """Lets a limited number of listeners in at once; an event loop has one."""
    try:
        return DOOR.get()
    except LookupError:
        DOOR.set(CapacityLimiter(2))
        return DOOR.get()


def _sessions(request: Request) -> SessionStore:
    sessions: SessionStore = request.app.state.sessions
    return sessions


def _replies(request: Request) -> Replies:
    replies: Replies = request.app.state.replies
    return replies


Bearer = Annotated[
    HTTPAuthorizationCredentials | None,
    Depends(HTTPBearer(auto_error=False, scheme_name="session", description="The token of a session.")),
]
router = APIRouter()


@router.post(ARRIVALS, status_code=201, response_model=Joined, responses=_problems(404, 422))
async def join(body: Join, request: Request, simulated: Annotated[bool, Header()] = False) -> Response:
    """Begin a session. The header `Simulated: true` marks it as one of no listener, for good."""
    # A crowd at the door waits here, without a thread or a connection, so that those inside are not kept.
    begin = partial(_sessions(request).join, body.arrived_with, simulated, body.token)
    return _send(await anyio.to_thread.run_sync(begin, limiter=_door()), 201)


@router.get("/api/sessions/{token}/screen", response_model=Standing, responses=_problems(404, 422))
def show(token: Name, request: Request) -> Response:
    """The screen that is given out now."""
    sessions = _sessions(request)
    return _send(Standing(screen=sessions.show(token), title=sessions.study.title))


@router.post("/api/sessions/{token}/answers", response_model=Next, responses=_problems(404, 409, 422))
def answer(token: Name, body: Answer, request: Request) -> Response:
    """Keep an answer and give out the next screen.

    The first answer to a screen stays. Sent again, or with another one, this changes nothing and says where
    the session is now: after a lost reply, exactly what the reply said.
    """
    return Response(_replies(request).next_screen(token, body), media_type="application/json")


@router.get(
    "/api/audio/{name}",
    response_class=Response,
    responses=_problems(404, 422) | {200: {"content": {"audio/wav": {}}, "description": "The clip."}},
)
async def audio(
    name: Name, request: Request, bearer: Bearer, token: Annotated[Name | None, Query()] = None
) -> Response:
    """A clip of the screen that is given out now, to its own session alone: by header, or by `?token=`."""
    said = bearer.credentials if bearer is not None else token
    if said is None:
        raise unknown_session()
    sound = await run_in_threadpool(_replies(request).clip, said, name)
    return Response(sound, media_type="audio/wav")


@router.get("/healthz", response_model=Health, responses=_problems())
def health(request: Request) -> Health:
    """Whether the server and its database are up."""
    _sessions(request).database.read(lambda link: link.execute(text("SELECT 1")))
    return Health(ok=True)


def make_app(
    study: ListeningStudy,
    shelf: ClipStore,
    engine: Engine,
    *,
    admin_token: str,
    limits: Limits | None = None,
    frames: tuple[str, ...] = (),
    hosts: Collection[str] | None = None,
    abandon_after: timedelta = timedelta(hours=2),
    expire_after: timedelta = timedelta(days=30),
    clock: Callable[[], datetime] = now,
    page: Path = PAGE,
    report: Callable[[], str] | None = None,
) -> ASGIApp:
    """The application of one study.

    engine: from `database.open_engine`. frames: origins that may show the page in a frame, such as
    https://worker.mturk.com. hosts: names and addresses that it is asked for by, beside those of the machine
    itself; None: any, for a server that nobody else reaches. report: makes the report of all
    answers so far, an HTML page.
    """
    if len(admin_token) < 16:
        raise InputError(
            f"expected an admin token of 16 characters or more, got {len(admin_token)}; let one be made up."
        )
    app = FastAPI(
        title="sottovoce listening test",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.sessions = SessionStore(
        Database(engine), study, abandon_after=abandon_after, expire_after=expire_after, clock=clock
    )
    ready = _ready(shelf)
    wav = shelf.wav if ready is None else ready.__getitem__
    app.state.replies = Replies(app.state.sessions, wav, ready is not None)
    app.state.admin_token, app.state.report = admin_token, report
    # Routes of a router that is included are looked up anew for every request, at a tenth of its cost.
    app.router.routes.extend([*router.routes, *admin.router.routes])
    _add_page(app, page)
    add_handlers(app)
    limits = limits or Limits()
    app.state.guesses = Guesses(limits.wrong_tokens, limits.longest_wait)
    # Around the framework, not in it: what is refused, and what takes the short way, does not enter it.
    fast = FastPath(app, app.state.replies)
    limited: ASGIApp = LimitRates(LimitSizes(fast, limits), limits)
    return AddHeaders(limited if hosts is None else CheckHost(limited, hosts), frames)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    yield


def _ready(shelf: ClipStore) -> dict[str, bytes] | None:
    """All clips as files, or none: never some, whose speed would tell them apart."""
    keys = list(shelf.keys())
    total = 0.0
    for key in keys:
        total += 4 * shelf.seconds(key) * shelf.rate(key)
    if total > MOST_BYTES_READY:
        return None
    return {key: shelf.wav(key) for key in keys}


def _add_page(app: FastAPI, folder: Path) -> None:
    """The files of the bundle, by their names; they are in memory: no address leads to the disk."""
    for file in sorted(folder.glob("*")) if folder.is_dir() else ():
        if file.suffix in TYPES:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            app.add_api_route(path, _serve(file.read_bytes(), TYPES[file.suffix]), include_in_schema=False)


def _serve(content: bytes, kind: str) -> Callable[[], Any]:
    async def serve() -> Response:
        return Response(content, media_type=kind)

    return serve


def _send(message: BaseModel, status: int = 200) -> Response:
    return Response(message.model_dump_json(), status, media_type="application/json")
