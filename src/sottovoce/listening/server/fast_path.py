"""What comes by the thousand, clips and answers, and a fast path to it.

The fast path is behind the limits and before the web framework, which costs several times what these
requests need. It takes what it is sure of; whatever is odd, wrong or new goes on to the application, which
has the same addresses, checks with care, and then asks the same `Replies`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import final

from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sottovoce.listening.server.limits import header, refuse, token_of
from sottovoce.listening.server.problems import explain
from sottovoce.listening.server.session_store import SessionStore
from sottovoce.listening.session.protocol import Answer

NAME = "[A-Za-z0-9_-]{1,64}"
CLIP = re.compile(f"/api/audio/({NAME})")
TOKEN = re.compile(NAME)
ANSWERS = re.compile(f"/api/sessions/({NAME})/answers")


@final
@dataclass(frozen=True)
class Replies:
    """Clips and next screens as they are sent. The one place that answers, whichever way a request came.

    wav: files by the keys of clips. ready: they are in memory, and not made on demand.
    """

    sessions: SessionStore
    wav: Callable[[str], bytes]
    ready: bool = True

    def clip(self, token: str, name: str) -> bytes:
        return self.sessions.find_clip(token, name).sound(self.wav)

    def clip_at_once(self, token: str, name: str) -> bytes | None:
        """The same where neither the database nor the disk is asked; else None."""
        cue = self.sessions.recall_clip(token, name) if self.ready else None
        return None if cue is None else cue.sound(self.wav)

    def next_screen(self, token: str, answer: Answer) -> bytes:
        """Keep an answer; what comes after it."""
        return self.sessions.answer(token, answer).model_dump_json().encode()


@final
class FastPath:
    """Before an application, which gets what is not answered here."""

    def __init__(self, app: ASGIApp, replies: Replies) -> None:
        self.app, self.replies = app, replies
        self._threads = ThreadPoolExecutor(replies.sessions.database.threads, thread_name_prefix="replies")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            method, path = scope["method"], scope["path"]
            if method == "GET" and (clip := CLIP.fullmatch(path)) and (token := _token(scope)):
                await self._play(token, clip[1], send)
                return
            if method == "POST" and (asked := ANSWERS.fullmatch(path)) and _is_json(scope):
                await self._answer(asked[1], scope, receive, send)
                return
        await self.app(scope, receive, send)

    async def _play(self, token: str, name: str, send: Send) -> None:
        # As a rule the session is in memory, and then it is not worth a thread.
        sound = self.replies.clip_at_once(token, name)
        if sound is not None:
            await reply(send, b"audio/wav", sound)
        else:
            await self._work(send, b"audio/wav", lambda: self.replies.clip(token, name))

    async def _answer(self, token: str, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        try:
            answer = Answer.model_validate_json(message.get("body", b""))
        except ValidationError:
            await self.app(scope, _again(message, receive), send)
            return
        await self._work(send, b"application/json", lambda: self.replies.next_screen(token, answer))

    async def _work(self, send: Send, kind: bytes, work: Callable[[], bytes]) -> None:
        """Reply with what a thread makes, or with why it cannot."""
        try:
            body = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except Exception as error:
            told = explain(error)
            more = () if told.wait is None else ((b"retry-after", str(told.wait).encode()),)
            await refuse(send, *told[:3], *more)
            if told.status == 500:
                # For the log.
                raise
            return
        await reply(send, kind, body)


async def reply(send: Send, kind: bytes, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", kind)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _token(scope: Scope) -> str | None:
    said = token_of(scope)
    return said if said and TOKEN.fullmatch(said) else None


def _is_json(scope: Scope) -> bool:
    kind = header(scope, b"content-type")
    return kind is not None and kind.partition(";")[0].strip().lower() == "application/json"


def _again(message: Message, receive: Receive) -> Receive:
    """Gives out a message that was read already, and then what comes."""
    waiting = [message]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
