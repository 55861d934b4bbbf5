"""A target from a user's own code: `--model python:my_package.models:make_target`."""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

from sottovoce.core.target import Target
from sottovoce.errors import InputError


def load_target(where: str, device: str = "cpu") -> Target:
    """The target that the function at "module:function" returns; it is given `device` where it takes one."""
    module_name, _, name = where.partition(":")
    if not name:
        raise InputError(f"expected module:function, got {where!r}; write python:my_module:make_target.")
    # A console script does not have the current folder on its path, where the user's module most often is.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        maker = getattr(import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"expected a function at {where!r}, got an error: {error}; check the names of module and "
            "function."
        ) from None
    target = maker(device=device) if "device" in signature(maker).parameters else maker()
    if not isinstance(target, Target):
        raise InputError(
            f"expected {where!r} to return a sottovoce target, got {type(target).__name__}; wrap a torch "
            "module in sottovoce.targets.ModuleClassifier."
        )
    return target
