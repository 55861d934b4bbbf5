"""A hash of a model that is given as an object: its code, its weights and its settings."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from sottovoce.core.target import Target
from sottovoce.targets.open_target import WEIGHT_FILES

DIGITS = 16
OPENED = "_opened_as"
"""The attribute that holds what a target was opened from."""
NOTED = (OPENED, WEIGHT_FILES)
_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def fingerprint(model: Target) -> str:
    """The first digits of a sha256 of a target's code, weights, arrays and plain data.

    Anything else in it counts by its class alone.
    """
    digest = sha256()
    for piece in _pieces("", model, set()):
        digest.update(len(piece).to_bytes(8, "big") + piece)
    return digest.hexdigest()[:DIGITS]


def modules_of(model: Target) -> list[torch.nn.Module]:
    """The target itself if it is a module, and the modules that it holds."""
    return [part for part in (model, *attributes(model).values()) if isinstance(part, torch.nn.Module)]


def attributes(model: object) -> dict[str, Any]:
    """The attributes of a target or a module, without those noted when it was opened.

    None if it has slots. Torch's own attributes of a module are in its state.
    """
    found: dict[str, Any] = getattr(model, "__dict__", {})
    torch_has = isinstance(model, torch.nn.Module)
    return {
        name: value
        for name, value in found.items()
        if name not in NOTED and not (torch_has and name.startswith("_"))
    }


def _pieces(name: str, value: Any, seen: set[int]) -> Iterator[bytes]:
    yield f"{name}: {type(value).__module__}.{type(value).__qualname__}".encode()
    if isinstance(value, _PLAIN):
        yield repr(value).encode()
    elif isinstance(value, torch.Tensor):
        yield f"{value.dtype} {tuple(value.shape)}".encode()
        yield value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield value.tobytes()
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _pieces(f"{name}.{place}", item, seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _pieces(f"{name}.{key}", item, seen)
    elif id(value) not in seen and (isinstance(value, Target | torch.nn.Module)):
        seen.add(id(value))
        with suppress(OSError, TypeError):
            yield inspect.getsource(type(value)).encode()
        if isinstance(value, torch.nn.Module):
            yield repr(value).encode()
            for key, item in sorted(value.state_dict().items()):
                yield from _pieces(f"{name}.{key}", item, seen)
        for key, item in sorted(attributes(value).items()):
            if key != "training":
                yield from _pieces(f"{name}.{key}", item, seen)
