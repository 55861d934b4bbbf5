"""Models of the transformers library, from a folder or from the hub: found, fetched and checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError

from sottovoce.core.target import evaluating
from sottovoce.errors import InputError, MissingExtra


def import_transformers() -> Any:
    """The library, or an error that names the extra."""
    try:
        return import_module("transformers")
    except ImportError:
        raise MissingExtra(
            "Hugging Face models need the package transformers, which is not installed; pip install "
            '"sottovoce[huggingface]".'
        ) from None


def source_of(model: str) -> str:
    """What the library is to load from: a folder with a config.json, or the hub id itself."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    if not (folder / "config.json").is_file():
        raise InputError(
            f"expected a model folder with a config.json, got {model!r}; write it with save_pretrained, of "
            "the model and of its processor."
        )
    return str(folder)


def fetch(model: str, what: str, kind: Any, source: str, **options: Any) -> Any:
    """`kind.from_pretrained(source)`; code that comes with a model never runs.

    model: the name the user gave, for the error; what: which part of it is fetched.
    """
    try:
        return kind.from_pretrained(source, trust_remote_code=False, **options)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        # The library's advice runs to a paragraph; its first sentence says what happened.
        reason = str(error).strip().partition("\n")[0].partition(". ")[0] or type(error).__name__
        fix = (
            f"write the {what} there with save_pretrained"
            if Path(source).is_dir()
            else "check the name, or give the folder of a downloaded model"
        )
        raise InputError(
            f"expected a local folder or a Hugging Face hub id with the {what} of a model, got {model!r} "
            f"({reason}); {fix}."
        ) from error


def fetch_model(model: str, what: str, kind: Any, source: str, task: str) -> Any:
    """A module with all its weights, that asks for no gradient of its own; see `fetch`.

    It runs in single precision whatever it was saved in: half would round small perturbations away.
    """
    module, facts = fetch(model, what, kind, source, dtype=torch.float32, output_loading_info=True)
    check_weights(model, facts["missing_keys"], task)
    return module.requires_grad_(False)


@contextmanager
def running(module: Any) -> Iterator[None]:
    """Evaluation mode, with the global random states kept as they are.

    The library draws from them whether to drop a layer, even where none is dropped.
    """
    kept = np.random.get_state()
    try:
        with evaluating(module), torch.random.fork_rng(devices=()):
            yield
    finally:
        np.random.set_state(kept)


def check_kind(model: str, what: str, part: object, kinds: Sequence[str]) -> None:
    """Refuse a part of another class than those named."""
    if type(part).__name__ not in kinds:
        raise InputError(
            f"expected a {what} of kind {', '.join(kinds)}, got {type(part).__name__} in {model!r}; choose a "
            "model with one of them, or write a target of your own around the model."
        )


def check_weights(model: str, missing: Iterable[str], task: str = "speech recognition") -> None:
    """The library fills absent weights with random numbers: an audit of those would mean nothing.

    missing: names of weights that the checkpoint does not hold.
    """
    # The embedding of masked frames serves training alone, and many checkpoints leave it out.
    absent = sorted(name for name in missing if not name.endswith("masked_spec_embed"))
    if absent:
        named = ", ".join(absent[:3]) + (", ..." if len(absent) > 3 else "")
        raise InputError(
            f"expected a model trained for {task}, got {model!r} without weights for {named}; choose a "
            f"checkpoint that was fine-tuned for {task}."
        )
