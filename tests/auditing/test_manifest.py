"""A run goes on with the clips that it began with, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sottovoce.auditing.plan.plan_file import Plan, make_plan
from sottovoce.auditing.run.corpus_manifest import hash_manifest, take_manifest, tell_changes
from sottovoce.auditing.run.driver import run_audit
from sottovoce.auditing.run.run_folder import UNKNOWN_CORPUS, RunFolder
from sottovoce.data.corpora import open_corpus
from sottovoce.data.load import load_clip
from sottovoce.data.pack import save_pack
from sottovoce.errors import InputError

WriteClip = Callable[..., None]


def make(model: str, clips: Path) -> Plan:
    return make_plan({
        "model": model, "data": str(clips), "attacks": ["fgsm"], "budgets": ["snr(db=-3)"], "probe": 0,
        "audio": "none", "metrics": ["success"],
    })  # fmt: skip


def test_other_clips_are_refused(
    mean_model: str, mean_clips: Path, tmp_path: Path, write_clip: WriteClip
) -> None:
    plan = make(mean_model, mean_clips)
    before = run_audit(plan, tmp_path / "run").records_path.read_bytes()
    run_audit(plan, tmp_path / "run")
    write_clip(mean_clips / "up" / "7.wav", np.full(400, 1000))
    write_clip(mean_clips / "up" / "8.wav", np.full(400, 1000))
    write_clip(mean_clips / "up" / "1.wav", np.full(900, 1000))
    (mean_clips / "down" / "0.wav").unlink()
    changes = r"2 added \(up/7, up/8\), 1 missing \(down/0\), 1 changed \(up/1\); restore"
    with pytest.raises(InputError, match=changes):
        run_audit(plan, tmp_path / "run")
    assert (tmp_path / "run" / "trials.jsonl").read_bytes() == before


@pytest.mark.parametrize("samples", [400, 100_000])
def test_a_clip_of_the_same_length_is_another_clip(
    samples: int, mean_clips: Path, write_clip: WriteClip
) -> None:
    """Short files are read whole, of long ones stretches: one sample here, noise in all of it there."""
    clip = np.random.default_rng(0).integers(-1000, 1000, samples)
    write_clip(mean_clips / "up" / "1.wav", clip)
    before = take_manifest(open_corpus(str(mean_clips)), str(mean_clips))
    assert take_manifest(open_corpus(str(mean_clips)), str(mean_clips)) == before
    if samples == 400:
        clip[200] += 1
    else:
        clip = np.random.default_rng(1).integers(-1000, 1000, samples)
    write_clip(mean_clips / "up" / "1.wav", clip)
    now = take_manifest(open_corpus(str(mean_clips)), str(mean_clips))
    assert tell_changes(before, now) == "1 changed (up/1)"


def test_a_run_from_before_goes_on_with_a_note(mean_model: str, mean_clips: Path, tmp_path: Path) -> None:
    plan = make(mean_model, mean_clips)
    folder = run_audit(plan, tmp_path / "run")
    about = folder.about()
    digest = about.pop("corpus")
    (folder.path / "about.json").write_text(json.dumps(about))
    (folder.path / "corpus.json").unlink()
    told: list[str] = []
    run_audit(plan, tmp_path / "run", advance=lambda done, note: told.append(note))
    assert UNKNOWN_CORPUS in told
    again = RunFolder(folder.path).about()
    assert again == {**about, "corpus": digest, "corpus_note": UNKNOWN_CORPUS}
    # From now on it is known.
    (mean_clips / "down" / "0.wav").unlink()
    with pytest.raises(InputError, match=r"1 missing \(down/0\)"):
        run_audit(plan, tmp_path / "run")


def test_places_count_from_the_corpus(mean_clips: Path, tmp_path: Path) -> None:
    before = take_manifest(open_corpus(str(mean_clips)), str(mean_clips))
    moved = mean_clips.rename(tmp_path / "elsewhere")
    after = take_manifest(open_corpus(f"folder:{moved}"), f"folder:{moved}")
    assert hash_manifest(before) == hash_manifest(after) and len(before) == 6


def test_what_counts(tmp_path: Path, write_clip: WriteClip) -> None:
    table = tmp_path / "list.csv"
    write_clip(tmp_path / "a.wav", np.full(400, 1000))
    write_clip(tmp_path / "b.wav", np.full(400, 1000))

    def manifest(rows: str) -> dict[str, str]:
        table.write_text(f"id,path,label,language\n{rows}\n")
        return take_manifest(open_corpus(str(table)), str(table))

    first = manifest("x,a.wav,up,en")
    assert manifest("x,a.wav,up,en") == first
    for other in ("x,a.wav,down,en", "x,b.wav,up,en", "x,a.wav,up,fr"):
        assert tell_changes(first, manifest(other)) == "1 changed (x)"
    assert tell_changes(first, manifest("y,a.wav,up,en")) == "1 added (y), 1 missing (x)"


def test_packs_have_a_manifest_too(mean_clips: Path, tmp_path: Path) -> None:
    clips = [
        load_clip(mean_clips / "up" / f"{name}.wav", 8000, id=f"{name}", label="up") for name in range(3)
    ]
    save_pack(tmp_path / "p.npz", clips)
    first = take_manifest(open_corpus(f"pack:{tmp_path}/p.npz"), f"pack:{tmp_path}/p.npz")
    save_pack(tmp_path / "p.npz", clips[:2])
    after = take_manifest(open_corpus(f"pack:{tmp_path}/p.npz"), f"pack:{tmp_path}/p.npz")
    assert tell_changes(first, after).startswith("1 missing (2)")


def test_the_shipped_clips_have_one(tmp_path: Path) -> None:
    corpus = open_corpus("embedded")
    assert len(take_manifest(corpus, "embedded")) == 60
