"""Models behind an address, asked on a server of this machine that can be told what to answer.

The server hears by how loud a clip is. What it was sent is read with the standard library alone.
"""

from __future__ import annotations

import io
import json
import sqlite3
import threading
import time
import wave
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.parser import BytesParser
from email.policy import HTTP
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import sottovoce as sv
from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.cli.main import app
from sottovoce.core.files.answer_store import ANSWERS, AnswerStore
from sottovoce.errors import InputError, MissingCapability, ServiceError, Stopped
from sottovoce.report.report_page import write_report
from sottovoce.targets.adapters.endpoint import seconds_in, whole_url
from sottovoce.testing import check_target

Answer = tuple[int, dict[str, str], bytes]
LOUD, QUIET = 0.5, 0.05


@dataclass
class Asked:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    fields: dict[str, str]
    rate: int
    samples: np.ndarray[Any, Any]


def said(text: str) -> Answer:
    return 200, {}, json.dumps({"text": text}).encode()


def refused(state: int, message: str, **headers: str) -> Answer:
    return state, headers, json.dumps({"error": {"message": message}}).encode()


def by_loudness(asked: Asked) -> Answer:
    return said("turn it down" if np.mean((asked.samples / 32768.0) ** 2) > 0.01 else "turn it up")


@dataclass
class Service:
    """What was asked and when, in order, and what is answered: the scripted answers first, then `answer`.

    A number in the script is a pause in seconds before the answer after it.
    """

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    script: list[Answer | float] = field(default_factory=list)
    answer: Callable[[Asked], Answer] = by_loudness
    guard: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, asked: Asked) -> Answer:
        with self.guard:
            self.asked.append(asked)
            self.times.append(time.monotonic())
            pause = self.script.pop(0) if self.script and isinstance(self.script[0], float) else 0.0
            found = self.script.pop(0) if self.script else None
        assert isinstance(pause, float)
        time.sleep(pause)
        return found if isinstance(found, tuple) else self.answer(asked)


@pytest.fixture
def service() -> Iterator[Service]:
    found = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            state, headers, body = found.reply(read_form(self.path, dict(self.headers.items()), content))
            try:
                self.send_response(state)
                for name, text in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name.replace("_", "-"), text)
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                pass  # whoever asked has given up

        def log_message(self, *words: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def read_form(path: str, headers: dict[str, str], content: bytes) -> Asked:
    head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode()
    form: Any = BytesParser(policy=HTTP).parsebytes(head + content)
    fields, rate, samples = dict[str, str](), 0, np.zeros(0)
    for part in form.iter_parts():
        name = part.get_param("name", header="content-disposition")
        if part.get_filename():
            with wave.open(io.BytesIO(part.get_payload(decode=True))) as file:
                assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
                rate = file.getframerate()
                samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(float)
            fields[name] = part.get_filename()
        else:
            fields[name] = part.get_payload(decode=True).decode()
    return Asked(path, headers, fields, rate, samples)


def clips(*levels: float, samples: int = 800) -> sv.AudioBatch:
    return sv.AudioBatch.of([torch.full((samples,), level) for level in levels], sample_rate=16_000)


def ask(model: str, *levels: float) -> list[str]:
    return sv.open_model(model).decode(clips(*levels), draws=sv.Draws(0))


def test_a_clip_is_sent_in_the_form_of_the_service(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret-1")
    assert ask(f"api(url={service.url}, model=tiny, language=de, key=MY_KEY)", LOUD) == ["turn it down"]
    (asked,) = service.asked
    assert asked.path == "/v1/audio/transcriptions"
    assert asked.headers["Authorization"] == "Bearer secret-1"
    assert asked.fields == {
        "file": "clip.wav",
        "model": "tiny",
        "language": "de",
        "response_format": "json",
        "temperature": "0",
    }
    # A half of full scale is 16384 of 32768.
    assert (asked.rate, asked.samples.tolist()) == (16_000, [16_384.0] * 800)


def test_an_address_alone_is_enough(service: Service) -> None:
    model = sv.open_model(f"api:{service.url}")
    assert (model.says, model.shows, model.sample_rate) == ("words", "decisions", 16_000)
    assert model.decode(clips(LOUD, QUIET), draws=sv.Draws(0)) == ["turn it down", "turn it up"]
    assert "Authorization" not in service.asked[0].headers
    assert service.asked[0].fields["model"] == "whisper-1"


@pytest.mark.parametrize(
    "given, path",
    [
        ("https://host", "https://host/v1/audio/transcriptions"),
        ("https://host/", "https://host/v1/audio/transcriptions"),
        ("https://host/v1", "https://host/v1/audio/transcriptions"),
        ("http://host:80/openai/v1/", "http://host:80/openai/v1/audio/transcriptions"),
        ("https://host/openai/audio/transcriptions?v=2", "https://host/openai/audio/transcriptions?v=2"),
    ],
)
def test_the_rest_of_the_path_is_added(given: str, path: str) -> None:
    assert whole_url(given) == path


@pytest.mark.parametrize(
    "model, told",
    [
        ("api:example.org", "expected an address such as https://api.openai.com, got 'example.org'"),
        ("api:ftp://example.org", "expected an address such as"),
        ("api:https://me:secret@example.org", "without a name and a password"),
        (
            "api(url=https://example.org, key=NO_SUCH_KEY)",
            "variable NO_SUCH_KEY, which is not set; type export",
        ),
        ("api(url=https://example.org, tries=0)", "tries must be at least 1, got 0"),
        ("api(url=https://example.org, timeout=0)", "timeout must be above 0 seconds"),
        ("api(url=https://example.org, per_minute=-1)", "per_minute must be at least 0, got -1"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(model: str, told: str) -> None:
    with pytest.raises(InputError, match=told) as raised:
        sv.open_model(model)
    assert "secret" not in str(raised.value)


def test_a_sound_is_sent_once(service: Service) -> None:
    model = sv.open_model(f"api:{service.url}")
    assert len(set(model.decode(clips(LOUD, LOUD, LOUD), draws=sv.Draws(0)))) == 1
    model.decode(clips(LOUD), draws=sv.Draws(1))
    assert len(service.asked) == 1
    # Less than half a step of 16 bits is the same sound, more is another one.
    model.decode(clips(LOUD + 0.4 / 32_768), draws=sv.Draws(0))
    assert len(service.asked) == 1
    model.decode(clips(LOUD + 0.6 / 32_768), draws=sv.Draws(0))
    assert len(service.asked) == 2


def test_trouble_that_passes_is_waited_out(service: Service) -> None:
    service.script = [
        refused(429, "slow down", Retry_After="0.2"),
        refused(503, "busy"),
        (200, {}, b"{broken"),
    ]
    began = time.monotonic()
    assert ask(f"api(url={service.url}, backoff=0.05)", QUIET) == ["turn it up"]
    # 0.2 s as asked, then 0.1 s and 0.2 s of its own accord.
    assert len(service.asked) == 4 and time.monotonic() - began >= 0.5


def test_a_service_that_asks_for_a_long_pause_ends_the_run(service: Service) -> None:
    service.script = [refused(429, "tomorrow", Retry_After="3600")]
    with pytest.raises(Stopped, match="asks for a pause of 3600 s"):
        ask(f"api:{service.url}", QUIET)


def test_slow_answers_are_given_up(service: Service) -> None:
    service.script = [1.0, said("late"), 1.0, said("late")]
    with pytest.raises(ServiceError, match=r"gave no answer in 2 tries \(ReadTimeout"):
        ask(f"api(url={service.url}, timeout=0.1, tries=2, backoff=0)", QUIET)
    assert len(service.asked) == 2


def test_nobody_at_the_address() -> None:
    with pytest.raises(ServiceError, match=r"gave no answer in 2 tries \(ConnectError"):
        ask("api(url=http://127.0.0.1:9, tries=2, backoff=0)", QUIET)


@pytest.mark.parametrize("body", [b"", b"[]", b'"words"', b'{"text": 5}', b'{"words": "up"}', b"\xff\xfe"])
def test_an_answer_without_a_text_is_none(service: Service, body: bytes) -> None:
    service.answer = lambda asked: (200, {}, body)
    with pytest.raises(ServiceError, match="an answer without a text"):
        ask(f"api(url={service.url}, tries=2, backoff=0)", QUIET)


def test_an_empty_text_is_an_answer(service: Service) -> None:
    service.answer = lambda asked: said("")
    assert ask(f"api:{service.url}", QUIET) == [""]


def test_a_clip_that_is_refused_is_sent_once(service: Service) -> None:
    service.answer = lambda asked: refused(400, "audio too short")
    with pytest.raises(ServiceError, match=r"refused the clip \(state 400: audio too short\)"):
        ask(f"api:{service.url}", QUIET)
    assert len(service.asked) == 1


@pytest.mark.parametrize("state, told", [(401, "refuses the key"), (404, "knows no such address or model")])
def test_what_no_clip_can_cure_ends_the_run(
    service: Service, monkeypatch: pytest.MonkeyPatch, state: int, told: str
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-1")
    service.answer = lambda asked: refused(state, "no: secret-1")
    with pytest.raises(Stopped, match=told) as raised:
        ask(f"api(url={service.url}, key=MY_KEY)", QUIET)
    assert "secret-1" not in str(raised.value) and "MY_KEY" in str(raised.value)


def test_the_key_is_in_no_message(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret-1")
    service.answer = lambda asked: refused(422, "no: secret-1")
    model = sv.open_model(f"api(url={service.url}, key=MY_KEY)")
    with pytest.raises(ServiceError, match=r"no: \[key\]"):
        model.decode(clips(QUIET), draws=sv.Draws(0))
    assert "secret-1" not in repr(model)


def test_how_long_to_wait_by_hand() -> None:
    assert [seconds_in(text) for text in ("7", "0.5", "-3", "", "soon")] == [7.0, 0.5, 0.0, 0.0, 0.0]
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert 80.0 < seconds_in(later) <= 90.0
    assert seconds_in(format_datetime(datetime.now(UTC) - timedelta(seconds=90))) == 0.0


def test_no_more_than_so_many_in_a_minute(service: Service) -> None:
    # 1,200 a minute is one every 50 ms, whichever thread sends it.
    ask(f"api(url={service.url}, per_minute=1200, at_once=4)", *(0.1 * step for step in range(1, 7)))
    assert len(service.times) == 6
    assert max(service.times) - min(service.times) >= 0.2


def test_attacks_that_need_more_are_refused_with_those_that_run(service: Service) -> None:
    model = sv.open_model(f"api:{service.url}")
    with pytest.raises(MissingCapability, match="Use noise, kenansville, yeehaw or genetic"):
        sv.attack(model, clips(QUIET), "pgd", budget="snr(db=10)")
    trial = sv.attack(model, clips(QUIET), "genetic(steps=2, population=4)", budget="snr(db=10)")
    assert trial.clean_texts == ("turn it up",)


def test_the_laws_of_a_target(service: Service) -> None:
    check_target(sv.open_model(f"api:{service.url}"))


def test_requests_are_counted_over_threads_and_openings(tmp_path: Path) -> None:
    path = tmp_path / ANSWERS
    one, two = AnswerStore(path, "one"), AnswerStore(path, "two")
    one.limit(50)

    def book(turn: int) -> bool:
        try:
            (one if turn % 2 else two).book()
        except Stopped:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(book, range(80))) == 50
    assert one.sent() == 50 == one.sent("one") + one.sent("two")
    # The limit is that of whoever goes on, and what was sent before counts.
    one.limit(51)
    assert AnswerStore(path, "three").book() == 0.0
    with pytest.raises(Stopped, match="51 requests were sent, as many as --max-requests allows"):
        one.book()
    one.keep("key", "text")
    assert two.find(["key", "other"]) == {"key": "text"}


def test_a_folder_elsewhere_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not on this machine"):
        AnswerStore(tmp_path / "absent" / ANSWERS)


@pytest.fixture
def spoken(tmp_path: Path, write_clip: Any) -> str:
    """Six clips, three of them loud, as a table."""
    levels = [16_384, 12_000, 10_000, 1_000, 900, 800]
    rows = ["path,label"]
    for place, level in enumerate(levels):
        write_clip(tmp_path / "clips" / f"{place}.wav", np.full(1_600, level), 16_000)
        rows.append(f"{place}.wav,{'turn it down' if level > 3_000 else 'turn it up'}")
    (tmp_path / "clips" / "clips.csv").write_text("\n".join(rows) + "\n")
    return f"csv:{tmp_path / 'clips' / 'clips.csv'}"


def plan_of(service: Service, spoken: str, **settings: Any) -> Any:
    entries = {"attacks": ["noise"], "budgets": ["snr(db=20)"], "metrics": ["wer", "success"], "batch": 4}
    model = f"api(url={service.url}, tries=2, backoff=0)"
    return make_plan({"model": model, "data": spoken, "probe": 0, "audio": "none", **entries, **settings})


def test_a_run_asks_nothing_twice(service: Service, spoken: str, tmp_path: Path) -> None:
    plan = plan_of(service, spoken)
    folder = run_audit(plan, tmp_path / "run")
    # Six clips as they are and six with noise. The floats before rounding are the same sounds of 16 bits, but
    # for those that rounding would push out of the budget.
    sent = len(service.asked)
    assert 12 <= sent <= 18 and folder.about()["requests"] == sent
    assert {record.status for record in folder.records()} == {"ok"}
    lines = folder.records_path.read_bytes().splitlines(keepends=True)
    folder.records_path.write_bytes(b"".join(lines[:2]))
    run_audit(plan, tmp_path / "run")
    assert len(service.asked) == sent
    page = write_report(folder).read_text()
    assert f"{sent} sent; no sound that had an answer was sent again" in page
    assert "Not tested: does the model answer the same clip alike?" in page


def test_a_request_that_fails_for_good_is_the_failure_of_its_clip(
    service: Service, spoken: str, tmp_path: Path
) -> None:
    service.answer = lambda asked: refused(500, "internal") if asked.samples[0] == 900 else by_loudness(asked)
    folder = run_audit(
        plan_of(service, spoken, attacks=["none"], budgets=[], metrics=["clean-wer"]), tmp_path / "run"
    )
    found = {record.clip: record for record in folder.records()}
    assert [name for name, record in found.items() if record.status == "failed"] == ["4"]
    assert (
        found["4"].reason
        == f"{service.url}/v1/audio/transcriptions gave no answer in 2 tries (state 500: internal)."
    )
    # Five clips once, and the sixth twice: its batch was halved twice, and it was not sent again for that.
    assert len(service.asked) == 7
    service.answer = by_loudness
    again = run_audit(folder.plan(), tmp_path / "run", retry_failed=True)
    assert {record.status for record in again.records()} == {"ok"} and len(service.asked) == 8


@pytest.mark.slow
def test_workers_share_answers_and_the_limit(service: Service, spoken: str, tmp_path: Path) -> None:
    words = ["audit", "--model", f"api:{service.url}", "--data", spoken, "--attacks", "none", "--batch", "2"]
    words += ["--workers", "2", "--out", str(tmp_path / "run"), "--metrics", "clean-wer"]
    stopped = CliRunner().invoke(app, [*words, "--max-requests", "4"], env={"COLUMNS": "120"})
    assert stopped.exit_code == 130 and len(service.asked) == 4
    assert "4 requests were sent, as many as --max-requests allows" in stopped.output
    done = CliRunner().invoke(app, [*words, "--max-requests", "6"], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    assert len(service.asked) == 6 and RunFolder(tmp_path / "run").about()["requests"] == 6


def test_the_key_is_in_no_file(
    service: Service, spoken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "secret-1")
    service.answer = lambda asked: refused(422, "secret-1") if asked.samples[0] == 900 else by_loudness(asked)
    model = f"api(url={service.url}, key=MY_KEY)"
    folder = run_audit(plan_of(service, spoken, model=model), tmp_path / "run")
    write_report(folder)
    assert service.asked[0].headers["Authorization"] == "Bearer secret-1"
    files = [path for path in folder.path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path.name for path in files if b"secret-1" in path.read_bytes()]


def test_a_dry_run_sends_nothing_and_tells_the_most(service: Service, spoken: str, tmp_path: Path) -> None:
    words = ["audit", "--model", f"api:{service.url}", "--data", spoken, "--snr", "20", "--dry-run", "--json"]
    found = CliRunner().invoke(app, [*words, "--attacks", "noise,genetic(steps=3, population=4)"])
    assert found.exit_code == 0, found.output
    assert service.asked == []
    (run,) = json.loads(found.stdout)["runs"]
    noise, genetic = (line["forward"] for line in run["attacks"])
    # Noise: the clean, the float and the rounded clip, of six. Genetic: four generations of four besides.
    assert (noise, genetic) == (6 * 3, 6 * (3 + 4 * 4))
    assert any("none was sent" in note for note in run["notes"])


def test_without_attacks_named_those_run_that_need_no_gradient(service: Service, spoken: str) -> None:
    plan = make_plan({"model": f"api:{service.url}", "data": spoken})
    assert [attack.name for attack in plan.attacks] == ["noise", "kenansville", "genetic"]
    assert service.asked == []


def test_a_damaged_file_of_answers_is_told(tmp_path: Path) -> None:
    (tmp_path / ANSWERS).write_bytes(b"no database" * 100)
    with pytest.raises(sv.errors.StoreError, match="answers of a service cannot be kept there"):
        AnswerStore(tmp_path / ANSWERS)
    assert sqlite3.sqlite_version_info >= (3, 24)  # the first with ON CONFLICT DO UPDATE
