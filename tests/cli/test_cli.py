"""The verbs as a user types them, in a process of their own where more than the exit code matters."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from sottovoce.cli.audit import parse_audible, parse_snr
from sottovoce.cli.main import main
from sottovoce.errors import InputError

Done = subprocess.CompletedProcess[str]


def sottovoce(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from sottovoce.cli.main import main; main()", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """The same in this process, which has everything imported already."""

    def run(*words: str) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["sottovoce", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return subprocess.CompletedProcess(words, code, *capsys.readouterr())

    return run


QUICK = ("--attacks", "noise,pgd(steps=20)", "--snr=-3,3")


def test_an_audit_needs_no_options(typed: Callable[..., Done], monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[object, ...]] = []
    monkeypatch.setattr("sottovoce.cli.audit.begin", lambda *what: begun.append(what))
    assert typed("audit").returncode == 0
    assert typed("audit", "--snr", "30").returncode == 0
    (settings, out, _, dry), (others, *_) = begun
    assert (settings, out, dry) == ({}, None, False)
    assert others == {"budgets": ["snr(db=30)"]}


def test_an_audit_prints_a_table_and_writes_a_report(
    mean_model: str, mean_clips: Path, tmp_path: Path
) -> None:
    (mean_clips / "down" / "0.wav").unlink()
    done = sottovoce(
        "audit", "--model", mean_model, "--data", "clips", "--out", "run", *QUICK, folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "100 [48,100]" in done.stdout  # 5 of 5: Clopper-Pearson from 0.478
    assert "report: run/report.html" in done.stdout
    assert {"plan.yaml", "about.json", "trials.jsonl", "audio", "report.html"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    shown = sottovoce("view", "run", "--no-browser", folder=tmp_path)
    assert shown.returncode == 0
    assert "100 [48,100]" in shown.stdout


def test_json_is_for_machines(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    done = sottovoce("audit", "--model", mean_model, "--data", "clips", *QUICK, "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    cells = {cell["id"]: cell for cell in content["cells"]}
    loud = cells["pgd-steps-20_evade_snr-db--3"]
    assert loud["metrics"]["success"]["value"] == 1.0
    assert loud["metrics"]["success"]["n"] == 5
    assert (tmp_path / content["report"]).exists()


def test_a_defended_target_is_attacked_by_three(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    words = (
        "--defenses",
        "gaussian(sigma=0.001)",
        "--attacks",
        "pgd(steps=20)",
        "--snr=-3",
        "--average",
        "2",
    )
    more = ("--black-box", "genetic(steps=3, population=4)", "--probe", "2", "--audio", "none", "--json")
    done = sottovoce("audit", "--model", mean_model, "--data", "clips", *words, *more, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert [cell["attacker"] for cell in content["cells"]] == ["adaptive", "transfer", "black-box"]
    (strongest,) = content["strongest"]
    assert (strongest["attacks"], strongest["per_clip"]["success"]["value"]) == (3, 1.0)
    passed = {check["kind"]: check["passed"] for check in content["checks"]}
    assert (passed["attackers"], passed["averaging"], passed["adaptive"], passed["no-noise"]) == (
        True, True, True, False,
    )  # fmt: skip
    plan = (Path(tmp_path / content["report"]).parent / "plan.yaml").read_text()
    assert "average: 2\n" in plan and "black_box: genetic(steps=3, population=4)\n" in plan


@pytest.mark.slow
def test_a_bad_clip_ends_with_exit_code_1(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    (mean_clips / "up" / "broken.wav").write_bytes(b"no audio")
    done = sottovoce(
        "audit", "--model", mean_model, "--data", "clips", "--out", "run", *QUICK, folder=tmp_path
    )
    assert done.returncode == 1
    assert "failed: up/broken" in done.stdout
    assert "100 [" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["audit", "--attacks", "pdg"], "did you mean 'pgd'?"),
        (["audit", "--snr", "loud"], "expected decibels"),
        (["audit", "--snr", "60:20:10"], "expected decibels"),
        (["audit", "--attackers", "nobody"], "attackers"),
        (["audit", "--black-box", "pgd"], "scores or decisions alone"),
        (["audit", "--average", "0"], "average"),
        (["audit", "--data", "nowhere"], "nowhere"),
        (["audit", "--data", "empty"], "empty"),
        (["audit", "--model", "keywort"], "did you mean 'keyword'?"),
        (["audit", "--model", "huggingface"], "expected a model like huggingface:MODEL"),
        (["audit", "--model", "keyword:x"], "expected a model like keyword"),
        (["audit", "missing.yaml"], "expected a plan"),
        (["audit", "--goals", "force(text=maybe)", "--limit", "3"], "maybe"),
        (["view", "empty"], "is not the folder of a run"),
        (["study", "run", "V9"], "did you mean"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, typed: Callable[..., Done]
) -> None:
    (tmp_path / "empty").mkdir()
    done = typed(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("error") == 1
    assert not (tmp_path / "runs").exists()


def test_unknown_options_are_usage_errors(typed: Callable[..., Done]) -> None:
    assert typed("audit", "--atacks", "pgd").returncode == 2


def test_the_process_ends_with_the_code_of_a_mistake(tmp_path: Path) -> None:
    assert sottovoce("audit", "--attacks", "pdg", folder=tmp_path).returncode == 2


@pytest.mark.parametrize(
    "words", [[], ["audit"], ["view"], ["table"], ["measure"], ["parts"], ["study"], ["train"]]
)
def test_help_teaches(words: list[str], typed: Callable[..., Done]) -> None:
    done = typed(*words, "--help")
    assert done.returncode == 0
    assert "Usage" in done.stdout


def test_parts_lists_what_is_in_the_box(typed: Callable[..., Done]) -> None:
    done = typed("parts", "attack")
    assert done.returncode == 0
    assert "pgd" in done.stdout
    assert "steps=40" in done.stdout


def test_measure_reads_the_difference_of_two_files(tmp_path: Path) -> None:
    clean = np.full(8000, 10000, dtype=np.int16)
    soundfile.write(tmp_path / "clean.wav", clean, 8000, subtype="PCM_16")
    soundfile.write(tmp_path / "loud.wav", clean + np.int16(100), 8000, subtype="PCM_16")
    done = sottovoce("measure", "clean.wav", "loud.wav", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["snr"] == pytest.approx(40.0)
    assert figures["db-max"] == pytest.approx(-40.0)
    assert figures["linf"] == pytest.approx(100 / 32768)
    assert figures["intensity"] == "high"  # 20 log10(10000) = 80 dB


def test_snr_ranges_include_their_end() -> None:
    assert parse_snr("20:40:10,55") == ["snr(db=20)", "snr(db=30)", "snr(db=40)", "snr(db=55)"]
    assert parse_snr("0.5:1.5:0.5") == ["snr(db=0.5)", "snr(db=1)", "snr(db=1.5)"]
    with pytest.raises(InputError):
        parse_snr("1:2")


def test_audible() -> None:
    assert parse_audible("0.1,.25,0.50") == ["audible(p=0.1)", "audible(p=0.25)", "audible(p=0.5)"]
    assert parse_audible("") == []
    with pytest.raises(InputError, match="--audible"):
        parse_audible("often")
