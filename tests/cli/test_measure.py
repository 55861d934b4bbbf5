"""`sottovoce measure` on files written here: figures by hand, pairs that do not fit, folders."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from click.testing import Result
from typer.testing import CliRunner

from sottovoce import registry
from sottovoce.cli.main import app
from sottovoce.data.embedded import embedded
from sottovoce.errors import InputError, MissingExtra
from sottovoce.metrics import quality

RATE = 16000


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)


def measure(*words: str) -> Result:
    return CliRunner().invoke(app, ["measure", *words])


def read(*words: str) -> dict[str, object]:
    done = measure(*words, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, object] = json.loads(done.output)
    return found


def write(name: str, samples: np.ndarray, rate: int = RATE) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(name, samples, rate, subtype="PCM_16")
    return name


def speech(seconds: float) -> np.ndarray:
    corpus = embedded()
    clips = np.concatenate([corpus.load(entry, RATE).waveform.numpy() for entry in list(corpus)[:4]])
    # Multiples of 8 steps of 16 bits, so that an eighth of it is on the grid too.
    return np.round(clips[: round(seconds * RATE)].astype(np.float64) * 4096) / 4096


def test_a_pair_of_equal_clips_reads_as_perfect() -> None:
    clip = write("clean.wav", speech(2))
    found = read(clip, clip)
    assert found["pesq"] == pytest.approx(4.64, abs=0.005)
    assert found["stoi"] == pytest.approx(1.0)
    assert (found["fwssnr"], found["cd"], found["shift"], found["level-change"]) == (35.0, 0.0, 0.0, 0.0)
    assert found["snr"] is None
    assert set(found["unscored"]) >= {"snr", "masking-max"}  # type: ignore[call-overload]


def test_what_cannot_be_scored_says_why() -> None:
    clip, other = write("clean.wav", speech(0.1)), write("half.wav", speech(0.1) / 2)
    reasons = read(clip, other)["unscored"]
    assert isinstance(reasons, dict)
    assert reasons["pesq"] == "shorter than a quarter of a second"
    shown = measure(clip, other).output
    assert "shorter than a quarter of a second" in shown
    assert "-6.021 dB" in shown  # of level-change, which is scored


def test_named_metrics_alone_are_measured() -> None:
    clip, other = write("clean.wav", speech(1)), write("half.wav", speech(1) / 2)
    found = read(clip, other, "--metrics", "snr, level-change")
    assert set(found) == {"intensity", "snr", "level-change", "unscored"}
    assert found["snr"] == pytest.approx(6.02, abs=0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["clean.wav", "short.wav"], "expected clips of one length, got 16000 and 15000"),
        (["clean.wav", "slow.wav"], "expected two clips at one rate, got 16000 and 8000 Hz"),
        (["clean.wav", "missing.wav"], "expected an audio file"),
        (["clean.wav", "text.wav"], "expected an audio file"),
        (["clean.wav", "folder"], "expected two files or two folders"),
        (["folder", "other"], "none in both"),
        (["clean.wav", "nan.wav"], "expected finite samples"),
        (["clean.wav", "loud.wav"], "expected samples in"),
        (["clean.wav", "empty.wav"], "zero length"),
        (["clean.wav", "clean.wav", "--metrics", "pesk"], "did you mean 'pesq'?"),
        (["clean.wav", "clean.wav", "--metrics", "wer"], "expected metrics of audio"),
        (["clean.wav", "clean.wav", "--csv", "no/where.csv"], "cannot write 'no/where.csv'"),
    ],
)
def test_pairs_that_do_not_fit_are_refused(words: list[str], message: str) -> None:
    write("clean.wav", speech(1))
    write("short.wav", speech(1)[:15000])
    write("slow.wav", speech(1)[::2], 8000)
    write("folder/a.wav", speech(0.1))
    write("other/b.wav", speech(0.1))
    write("empty.wav", np.zeros(0))
    Path("text.wav").write_text("no audio")
    soundfile.write("nan.wav", np.full(16000, np.nan), RATE, subtype="FLOAT")
    soundfile.write("loud.wav", np.full(16000, 400.0), RATE, subtype="FLOAT")
    done = measure(*words)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)


def test_align_takes_a_late_and_longer_copy() -> None:
    clean = write("clean.wav", speech(2))
    late = write("late.wav", np.concatenate([np.zeros(800), speech(2), np.zeros(300)]))
    found = read(clean, late, "--align")
    assert found["shift"] == 50.0  # 800 samples at 16 kHz
    assert (found["linf"], found["fwssnr"]) == (0.0, 35.0)
    assert "2 s shared of 2 and 2.07 s" in measure(clean, late, "--align", "--metrics", "shift").output


def test_align_takes_another_rate() -> None:
    time = np.arange(RATE) / RATE
    chirp = 0.5 * np.sin(2 * np.pi * (200 * time + 400 * time**2))
    clean = write("clean.wav", chirp)
    slow = write("slow.wav", chirp[::2], 8000)
    assert read(clean, slow, "--align", "--metrics", "snr")["snr"] > 30.0  # type: ignore[operator]
    assert "resampled from 8000 Hz" in measure(clean, slow, "--align", "--metrics", "snr").output


def test_a_shift_is_told_where_it_is_not_undone() -> None:
    clean = write("clean.wav", speech(2))
    late = write("late.wav", np.concatenate([np.zeros(160), speech(2)[:-160]]))
    done = measure(clean, late, "--metrics", "shift,snr,fwssnr")
    assert "10 ms" in done.output and "--align undoes it" in done.output


def test_two_folders_give_means_and_intervals() -> None:
    for place, gain in enumerate((0.5, 0.25, 0.125)):
        write(f"clean/{place}.wav", speech(0.5))
        write(f"changed/sub/../{place}.flac", gain * speech(0.5))
    write("clean/alone.wav", speech(0.5))
    write("clean/odd.wav", speech(0.5))
    write("changed/odd.wav", speech(0.4))
    done = measure("clean", "changed", "--metrics", "level-change,pesq", "--csv", "figures.csv")
    assert done.exit_code == 1  # one pair could not be measured
    assert "-12.04 [" in done.output and "n = 3" in done.output
    assert "no file of the same name: 1 (alone)" in done.output
    assert "not measured: odd: expected clips of one length" in done.output
    with open("figures.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["pair"] for row in rows] == ["0", "1", "2"]
    assert [float(row["level-change"]) for row in rows] == pytest.approx([-6.02, -12.04, -18.06], abs=0.02)
    found = json.loads(measure("clean", "changed", "--metrics", "level-change", "--json").output)
    assert found["summary"]["level-change"]["value"] == pytest.approx(-12.04, abs=0.02)
    assert found["summary"]["level-change"]["low"] < -12.04 < found["summary"]["level-change"]["high"]
    assert set(found["failed"]) == {"odd"}


def test_folders_count_what_is_unscored() -> None:
    for place, samples in enumerate((speech(1), np.zeros(RATE), np.zeros(RATE))):
        write(f"clean/{place}.wav", samples)
        write(f"changed/{place}.wav", samples / 2)
    done = measure("clean", "changed", "--metrics", "stoi,level-change", "--csv", "figures.csv")
    assert done.exit_code == 0
    assert "2 unscored: both clips are silent" in done.output
    with open("figures.csv", newline="") as file:
        row = list(csv.DictReader(file))[1]
    assert row["stoi"] == "" and "stoi: both clips are silent" in row["unscored"]


def test_a_package_that_is_missing_is_a_reason_unless_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quality, "find_spec", lambda name: None)
    clip = write("clean.wav", speech(0.5))
    reasons = read(clip, clip)["unscored"]
    assert isinstance(reasons, dict) and "sottovoce[quality]" in reasons["pesq"]
    assert isinstance(measure(clip, clip, "--metrics", "pesq").exception, MissingExtra)


def test_what_people_hear_comes_first() -> None:
    if "p-heard" not in registry.names("metric"):
        pytest.skip("no metric of what is heard")
    clip = write("clean.wav", speech(0.5))
    assert measure(clip, clip).output.startswith("p-heard")


def test_help_teaches() -> None:
    shown = measure("--help").output
    for word in ("--align", "--metrics", "--csv", "visqol", "sottovoce measure clean.wav adversarial.wav"):
        assert word in shown
