"""`sottovoce view` of a run prints and writes; of a folder it serves."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.cli.view import view
from sottovoce.errors import StoreError

VERB = [sys.executable, "-u", "-c", "from sottovoce.cli.main import main; main()", "view"]


@pytest.fixture
def runs(mean_model: str, mean_clips: Path, tmp_path: Path) -> Path:
    entries = {
        "model": mean_model,
        "data": "clips",
        "attacks": ["fgsm"],
        "budgets": ["snr(db=-3)"],
        "probe": 0,
    }
    run_audit(make_plan(entries), tmp_path / "runs" / "one", device="cpu")
    return tmp_path / "runs"


def test_a_run_is_printed_and_its_report_written(runs: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [*VERB, "runs/one", "--no-browser"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "100 [48,100]" in done.stdout and "report: runs/one/report.html" in done.stdout
    assert (runs / "one" / "report.html").exists()


def test_a_run_in_a_bucket_is_printed(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setenv("SOTTOVOCE_CACHE", str(tmp_path / "cache"))
    fsspec.filesystem("memory").put(str(runs / "one"), "/seen/one", recursive=True)
    app = typer.Typer()
    app.command()(view)
    try:
        done = CliRunner().invoke(app, ["memory://seen/one", "--no-browser"])
    finally:
        fsspec.filesystem("memory").rm("/seen", recursive=True)
    assert done.exit_code == 0, done.output
    assert "100 [48,100]" in done.output and "report.html" in done.output


@pytest.mark.parametrize("text", [None, '{"run": "0123'])
def test_a_run_without_a_whole_about_is_a_mistake(runs: Path, text: str | None) -> None:
    (runs / "one" / "about.json").unlink()
    if text is not None:
        (runs / "one" / "about.json").write_text(text)
    app = typer.Typer()
    app.command()(view)
    done = CliRunner().invoke(app, ["runs/one", "--no-browser"])
    assert isinstance(done.exception, StoreError)
    assert "runs/one/about.json: expected what is known of the run" in str(done.exception)


def test_a_folder_is_served_until_it_is_stopped(runs: Path, tmp_path: Path) -> None:
    serving = subprocess.Popen(
        [*VERB, "--port", "0", "--no-browser"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        # Tests that run in the background hand down that SIGINT is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert serving.stdout is not None
        line = serving.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert address, line
        with urllib.request.urlopen(address[0], timeout=20) as answer:
            assert b"/records/one" in answer.read()
        serving.send_signal(signal.SIGINT)
        assert serving.wait(20) == 0
    finally:
        if serving.poll() is None:
            os.kill(serving.pid, signal.SIGKILL)
        serving.communicate()


def test_a_folder_without_runs_and_a_taken_port_are_mistakes(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = subprocess.run([*VERB, "empty"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "there are no runs below it" in done.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = [*VERB, "runs", "--no-browser", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "choose another with --port" in done.stderr
