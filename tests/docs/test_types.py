"""What others write against the public API passes `mypy --strict`, as the documents show it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import sottovoce as sv

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PARTS = (
    "Tone(sv.Attack)", "Walk(sv.Attack)", "RmsShare(sv.Ball)", "Blur(sv.Transform)", "Unanimous(sv.Vote)",
    "Changed(sv.Metric)", "Level(sv.targets.Classifier)", "Spoken(sv.targets.Ctc)", "def tones(",
)  # fmt: skip
"""What the recipes are about."""
MINE = """
from collections.abc import Sequence

import torch
from torch import Tensor

import sottovoce as sv


class Loud(sv.Target):
    sample_rate = 16000

    def loss(self, batch: sv.AudioBatch, labels: Sequence[str], *, draws: sv.Draws) -> Tensor:
        return batch.waveforms.square().sum(dim=1) / batch.lengths

    def decode(self, batch: sv.AudioBatch, *, draws: sv.Draws) -> list[str]:
        return ["loud" if value > 0.1 else "quiet" for value in self.loss(batch, [], draws=draws).tolist()]


clips = sv.open_data("embedded", model=Loud(), limit=2)
trial: sv.Trial = sv.attack(Loud(), clips, sv.attacks.Pgd(steps=2), budget=sv.budgets.Snr(30))
run: sv.Run = sv.audit("keyword", attacks=["noise", sv.attacks.Pgd()], snr=[30, 40], out="runs/first")
rows: list[dict[str, object]] = run.summary()
text: str = run.table("latex", metric=["success"])
value: Tensor = sv.metrics.Snr()(torch.zeros(8), torch.ones(8), sample_rate=16000)


def make(*, device: str) -> Loud:
    return Loud()


sv.register("target", "loud", make)
"""


def recipes() -> str:
    """The first section of the how-to, without what only runs the parts."""
    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8").partition("\n### A plugin package")[0]
    return "\n".join(BLOCK.findall(page))


def strictly_typed(*paths: Path) -> None:
    """Fails with what mypy says. Types are kept between runs where this machine keeps them already."""
    kept = ROOT / ".mypy_cache"
    done = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary",
            "--config-file=", "--cache-dir", str(kept if kept.is_dir() else paths[0].parent / "cache"),
            "--disable-error-code=import-untyped", *map(str, paths),
        ],
        env={**os.environ, "MYPYPATH": str(Path(sv.__file__).parents[1])},
        cwd=paths[0].parent,
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_what_extends_the_public_api_is_strictly_typed(tmp_path: Path) -> None:
    """In one go: mypy reads torch and sottovoce first, which takes it a minute."""
    pytest.importorskip("mypy")
    text = recipes()
    for part in PARTS:
        assert part in text
    package = shutil.copytree(ROOT / "tests" / "plugin" / "src" / "sottovoce_hum", tmp_path / "sottovoce_hum")
    (tmp_path / "recipes.py").write_text(text)
    (tmp_path / "mine.py").write_text(MINE)
    strictly_typed(tmp_path / "recipes.py", tmp_path / "mine.py", Path(package))


@pytest.mark.slow
def test_a_mistake_in_types_would_be_noticed(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "wrong.py").write_text("import sottovoce as sv\n\nsteps: str = sv.attacks.Pgd().steps\n")
    with pytest.raises(AssertionError, match="Incompatible types in assignment"):
        strictly_typed(tmp_path / "wrong.py")
