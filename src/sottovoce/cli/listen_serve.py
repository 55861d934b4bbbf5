"""`sottovoce listen serve`: open a study to listeners."""

from __future__ import annotations

import gc
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import Progress

from sottovoce.errors import InputError, MissingExtra, StoreError

if TYPE_CHECKING:
    import uvicorn
    from sqlalchemy import Engine
    from starlette.types import ASGIApp

    from sottovoce.listening.analysis.ear_calibration import Known
    from sottovoce.listening.server.connections import ConnectionLimits
    from sottovoce.listening.study.stimuli import StimulusStore
    from sottovoce.listening.study.study_file import ListeningStudy

BACKLOG = 4096
MOST_WORKERS = 4


def serve(
    study: Annotated[Path, typer.Argument(help="The study file.")],
    db: Annotated[
        str | None,
        typer.Option(
            help="Database for the answers: sqlite:///FILE or postgresql://USER@HOST/NAME.",
            show_default="SQLite beside the study file",
            envvar="SOTTOVOCE_DB",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Network address to bind to; 0.0.0.0: all of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to bind to; 0: any free port.")] = 8765,
    admin_token: Annotated[
        str | None,
        typer.Option(
            help="Password of the results page, 16 characters or more. Set it as a variable to keep it out "
            "of the process list.",
            show_default="a new one, printed once",
            envvar="SOTTOVOCE_ADMIN_TOKEN",
        ),
    ] = None,
    frame: Annotated[
        list[str] | None,
        typer.Option(help="A site that may embed the page in a frame, such as https://www.mturkcontent.com."),
    ] = None,
    abandon_after: Annotated[
        float, typer.Option(min=0.01, help="Hours without an answer until a listener's place is given away.")
    ] = 2.0,
    expire_after: Annotated[
        float, typer.Option(min=0.01, help="Days after which a listener can no longer come back.")
    ] = 30.0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Number of server processes; more than one needs PostgreSQL.",
            show_default="SQLite: 1; PostgreSQL: one per core, at most 4",
        ),
    ] = None,
    https: Annotated[
        bool,
        typer.Option(
            "--https", help="A proxy in front of this server speaks HTTPS: do not warn; see also --proxy."
        ),
    ] = False,
    host_name: Annotated[
        list[str] | None,
        typer.Option(help="Host name under which listeners reach the server, such as study.example.org."),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a reverse proxy whose X-Forwarded-For is trusted.",
            show_default="none; with --https, this machine",
        ),
    ] = None,
    joins: Annotated[int, typer.Option(min=1, help="Most new sessions per hour from one address.")] = 600,
    connections: Annotated[int, typer.Option(min=1, help="Most open connections from one address.")] = 1000,
) -> None:
    """Serve a study to listeners' browsers, and store their answers.

    Stop it with Ctrl+C; the same command continues, and so can listeners.

    Examples:

    sottovoce listen serve study.yaml

    sottovoce listen serve study.yaml --host 0.0.0.0 --https --host-name study.example.org
    """
    try:
        from sottovoce.listening.server.app import PAGE, make_app
        from sottovoce.listening.server.connections import LOOPBACK, ConnectionLimits
        from sottovoce.listening.server.database import default_url, describe, open_engine
        from sottovoce.listening.server.hosts import allowed_hosts
        from sottovoce.listening.server.limits import Limits
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed; use: pip install 'sottovoce[listen]'.") from None
    from sottovoce.listening.study.study_file import read_study

    console = Console(highlight=False, soft_wrap=True)
    content = read_study(study)
    frames = check_frames(frame or [])
    hosts = allowed_hosts(host, host_name or [])
    limits = Limits(joins_an_hour=joins, connections=connections)
    guard = ConnectionLimits(limits, proxy or (LOOPBACK if https else ()))
    if not (PAGE / "index.html").exists():
        raise StoreError(f"{PAGE}: the listening page is missing; install sottovoce again.")
    url = db or default_url(study)
    size = count_workers(workers, url)
    engine = open_engine(url)
    door = bind(host, port)
    token = admin_token or secrets.token_urlsafe(24)
    try:
        app = make_app(
            content,
            _prepare(content, study, console),
            engine,
            admin_token=token,
            limits=limits,
            frames=frames,
            hosts=hosts,
            abandon_after=timedelta(hours=abandon_after),
            expire_after=timedelta(days=expire_after),
            report=_reporter(content, engine, _cache(study)),
        )
        # Connections are no good to a process that has them from another one.
        engine.dispose()
        console.print(f"answers: {describe(engine)}", markup=False)
        if not https and not is_local(host):
            console.print(
                f"warning: {host} can be reached from outside, and this server speaks plain HTTP: anyone on "
                "the way "
                "can read and change answers. Put a proxy with HTTPS in front of it.",
                style="yellow",
                markup=False,
            )
        run(app, door, size, console, lambda: _tell(console, door, None if admin_token else token), guard)
    finally:
        door.close()
        engine.dispose()
    console.print("stopped; every answer that was confirmed to a listener is stored.")


def bind(host: str, port: int) -> socket.socket:
    """A socket at the address, before anything that takes time."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((host, port))
    except OSError as error:
        door.close()
        raise StoreError(f"cannot bind to {host}:{port}: {error.strerror}; choose another --port.") from None
    return door


def count_workers(asked: int | None, url: str) -> int:
    """How many processes: as asked for, where the database can be shared by them."""
    shared = not url.startswith("sqlite") and sys.platform != "win32"
    if not shared and asked not in (None, 1):
        raise InputError(
            f"--workers {asked} needs PostgreSQL (--db postgresql://...), and does not work on Windows; "
            "use --workers 1."
        )
    return asked or (min(MOST_WORKERS, os.cpu_count() or 1) if shared else 1)


def run(
    app: ASGIApp,
    door: socket.socket,
    workers: int,
    console: Console,
    told: Callable[[], None],
    guard: ConnectionLimits,
) -> None:
    """Serve until stopped: requests in progress are finished first."""
    from sottovoce.listening.server.server_processes import ServerProcesses

    _raise_limit()
    # What is loaded by now stays: garbage collection over it again and again would keep listeners waiting.
    gc.collect()
    gc.freeze()
    # From here on connections wait instead of being refused.
    door.listen(BACKLOG)
    told()
    if workers == 1:
        with suppress(KeyboardInterrupt):
            _serve(app, door, guard)
    else:
        ServerProcesses(
            workers, partial(_serve, app, door, guard), partial(console.print, style="yellow", markup=False)
        ).run()


def _serve(
    app: ASGIApp, door: socket.socket, guard: ConnectionLimits, wait: Callable[[], None] | None = None
) -> None:
    """In this one process, until stopped. wait: returns when nobody needs it any more."""
    import uvicorn

    server = uvicorn.Server(guard.configure(app, backlog=BACKLOG, timeout_graceful_shutdown=10))
    if wait is not None:
        threading.Thread(target=_stop_after, args=(wait, server), daemon=True).start()
    server.run(sockets=[door])


def _stop_after(wait: Callable[[], None], server: uvicorn.Server) -> None:
    wait()
    server.should_exit = True


def _raise_limit() -> None:
    """Let as many connections be open as the system allows: a browser opens up to six."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit.
        return
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def is_local(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_frames(frames: Sequence[str]) -> tuple[str, ...]:
    """Origins as a browser writes them."""
    for frame in frames:
        parts = urlsplit(frame)
        if (
            parts.scheme != "https"
            or not parts.hostname
            or frame != f"https://{parts.netloc}"
            or set(frame) & set(" ;,'")
        ):
            raise InputError(f"expected --frame such as https://www.mturkcontent.com, got {frame!r}.")
    return tuple(frames)


def _prepare(content: ListeningStudy, path: Path, console: Console) -> StimulusStore:
    from sottovoce.listening.study.stimuli import prepare

    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("clips", total=1.0)
        return prepare(
            content, _cache(path), lambda done, note: bar.update(task, completed=done, description=note)
        )


def _cache(path: Path) -> Path:
    """Where rendered clips of a study are."""
    return path.expanduser().resolve().with_suffix(".cache")


def _reporter(content: ListeningStudy, engine: Engine, folder: Path) -> Callable[[], str]:
    """Makes the report, one at a time and in a process of its own, on one core: listeners come first."""
    from sottovoce.core.processes import spawned

    one, url = threading.Lock(), engine.url.render_as_string(hide_password=False)
    known: Known = {}

    def report() -> str:
        with one, spawned(1) as submit:
            page: str
            page, found = submit(partial(_report, content, url, folder, known)).result()
            known.update(found)
        return page

    return report


def _report(content: ListeningStudy, url: str, folder: Path, known: Known) -> tuple[str, Known]:
    """The page, and what the ear predicts; known: what it has predicted before."""
    from sottovoce.listening.analysis.jnd_searches import sounds_of
    from sottovoce.listening.analysis.results_page import render_so_far
    from sottovoce.listening.server.database import open_engine, read_answers
    from sottovoce.listening.study.stimuli import prepare

    # Clips are loaded only where there is something new to predict.
    clips = cache(lambda: sounds_of(prepare(content, folder), content))
    rows = read_answers(open_engine(url), content.digest)
    return render_so_far(content, rows, lambda key: clips()(key), known), known


def _tell(console: Console, door: socket.socket, token: str | None) -> None:
    host, port = door.getsockname()[:2]
    place = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    console.print(f"listeners: {place}/", markup=False)
    console.print(f"results: {place}/results (any name; the admin token is the password)", markup=False)
    if token is not None:
        console.print(f"admin token: {token}", markup=False)
