"""`sottovoce view FOLDER`: runs, reports and records in the browser, served to this machine alone.

It serves what lies below one folder and nothing else, reads and never writes, and answers to its own name
only, so that a page elsewhere cannot ask it through the browser.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from markupsafe import Markup

from sottovoce import __version__
from sottovoce.core.record import TRIALS, Record
from sottovoce.errors import SottovoceError
from sottovoce.leaderboard.board_page import read_own, template
from sottovoce.leaderboard.viewer.folder_contents import FolderContents
from sottovoce.leaderboard.viewer.record_browser import Browser, Filter
from sottovoce.report.report_page import read

HOST = "127.0.0.1"
TYPES = {
    ".html": "text/html; charset=utf-8", ".json": "application/json", ".jsonl": "text/plain; charset=utf-8",
    ".yaml": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8", ".flac": "audio/flac",
    ".wav": "audio/wav", ".png": "image/png", ".svg": "image/svg+xml",
}  # fmt: skip
"""What is served, and as what; a file of another kind is not."""
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; media-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGES = {"report.html", "study.html", "index.html"}
"""Pages that sottovoce writes. Whoever made a folder may have written them instead, so all HTML is kept apart
from the viewer: no file proves where it comes from."""
APART = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'; sandbox"
)
"""For files that a browser draws. Without an origin of its own a page reads nothing that is served here."""
SCRIPTS = f"{APART} allow-scripts; script-src 'unsafe-inline'"
"""For `PAGES`: charts are drawn by scripts."""
SHOWN = ("success", "wer", "snr", "p-heard", "p-heard-masking")
MOST_DIGITS = 18
_RANGE = re.compile(r"bytes=[ \t]*(\d*)-(\d*)[ \t]*", re.ASCII | re.IGNORECASE)


class HttpError(Exception):
    """An answer other than a page."""

    def __init__(self, status: HTTPStatus, words: str, **headers: str) -> None:
        super().__init__(words)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class Viewer:
    """The pages. root: nothing above it is ever read."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.shelf = FolderContents(self.root)
        self.browser = Browser()

    def index(self, asked: Mapping[str, str]) -> str:
        text, kind, sort = asked.get("q", ""), asked.get("kind", ""), asked.get("sort", "newest")
        items = self.shelf.search(
            text, kind, "name" if sort == "name" else "oldest" if sort == "oldest" else "newest"
        )
        return self._render("view.html", items=items, text=text, kind=kind, sort=sort)

    def records(self, place: str, asked: Mapping[str, str]) -> str:
        folder = self.find(place)
        path = folder / TRIALS
        if not path.is_file():
            raise HttpError(HTTPStatus.NOT_FOUND, f"{place} holds no records yet.")
        wanted = Filter(**{name: asked.get(name, "") for name in ("cell", "status", "label", "text")})
        number = asked.get("page", "1")
        sheet = self.browser.sheet(path, wanted, int(number) if number.isdecimal() and len(number) < 9 else 1)
        rows = [(record, _figures(record), self._sounds(folder, record)) for record in sheet.records]
        return self._render("records.html", place=place, sheet=sheet, wanted=wanted, rows=rows)

    def find(self, place: str) -> Path:
        """A path below the root, links followed; anything else is not there."""
        try:
            path = (self.root / place.strip("/")).resolve()
            inside = path.is_relative_to(self.root) and path.exists()
        except (OSError, ValueError):
            inside = False
        hidden = any(part.startswith(".") for part in Path(place).parts)
        if not inside or hidden:
            raise HttpError(HTTPStatus.NOT_FOUND, "There is no such file here.")
        return path

    def _sounds(self, folder: Path, record: Record) -> list[tuple[str, str]]:
        """Titles and addresses of the files that are there."""
        found: list[tuple[str, str]] = []
        for title, place in record.audio.items():
            path = (folder / place).resolve()
            if path.is_relative_to(self.root) and path.is_file():
                found.append((title, quote(f"/file/{path.relative_to(self.root).as_posix()}")))
        return found

    def _render(self, name: str, **content: Any) -> str:
        style = Markup(read("style.css") + read_own("leaderboard.css") + read_own("view.css"))
        shown: str = template(name).render(
            **content, root=self.root.name or str(self.root), version=__version__, style=style, quote=quote
        )
        return shown


def _figures(record: Record) -> list[str]:
    found = []
    for name in SHOWN:
        one, weight = record.parts.get(name, (0.0, 0.0))
        if weight > 0 and one == one:
            value = one / weight
            found.append(f"{name} {value:.1f} dB" if name == "snr" else f"{name} {value:.2f}")
    return found


class Handler(BaseHTTPRequestHandler):
    """One request. Only reading is known."""

    server_version = f"sottovoce/{__version__}"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def __init__(self, viewer: Viewer, *arguments: Any) -> None:
        self.viewer = viewer
        super().__init__(*arguments)

    def do_GET(self) -> None:
        try:
            self._check_host()
            self._answer()
        except HttpError as refused:
            self._send(str(refused).encode(), "text/plain; charset=utf-8", refused.status, refused.headers)
        except SottovoceError as error:
            self._send(str(error).encode(), "text/plain; charset=utf-8", HTTPStatus.UNPROCESSABLE_ENTITY)
        except (BrokenPipeError, ConnectionResetError):
            # A player that was closed asks for no more.
            self.close_connection = True

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        return None

    def _check_host(self) -> None:
        """Another name that leads here is the work of a page elsewhere (DNS rebinding)."""
        name = (self.headers.get("Host") or "").rpartition(":")[0] or (self.headers.get("Host") or "")
        if name not in (HOST, "localhost"):
            raise HttpError(HTTPStatus.FORBIDDEN, f"This server only answers to the name {HOST}.")

    def _answer(self) -> None:
        address = urlsplit(self.path)
        place = unquote(address.path)
        asked = {name: found[0] for name, found in parse_qs(address.query, max_num_fields=20).items()}
        if "\0" in place:
            raise HttpError(HTTPStatus.NOT_FOUND, "There is no such file here.")
        if place == "/":
            self._send_page(self.viewer.index(asked))
        elif place.startswith("/records/"):
            self._send_page(self.viewer.records(place.removeprefix("/records/"), asked))
        elif place.startswith("/file/"):
            self._send_file(self.viewer.find(place.removeprefix("/file/")))
        else:
            raise HttpError(HTTPStatus.NOT_FOUND, "There is no such page here.")

    def _send_page(self, page: str) -> None:
        self._send(page.encode(), TYPES[".html"], headers={"Content-Security-Policy": POLICY})

    def _send(
        self,
        body: bytes,
        kind: str,
        status: HTTPStatus = HTTPStatus.OK,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._send_head(status, {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_head(self, status: HTTPStatus, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        safe = {
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }
        for name, value in {**safe, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _send_file(self, path: Path) -> None:
        """All of a file or, for players that seek, a piece of it."""
        kind = TYPES.get(path.suffix.lower())
        if kind is None or not path.is_file():
            raise HttpError(HTTPStatus.NOT_FOUND, "There is no such file here.")
        size = path.stat().st_size
        headers = {
            "Content-Type": kind,
            "Accept-Ranges": "bytes",
            "Content-Security-Policy": SCRIPTS if path.name in PAGES else APART,
        }
        asked = self.headers.get("Range", "")
        # Of a file without a version nobody can say that it is still the one that they had.
        ignored = self.command != "GET" or "If-Range" in self.headers
        piece = None if ignored else find_range(asked, size)
        if piece is None:
            self._send_head(HTTPStatus.OK, {**headers, "Content-Length": str(size)})
        else:
            first, last = piece
            more = {"Content-Length": str(last - first + 1), "Content-Range": f"bytes {first}-{last}/{size}"}
            self._send_head(HTTPStatus.PARTIAL_CONTENT, {**headers, **more})
        if self.command == "HEAD":
            return
        with path.open("rb") as file:
            if piece is None:
                shutil.copyfileobj(file, self.wfile)
            else:
                file.seek(piece[0])
                self.wfile.write(file.read(piece[1] - piece[0] + 1))


def find_range(asked: str, size: int) -> tuple[int, int] | None:
    """The first and the last byte that a `Range` asks for, as RFC 9110 has it (14.1.2, 14.2).

    None: all is sent. A server may ignore what is in other units, has several ranges, ends before it begins,
    or is something else. A range that holds no byte of the file, or has a number that no file reaches, is
    refused.
    """
    found = _RANGE.fullmatch(asked.strip())
    if not found or found[1] == found[2] == "":
        return None
    if max(map(len, found.groups())) > MOST_DIGITS:
        raise _unsatisfied(size)
    if not found[1]:
        count = min(int(found[2]), size)
        if not count:
            raise _unsatisfied(size)
        return size - count, size - 1
    first = int(found[1])
    if found[2] and int(found[2]) < first:
        return None
    if first >= size:
        raise _unsatisfied(size)
    return first, min(int(found[2]), size - 1) if found[2] else size - 1


def _unsatisfied(size: int) -> HttpError:
    status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
    return HttpError(status, "The file has no such bytes.", Content_Range=f"bytes */{size}")


def make_server(root: Path, port: int = 0) -> ThreadingHTTPServer:
    """A server on this machine's own address; port 0: any that is free. Start it with `serve_forever`."""
    server = ThreadingHTTPServer((HOST, port), partial(Handler, Viewer(root)))
    server.daemon_threads = True
    return server
