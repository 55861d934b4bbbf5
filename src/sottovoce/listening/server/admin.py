"""The researcher's view: how far a study is, its answers as CSV, its report. All of it needs the admin token.

Programs send the token as `Authorization: Bearer`; a browser asks for it as a password, with any user name.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from secrets import compare_digest
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBasic, HTTPBasicCredentials, HTTPBearer
from sqlalchemy import func, select
from starlette.exceptions import HTTPException

from sottovoce.listening.analysis.answer_rows import VISIT_COLUMNS
from sottovoce.listening.server.database import read_answers, read_visits
from sottovoce.listening.server.limits import Guesses, address_of
from sottovoce.listening.server.session_store import SessionStore
from sottovoce.listening.server.tables import ANSWER, SESSION
from sottovoce.listening.session.protocol import Message, Problem

COLUMNS = (
    "session", "seat", "simulated", "accepted", "reason", "notes", "place", "kind", "block", "teaching",
    "sentinel", "roles", "truth", "facts", "given", "seconds", "plays", "dither",
)  # fmt: skip
REPORT_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:; "
    "media-src data:; font-src data:; sandbox allow-scripts allow-downloads; frame-ancestors 'none'"
)
"""A report is one file with its scripts inside: it may run them, but reach nothing with them."""


class SessionCounts(Message):
    """Sessions of people, or of simulated listeners. rounds: how often all seats have been taken."""

    begun: int = 0
    open: int = 0
    abandoned: int = 0
    accepted: int = 0
    discarded: int = 0
    seats_held: int = 0
    rounds: int = 0
    answers: int = 0


class StudyProgress(Message):
    """How far a study is. hash: of the version that is served. dither: whether its clips are dithered."""

    title: str
    hash: str
    seats: int
    dither: bool
    people: SessionCounts
    simulated: SessionCounts


async def check_token(
    request: Request,
    bearer: Annotated[
        HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False, scheme_name="admin"))
    ],
    basic: Annotated[
        HTTPBasicCredentials | None, Depends(HTTPBasic(auto_error=False, scheme_name="adminPassword"))
    ],
) -> None:
    said = bearer.credentials if bearer is not None else basic.password if basic is not None else ""
    guesses: Guesses = request.app.state.guesses
    address = address_of(request.scope)
    wait = guesses.wait(address) if said else 0
    if wait:
        detail = f"expected the admin token, got wrong ones from this address; wait {wait} seconds."
        raise HTTPException(429, detail, {"Retry-After": str(wait)})
    if compare_digest(said.encode("utf-8", "replace"), request.app.state.admin_token.encode()):
        guesses.clear(address)
    else:
        # A browser asks without one first.
        if said:
            guesses.add(address)
        header = {"WWW-Authenticate": 'Basic realm="sottovoce: any name, and the admin token"'}
        raise HTTPException(401, "expected the admin token.", header)


PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (401, 408, 413, 422, 429, 503)
}
HTML: dict[int | str, dict[str, Any]] = {200: {"content": {"text/html": {}}, "description": "A page."}}
router = APIRouter(dependencies=[Depends(check_token)], responses=PROBLEMS)


@router.get("/api/admin/progress")
def progress(request: Request) -> StudyProgress:
    """How far the study is."""
    return measure(request.app.state.sessions)


@router.get(
    "/api/admin/answers.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {}}, "description": "One row an answer."}},
)
def answers(request: Request) -> Response:
    """Every answer, simulated ones marked; what has parts is JSON."""
    sessions: SessionStore = request.app.state.sessions
    rows = read_answers(sessions.database.engine, sessions.study.digest)
    return _csv("answers.csv", COLUMNS, ([_cell(getattr(row, name)) for name in COLUMNS] for row in rows))


@router.get(
    "/api/admin/sessions.csv",
    response_class=Response,
    responses={200: {"content": {"text/csv": {}}, "description": "One row a session."}},
)
def sessions(request: Request) -> Response:
    """Every session, with what its listener came with and the code they were given; simulated ones marked."""
    sessions: SessionStore = request.app.state.sessions
    visits = read_visits(sessions.database.engine, sessions.study.digest)
    return _csv("sessions.csv", VISIT_COLUMNS, (visit.line() for visit in visits))


@router.get("/results", response_class=Response, responses=HTML)
def results(request: Request) -> HTMLResponse:
    """How far the study is, to read."""
    return HTMLResponse(_page(measure(request.app.state.sessions), request.app.state.report is not None))


@router.get("/results/report", response_class=Response, responses=HTML | {404: {"model": Problem}})
def report(request: Request) -> HTMLResponse:
    """The report of all answers so far."""
    if request.app.state.report is None:
        raise HTTPException(404, "this server makes no reports; use sottovoce listen results.")
    return HTMLResponse(request.app.state.report(), headers={"Content-Security-Policy": REPORT_POLICY})


def measure(sessions: SessionStore) -> StudyProgress:
    """Count sessions and answers."""
    states = (
        select(
            SESSION.c.simulated,
            SESSION.c.state,
            SESSION.c.accepted,
            func.count().label("sessions"),
            func.count(SESSION.c.held).label("held"),
            func.max(SESSION.c.seat).label("top"),
        )
        .where(SESSION.c.study_id == sessions.study_id)
        .group_by(SESSION.c.simulated, SESSION.c.state, SESSION.c.accepted)
    )
    counts = (
        select(SESSION.c.simulated, func.count().label("answers"))
        .join_from(ANSWER, SESSION, ANSWER.c.session_id == SESSION.c.id)
        .where(SESSION.c.study_id == sessions.study_id)
        .group_by(SESSION.c.simulated)
    )
    found, answered = sessions.database.read(
        lambda link: (link.execute(states).all(), link.execute(counts).all())
    )
    groups = [
        _group(
            [row for row in found if row.simulated == simulated],
            sum(row.answers for row in answered if row.simulated == simulated),
            sessions.study.seats,
        )
        for simulated in (False, True)
    ]
    study = sessions.study
    return StudyProgress(
        title=study.title,
        hash=study.digest,
        seats=study.seats,
        dither=study.dither,
        people=groups[0],
        simulated=groups[1],
    )


def _group(rows: list[Any], answers: int, seats: int) -> SessionCounts:
    def count(state: str, accepted: bool | None = None) -> int:
        return sum(row.sessions for row in rows if row.state == state and row.accepted == accepted)

    return SessionCounts(
        begun=sum(row.sessions for row in rows),
        open=count("open"),
        abandoned=count("abandoned"),
        accepted=count("finished", True),
        discarded=count("finished", False),
        seats_held=sum(row.held for row in rows),
        rounds=max((row.top // seats + 1 for row in rows), default=0),
        answers=answers,
    )


def _csv(name: str, columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> StreamingResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(_write(columns, lines), media_type="text/csv", headers=headers)


def _write(columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lines of CSV, a header first."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for line in lines:
        writer.writerow(line)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(dict(value), ensure_ascii=False) if isinstance(value, dict) else value


def _page(found: StudyProgress, report: bool) -> str:
    names = list(SessionCounts.model_fields)
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in ("", *names))
    lines = "".join(
        f"<tr><th>{title}</th>{''.join(f'<td>{getattr(group, name)}</td>' for name in names)}</tr>"
        for title, group in (("people", found.people), ("SIMULATED, not people", found.simulated))
    )
    dithered = " Clips are dithered, in each slot anew." if found.dither else ""
    link = '<p><a href="/results/report">Report of all answers so far</a></p>' if report else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(found.title)}: results</title></head><body><h1>{escape(found.title)}</h1>"
        f"<p>{found.seats} seats. Version {found.hash[:12]}.{dithered}</p>"
        f"<table border='1' cellpadding='6'><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
        '<p><a href="/api/admin/answers.csv">All answers (CSV)</a></p>'
        f'<p><a href="/api/admin/sessions.csv">All sessions (CSV)</a></p>{link}</body></html>'
    )
