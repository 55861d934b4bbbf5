"""The viewer: what it lists, finds and plays, and what it does not give away."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sottovoce.core.record import Record
from sottovoce.leaderboard.browse import PAGE, Browser, Filter
from sottovoce.leaderboard.serve import make_server
from sottovoce.leaderboard.shelf import Shelf

SOUND = bytes(range(200))
Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture
def folder(tmp_path: Path, write_run: Callable[..., Path], make_record: Callable[..., Record]) -> Path:
    """Two runs, a study and a secret beside them."""
    root = tmp_path / "served"
    records = [
        make_record("fgsm_evade_snr-db-20", f"clip-{number:03d}", broken=number % 2 == 0)
        for number in range(120)
    ]
    records.append(
        Record(cell="load", clip="broken", status="failed", reason="file of zero length", label="no")
    )
    run = write_run(root / "deep" / "one", records, {"model": "python:nobody:one"})
    places = {"clean": "audio/clean/é/heard.flac", "adversarial": "../../../secret.flac"}
    texts = {"label": "up", "clean_text": "up", "adversarial_text": "down"}
    sound = Record(
        cell="fgsm_evade_snr-db-20", clip="é/heard", status="ok", achieved=True, audio=places, **texts
    )
    with (run / "trials.jsonl").open("a") as file:
        file.write(sound.to_line() + "\n")
    (run / "audio" / "clean" / "é").mkdir(parents=True)
    (run / "audio" / "clean" / "é" / "heard.flac").write_bytes(SOUND)
    (run / "report.html").write_text("<h1>report of one</h1>")
    write_run(root / "two", [], {"model": "python:nobody:two", "defenses": ["gaussian(sigma=0.5)"]})
    (root / "two" / "about.json").write_text(
        json.dumps({"run": "fedcba", "started": "2026-05-01T00:00:00+00:00"})
    )
    (root / "study").mkdir()
    (root / "study" / "study.html").write_text("<h1>study</h1>")
    (root / "study" / "results.json").write_text(json.dumps({"study": "V1", "title": "Universal"}))
    (root / "notes.exe").write_text("no")
    (root / ".hidden.html").write_text("no")
    (tmp_path / "secret.html").write_text("secret")
    (tmp_path / "secret.flac").write_text("secret")
    (root / "out.html").symlink_to(tmp_path / "secret.html")
    return root


@pytest.fixture
def ask(folder: Path) -> Iterator[Callable[..., Answer]]:
    server = make_server(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    port = server.server_address[1]

    def get(path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), body

    yield get
    server.shutdown()
    server.server_close()


def test_items_are_listed_newest_first_and_searched(folder: Path) -> None:
    shelf = Shelf(folder)
    assert {item.path: item.kind for item in shelf.items()} == {
        "deep/one": "run",
        "two": "run",
        "study": "study",
    }
    assert [item.path for item in shelf.search(kind="run")] == ["two", "deep/one"]
    assert [item.path for item in shelf.search(kind="run", sort="oldest")] == ["deep/one", "two"]
    for text, path in (
        ("GAUSSIAN", "two"),
        ("nobody:one", "deep/one"),
        ("fedcba", "two"),
        ("v1 universal", "study"),
    ):
        assert [item.path for item in shelf.search(text)] == [path]
    assert shelf.search("gaussian nobody:one") == []


def test_the_list_links_reports_records_and_studies(ask: Callable[..., Answer]) -> None:
    status, headers, body = ask("/")
    assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"]
    assert b'href="/file/deep/one/report.html"' in body and b'href="/records/deep/one"' in body
    assert b'href="/file/study/study.html"' in body and b"3 results" in body
    assert b"1 result<" in ask("/?q=gaussian")[2]
    assert ask("/file/deep/one/report.html")[2] == b"<h1>report of one</h1>"


def test_records_are_filtered_and_paged(folder: Path) -> None:
    path, browser = folder / "deep" / "one" / "trials.jsonl", Browser()
    first = browser.sheet(path, Filter())
    assert (first.total, first.pages, len(first.records)) == (122, 3, PAGE)
    assert [record.clip for record in browser.sheet(path, Filter(), 3).records][-1] == "é/heard"
    assert browser.sheet(path, Filter(), 99).number == 3
    assert [record.reason for record in browser.sheet(path, Filter(status="failed")).records] == [
        "file of zero length"
    ]
    assert browser.sheet(path, Filter(cell="fgsm_evade_snr-db-20")).total == 121
    assert browser.sheet(path, Filter(label="up")).total == 1
    assert browser.sheet(path, Filter(text="CLIP-01")).total == 10
    assert browser.sheet(path, Filter(text="down heard", status="ok")).total == 1
    with path.open("a") as file:
        file.write(Record(cell="load", clip="late", status="failed", reason="late").to_line() + "\n{torn")
    assert browser.sheet(path, Filter(status="failed")).total == 2


def test_records_show_texts_and_players(ask: Callable[..., Answer]) -> None:
    status, _, body = ask("/records/deep/one?text=heard&status=ok")
    address = f"/file/deep/one/audio/clean/{quote('é')}/heard.flac"
    assert status == 200 and f'src="{address}"'.encode() in body
    assert body.count(b"<audio") == 1, "a file outside the folder has no player"
    assert ask(address)[2] == SOUND
    assert b"page 2 of 3" in ask("/records/deep/one?page=2")[2]
    assert ask("/records/two")[0] == 200
    assert ask("/records/nowhere")[0] == 404


def test_players_can_seek(ask: Callable[..., Answer]) -> None:
    address = f"/file/deep/one/audio/clean/{quote('é')}/heard.flac"
    status, headers, body = ask(address, Range="bytes=10-19")
    assert (status, headers["Content-Range"], body) == (206, "bytes 10-19/200", SOUND[10:20])
    assert headers["Content-Type"] == "audio/flac"
    assert ask(address, Range="bytes=-5")[2] == SOUND[-5:]
    assert ask(address, Range="bytes=190-")[2] == SOUND[190:]
    assert ask(address, Range="bytes=900-")[0] == 200
    assert ask(address, "HEAD")[2] == b""


@pytest.mark.parametrize(
    "path",
    [
        "/file/../secret.html", "/file/%2e%2e/secret.html", "/file/deep/../../secret.html",
        "/file//etc/passwd", "/file/deep/one/..%2f..%2f../secret.html", "/file/out.html", "/file/deep",
        "/file/", "/file/notes.exe", "/file/.hidden.html",
        "/records/../..", "/file/a%00b.html", "/secret.html",
    ],
)  # fmt: skip
def test_nothing_but_files_below_the_folder_is_given(ask: Callable[..., Answer], path: str) -> None:
    status, _, body = ask(path)
    assert status == 404 and b"secret" not in body


def test_it_only_answers_to_its_own_name_and_only_reads(ask: Callable[..., Answer]) -> None:
    assert ask("/", Host="evil.example:80")[0] == 403
    assert ask("/", Host="localhost")[0] == 200
    assert ask("/", "POST")[0] == 501
    assert ask("/", "DELETE")[0] == 501


def test_it_listens_on_this_machine_alone(folder: Path) -> None:
    with make_server(folder) as server:
        assert server.server_address[0] == "127.0.0.1"


def test_a_damaged_record_is_told_with_its_place(ask: Callable[..., Answer], folder: Path) -> None:
    path = folder / "two" / "trials.jsonl"
    path.write_text('{"cell": "c", "clip": "a", "status": "ok", "parts": null}\n')
    status, _, body = ask("/records/two")
    assert status == 422 and b"trials.jsonl, at byte 0: expected a record" in body


def test_text_of_records_is_escaped(ask: Callable[..., Answer], folder: Path) -> None:
    bad = Record(cell="c", clip="<script>alert(1)</script>", status="failed", reason="<img src=x>")
    with (folder / "deep" / "one" / "trials.jsonl").open("a") as file:
        file.write(bad.to_line() + "\n")
    body = ask("/records/deep/one?text=alert")[2]
    assert b"<script" not in body and b"<img" not in body and b"&lt;script&gt;" in body
