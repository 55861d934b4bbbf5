"""The report and the printed tables of a recogniser, on records whose every figure is known by hand."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rich.console import Console

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.results.summary import summarise
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.cli.summary_table import summary_table
from sottovoce.core.record import Record
from sottovoce.report.report_page import write_report

NAN = float("nan")
LENGTHS = {"a": 2, "b": 8, "c": 5, "d": 5}
"""Words of each reference, 20 in all. The first two are spoken by Ann, the others by Bob."""
ERRORS = {
    # Of a, b, c and d. The mean over clips is another number in every case.
    "clean": (0, 0, 1, 0),
    "noise_evade_snr-db-30": (0, 1, 1, 0),
    "noise_evade_snr-db-40": (0, 0, 1, 0),
    "pgd_evade_snr-db-30": (2, 8, 7, 7),
    "pgd_evade_snr-db-40": (0, 1, 3, 2),
}
ABOUT = {
    "run": "abc123",
    "started": "2025-01-02T03:04:05+00:00",
    "device": "cpu",
    "machine": "Linux",
    "versions": {},
}
LOST = {"clean": "gone.flac", "adversarial": "gone.flac"}
INTERVAL = r"\[[\d.]+, [\d.]+\]"


def make_record(cell: str, clip: str, *, changed: bool, **more: object) -> Record:
    """A clip of `cell`; its errors come from the table above unless `more` brings parts of its own."""
    place, length = "abcd".index(clip), LENGTHS[clip]
    errors = ERRORS.get(cell, ERRORS["clean"])[place]
    db = 40.0 if cell.endswith("40") else 30.0
    parts = {
        "success": [float(changed), 1.0],
        "wer": [errors, length],
        "clean-wer": [ERRORS["clean"][place], length],
        "cer": [4 * errors, 5 * length],
        "sentence-error": [float(errors > 0), 1.0],
        "tasr-word": [NAN, NAN],
        "language-confusion": [NAN, NAN],
        "snr": [db, 1.0],
        "masking-share": [0.25, 1.0],
    }
    content = {
        "label": "open the front door", "clean_text": "Open the front door.",
        "adversarial_text": "Open a front door now" if changed else "Open the front door.",
        "achieved": changed, "achieved_unrounded": changed, "seconds": 0.5, "sample_rate": 16000,
        "facts": {"intensity": "medium", "speaker": "Ann" if clip in "ab" else "Bob", "language": "en"},
        "parts": parts,
    }  # fmt: skip
    content |= more
    content["parts"] = {**parts, **content["parts"]}
    return Record(cell=cell, clip=clip, status="ok", **content)


def make_evading() -> list[Record]:
    """Noise changes one transcript at 30 dB; pgd all four there and three at 40 dB."""
    counts = {cell: 0 for cell in ERRORS if cell != "clean"}
    counts |= {"noise_evade_snr-db-30": 1, "pgd_evade_snr-db-30": 4, "pgd_evade_snr-db-40": 3}
    return [
        make_record(cell, clip, changed=clip in "dcba"[:count])
        for cell, count in counts.items()
        for clip in LENGTHS
    ]


def make_folder(path: Path, records: Sequence[Record], **settings: object) -> RunFolder:
    chosen = {
        "model": "recogniser", "attacks": ["noise", "pgd"], "budgets": ["snr(db=30)", "snr(db=40)"],
        **settings,
    }  # fmt: skip
    folder = RunFolder(path)
    folder.prepare(make_plan(chosen), ABOUT)
    with folder.writer() as writer:
        writer.write(list(records))
    return folder


@pytest.fixture
def page(tmp_path: Path) -> Callable[..., str]:
    """The markup of the report on records of one's own."""

    def make(records: Sequence[Record], **settings: object) -> str:
        return write_report(make_folder(tmp_path / "run", records, **settings)).read_text(encoding="utf-8")

    return make


@pytest.fixture
def printed(tmp_path: Path) -> Callable[..., str]:
    """What a terminal shows of them."""

    def make(records: Sequence[Record], **settings: object) -> str:
        folder = make_folder(tmp_path / "run", records, **settings)
        file = io.StringIO()
        plan = folder.plan()
        Console(file=file, width=100).print(summary_table(plan, summarise(plan, folder.records())))
        return file.getvalue()

    return make


def text_of(page: str) -> str:
    """The words outside scripts and tags."""
    body = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


def chart_of(page: str, name: str) -> dict[str, object]:
    found = re.search(rf'data-chart="{name}">(.*?)</script>', page, flags=re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_verdict_gives_corpus_error_rates(page: Callable[..., str]) -> None:
    # Clean 1 of 20 words; pgd 2 + 8 + 7 + 7 = 24 of 20; noise 2 of 20.
    expected = (
        rf"recogniser on 4 clips: WER 5 % {INTERVAL} before any attack; pgd at SNR 30 dB brings it to 120 % "
        rf"{INTERVAL} , white noise at the same level to 10 % {INTERVAL} ; 100 % \[39.8, 100.0\] of the "
        r"clips have more word errors than before\."
    )
    text = text_of(page(make_evading()))
    assert re.search(expected, text), text[:800]
    assert "quietest of the budgets tried at which an attack adds at least 50 points to the WER" in text


def test_words_of_classifiers_do_not_come_up(page: Callable[..., str]) -> None:
    text = text_of(page(make_evading()))
    for words in ("heard right", "heard as", "decisions that", "by class", "right / clips"):
        assert words not in text


def test_the_main_table_leads_with_errors(page: Callable[..., str]) -> None:
    text = text_of(page(make_evading()))
    heads = "attack budget WER CER success sentence error SNR audible cells clips failed lost by rounding"
    assert heads in text
    # 6 of 20 words; CER 4 * 6 of 5 * 20 characters; 3 of 4 clips changed, and 3 have an error.
    row = (
        rf"SNR 40 dB 30 % {INTERVAL} 24 % {INTERVAL} 75 % \[19.4, 99.4\] 75 % \[19.4, 99.4\] "
        r"40.0 dB \[40.0, 40.0\] 25 % \[25.0, 25.0\] 4 0 0"
    )
    assert re.search(row, text)


def test_metrics_of_transcripts_without_any_value_are_left_out(page: Callable[..., str]) -> None:
    text = text_of(page(make_evading()))
    assert "targeted success" not in text and "language" not in text.replace("language and", "")


def test_speakers_make_a_table_and_one_language_makes_none(page: Callable[..., str]) -> None:
    text = text_of(page(make_evading()))
    # At 30 dB Ann has 2 + 8 errors in 10 words, Bob 7 + 7; at 40 dB 1 and 5.
    assert re.search(
        rf"speaker SNR 30 dB pgd SNR 40 dB pgd Ann 100 % ({INTERVAL} )?10 % {INTERVAL} "
        rf"Bob 140 % ({INTERVAL} )?50 % {INTERVAL}",
        text,
    )
    assert "WER by speaker" in text and "WER under attack by language" not in text


def test_the_chart_has_room_above_100_percent(page: Callable[..., str]) -> None:
    chart = chart_of(page(make_evading()), "wer-0")
    rows = chart["data"]["values"]
    assert {(row["attack"], row["asked"]): row["wer"] for row in rows} == {
        ("white noise", 30.0): 0.1, ("white noise", 40.0): 0.05, ("pgd", 30.0): 1.2, ("pgd", 40.0): 0.3,
    }  # fmt: skip
    tops = {
        layer["encoding"]["y"]["scale"]["domain"][1] for layer in chart["layer"] if "y" in layer["encoding"]
    }
    assert len(tops) == 1
    assert max(row["high"] for row in rows) <= tops.pop()
    # The line of the clean clips: 1 error in 20 words.
    assert chart["layer"][0]["data"]["values"] == [{"before": 0.05}]


def test_examples_are_picked_by_success_and_marked(page: Callable[..., str]) -> None:
    made = page(
        [make_record("pgd_evade_snr-db-30", clip, changed=clip == "a", audio=LOST) for clip in "ab"],
        attacks=["pgd"],
        budgets=["snr(db=30)"],
    )
    shown = " ".join(re.findall(r'<dl class="texts">.*?</dl>', made, flags=re.DOTALL))
    # "Open the front door." is no label letter by letter, and no error either.
    assert re.sub(r"\s+", " ", shown) == (
        '<dl class="texts"> <dt>reference</dt><dd>open the front door </dd> '
        "<dt>clean</dt><dd>open the front door </dd> "
        '<dt>adversarial</dt><dd>open <mark title="instead of “the”">a</mark> front door '
        "<ins>now</ins> </dd> </dl>"
    )


def test_players_say_the_transcript_as_it_is(page: Callable[..., str], tmp_path: Path) -> None:
    records = [make_record("pgd_evade_snr-db-30", "a", changed=True, audio=LOST)]
    page(records)
    soundfile.write(tmp_path / "run" / "gone.flac", 0.1 * np.sin(np.arange(8000) / 8), 16000)
    text = text_of(write_report(RunFolder(tmp_path / "run")).read_text(encoding="utf-8"))
    assert "clean transcript “Open the front door.”" in text
    assert "adversarial transcript “Open a front door now”" in text


def test_text_in_transcripts_stays_text(page: Callable[..., str]) -> None:
    evil = "<script>alert(1)</script>"
    made = page(
        [make_record("pgd_evade_snr-db-30", "a", changed=True, adversarial_text=evil, label=evil, audio=LOST)]
    )
    assert evil not in made


def test_a_wanted_text_makes_success_the_main_figure(page: Callable[..., str]) -> None:
    cells = ("noise_force-text-go-left_snr-db-30", "pgd_force-text-go-left_snr-db-30")
    records = [
        make_record(cell, clip, changed=cell.startswith("pgd") and clip != "d", audio=LOST)
        for cell in cells
        for clip in LENGTHS
    ]
    made = page(records, goals=['force(text="go left")'], budgets=["snr(db=30)"])
    text = text_of(made)
    assert re.search(
        rf"WER 5 % {INTERVAL} before any attack; pgd at SNR 30 dB makes it transcribe “go left” in 75 % "
        r"\[19.4, 99.4\] of the clips, white noise at the same level 0 % \[0.0, 60.2\] \.",
        text,
    )
    assert "Success against loudness" in text and "WER against loudness" not in text
    assert re.search(r"<dt>wanted</dt><dd>\s*go left", made)


def test_another_language_is_said_where_the_model_tells(page: Callable[..., str]) -> None:
    records = [
        make_record(
            "pgd_evade_snr-db-30", clip, changed=True, audio=LOST,
            parts={"language-confusion": [float(clip == "a"), 1.0], "snr": [30.0 + "ab".index(clip), 1.0]},
        )
        for clip in "ab"
    ]  # fmt: skip
    text = text_of(page(records))
    assert text.count("language heard changed") == 1
    assert text.count("language heard unchanged") == 1


def test_one_clip_has_no_interval_and_proves_nothing(page: Callable[..., str]) -> None:
    cells = ("noise_evade_snr-db-30", "pgd_evade_snr-db-30")
    text = text_of(page([make_record(cell, "b", changed=True) for cell in cells]))
    assert "brings it to 100 %" in text
    assert "No better than white noise in 1 of 1 comparison" in text


def test_the_terminal_prints_error_rates_then_changed_transcripts(printed: Callable[..., str]) -> None:
    text = printed(make_evading())
    first, second = text.split("Attack success on recogniser in %: clips with more word errors than before")
    title = (
        rf"WER: 5\s% {INTERVAL} before, 120\s% {INTERVAL} under pgd at SNR 30 dB\.\n"
        r"WER of recogniser under attack in %, with 95 % intervals; clean 5 \[\d+,\d+\]"
    )
    assert re.match(title, first)
    assert re.search(r"noise +10 \[\d+,\d+\] +5 \[\d+,\d+\]", first)
    assert re.search(r"pgd +120 \[\d+,\d+\] +30 \[\d+,\d+\]", first)
    assert re.search(r"noise +25 \[1,81\] +0 \[0,60\]", second)
    assert re.search(r"pgd +100 \[40,100\] +75 \[19,99\]", second)


def test_the_terminal_prints_success_first_where_a_text_is_wanted(printed: Callable[..., str]) -> None:
    records = [make_record("pgd_force-text-go-left_snr-db-30", clip, changed=clip != "d") for clip in LENGTHS]
    text = printed(records, goals=['force(text="go left")'], budgets=["snr(db=30)"], attacks=["pgd"])
    assert text.startswith("Attack success on recogniser in %: clips on which the goal is reached")
    assert text.index("75 [19,99]") < text.index("WER of recogniser under attack")
