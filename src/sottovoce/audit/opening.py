"""From the name of a model to a target, on the fastest device there is."""

from __future__ import annotations

from inspect import signature

import torch

from sottovoce import registry
from sottovoce.audit.parts import Part
from sottovoce.core.target import Target
from sottovoce.errors import InputError, exits_are_errors


@exits_are_errors()
def open_target(spec: str, device: str) -> Target:
    """A target from `name`, `name:argument` such as `huggingface:FOLDER`, or `name(setting=value, ...)`."""
    if spec.endswith(")"):
        part = Part.parse(spec)
        made: Target = registry.build("target", part.name, {**part.settings, "device": device})
        return made
    name, _, argument = spec.partition(":")
    maker = registry.find("target", name)
    words = [argument] if argument else []
    try:
        signature(maker).bind(*words, device=device)
    except TypeError:
        wanted = [word for word in signature(maker).parameters if word != "device"]
        usage = ":".join([name, *(word.upper() for word in wanted[:1])])
        raise InputError(f"expected a model like {usage}, got {spec!r}; write it that way.") from None
    target: Target = maker(*words, device=device)
    return target


def find_device(name: str = "auto") -> str:
    """The fastest device there is, or the one asked for."""
    if name != "auto":
        return name
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"
