"""The page that is shipped is what its source builds, and its source speaks the server's protocol."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTENING = ROOT / "src" / "sottovoce" / "listening"
WEB, PAGE = LISTENING / "web", LISTENING / "page"

pytestmark = pytest.mark.skipif(not WEB.is_dir(), reason="the page's source is in the repository alone")


def test_schema_is_that_of_the_protocol() -> None:
    """vitest takes it from there: types are made from the schema, and answers checked against it."""
    spec = importlib.util.spec_from_file_location("write_schema", WEB / "write_schema.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (WEB / "protocol.schema.json").read_text(encoding="utf-8")
    assert written == module.schema(), "run web/write_schema.py, then npm run types and npm run build in web/"


def test_bundle_is_whole_and_small() -> None:
    files = {path.name: path.stat().st_size for path in PAGE.iterdir()}
    assert set(files) == {"index.html", "app.js", "app.css", "icon.svg", "LICENSES.txt"}
    assert sum(files.values()) < 400_000


def test_page_asks_nobody_else() -> None:
    """Under `default-src 'self'` nothing inline and nothing from elsewhere is let in."""
    html = (PAGE / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"(?:src|href)=\"([^\"]+)\"", html) == ["./icon.svg", "./app.js", "./app.css"]
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]*\ssrc=)", html)
    css = (PAGE / "app.css").read_text(encoding="utf-8")
    assert "url(" not in css and "@import" not in css
    script = (PAGE / "app.js").read_text(encoding="utf-8")
    assert not re.search(r"\beval\(|new Function\(|\bimport\(", script)


def test_licences_name_what_is_bundled() -> None:
    text = (PAGE / "LICENSES.txt").read_text(encoding="utf-8")
    for name in ("jsPsych 8", "auto-bind", "random-words", "seedrandom", "MIT License"):
        assert name in text


def test_lock_has_no_addresses() -> None:
    """So that `npm ci` takes the packages from whatever registry npm is set up with."""
    lock = (WEB / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock
    assert lock.count('"integrity"') > 50


def _missing() -> str:
    """Why the page cannot be built here, or nothing."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return "node and npm are not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=30).stdout.strip()
    major, minor = (int(part) for part in version.lstrip("v").split(".")[:2])
    if (major, minor) < (20, 19):
        return f"the page is built with node 20.19 or later, not {version}"
    try:
        asked = subprocess.run(["npm", "view", "jspsych", "version"], capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "npm's registry does not answer"
    return "" if asked.returncode == 0 else "npm's registry cannot be reached"


@pytest.mark.slow
def test_source_builds_the_committed_bundle() -> None:
    reason = _missing()
    if reason:
        pytest.skip(reason)
    done = subprocess.run(
        [ROOT / "tools" / "check_page.sh"], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
