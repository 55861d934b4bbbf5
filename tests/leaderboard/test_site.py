"""The static site: what its rows say, what it links to, and that it needs nothing from outside."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from sottovoce.auditing.certificates.certify_folder import CertifiedClip
from sottovoce.auditing.certificates.certify_run import CertifyPlan
from sottovoce.core.record import Record
from sottovoce.errors import InputError
from sottovoce.leaderboard.claims.claim import read_claim
from sottovoce.leaderboard.named_folders import NamedFolders
from sottovoce.leaderboard.static_site import gather_board, write_site

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FIRST = {"fgsm_evade_snr-db-20": "1100", "fgsm_evade_snr-db-40": "1000"}
SECOND = {"fgsm_evade_snr-db-20": "1111", "fgsm_evade_snr-db-40": "1100"}
Make = Callable[..., list[Record]]


class Page(HTMLParser):
    """Links, and the text of table cells by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.rows: list[list[str]] = []
        self._open = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(found.get("href", ""))
        if "src" in found or tag == "link":
            self.loaded.append(found.get("src", found.get("href", "")))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._open = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.rows[-1][-1] += data


@pytest.fixture
def two(tmp_path: Path, write_run: Callable[..., Path], make_records: Make) -> list[Path]:
    one = write_run(tmp_path / "runs" / "one", make_records(FIRST), {"model": "python:nobody:one"})
    two = write_run(tmp_path / "runs" / "two", make_records(SECOND), {"model": "python:nobody:two"})
    (one / "report.html").write_text("the report of one")
    return [one, two]


def test_rows_figures_and_links(two: list[Path], tmp_path: Path) -> None:
    index = write_site(two, tmp_path / "site")
    page = Page(index.read_text())
    heads, first, second = page.rows
    assert [head.strip() for head in heads[:5]] == [
        "target", "clips", "clean accuracy", "worst case, SNR 20 dB", "worst case, SNR 40 dB",
    ]  # fmt: skip
    assert first[0].startswith("python:nobody:one") and second[0].startswith("python:nobody:two")
    # 2 of 4 and 1 of 4; Clopper-Pearson.
    assert first[3] == "50\N{NO-BREAK SPACE}%[6.8, 93.2]1 attack, 1 pass"
    assert first[4] == "25\N{NO-BREAK SPACE}%[0.6, 80.6]1 attack, 1 pass"
    assert second[3].startswith("100\N{NO-BREAK SPACE}%")
    local = [link for link in page.links if not link.startswith("#")]
    assert all((tmp_path / "site" / link).is_file() for link in local)
    assert sum(link.endswith("report.html") for link in local) == 1
    assert sum(link.endswith("plan.yaml") for link in local) == 2
    report = next(link for link in local if link.endswith("report.html"))
    assert (tmp_path / "site" / report).read_text() == "the report of one"
    plan = next(link for link in local if link.endswith("plan.yaml"))
    assert (tmp_path / "site" / plan).read_bytes() == (two[0] / "plan.yaml").read_bytes()


def test_nothing_is_loaded_from_outside(two: list[Path], tmp_path: Path) -> None:
    text = write_site(two, tmp_path / "site").read_text()
    assert Page(text).loaded == []
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy and unescape(policy[1]).startswith("default-src 'none'; script-src 'sha256-")
    assert not re.search(r"@import|url\(", text.split("</style>")[0])


def test_every_row_is_a_claim_that_can_be_read(two: list[Path], tmp_path: Path) -> None:
    write_site(two, tmp_path / "site")
    claims = [read_claim(path) for path in sorted((tmp_path / "site" / "claims").glob("*.json"))]
    assert sorted(claim.target for claim in claims) == ["python:nobody:one", "python:nobody:two"]


def test_runs_mix_with_claims_of_others(two: list[Path], tmp_path: Path) -> None:
    write_site(two[1:], tmp_path / "theirs")
    (path,) = (tmp_path / "theirs" / "claims").glob("*.json")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "who": "<b>Them</b>", "url": "https://example.org/them"}))
    index = write_site([two[0], tmp_path / "theirs" / "claims"], tmp_path / "site")
    text = index.read_text()
    page = Page(text)
    assert len(page.rows) == 3
    assert "&lt;b&gt;Them&lt;/b&gt;" in text and "<b>Them</b>" not in text
    assert "https://example.org/them" in page.links
    (plan,) = [link for link in page.links if link.startswith("plans/")]
    assert "python:nobody:two" in (tmp_path / "site" / plan).read_text()
    kept = json.loads((tmp_path / "site" / "claims" / path.name).read_text())
    assert kept["who"] == "<b>Them</b>"
    # Their doubts are as they say; those of the run here were found here.
    theirs = next(row for row in page.rows if "Them" in row[0])
    ours = next(row for row in page.rows if "nobody:one" in row[0])
    assert [sum("not checked" in text for text in row) for row in (theirs, ours)] == [1, 0]


def test_a_bad_claim_stops_the_site_with_its_name(two: list[Path], tmp_path: Path) -> None:
    write_site(two, tmp_path / "site")
    path = sorted((tmp_path / "site" / "claims").glob("*.json"))[0]
    content = json.loads(path.read_text())
    content["worst"][0]["success"]["value"] = 7
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=rf"{path.name}, field 'worst\.0\.success\.value'"):
        write_site([two[0], path.parent], tmp_path / "again")


def test_a_grid_has_its_site_beside_its_runs(two: list[Path], tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("targets: [python:nobody:one, python:nobody:two]\n")
    index = write_site([tmp_path], tmp_path)
    links = Page(index.read_text()).links
    assert "runs/one/plan.yaml" in links and "runs/one/report.html" in links
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["one", "two"]


def test_seeds_become_one_row(tmp_path: Path, write_run: Callable[..., Path], make_records: Make) -> None:
    runs = [
        write_run(tmp_path / f"seed-{seed}", make_records(found), {"seed": seed})
        for seed, found in enumerate((FIRST, SECOND))
    ]
    page = Page(write_site(runs, tmp_path / "site").read_text())
    (_, row) = page.rows
    # 50 % and 100 %: mean 75 %, from the low end of the one to the high end of the other.
    assert row[3] == "75\N{NO-BREAK SPACE}%[6.8, 100.0]2 seeds: 50.0 to 100.01 attack, 1 pass"
    assert row[-1].count("plan") == 2


def test_certificates_stand_in_the_row_they_are_about(
    tmp_path: Path, write_run: Callable[..., Path], make_records: Make
) -> None:
    defense = "gaussian(sigma=0.01)+majority(passes=8)"
    cell = "gaussian-sigma-0.01-majority-passes-8_fgsm_evade_snr-db-20"
    entries = {"model": "keyword", "defenses": [defense], "budgets": ["snr(db=20)"], "attacks": ["fgsm"]}
    run = write_run(tmp_path / "run", make_records({cell: "1100"}), {**entries, "attackers": ["adaptive"]})
    for name, model in (("fits", "keyword"), ("other", "recogniser")):
        folder = tmp_path / name
        folder.mkdir()
        plan = CertifyPlan(model=model, defense="gaussian(sigma=0.01)")
        (folder / "certify.yaml").write_text(plan.to_yaml())
        # Two certified and right, one certified and wrong, one abstention.
        rows = [(0.03, True, 40.0), (0.01, True, 50.0), (0.02, False, 45.0), (None, True, None)]
        (folder / "certificates.jsonl").write_text(
            "".join(
                CertifiedClip(
                    clip=str(place), status="ok", radius=radius, right=right, snr_db=snr_db, passes=100
                ).to_line()
                + "\n"
                for place, (radius, right, snr_db) in enumerate(rows)
            )
        )
    board = gather_board(NamedFolders.of([run, tmp_path / "fits", tmp_path / "other"]))
    (claim,) = board.claims
    assert claim.certified is not None
    assert (claim.certified.share.value, claim.certified.share.n) == (0.5, 4)
    assert {level.snr_db: level.right.value for level in claim.certified.levels} == {
        40: 0.25,
        45: 0.25,
        50: 0.5,
    }
    assert len(board.notes) == 1 and "recogniser" in board.notes[0] and "match no row" in board.notes[0]
    assert "certified" in Page(write_site([run, tmp_path / "fits"], tmp_path / "site").read_text()).rows[0]


@pytest.mark.parametrize("name", ["nowhere", "empty", "file.txt"])
def test_what_is_no_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("")
    with pytest.raises(InputError, match=rf"expected the folder of a run.*{name}"):
        write_site([tmp_path / name], tmp_path / "site")


def test_a_run_without_records_is_left_out_and_named(
    two: list[Path], tmp_path: Path, write_run: Callable[..., Path]
) -> None:
    begun = write_run(tmp_path / "begun", [])
    told: list[str] = []
    text = write_site([*two, begun], tmp_path / "site", tell=told.append).read_text()
    assert any("begun has no attack with a value yet" in note for note in told)
    assert "begun has no attack with a value yet" in text
    with pytest.raises(InputError, match="expected a run with records, or a claim"):
        write_site([begun], tmp_path / "other")


def test_the_page_of_someone_else_is_not_written_over(two: list[Path], tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "index.html").write_text("<h1>My page</h1>")
    with pytest.raises(InputError, match="choose another folder with --out"):
        write_site(two, tmp_path / "home")
    write_site(two, tmp_path / "site")
    write_site(two, tmp_path / "site")


@pytest.fixture
def browser_page(two: list[Path], tmp_path: Path) -> Any:
    api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (pip install playwright)")
    if CHROMIUM is None:
        pytest.skip("needs Chromium on the path")
    index = write_site(two, tmp_path / "site")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = chromium.new_page()
        page.goto(index.as_uri())
        yield page
        chromium.close()


@pytest.mark.slow
def test_headers_sort_by_keyboard_and_the_box_filters(browser_page: Any) -> None:
    page, troubles = browser_page, []
    page.on("pageerror", lambda error: troubles.append(str(error)))
    rows = "[...document.querySelectorAll('.board tbody tr')]"
    names = f"{rows}.filter(row => !row.hidden).map(row => row.cells[0].firstChild.data)"
    head = page.locator("th", has_text="SNR 20 dB")
    head.locator("button").focus()
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.evaluate(names) == ["python:nobody:one", "python:nobody:two"]
    page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert page.evaluate(names) == ["python:nobody:two", "python:nobody:one"]
    page.get_by_label("Filter").fill("nobody:one fgsm")
    assert page.evaluate(names) == ["python:nobody:one"]
    assert page.locator("#shown").inner_text() == "1 of 2 rows"
    page.wait_for_selector("#worst-success svg", timeout=20_000)
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert troubles == []
