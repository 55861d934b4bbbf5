"""Recognisers behind an address: whatever speaks the form of OpenAI's `/v1/audio/transcriptions`."""

from __future__ import annotations

import io
import json
import os
import time
import wave
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from typing import Any, final
from urllib.parse import urlsplit

import numpy as np
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.core.draws import Draws
from sottovoce.core.files.answer_store import AnswerStore, current_answers
from sottovoce.core.quantisation import nearest_step
from sottovoce.errors import InputError, MissingExtra, ServiceError, Stopped
from sottovoce.targets.families.recogniser import Recogniser

FORM = "/v1/audio/transcriptions"
RATE = 16_000
PASSING = (408, 409, 425, 429, 500, 502, 503, 504)
"""States that may be over the next time."""
HOPELESS = {
    401: "refuses the key",
    403: "refuses the key",
    404: "knows no such address or model",
    405: "takes no recordings at this address",
}
"""States that any other clip would meet as well."""
LONGEST_PAUSE_SECONDS, LONGEST_WAIT_SECONDS = 60.0, 300.0
"""Between two tries of its own accord; and where the service asks for a pause."""
LONGEST_QUOTE = 200


@final
@dataclass(frozen=True, kw_only=True)
class Endpoint(Recogniser):
    """A recogniser that is asked over the network and gives transcripts alone; see `api` for the settings.

    What is sent is the clip on the grid of 16 bits, as a WAV file. The same sound is sent once: answers are
    kept in the folder of the run, or in memory outside of one. The key is read from the environment for each
    request, and is in no message and no file.
    """

    url: str
    model: str = "whisper-1"
    language: str = "en"
    key: str = ""
    per_minute: float = 0.0
    tries: int = 5
    timeout: float = 60.0
    backoff: float = 1.0
    at_once: int = 4
    own: AnswerStore = field(default_factory=AnswerStore, repr=False, compare=False)

    sample_rate = RATE
    paid = True

    def decode(self, batch: AudioBatch, *, draws: Draws) -> list[str]:
        store = current_answers()
        if store is None:
            store = self.own
            store.lost.clear()
        sounds = [samples(batch.clip(row)) for row in range(len(batch))]
        keys = [self._key(sound) for sound in sounds]
        known = store.find(set(keys))
        missing = {key: sound for key, sound in zip(keys, sounds, strict=True) if key not in known}
        if missing:
            with ThreadPoolExecutor(min(self.at_once, len(missing))) as threads:
                jobs = {key: threads.submit(self._asked, store, key, missing[key]) for key in missing}
            # One that ends the run comes before those that are about their own clip.
            errors = [error for job in jobs.values() if (error := job.exception()) is not None]
            for error in sorted(errors, key=lambda error: isinstance(error, ServiceError)):
                raise error
            known |= {key: job.result() for key, job in jobs.items()}
        return [known[key] for key in keys]

    def _key(self, sound: bytes) -> str:
        about = json.dumps([self.url, self.model, self.language, self.sample_rate])
        return sha256(about.encode() + b"\n" + sound).hexdigest()

    def _asked(self, store: AnswerStore, key: str, sound: bytes) -> str:
        if key in store.lost:
            raise ServiceError(store.lost[key])
        try:
            text = self._persist(store, sound)
        except ServiceError as error:
            store.lost[key] = str(error)
            raise
        store.keep(key, text)
        return text

    def _persist(self, store: AnswerStore, sound: bytes) -> str:
        """The answer to a sound, asked for again where the trouble may pass."""
        client, trouble = self._client, ""
        for turn in range(self.tries):
            pause = min(LONGEST_PAUSE_SECONDS, self.backoff * 2.0 ** (turn - 1)) if turn else 0.0
            time.sleep(max(pause, store.book(self.per_minute)))
            try:
                response = client.post(self.url, data=self._fields, files=_file(sound), headers=self._headers)
            except import_http().HTTPError as error:
                trouble = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                continue
            if response.status_code == 200:
                text = text_in(response.content)
                if text is not None:
                    return text
                trouble = f"an answer without a text: {self._quote(response.text)}"
                continue
            trouble = f"state {response.status_code}: {self._quote(reason_in(response.content))}"
            if response.status_code in HOPELESS:
                raise Stopped(self._refusal(response.status_code))
            if response.status_code not in PASSING:
                raise ServiceError(f"{self.url} refused the clip ({trouble}).")
            self._wait(store, response.headers)
        raise ServiceError(f"{self.url} gave no answer in {self.tries} tries ({trouble}).")

    def _wait(self, store: AnswerStore, headers: Mapping[str, str]) -> None:
        """Do as a service asks that wants a pause."""
        seconds = seconds_in(headers.get("retry-after", ""))
        if seconds > LONGEST_WAIT_SECONDS:
            raise Stopped(f"{self.url} asks for a pause of {seconds:.0f} s; go on after that.")
        if seconds > 0:
            store.hold(seconds)

    def _refusal(self, state: int) -> str:
        named = (
            f"{self.key}, an environment variable" if self.key else "none; name its variable with key=NAME"
        )
        return (
            f"{self.url} {HOPELESS[state]} ({state}). model: {self.model}; key: {named}. The answers so far "
            "are kept; put it right and run the same command again."
        )

    @property
    def _fields(self) -> dict[str, str]:
        fields = {"model": self.model, "response_format": "json", "temperature": "0"}
        return {**fields, "language": self.language} if self.language else fields

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {read_key(self.key)}"} if self.key else {}

    @cached_property
    def _client(self) -> Any:
        return import_http().Client(timeout=self.timeout)

    def _quote(self, text: str) -> str:
        """The beginning of what a service says, without the key."""
        known = os.environ.get(self.key, "") if self.key else ""
        hidden = text.replace(known, "[key]") if known else text
        words = " ".join(hidden.split())
        return words if len(words) <= LONGEST_QUOTE else f"{words[:LONGEST_QUOTE]}..."


def api(
    url: str,
    model: str = "whisper-1",
    language: str = "en",
    key: str = "",
    per_minute: float = 0.0,
    tries: int = 5,
    timeout: float = 60.0,
    backoff: float = 1.0,
    at_once: int = 4,
    device: str = "cpu",
) -> Endpoint:
    """A recogniser behind an address that speaks the form of OpenAI's `/v1/audio/transcriptions`.

    url: the address, such as `https://api.openai.com`; the rest of the path is added where it is missing.
    model: the name by which the service knows it.
    language: of the speech, as a code of two letters; empty lets the service find out.
    key: the environment variable that holds the key; empty sends none.
    per_minute: the most requests in a minute, over all workers; 0 for any number.
    tries: how often a clip is sent before it counts as failed.
    timeout: seconds that an answer may take.
    backoff: seconds before the second try; they double with every further one.
    at_once: requests in progress at a time, of each worker.
    device: of no use here; the service has its own.
    """
    for name, value, least in (
        ("per_minute", per_minute, 0.0), ("tries", tries, 1), ("at_once", at_once, 1),
        ("backoff", backoff, 0.0),
    ):  # fmt: skip
        if value < least:
            raise InputError(f"api: {name} must be at least {least:g}, got {value:g}.")
    if timeout <= 0:
        raise InputError(f"api: timeout must be above 0 seconds, got {timeout:g}.")
    import_http()
    if key:
        read_key(key)
    return Endpoint(
        url=whole_url(url), model=model, language=language, key=key, per_minute=per_minute, tries=tries,
        timeout=timeout, backoff=backoff, at_once=at_once,
    )  # fmt: skip


def import_http() -> Any:
    """The library that sends requests, or an error that names the extra."""
    try:
        return import_module("httpx2")
    except ImportError:
        raise MissingExtra(
            'Models behind an address need the package httpx2, which is not installed; pip install "'
            'sottovoce[api]".'
        ) from None


def whole_url(url: str) -> str:
    """The address of the form, from that of the service or of any part on the way."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"api: expected an address such as https://api.openai.com, got {url!r}.")
    if parts.username or parts.password:
        raise InputError(
            "api: expected an address without a name and a password, which would be kept with the run; put "
            "the key into an environment variable, and name that with key=NAME."
        )
    path = parts.path.rstrip("/")
    tail = FORM.removeprefix("/v1") if path.endswith("/v1") else FORM
    return parts._replace(path=path if path.endswith("/audio/transcriptions") else path + tail).geturl()


def read_key(name: str) -> str:
    """A key from the environment."""
    found = os.environ.get(name, "").strip()
    if not found:
        raise InputError(
            f"api: expected the key in the environment variable {name}, which is not set; type export "
            f"{name}=... first."
        )
    return found


def samples(waveform: Tensor) -> bytes:
    """A clip `(time,)` on the grid of 16 bits, little end first."""
    whole: bytes = (nearest_step(waveform.detach().cpu(), 16).double() * 32768).round().numpy().astype(
        np.dtype("<i2")
    ).tobytes()  # fmt: skip
    return whole


def _file(sound: bytes) -> dict[str, tuple[str, bytes, str]]:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(RATE)
        writer.writeframes(sound)
    return {"file": ("clip.wav", file.getvalue(), "audio/wav")}


def text_in(content: bytes) -> str | None:
    """The transcript in an answer; None where there is none."""
    try:
        text = json.loads(content)["text"]
    except (ValueError, KeyError, TypeError):
        return None
    return text.strip() if isinstance(text, str) else None


def reason_in(content: bytes) -> str:
    """What a refusal says: the message in OpenAI's form, or all of it."""
    try:
        return str(json.loads(content)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace")


def seconds_in(text: str) -> float:
    """How long a `Retry-After` asks to wait: seconds, or a date; 0 where it says neither."""
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    until = until if until.tzinfo else until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())
