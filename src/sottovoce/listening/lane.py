"""A short way for what comes by the thousand: clips, and answers.

It stands behind the limits and before the web framework, which costs several times what these requests need.
It takes what it is sure of; whatever is odd, wrong or new goes on to the application, which has the same
addresses and says what is the matter.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import final

from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sottovoce.listening.ledger import Ledger
from sottovoce.listening.limits import header, refuse, token_of
from sottovoce.listening.problems import explain
from sottovoce.listening.protocol import Answer

NAME = "[A-Za-z0-9_-]{1,64}"
CLIP = re.compile(f"/api/audio/({NAME})")
ANSWERS = re.compile(f"/api/sessions/({NAME})/answers")


@final
class Lane:
    """wav: files by the keys of clips, or None where they are not ready."""

    def __init__(self, app: ASGIApp, books: Ledger, wav: Callable[[str], bytes] | None) -> None:
        self.app, self.books, self.wav = app, books, wav
        self._threads = ThreadPoolExecutor(books.database.threads, thread_name_prefix="answer")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            method, path = scope["method"], scope["path"]
            if method == "GET" and (clip := CLIP.fullmatch(path)):
                sound = self._recall(scope, clip[1])
                if sound is not None:
                    await reply(send, b"audio/wav", sound)
                    return
            elif method == "POST" and (asked := ANSWERS.fullmatch(path)) and _is_json(scope):
                await self._answer(asked[1], scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _recall(self, scope: Scope, name: str) -> bytes | None:
        """The clip of a session that is in memory."""
        if self.wav is None:
            return None
        token = token_of(scope)
        key = self.books.recall_clip(token, name) if token else None
        return None if key is None else self.wav(key)

    async def _answer(self, token: str, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        try:
            answer = Answer.model_validate_json(message.get("body", b""))
        except ValidationError:
            await self.app(scope, _again(message, receive), send)
            return
        try:
            loop = asyncio.get_running_loop()
            body = await loop.run_in_executor(self._threads, self._keep, token, answer)
        except Exception as error:
            told = explain(error)
            more = () if told.wait is None else ((b"retry-after", str(told.wait).encode()),)
            await refuse(send, *told[:3], *more)
            if told.status == 500:
                # For the log.
                raise
            return
        await reply(send, b"application/json", body)

    def _keep(self, token: str, answer: Answer) -> bytes:
        return self.books.answer(token, answer).model_dump_json().encode()


async def reply(send: Send, kind: bytes, body: bytes) -> None:
    headers = [(b"content-length", str(len(body)).encode()), (b"content-type", kind)]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_json(scope: Scope) -> bool:
    kind = header(scope, b"content-type")
    return kind is not None and kind.partition(";")[0].strip().lower() == "application/json"


def _again(message: Message, receive: Receive) -> Receive:
    """Gives out a message that was read already, and then what comes."""
    waiting = [message]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
