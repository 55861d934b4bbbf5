"""How far one must read before the first sample is read: the files that are entered on the way there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Files whose functions are called, from the first call to the opening of the first clip. What runs as a
# module is imported, such as the bodies of its classes, is not counted.
TRACED = """
import os, sys
import soundfile, sottovoce

ROOT = os.path.dirname(sottovoce.__file__) + os.sep
entered, importing = {}, 0


def watch(frame, event, argument):
    global importing
    code = frame.f_code
    if code.co_name == "<module>":
        importing += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not importing and code.co_filename.startswith(ROOT):
        entered[code.co_filename.removeprefix(ROOT)] = None


def arrive(*_, **__):
    sys.setprofile(None)
    print("\\n".join(entered))
    sys.stdout.flush()
    os._exit(0)


soundfile.SoundFile.__init__ = arrive


def way():
"""
AUDIT = """
    from sottovoce.cli.main import main
    sys.argv = ["sottovoce", "audit", "--out", "run"]
    main()
"""
ATTACK = """
    import sottovoce as sv
    model = sv.open_model("keyword")
    clips = sv.open_data("embedded", model=model, limit=2)
    sv.attack(model, clips, "pgd(steps=1)", budget="snr(db=30)", goal="evade")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("way", "most"), [(AUDIT, 32), (ATTACK, 22)], ids=["sottovoce audit", "sv.attack"])
def test_few_files_come_before_the_first_sample(way: str, most: int, tmp_path: Path) -> None:
    program = f"{TRACED}{way}\n\nsys.setprofile(watch)\nway()\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    files = done.stdout.split()
    assert "data/audio_file.py" in files, done.stderr
    assert len(files) <= most, files
