"""Where the weights of the zoo's models lie: one file for each way of training."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import safetensors
import safetensors.torch
from torch import nn

from sottovoce.core.files.weight_files import note_file
from sottovoce.errors import InputError, UnknownName

PLAIN = "plain"
"""The variant that was trained on clips as they are."""


def shipped_file(
    name: str, variant: str, variants: Sequence[str], *, plain: str | None = None
) -> Traversable:
    """The weights of a variant of a target. plain: what the plain ones are called, if not NAME-plain."""
    if variant not in variants:
        raise UnknownName(f"variant of {name}", variant, variants)
    stem = plain if plain is not None and variant == PLAIN else f"{name}-{variant}"
    file = resources.files(__package__).joinpath("weights", f"{stem}.safetensors")
    if not file.is_file():
        raise InputError(
            f"variant {variant!r} of {name}: its weights, {file.name}, are not in this installation; choose "
            "another variant, or install a version that has it."
        )
    return file


def fill(
    module: nn.Module,
    name: str,
    variant: str,
    variants: Sequence[str],
    weights: Path | None = None,
    *,
    plain: str | None = None,
) -> None:
    """Give a module the weights of a shipped variant, or of another file, and freeze it for evaluation.

    Weights are stored in 16 or 32 bits and run in 32.
    """
    if weights is not None and variant != PLAIN:
        raise InputError(
            f"target {name!r}: variant and weights exclude each other, got {variant!r} and {str(weights)!r}; "
            "drop one of them."
        )
    file = weights or shipped_file(name, variant, variants, plain=plain)
    note_file(Path(str(file)))
    try:
        stored = safetensors.torch.load(file.read_bytes())
        module.load_state_dict({key: value.float() for key, value in stored.items()})
    except (OSError, RuntimeError, safetensors.SafetensorError) as problem:
        raise InputError(
            f"{file}: no {type(module).__name__} of the shipped size can be read from it "
            f"({str(problem).splitlines()[0]}); give a file that `sottovoce train` wrote."
        ) from problem
    module.requires_grad_(False).eval()
