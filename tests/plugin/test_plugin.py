"""A third-party package brings an attack, and checks it with the contract suite."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parent

SCRIPT = """
import sys
import sottovoce as sv
from sottovoce import registry

assert "sottovoce_hum.hum" not in sys.modules
assert "hum" in registry.names("attack"), registry.names("attack")
assert "sottovoce_hum.hum" not in sys.modules, "parts are imported when asked for, not before"
hum = registry.build("attack", "hum", {"frequency_hz": 60})
sv.testing.check_attack(hum)
toy = sv.testing.ToyClassifier()
trial = sv.attack(toy, sv.testing.clips_for(toy), "hum(frequency_hz=60)", budget="linf(eps=0.01)")
print("peak", float(trial.delta.abs().max()) * 32768)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """What an installer would leave: the distribution's metadata, with the entry points of its pyproject."""
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    info = tmp_path / f"sottovoce_hum-{project['version']}.dist-info"
    info.mkdir()
    facts = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(facts)
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def run(script: str, *folders: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_installed_plugin_is_found_built_and_checked(site: Path) -> None:
    done = run(SCRIPT, site, PLUGIN / "src")
    assert done.returncode == 0, done.stderr
    # 0.01 is 327.68 steps of the grid; the loudest sample inside is 327.
    assert done.stdout.split() == ["peak", "327.0"]


def test_without_the_plugin_the_name_is_unknown() -> None:
    script = "from sottovoce import registry; registry.find('attack', 'hum')"
    done = run(script)
    assert done.returncode != 0
    assert "unknown attack 'hum'" in done.stderr


def test_the_parts_of_a_plugin_are_listed_with_their_settings(site: Path) -> None:
    script = "import sys; from sottovoce.cli.main import main; sys.argv[1:] = ['parts', 'attack']; main()"
    done = run(script, site, PLUGIN / "src")
    assert done.returncode == 0, done.stderr
    assert "hum " in done.stdout and "frequency_hz=50" in done.stdout
