"""Figures of different weights, and of different versions, never stand in one folder."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

import sottovoce
from sottovoce.auditing.certificates.certify_run import CertifyPlan, run_certify
from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import RunFolder
from sottovoce.auditing.run.used_weights import digest_weights
from sottovoce.core.files.weight_files import digest_files, note_file, noting_files
from sottovoce.core.transform import Defended
from sottovoce.defenses.quantise import Quantise
from sottovoce.errors import InputError
from sottovoce.targets.open_target import files_of, open_target

HOME = Path(sottovoce.__file__).parent
KEYWORD = HOME / "targets" / "zoo" / "weights" / "keyword_cnn.safetensors"
EAR = HOME / "perception" / "ears" / "weights" / "learned-scratch.safetensors"
DENOISER = HOME / "defenses" / "weights" / "denoiser-l1.safetensors"


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def make(**settings: object) -> Plan:
    base = {
        "model": "keyword", "limit": 2, "attacks": ["noise"], "budgets": ["snr(db=40)"], "probe": 0,
        "audio": "none", "metrics": ["success"],
    }  # fmt: skip
    return make_plan(base | settings)


def weights(folder: RunFolder) -> dict[str, str]:
    found: dict[str, str] = folder.about()["weights"]
    return found


def test_a_run_says_which_weights_it_used(tmp_path: Path) -> None:
    plain = run_audit(make(), tmp_path / "plain", device="cpu")
    assert weights(plain) == {"keyword_cnn.safetensors": digest(KEYWORD)}
    behind = make(defenses=["denoise(loss=l1)"], metrics=["success", "p-heard"], attackers=["adaptive"])
    assert weights(run_audit(behind, tmp_path / "behind", device="cpu")) == {
        "denoiser-l1.safetensors": digest(DENOISER),
        "keyword_cnn.safetensors": digest(KEYWORD),
        "learned-scratch.safetensors": digest(EAR),
    }
    audible = make(budgets=["audible(p=0.3)"])
    # The ear was opened before, and is open still: that it is used counts, not that it is read.
    assert "learned-scratch.safetensors" in weights(run_audit(audible, tmp_path / "heard", device="cpu"))


def test_a_model_of_ones_own_has_none(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    own = make(model=mean_model, data=str(mean_clips))
    assert weights(run_audit(own, tmp_path / "run", device="cpu")) == {}


def test_models_inside_models() -> None:
    both = open_target("transfer(source=keyword, judge=keyword(variant=pgd), judge_defense=denoise)", "cpu")
    assert {path.name for path in files_of(both)} == {
        "keyword_cnn.safetensors", "keyword-pgd.safetensors", "denoiser-mrstft.safetensors",
    }  # fmt: skip
    bare = open_target("keyword", "cpu")
    assert files_of(Defended(bare, (Quantise(),))) == files_of(bare) == {KEYWORD}


def test_other_weights_do_not_add_to_a_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    shutil.copy(KEYWORD, file)
    plan = make(model=f"keyword(weights={file})", attacks=["noise", "fgsm"])
    folder = run_audit(plan, tmp_path / "run", device="cpu")
    assert weights(folder) == {"mine.safetensors": digest(KEYWORD)}
    lines = folder.records_path.read_bytes().splitlines(keepends=True)
    folder.records_path.write_bytes(b"".join(lines[:2]))
    shutil.copy(KEYWORD.with_name("keyword-pgd.safetensors"), file)
    said = "the weights of mine.safetensors changed since .*run was started; put the old"
    with pytest.raises(InputError, match=said):
        run_audit(plan, tmp_path / "run", device="cpu")
    assert folder.records_path.read_bytes() == b"".join(lines[:2])
    shutil.copy(KEYWORD, file)
    run_audit(plan, tmp_path / "run", device="cpu")
    assert len(folder.records_path.read_bytes().splitlines()) == 4


def test_another_ear_does_not_add_to_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make(metrics=["success", "heard-distance"])
    folder = run_audit(plan, tmp_path / "run", device="cpu")
    shutil.copy(EAR.with_name("learned-fin.safetensors"), tmp_path / "ear.safetensors")
    monkeypatch.setenv("SOTTOVOCE_EAR_WEIGHTS", str(tmp_path / "ear.safetensors"))
    with pytest.raises(
        InputError, match=r"the weights of ear\.safetensors, learned-scratch\.safetensors changed"
    ):
        run_audit(plan, tmp_path / "run", device="cpu")
    assert len(list(folder.records())) == 2


def test_certificates_of_other_weights(tmp_path: Path) -> None:
    file = tmp_path / "mine.safetensors"
    shutil.copy(KEYWORD, file)
    plan = CertifyPlan(model=f"keyword(weights={file})", limit=1, passes=16, select=4)
    run_certify(plan, tmp_path / "run", device="cpu")
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["weights"] == {"mine.safetensors": digest(KEYWORD)}
    shutil.copy(KEYWORD.with_name("keyword-pgd.safetensors"), file)
    with pytest.raises(InputError, match=r"the weights of mine.safetensors changed"):
        run_certify(plan, tmp_path / "run", device="cpu")


def test_a_run_that_was_begun_without_its_model(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(model="keyword(weights=late.safetensors)")
    folder = run_audit(plan, tmp_path / "run", keep_going=True, device="cpu")
    assert "weights" not in folder.about()
    shutil.copy(KEYWORD, tmp_path / "late.safetensors")
    run_audit(plan, tmp_path / "run", retry_failed=True, device="cpu")
    assert weights(folder) == {"late.safetensors": digest(KEYWORD)}


def test_a_run_of_the_version_before(tmp_path: Path) -> None:
    plan = make(attacks=["noise", "fgsm"])
    folder = run_audit(plan, tmp_path / "run", device="cpu")
    about = folder.about()
    # As 0.1.0 left it.
    about["versions"]["sottovoce"] = "0.1.0"
    del about["weights"]
    (folder.path / "about.json").write_text(json.dumps(about))
    lines = folder.records_path.read_bytes().splitlines(keepends=True)
    folder.records_path.write_bytes(b"".join(lines[:2]))
    said = (
        rf"run was started with sottovoce 0\.1\.0, and this is {sottovoce.__version__}, whose figures may "
        r"differ; finish it with 0\.1\.0, or start a new run in another folder with --out\."
    )
    with pytest.raises(InputError, match=said):
        run_audit(plan, tmp_path / "run", device="cpu")
    assert folder.about() == about and len(list(folder.records())) == 2


def test_digests_by_name(tmp_path: Path) -> None:
    for place, content in (("a/x", b"one"), ("b/x", b"two"), ("b/y", b"three")):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(content)
    # sha256 of "one", "two" and "three", as coreutils print them.
    assert digest_files(tmp_path / place for place in ("b/y", "b/x", "a/x")) == {
        "x": "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
        "b/x": "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3",
        "y": "8b5b9db0c13db24256c829aa364aa90c6d2eba318b9232a4ab9313b954d3555f",
    }


def test_who_asks_for_a_file_is_told_of_it() -> None:
    with noting_files() as outer:
        note_file(Path("one"))
        with noting_files() as inner:
            note_file(Path("two"))
    note_file(Path("three"))
    assert (inner, outer) == ({Path("two")}, {Path("one"), Path("two")})
    # A defense that cannot be built is the failure of its cells, not of the run.
    assert digest_weights(open_target("keyword", "cpu"), ["denoise(weights=nowhere)", "none"]) == {
        "keyword_cnn.safetensors": digest(KEYWORD)
    }
