"""Why a request was refused, as the page reads it: a status, a code, one sentence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from sottovoce.listening.server.session_store import Refusal
from sottovoce.listening.session.protocol import Problem

WORD = re.compile(r"[a-z_-]{1,32}|\d{1,3}")
DOWN = (OperationalError, InterfaceError, InternalError, PoolTimeout)
"""What is raised while the database is down or its disk full."""


class RefusedRequest(NamedTuple):
    """An answer in the negative. wait: seconds after which to try again."""

    status: int
    code: str
    detail: str
    wait: int | None = None


def explain(error: Exception) -> RefusedRequest:
    """The refusal for a session that cannot continue. Status 500: a bug of the server."""
    if isinstance(error, Refusal):
        return RefusedRequest(error.status, error.code, error.detail, 2 if error.status == 503 else None)
    if isinstance(error, DOWN):
        detail = "the answers cannot be stored now; nothing was changed; try again."
        return RefusedRequest(503, "try-again", detail, 2)
    return RefusedRequest(500, "server-error", "something went wrong here; the log has more.")


def add_handlers(app: FastAPI) -> None:
    """Let an application say why it refuses."""
    for kind in (Refusal, *DOWN, Exception):
        app.add_exception_handler(kind, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)


def _refuse(status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    content = Problem(code=code, detail=detail).model_dump_json()
    return Response(content, status, media_type="application/json", headers=headers)


async def _on_error(_: Request, error: Exception) -> Response:
    told = explain(error)
    return _refuse(*told[:3], None if told.wait is None else {"Retry-After": str(told.wait)})


async def _on_invalid(_: Request, error: Any) -> Response:
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    if place[0] == "path":
        code = "unknown-session" if place[1] == "token" else "unknown-audio"
        return _refuse(404, code, "expected a name that this server has given out.")
    # What was sent is not repeated: it may be long, or markup, or no text at all.
    where = ".".join(part for part in place if WORD.fullmatch(part))
    what = "expected a kind that is known" if first["type"] == "union_tag_invalid" else first["msg"]
    return _refuse(422, "bad-request", f"{where}: {what}")


async def _on_http(_: Request, error: Any) -> Response:
    if error.status_code == 400:
        return _refuse(422, "bad-request", "expected JSON, got something else.")
    codes = {401: "unauthorised", 404: "unknown-address", 405: "wrong-method", 429: "too-many"}
    code = codes.get(error.status_code, "bad-request")
    return _refuse(error.status_code, code, str(error.detail), error.headers)
