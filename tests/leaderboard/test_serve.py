"""The viewer: what it lists, finds and plays, and what it does not give away."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import EVERY, LOADING, Record
from sottovoce.leaderboard.static_site import write_site
from sottovoce.leaderboard.viewer.folder_contents import FolderContents
from sottovoce.leaderboard.viewer.record_browser import PAGE, Browser, Filter
from sottovoce.leaderboard.viewer.view_server import make_server
from sottovoce.report.report_page import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
KEPT = Path(__file__).parents[1] / "fixtures" / "run-0.1.0"
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
        Record(cell=LOADING, clip="broken", status="failed", reason="file of zero length", label="no")
    )
    run = write_run(root / "deep" / "one", records, {"model": "python:nobody:one"})
    places = {"clean": "audio/clean/é/heard.flac", "adversarial": "audio/leads/out.flac"}
    texts = {"label": "up", "clean_text": "up", "adversarial_text": "down"}
    sound = Record(
        cell="fgsm_evade_snr-db-20", clip="é/heard", status="ok", achieved=True, audio=places, **texts
    )
    with (run / "trials.jsonl").open("a") as file:
        file.write(sound.to_line() + "\n")
    (run / "audio" / "clean" / "é").mkdir(parents=True)
    (run / "audio" / "clean" / "é" / "heard.flac").write_bytes(SOUND)
    (run / "audio" / "leads").mkdir()
    (run / "audio" / "leads" / "out.flac").symlink_to(tmp_path / "secret.flac")
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
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
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
    shelf = FolderContents(folder)
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
        file.write(Record(cell=LOADING, clip="late", status="failed", reason="late").to_line() + "\n{torn")
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
    assert ask(address, "HEAD")[2] == b""


NINES = "9" * 5000
SOUND_AT = f"/file/deep/one/audio/clean/{quote('é')}/heard.flac"


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0), ("bytes=0-", 0, 199), ("bytes=199-", 199, 199), ("bytes=190-500", 190, 199),
        ("bytes=-1", 199, 199), ("bytes=-500", 0, 199), ("BYTES=5-6", 5, 6), ("bytes= 5-6 ", 5, 6),
        ("bytes=0-999999999999999999", 0, 199),
    ],
)  # fmt: skip
def test_a_range_with_bytes_in_it(ask: Callable[..., Answer], asked: str, first: int, last: int) -> None:
    """RFC 9110, 14.1.2: a last place behind the end, and a suffix longer than all, end with the file."""
    status, headers, body = ask(SOUND_AT, Range=asked)
    assert (status, body) == (206, SOUND[first : last + 1])
    assert headers["Content-Range"] == f"bytes {first}-{last}/200"
    assert headers["Content-Length"] == str(last - first + 1)


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=200-", "bytes=900-901", "bytes=-0", f"bytes={NINES}-", f"bytes=0-{NINES}", f"bytes=-{NINES}",
        f"bytes={NINES}-{NINES}", f"bytes=0{NINES}-5",
    ],
)  # fmt: skip
def test_a_range_without_a_byte_is_refused(ask: Callable[..., Answer], asked: str) -> None:
    """RFC 9110, 15.5.17: with the size, so that one can ask again. No file reaches a number so long."""
    status, headers, body = ask(SOUND_AT, Range=asked)
    assert (status, headers["Content-Range"]) == (416, "bytes */200")
    assert int(headers["Content-Length"]) == len(body)


@pytest.mark.parametrize(
    "asked",
    [
        "bytes=9-5", "bytes=--5", "bytes=-", "bytes=", "bytes=a-b", "bytes=1.5-3", "bytes=+1-3", "lines=1-2",
        "bytes=0-1,5-6", f"bytes={','.join(['0-'] * 500)}", "bytes=٣-٤".encode().decode("latin-1"), "",
    ],
)  # fmt: skip
def test_a_range_that_is_none_or_several_is_ignored(ask: Callable[..., Answer], asked: str) -> None:
    """RFC 9110, 14.2: a server may ignore an invalid range, and one of several."""
    status, headers, body = ask(SOUND_AT, Range=asked)
    assert (status, body) == (200, SOUND) and "Content-Range" not in headers


def test_a_range_is_for_get_and_for_what_one_had(ask: Callable[..., Answer]) -> None:
    """RFC 9110, 14.2 and 13.1.5: HEAD has no ranges, and no file here has a version to compare."""
    status, headers, _ = ask(SOUND_AT, "HEAD", Range="bytes=0-1")
    assert (status, headers["Content-Length"]) == (200, "200")
    assert ask(SOUND_AT, Range="bytes=0-1", **{"If-Range": '"a"'})[0] == 200


def policy(answer: Answer) -> dict[str, list[str]]:
    """The directives of a content security policy, with their words."""
    parts = [part.split() for part in answer[1]["Content-Security-Policy"].split(";")]
    return {name: words for name, *words in parts}


def test_html_is_kept_apart_from_the_viewer(ask: Callable[..., Answer], folder: Path) -> None:
    """Whoever made a folder may have written any file in it: without an origin it reads nothing here."""
    run = folder / "deep" / "one"
    for name in ("theirs.html", "theirs.HTML", "drawing.svg"):
        (run / name).write_text("<script>alert(1)</script>")
        found = policy(ask(f"/file/deep/one/{name}"))
        assert found["sandbox"] == [] and found["default-src"] == ["'none'"] and "script-src" not in found
    for name in ("deep/one/report.html", "study/study.html"):
        found = policy(ask(f"/file/{name}"))
        assert found["sandbox"] == ["allow-scripts"] and found["default-src"] == ["'none'"]
        assert found["script-src"] == ["'unsafe-inline'"] and "connect-src" not in found
    assert "sandbox" not in policy(ask("/"))


def test_a_run_that_failed_whole_says_so(
    tmp_path: Path, write_run: Callable[..., Path], make_record: Callable[..., Record]
) -> None:
    cells = ["fgsm_evade_snr-db-20", "noise_evade_snr-db-20"]
    whole = [Record(cell=cell, clip=EVERY, status="failed", reason="weights are gone") for cell in cells]
    unread = [Record(cell=LOADING, clip="a", status="failed", reason="no sound")]
    write_run(tmp_path / "gone", whole)
    write_run(tmp_path / "unread", unread)
    write_run(tmp_path / "part", [*whole, *unread, make_record(cells[0], "b", broken=True)])
    write_run(tmp_path / "begun", [])
    damaged = write_run(tmp_path / "damaged", unread)
    (damaged / "trials.jsonl").write_text('{"cell": 5}\n')
    about = write_run(tmp_path / "about", unread)
    (about / "about.json").write_text('{"run": 5}')
    assert {item.path: item.trouble for item in FolderContents(tmp_path).items()} == {
        "gone": "nothing could be run: weights are gone",
        "unread": "nothing could be run: no sound",
        "part": "",
        "begun": "",
        "damaged": "trials.jsonl, line 1, field 'cell': expected a valid string, got 5; restore that line "
        "from a copy, or delete it.",
        "about": "about.json, line 1, field 'run': expected a valid string, got 5; restore it from a copy of "
        "the run.",
    }
    # Tried again, and now there is something.
    with (tmp_path / "gone" / "trials.jsonl").open("a") as file:
        file.write(make_record(cells[0], "b", broken=True).to_line() + "\n")
    assert [item.trouble for item in FolderContents(tmp_path).search("gone")] == [""]
    assert [item.path for item in FolderContents(tmp_path).search("nothing could be run")] == ["unread"]


def test_a_failed_run_is_marked_in_the_list(ask: Callable[..., Answer], folder: Path) -> None:
    line = Record(
        cell="fgsm_evade_snr-db-20", clip=EVERY, status="failed", reason="no <b>weights</b>"
    ).to_line()
    (folder / "two" / "trials.jsonl").write_text(line + "\n")
    assert b'<p class="flag">nothing could be run: no &lt;b&gt;weights&lt;/b&gt;</p>' in ask("/")[2]
    assert b"all clips" in ask("/records/two")[2]


def test_copies_in_a_leaderboard_are_no_runs(folder: Path, write_run: Callable[..., Path]) -> None:
    before = {item.path for item in FolderContents(folder).items()}
    write_site([folder / "deep" / "one"], folder / "site")
    (copy,) = (folder / "site" / "runs").iterdir()
    assert {path.name for path in copy.iterdir()} == {"plan.yaml", "report.html"}
    assert {item.path for item in FolderContents(folder).items()} == {*before, "site"}
    # A run that lies there itself is one, even before it has records.
    begun = write_run(folder / "site" / "runs" / "begun", [])
    (begun / "trials.jsonl").unlink()
    assert {item.path for item in FolderContents(folder).items()} == {*before, "site", "site/runs/begun"}


PROBE = """<!doctype html><title>theirs</title><p id="found">nothing</p><script>
document.getElementById("found").textContent = "ran";
fetch("/").then(answer => answer.text()).then(
  text => { document.getElementById("found").textContent = "read " + text.length; },
  () => { document.getElementById("found").textContent = "ran, read nothing from " + window.origin; });
</script>"""


@pytest.mark.slow
def test_a_page_of_a_stranger_reads_nothing_and_a_report_is_drawn(tmp_path: Path) -> None:
    """In a browser: a script in a page that we could have written has no origin, in any other it does not
    run; and the charts of a true report are drawn."""
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip install playwright)")
    if CHROMIUM is None:
        pytest.skip("needs Chromium on the path")
    run = Path(shutil.copytree(KEPT / "classifier", tmp_path / "true"))
    write_report(RunFolder(run))
    shutil.copytree(KEPT / "classifier", tmp_path / "forged")
    (tmp_path / "forged" / "report.html").write_text(PROBE)
    (tmp_path / "forged" / "other.html").write_text(PROBE)
    with make_server(tmp_path) as server, api.sync_playwright() as playwright:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page, troubles = chromium.new_page(), list[str]()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        base = f"http://127.0.0.1:{server.server_address[1]}/file"
        page.goto(f"{base}/true/report.html")
        page.wait_for_selector(".chart svg", timeout=20_000)
        sizes = page.evaluate("[...document.images].map(image => image.naturalWidth)")
        assert sizes and all(sizes)
        page.wait_for_function("[...document.querySelectorAll('audio')].every(one => one.duration > 0)")
        assert page.locator("audio").count() > 0 and troubles == []
        page.goto(f"{base}/forged/report.html")
        page.wait_for_function("document.getElementById('found').textContent.includes('read')")
        assert page.locator("#found").inner_text() == "ran, read nothing from null"
        page.goto(f"{base}/forged/other.html")
        assert page.locator("#found").inner_text() == "nothing"
        chromium.close()
        server.shutdown()


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
    assert status == 422 and b"trials.jsonl, line 1, field 'parts': expected" in body


def test_text_of_records_is_escaped(ask: Callable[..., Answer], folder: Path) -> None:
    bad = Record(cell="c", clip="<script>alert(1)</script>", status="failed", reason="<img src=x>")
    with (folder / "deep" / "one" / "trials.jsonl").open("a") as file:
        file.write(bad.to_line() + "\n")
    body = ask("/records/deep/one?text=alert")[2]
    assert b"<script" not in body and b"<img" not in body and b"&lt;script&gt;" in body
