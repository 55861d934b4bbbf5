"""Names of a package that are imported when they are asked for (PEP 562), so that importing it costs nothing.

A package says `__getattr__, __dir__ = lazy(__name__, names)` where it runs, and imports the same names where
type checkers read it (`TYPE_CHECKING`); a test holds the two together.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

Places = Mapping[str, str]
"""Name to "module:attribute", or to "module" where the name is a module."""


def lazy(package: str, names: Callable[[], Places]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. names: asked once, when something is looked up."""
    places = cache(names)

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(places())
        # Python asks for names such as __path__ on its own.
        if name.startswith("__") or name not in places():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = places()[name].partition(":")
        found = import_module(module)
        value = getattr(found, attribute) if attribute else found
        setattr(sys.modules[package], name, value)
        return value

    def names_of() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places()})

    return get, names_of


def registered(*kinds: str, **more: str) -> Callable[[], Places]:
    """The classes behind the registered names of some kinds, by their own names, and others by theirs."""

    def names() -> Places:
        # Imported here: it is not needed to import a package.
        from sottovoce import registry

        return {**more, **{name: where for kind in kinds for name, where in registry.classes(kind).items()}}

    return names
