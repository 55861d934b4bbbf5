"""Everything that `import sottovoce as sv` offers has a docstring with an example, and the examples run.

An example is a doctest (`>>>`) of two to six lines on one or two clips. It finds `sv` and `torch` imported,
an empty current folder, and a registry that forgets what it adds.
"""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch

import sottovoce as sv
from sottovoce import registry

NAMESPACES = [
    "attacks", "budgets", "data", "defenses", "ears", "errors", "goals", "metrics", "targets", "testing",
]  # fmt: skip
NOT_YET: set[str] = set()
"""Namespaces whose examples are still to be written."""
SKIPPED: dict[str, str] = {}
"""Names whose whole example is `# doctest: +SKIP`, with the reason: what a test has not."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public() -> dict[str, Any]:
    """Every public name with what it stands for: `attack`, `attacks`, `attacks.Pgd`."""
    found = {"sottovoce": sv, **{name: getattr(sv, name) for name in sv.__all__}}
    for room in NAMESPACES:
        module = getattr(sv, room)
        found |= {f"{room}.{name}": getattr(module, name) for name in module.__all__}
    return {name: value for name, value in found.items() if name.partition(".")[0] not in NOT_YET}


PUBLIC = public()


def own_docstring(value: Any) -> str:
    """The docstring of a name itself: neither that of a base class nor the one that `dataclass` writes."""
    text = (vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__) or ""
    return "" if text.startswith(f"{getattr(value, '__name__', '')}(") else text


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, and a registry that forgets."""
    monkeypatch.chdir(tmp_path)
    registry.names("attack")  # plugins first, so that the copy has them
    monkeypatch.setattr(registry, "_PARTS", {kind: dict(some) for kind, some in registry._PARTS.items()})
    return tmp_path


def test_the_list_of_namespaces_is_complete() -> None:
    assert set(NAMESPACES) == {name for name in sv.__all__ if inspect.ismodule(getattr(sv, name))}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_has_a_docstring_whose_example_runs(name: str, desk: Path) -> None:
    value = PUBLIC[name]
    assert own_docstring(value), f"{name} has no docstring of its own"
    finder = doctest.DocTestFinder(recurse=not inspect.ismodule(value))
    tests = finder.find(value, name, globs={"sv": sv, "torch": torch})
    own = next((test.examples for test in tests if test.name == name), [])
    assert own, f"the docstring of {name} has no example (>>>)"
    skipped = all(example.options.get(doctest.SKIP) for example in own)
    assert skipped == (name in SKIPPED), "an example that is skipped needs its reason in SKIPPED"
    for test in tests:
        shown: list[str] = []
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=shown.append)
        assert not shown, "".join(shown)


def test_nothing_is_skipped_that_is_not_there() -> None:
    assert set(SKIPPED) <= set(PUBLIC)
