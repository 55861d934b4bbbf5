"""The report on a small made-up run whose every figure is known by hand, and in a real browser."""

from __future__ import annotations

import base64
import io
import json
import math
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy import stats

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.record import LOADING, Record
from sottovoce.errors import InputError
from sottovoce.report.report_page import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
EVIL = "<script>alert(1)</script>"
ABOUT = {
    "run": "abc123",
    "started": "2025-01-02T03:04:05+00:00",
    "device": "cpu",
    "machine": "Linux x86_64, 2 threads",
    "versions": {"sottovoce": "0.1.0", "torch": "2.13.0"},
}
NAN = math.nan


class Page(HTMLParser):
    """Tags with their attributes, the words outside scripts and styles, and the data blocks of charts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.charts: dict[str, object] = {}
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag in ("script", "style"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open:
            name = self.tags[-1][1].get("data-chart")
            if name:
                self.charts[name] = json.loads(data)
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def make_folder(path: Path, **settings: object) -> RunFolder:
    chosen = {"attacks": ["noise", "fgsm", "pgd"], "budgets": ["snr(db=20)", "snr(db=40)"], **settings}
    folder = RunFolder(path)
    folder.prepare(make_plan(chosen), ABOUT)
    return folder


def make_record(
    folder: RunFolder, cell: str, clip: str, *, fooled: bool, db: float, **more: object
) -> Record:
    """A clip of "yes", heard right; `fooled` clips are heard as "no". `db` is the SNR and sets the rest."""
    parts = {
        "success": [float(fooled), 1.0],
        "fooling-ratio": [float(fooled), 1.0],
        "accuracy": [float(not fooled), 1.0],
        "clean-accuracy": [1.0, 1.0],
        "snr": [db, 1.0],
        "db-max": [-db, 1.0],
        "db-max-vocal": [NAN, NAN],
        "db-max-background": [10.0 - db, 1.0],
        "db-mean": [-db, 1.0],
        "db-mean-vocal": [-db - 5.0, 1.0],
        "db-mean-background": [12.0 - db, 1.0],
        "below-32db": [float(db > 32.0), 1.0],
    }
    content = {
        "label": "yes", "clean_text": "yes", "adversarial_text": "no" if fooled else "yes",
        "achieved": fooled, "achieved_unrounded": fooled, "seconds": 0.5, "sample_rate": 16000,
        "facts": {"intensity": "medium"}, "parts": parts, "audio": make_audio(folder, cell, clip, peak=0.02),
    }  # fmt: skip
    return Record(cell=cell, clip=clip, status="ok", **{**content, **more})


def make_audio(folder: RunFolder, cell: str, clip: str, *, peak: float) -> dict[str, str]:
    """A tone of half a second, and the same with one sample in ten raised by `peak`."""
    clean = np.round(0.25 * np.sin(np.arange(8000) / 8) * 32768).astype(np.int16)
    delta = np.zeros(8000, dtype=np.int16)
    delta[::10] = round(peak * 32768)
    name = f"{cell}-{clip.encode().hex()}"
    for kind, samples in (("clean", clean), ("adversarial", clean + delta)):
        (folder.path / "audio" / kind).mkdir(parents=True, exist_ok=True)
        soundfile.write(folder.path / "audio" / kind / f"{name}.flac", samples, 16000)
    return {kind: f"audio/{kind}/{name}.flac" for kind in ("clean", "adversarial")}


def fill(folder: RunFolder) -> None:
    """Four clips in six cells: noise fools none, fgsm one at 20 dB, pgd four at 20 dB and three at 40 dB."""
    fooled = {"noise": (0, 0), "fgsm": (1, 0), "pgd": (4, 3)}
    with folder.writer() as writer:
        for attack, counts in fooled.items():
            for db, count in zip((20, 40), counts, strict=True):
                cell = f"{attack}_evade_snr-db-{db}"
                clips = [f"a{EVIL}", "b", "c", "d"]
                writer.write(
                    [
                        make_record(folder, cell, clip, fooled=place < count, db=db)
                        for place, clip in enumerate(clips)
                    ]
                )
        writer.write(
            [Record(cell=LOADING, clip="torn", status="failed", reason="expected audio, got 0 bytes.")]
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    made = make_folder(tmp_path_factory.mktemp("runs") / "run")
    fill(made)
    write_report(made)
    return made


@pytest.fixture(scope="module")
def page(folder: RunFolder) -> Page:
    return Page(folder.report_path.read_text(encoding="utf-8"))


@pytest.fixture
def report(tmp_path: Path) -> Callable[..., Page]:
    """The report on records of one's own."""

    def make(records: Callable[[RunFolder], list[Record]], **settings: object) -> Page:
        made = make_folder(tmp_path / "run", **settings)
        with made.writer() as writer:
            writer.write(records(made))
        return Page(write_report(made).read_text(encoding="utf-8"))

    return make


def test_a_rate_of_three_in_four_has_its_exact_interval(page: Page) -> None:
    oracle = stats.binomtest(3, 4).proportion_ci(method="exact")
    assert (round(100 * oracle.low, 1), round(100 * oracle.high, 1)) == (19.4, 99.4)
    assert "75 % [19.4, 99.4]" in page.text


def test_the_verdict_takes_the_quietest_budget_that_turns_half(page: Page) -> None:
    clean = stats.binomtest(4, 4).proportion_ci(method="exact")
    none = stats.binomtest(0, 4).proportion_ci(method="exact")
    assert (round(100 * clean.low, 1), round(100 * none.high, 1)) == (39.8, 60.2)
    assert (
        "keyword on 4 clips: 100 % [39.8, 100.0] classified correctly before any attack; pgd at SNR 40 dB "
        "changes 75 % [19.4, 99.4] of the decisions that were right, white noise at the same level 0 % "
        "[0.0, 60.2] ."
    ) in page.text


def test_a_loud_budget_that_an_attack_leaves_unused_is_not_called_the_quietest(
    report: Callable[..., Page],
) -> None:
    def records(folder: RunFolder) -> list[Record]:
        # Asked for 20 dB the attack needs no more than 58 dB; asked for 40 dB it uses them up.
        levels = {"pgd_evade_snr-db-20": 58.0, "pgd_evade_snr-db-40": 43.0}
        return [make_record(folder, cell, "a", fooled=True, db=db) for cell, db in levels.items()]

    page = report(records, attacks=["pgd"])
    assert "pgd at SNR 40 dB changes" in page.text


def test_it_says_that_nobody_listened(page: Page) -> None:
    assert "No listening test was made." in page.text


def test_sections_come_in_order(page: Page) -> None:
    ids = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    # One class alone, "yes", makes no table of classes.
    assert ids == [
        "verdict", "setup", "success", "cells", "distortion", "examples", "levels", "doubts", "repeat",
    ]  # fmt: skip


def test_every_link_of_the_navigation_leads_somewhere(page: Page) -> None:
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert {attributes["href"] for attributes in page.all("a")} <= {f"#{name}" for name in ids}


def test_nothing_is_loaded_from_outside(page: Page) -> None:
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "data", "poster", "action"):
            value = attributes.get(name, "")
            assert value == "" or value.startswith(("data:", "#")), (tag, name, value[:80])
    assert not page.all("link") and not page.all("iframe") and not page.all("object")
    policy = next(item["content"] for item in page.all("meta") if "http-equiv" in item)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "http" not in policy and "unsafe-eval" not in policy


def test_style_loads_nothing(folder: RunFolder) -> None:
    text = folder.report_path.read_text(encoding="utf-8")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style


def test_text_from_records_stays_text(page: Page, folder: RunFolder) -> None:
    text = folder.report_path.read_text(encoding="utf-8")
    assert EVIL not in text
    assert "a&lt;script&gt;alert(1)&lt;/script&gt;" in text
    kinds = [(item.get("type", ""), "data-chart" in item) for item in page.all("script")]
    assert kinds == [("application/json", True)] * 4 + [("", False)]


def test_a_defense_or_label_that_looks_like_markup_stays_text(report: Callable[..., Page]) -> None:
    def records(folder: RunFolder) -> list[Record]:
        more = {"label": EVIL, "clean_text": EVIL}
        return [make_record(folder, "pgd_evade_snr-db-20", name, fooled=True, db=20, **more) for name in "ab"]

    page = report(records, attacks=["pgd"], budgets=["snr(db=20)"], model=f"keyword:{EVIL}")
    assert len(page.all("script")) == 5 and page.all("script")[-1] == {}
    assert f"Audit of keyword:{EVIL}" in page.text


def test_failures_are_listed_with_their_reason(page: Page) -> None:
    assert "Clips that failed clip where reason torn all cells expected audio, got 0 bytes." in page.text


def test_a_clip_without_a_value_shows_a_dash_and_says_why(page: Page) -> None:
    dashes = [item for tag, item in page.tags if tag == "td" and item.get("title", "").startswith("no value")]
    # db-max-vocal is NaN in all six cells.
    assert len(dashes) == 6
    assert "–" in page.text


def test_the_gain_of_the_difference_is_stated(page: Page) -> None:
    # round(0.02 * 32768) = 655 steps; half of full scale is 16384: 20 log10(16384 / 655) = 27.96 dB.
    assert "difference played 28.0 dB louder than it is" in page.text


def test_players_hold_the_very_samples(page: Page) -> None:
    sounds = [_decode(item["src"]) for item in page.all("audio")]
    clean, adversarial, difference = sounds[:3]
    assert len(sounds) % 3 == 0 and len(clean) == 8000
    assert sorted(set((adversarial - clean).tolist())) == [0, 655]
    assert int(np.abs(difference.astype(int)).max()) == 16384


def test_pictures_have_alternative_texts(page: Page) -> None:
    pictures = page.all("img")
    assert len(pictures) == len(page.all("audio")) > 0
    assert all(item["alt"].startswith("Spectrogram of the ") for item in pictures)
    assert len({item["alt"] for item in pictures[:3]}) == 3


def test_least_and_most_audible_examples_are_told_apart(page: Page) -> None:
    least, most = page.text.split("Least audible")[1].split("Most audible")
    # The background lies at 12 - SNR: -28 dB at 40 dB, -8 dB at 20 dB.
    assert "dB mean, background −28.0 dB" in least and "dB mean, background −8.0 dB" not in least
    assert "dB mean, background −8.0 dB" in most.split("Loud and soft clips")[0]


def test_charts_carry_aggregates_with_intervals(page: Page) -> None:
    rows = page.charts["success-0"]["data"]["values"]
    assert len(rows) == 6
    found = {(row["attack"], row["asked"]): (row["success"], row["low"], row["high"]) for row in rows}
    assert found["pgd", 40.0] == (0.75, 0.1941, 0.9937)
    assert found["white noise", 20.0][0] == 0.0


def test_boxes_are_quantiles(report: Callable[..., Page]) -> None:
    def records(folder: RunFolder) -> list[Record]:
        return [
            make_record(folder, "pgd_evade_snr-db-20", f"clip {db}", fooled=False, db=float(db), audio={})
            for db in range(20, 41)
        ]

    page = report(records, attacks=["pgd"], budgets=["snr(db=20)"])
    rows = page.charts["distortion-max"]["data"]["values"]
    whole = next(row for row in rows if row["part"] == "whole clip")
    # 21 values, -40 to -20: the quantile of share p is -40 + 20 p.
    assert [whole[f"q{k}"] for k in range(5)] == [-39.0, -35.0, -30.0, -25.0, -21.0]
    assert whole["n"] == 21


def test_classes_make_a_table(report: Callable[..., Page]) -> None:
    def records(folder: RunFolder) -> list[Record]:
        words = {"yes": (True, True), "stop": (True, False)}
        return [
            make_record(
                folder,
                "pgd_evade_snr-db-20",
                f"{word}{place}",
                fooled=fooled,
                db=20,
                label=word,
                clean_text=word,
            )
            for word, outcomes in words.items()
            for place, fooled in enumerate(outcomes)
        ]

    page = report(records, attacks=["pgd"], budgets=["snr(db=20)"])
    low, high = stats.binomtest(1, 2).proportion_ci(method="exact")
    assert (round(100 * low, 1), round(100 * high, 1)) == (1.3, 98.7)
    assert "class SNR 20 dB pgd stop 50 % [1.3, 98.7] yes 100 % [15.8, 100.0]" in page.text


def test_doubts_name_lost_successes_and_noise_as_strong(report: Callable[..., Page]) -> None:
    def records(folder: RunFolder) -> list[Record]:
        cells = ("noise_evade_snr-db-20", "pgd_evade_snr-db-20")
        made = [
            make_record(folder, cell, clip, fooled=clip == "a", db=20) for cell in cells for clip in "abc"
        ]
        lost = make_record(folder, cells[1], "d", fooled=False, db=20, achieved_unrounded=True)
        return [*made, lost]

    page = report(records, attacks=["noise", "pgd"], budgets=["snr(db=20)"])
    assert "1 success lost by rounding" in page.text
    assert "No better than white noise in 1 of 1 comparison" in page.text
    assert "pgd · evade · SNR 20 dB: 25 % [0.6, 80.6], noise 33.3 % [0.8, 90.6]" in page.text


def test_cells_without_records_are_a_doubt(report: Callable[..., Page]) -> None:
    page = report(lambda folder: [make_record(folder, "pgd_evade_snr-db-20", "a", fooled=True, db=20)])
    assert "5 of 6 cells of the plan have no record yet." in page.text


def test_what_has_no_data_is_left_out(report: Callable[..., Page]) -> None:
    def records(folder: RunFolder) -> list[Record]:
        parts = {"success": [1.0, 1.0]}
        return [
            make_record(folder, "pgd_evade_linf-eps-0.01", "a", fooled=True, db=20, parts=parts, audio={})
        ]

    page = report(records, attacks=["pgd"], budgets=["linf(eps=0.01)"], metrics=["success"])
    sections = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert sections == ["verdict", "setup", "success", "cells", "levels", "doubts", "repeat"]
    assert "pgd at Linf 0.01 changes 100 % [2.5, 100.0] of the decisions" in page.text


def test_a_run_in_which_everything_failed_still_has_a_report(report: Callable[..., Page]) -> None:
    page = report(lambda folder: [Record(cell=LOADING, clip="x", status="failed", reason="broken file.")])
    assert "broken file." in page.text and "all cells" in page.text
    assert not page.charts


def test_lost_audio_is_said_so(report: Callable[..., Page]) -> None:
    lost = {"clean": "audio/gone.flac", "adversarial": "audio/gone.flac"}
    page = report(
        lambda folder: [make_record(folder, "pgd_evade_snr-db-20", "a", fooled=True, db=20, audio=lost)]
    )
    assert "The audio could not be read:" in page.text and not page.all("audio")


def test_files_outside_the_folder_are_not_read(report: Callable[..., Page], tmp_path: Path) -> None:
    soundfile.write(tmp_path / "secret.flac", np.zeros(800), 16000)
    away = {"clean": "out.flac", "adversarial": "out.flac"}

    def linked(folder: RunFolder) -> list[Record]:
        (folder.path / "out.flac").symlink_to(tmp_path / "secret.flac")
        return [make_record(folder, "pgd_evade_snr-db-20", "a", fooled=True, db=20, audio=away)]

    page = report(linked)
    assert "which is outside the folder of the run" in page.text and not page.all("audio")


def test_how_to_repeat_it(page: Page) -> None:
    for words in ("sottovoce audit plan.yaml", "abc123", "Linux x86_64, 2 threads", "2.13.0", "- pgd"):
        assert words in page.text
    assert "Clopper-Pearson 95%" in page.text and "bootstrap 95%" in page.text


def test_a_run_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="run the audit first"):
        write_report(make_folder(tmp_path / "run"))


def test_an_earlier_report_is_replaced_whole(folder: RunFolder) -> None:
    assert folder.report_path.stat().st_size < 6e6
    assert [path.name for path in folder.path.glob("report*")] == ["report.html"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_a_browser_draws_every_chart(folder: RunFolder, tmp_path: Path) -> None:
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
        "--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom",
    ]  # fmt: skip
    address = folder.report_path.resolve().as_uri()
    done = subprocess.run(
        [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path}", address],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    drawn = Page(done.stdout)
    assert [item.get("id") for item in drawn.all("div") if "vega-embed" in item.get("class", "")] == [
        "success-0", "measured-0", "distortion-max", "distortion-mean",
    ]  # fmt: skip
    assert len([item for item in drawn.all("svg") if "marks" in item.get("class", "")]) == 4
    assert "could not be drawn" not in drawn.text


def _decode(uri: str) -> np.ndarray:
    head, _, content = uri.partition(",")
    assert head == "data:audio/flac;base64"
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(content)), dtype="int16")
    assert rate == 16000
    return samples
