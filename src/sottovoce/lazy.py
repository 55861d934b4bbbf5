"""Names of a package that are imported on first use (PEP 562), so that importing the package is fast.

A package defines `__getattr__, __dir__ = lazy(__name__, names)`, and imports the same names under
`TYPE_CHECKING` for type checkers; a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

Places = Mapping[str, str]
"""From a name to "module:attribute", or to "module" if the name is a module."""


def lazy(package: str, names: Callable[[], Places]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. names: called once, at the first lookup."""
    places = cache(names)

    def get(name: str) -> Any:
        if name == "__all__":
            return sorted(places())
        # Python itself looks up names such as __path__.
        if name.startswith("__") or name not in places():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = places()[name].partition(":")
        found = import_module(module)
        value = getattr(found, attribute) if attribute else found
        setattr(sys.modules[package], name, value)
        return value

    def names_of() -> list[str]:
        # The public names only: not what the package imports for its own use.
        dunder = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted({*dunder, *places()})

    return get, names_of


def registered(*kinds: str, **more: str) -> Callable[[], Places]:
    """The classes that are registered under some kinds, by class name, and more by the name given."""

    def names() -> Places:
        # Imported here, because the package itself does not need it.
        from sottovoce import registry

        return {**more, **{name: where for kind in kinds for name, where in registry.classes(kind).items()}}

    return names
