"""The tree stays easy to find one's way in: names that say one thing, and folders of a size to read."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from pathlib import Path

import sottovoce

ROOT = Path(sottovoce.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
MOST_MODULES = 18
SHARED = {"Snr", "DbMax"}
"""A budget and the metric that measures it: `sottovoce.budgets.Snr` and `sottovoce.metrics.Snr`."""


def test_a_file_name_occurs_once() -> None:
    places = defaultdict(list)
    for path in MODULES:
        places[path.name].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1 and name != "__init__.py"} == {}


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name for name, found in places.items() if len(found) > 1} == SHARED


def test_a_folder_is_short() -> None:
    """Counted without `__init__.py`, which says what the folder is for."""
    sizes = Counter(
        path.parent.relative_to(ROOT).as_posix() for path in MODULES if path.name != "__init__.py"
    )
    assert {folder: size for folder, size in sizes.items() if size > MOST_MODULES} == {}


def test_a_folder_says_what_it_is_for() -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in MODULES
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []
