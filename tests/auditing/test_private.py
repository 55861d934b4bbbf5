"""What a run hands on holds no path of the machine that it was made on."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from sottovoce.auditing.certificates.certify_run import CertifyPlan, run_certify
from sottovoce.auditing.plan.plan_file import make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.core.files.private_paths import find_roots, hide_paths
from sottovoce.data.corpora import open_corpus
from sottovoce.defenses.denoiser import FOLDER as SHIPPED
from sottovoce.leaderboard.claims.claim import read_claim
from sottovoce.leaderboard.static_site import write_site
from sottovoce.report.report_page import write_report

# Says "up" where the mean of a clip is above zero, and falls over one level with a path in what it says.
MODEL = """
import torch
from pathlib import Path
from sottovoce.targets.families.classifier import ModuleClassifier


class Mean(torch.nn.Module):
    def forward(self, waveforms):
        if bool((waveforms[:, 0] == 5000 / 32768).any()):
            raise OSError(2, "No such file or directory", str(Path(__file__).with_name("weights.bin")))
        mean = waveforms.mean(dim=1, keepdim=True)
        return 50.0 * torch.cat([mean, -mean], dim=1)


def make():
    return ModuleClassifier(Mean(), ["up", "down"], 8000)
"""
KEPT = {"plan.yaml", "about.json", "certify.yaml"}
"""What keeps what was typed."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a space in its name, and a model in it."""
    home = tmp_path / "my things"
    home.mkdir()
    (home / "pathy.py").write_text(MODEL)
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "pathy", raising=False)
    return home


@pytest.fixture
def clips(home: Path, write_clip: object) -> Path:
    """Four clips that can be heard, one that the model falls over, and one that is no audio."""
    folder = home / "clips"
    for name, level in (("up/1", 1000), ("up/2", 2000), ("down/1", -1000), ("down/2", -2000), ("up/5", 5000)):
        write_clip(folder / f"{name}.wav", np.full(400, level))  # type: ignore[operator]
    (folder / "up" / "broken.wav").write_bytes(b"RIFF....")
    return folder


def leaks(folder: Path, path: Path) -> list[str]:
    """Files below a folder, but for those that keep what was typed, in which a path stands."""
    return [
        file.relative_to(folder).as_posix()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in KEPT and str(path).encode() in file.read_bytes()
    ]


def settings(data: str) -> dict[str, object]:
    return {
        "model": "python:pathy:make", "data": data, "attacks": ["noise", "pgd(steps=2)"],
        "budgets": ["snr(db=-3)"], "metrics": ["success", "snr", "clean-accuracy"], "probe": 2,
    }  # fmt: skip


def test_a_run_of_a_folder_holds_no_path_of_this_machine(home: Path, clips: Path, tmp_path: Path) -> None:
    folder = run_audit(make_plan(settings(str(clips))), home / "run")
    page = write_report(folder).read_text()
    assert leaks(folder.path, tmp_path) == []
    reasons = {record.clip: record.reason for record in folder.records() if record.status == "failed"}
    # From the root of the data on; elsewhere the name alone.
    assert reasons["up/broken"].startswith("up/broken.wav: expected audio that libsndfile reads")
    assert reasons["up/5"] == "FileNotFoundError: [Errno 2] No such file or directory: 'weights.bin'"
    assert "<dd>clips</dd>" in page and "up/broken.wav: expected audio" in page
    assert "the file in its folder has the full paths" in page
    # The plan keeps what was typed, and so the run can be gone on with.
    assert folder.plan().data == str(clips)
    before = folder.records_path.read_bytes()
    run_audit(folder.plan(), home / "run")
    assert folder.records_path.read_bytes() == before


def test_a_list_with_absolute_paths_has_ids_without(home: Path, clips: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "deep"
    elsewhere.mkdir(parents=True)
    (clips / "down" / "2.wav").rename(elsewhere / "far.wav")
    files = [
        clips / "up" / "1.wav",
        clips / "up" / "broken.wav",
        clips / "down" / "1.wav",
        elsewhere / "far.wav",
    ]
    rows = [{"path": str(file), "label": file.parent.name, "speaker": str(file.parent)} for file in files]
    rows[-1]["label"] = "down"
    with (home / "list.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["path", "label", "speaker"])
        writer.writeheader()
        writer.writerows(rows)
    folder = run_audit(make_plan(settings(f"csv:{home / 'list.csv'}")), home / "run")
    write_report(folder)
    assert leaks(folder.path, tmp_path) == []
    found = {record.clip: record for record in folder.records()}
    assert set(found) == {"clips/up/1", "clips/up/broken", "clips/down/1", "far"}
    assert found["clips/up/1"].facts["speaker"] == "clips/up" and found["far"].facts["speaker"] == "deep"
    # The same rows, typed from the list's folder on, are the same clips.
    (home / "short.csv").write_text("path,label\nclips/up/1.wav,up\nclips/down/1.wav,down\n")
    assert [entry.id for entry in open_corpus(str(home / "short.csv"))] == ["clips/up/1", "clips/down/1"]


def test_ids_that_are_paths_count_from_the_folder_they_share(home: Path, clips: Path) -> None:
    rows = [
        f"{clips / 'up' / '1.wav'},up,/mnt/a/x",
        f"{clips / 'up' / '2.wav'},up,/mnt/b/x",
        "clips/up/5.wav,up,own",
    ]
    (home / "ids.csv").write_text("\n".join(["path,label,id", *rows]))
    assert [entry.id for entry in open_corpus("ids.csv")] == ["a/x", "b/x", "own"]


def test_a_cell_that_cannot_be_run_tells_no_path(home: Path, clips: Path, tmp_path: Path) -> None:
    plan = make_plan(settings(str(clips)) | {"model": f"huggingface:{home / 'absent'}"})
    folder = run_audit(plan, home / "run", keep_going=True)
    assert {record.status for record in folder.records()} == {"failed"}
    assert leaks(folder.path, tmp_path) == []


def test_certificates_hold_no_path(home: Path, clips: Path, tmp_path: Path) -> None:
    plan = CertifyPlan(model="python:pathy:make", data=str(clips), passes=50, select=10)
    folder = run_certify(plan, home / "certificates", device="cpu")
    reasons = {record.clip: record.reason for record in folder.records() if record.status == "failed"}
    assert reasons["up/broken"].startswith("up/broken.wav: expected audio")
    assert leaks(folder.path, tmp_path) == []


def test_a_leaderboard_and_its_claims_hold_no_path(home: Path, clips: Path, tmp_path: Path) -> None:
    (clips / "up" / "5.wav").unlink()
    own = settings(str(clips)) | {"fit": str(clips), "attacks": ["noise", "fgsm"], "probe": 0}
    folder = run_audit(make_plan(own), home / "run")
    write_report(folder)
    write_site([folder.path], home / "site")
    (copy,) = (home / "site" / "runs").iterdir()
    assert leaks(home / "site", tmp_path) == [] and str(tmp_path) not in (copy / "plan.yaml").read_text()
    (path,) = (home / "site" / "claims").glob("*.json")
    claim = read_claim(path)
    assert (claim.data, claim.plan["data"], claim.plan["fit"]) == ("clips", "clips", "clips")
    # Read back, it is the claim of that run, and no other row.
    again = write_site([folder.path, path], home / "again")
    assert len(list((again.parent / "claims").glob("*.json"))) == 1 and "left out" not in again.read_text()


def test_a_claim_tells_of_a_file_its_name_alone(home: Path, clips: Path, tmp_path: Path) -> None:
    (clips / "up" / "5.wav").unlink()
    shutil.copy(SHIPPED / "denoiser-l1.safetensors", home / "own.safetensors")
    own = settings(str(clips)) | {
        "defenses": [f'denoise(weights="{home / "own.safetensors"}")'], "attacks": ["noise", "fgsm"],
        "attackers": ["adaptive"], "probe": 0,
    }  # fmt: skip
    folder = run_audit(make_plan(own), home / "run")
    write_report(folder)
    write_site([folder.path], home / "site")
    assert leaks(folder.path, tmp_path) == [] and leaks(home / "site", tmp_path) == []
    (path,) = (home / "site" / "claims").glob("*.json")
    claim = json.loads(path.read_text())
    assert claim["defense"] == claim["plan"]["defenses"][0] == 'denoise(weights="own.safetensors")'
    # Its cells are those of the plan as it is told.
    (rival,) = claim["worst"][0]["cells"]
    assert rival["cell"] == "denoise-weights-own.safetensors_fgsm_evade_snr-db--3"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/data/my clips/up/1.wav: expected audio", "up/1.wav: expected audio"),
        ("folder:/data/my clips", "folder:my clips"),
        ("/data/my clips/", "my clips"),
        ("/data/my clipsets/up/1.wav", "my clipsets/up/1.wav"),
        ("whisper(model=/opt/models/tiny.pt, beams=5)", "whisper(model=tiny.pt, beams=5)"),
        ('File "/usr/lib/python3/site.py", line 3', 'File "site.py", line 3'),
        ("no such file: '/opt/my models/tiny.pt'", "no such file: 'tiny.pt'"),
        ("C:\\Users\\me\\tiny.pt: no", "tiny.pt: no"),
        ("file:///tmp/me/x.wav", "file://x.wav"),
        # What is no path of this machine stays.
        ("https://host/a/b and s3://bucket/a/b", "https://host/a/b and s3://bucket/a/b"),
        (
            "../up/1.wav, ~/up/1.wav, up/1.wav, 3/4, /k/ or/and",
            "../up/1.wav, ~/up/1.wav, up/1.wav, 3/4, /k/ or/and",
        ),
        ("data:audio/flac;base64,/9j/4AAQ/Sk+/ab/cd", "data:audio/flac;base64,/9j/4AAQ/Sk+/ab/cd"),
    ],
)
def test_paths_in_texts(text: str, told: str) -> None:
    assert hide_paths(text, ("/data/my clips",)) == told


def test_roots_are_folders_and_never_the_top() -> None:
    assert find_roots("/a/b", None, "/a") == ("/a/b", "/a")
    assert find_roots("/") == ()


def test_a_report_without_paths_is_as_it_was(
    home: Path, clips: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_audit(make_plan(settings("clips")), home / "run")
    page = write_report(folder).read_text()
    monkeypatch.setattr("sottovoce.report.report_page.hide_paths", lambda text, roots=(): text)
    monkeypatch.setattr("sottovoce.report.report_page.hide_all", lambda content, roots=(): content)
    assert write_report(RunFolder(folder.path)).read_text() == page
