"""What training writes: checkpoints to continue from, and weights to use. Both name their model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from sottovoce.errors import InputError, StoreError
from sottovoce.training.learner import Learner
from sottovoce.training.recipe import Data

FORMAT = "1"


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file beside its place and move it there: whoever looks finds the old one or the new one."""
    beside = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(beside)
        with beside.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error}; free some space, or choose another place."
        ) from error


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """State is tensors, numbers, texts, and lists and dicts of them: nothing that runs code when read."""
    write_whole(path, lambda place: torch.save({"format": FORMAT, **state}, place))


def load_checkpoint(path: Path, about: Mapping[str, str]) -> dict[str, Any]:
    """A checkpoint of a model that is described so."""
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        stored = state["about"]
    except Exception as error:  # a damaged file may end in any
        raise InputError(
            f"{path}: not a checkpoint ({_reason(error)}); delete it, or choose another folder."
        ) from error
    check_same(path, about, stored)
    return state


def check_same(path: Path, expected: Mapping[str, str], got: Mapping[str, str]) -> None:
    """Refuse what belongs to another model, naming the first thing that differs."""
    for key, value in expected.items():
        if got.get(key, value) != value:
            raise InputError(
                f"{path}: expected {key} {_short(value)}, got {_short(got[key])}; it belongs to another "
                f"model ({got.get('architecture', 'unknown')}): name a file of a {expected['architecture']}."
            )


def check_settings(path: Path, expected: Mapping[str, Any], got: Mapping[str, Any]) -> None:
    """Refuse to continue with other settings than a run was started with, naming the first that differs."""
    for key, value in expected.items():
        if got.get(key) != value:
            raise InputError(
                f"{path}: this training was started with {key} {value!r}, not {got.get(key)!r}; continue "
                "with that, "
                "or choose another folder."
            )


def check_data(path: Path, expected: Data, got: Data) -> None:
    """Refuse to continue with other clips than a run was started with, where those are known."""
    for use, now in expected.items():
        begun = got.get(use, now)
        if begun["hash"] != now["hash"]:
            raise InputError(
                f"{path}: this training was started with {use} clips {_clips(begun)}, not "
                f"{_clips(now)}; continue with the same clips, or choose another folder."
            )


def random_state(device: torch.device) -> list[Tensor]:
    """The state of torch's own random numbers, on the CPU and on a device."""
    cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


def set_random_state(device: torch.device, state: list[Tensor]) -> None:
    torch.set_rng_state(state[0])
    if device.type == "cuda" and len(state) > 1:
        torch.cuda.set_rng_state(state[1], device)


def save_weights(path: Path, learner: Learner, weights: Mapping[str, Tensor], *, half: bool) -> None:
    """The weights as safetensors, in 16 or 32 bits, with what they are of in the metadata."""
    kept = {
        name: (value.half() if half and value.is_floating_point() else value).detach().cpu().contiguous()
        for name, value in weights.items()
    }
    about = {"format": FORMAT, **learner.describe()}
    write_whole(path, lambda place: safetensors.torch.save_file(kept, place, metadata=about))


def load_weights(learner: Learner, path: Path) -> None:
    """Put weights from a file into a learner; they run in 32 bits. Files may lack metadata, not shapes."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            about = dict(file.metadata() or {})
            stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(
            f"{path}: expected weights as safetensors, got {_reason(error)}; check the path."
        ) from error
    expected = learner.describe()
    about.pop("model", None)
    check_same(path, expected, about)
    wanted = learner.module.state_dict()
    for name in sorted(wanted.keys() | stored.keys()):
        here, there = _shape(wanted.get(name)), _shape(stored.get(name))
        if here != there:
            raise InputError(
                f"{path}: expected weights of a {expected['architecture']} with {name} {here}, got {there}; "
                "name a file of that architecture and size."
            )
    learner.module.load_state_dict({name: value.to(wanted[name].dtype) for name, value in stored.items()})


def _reason(error: Exception) -> str:
    """Its first line, or its kind where it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _shape(value: Tensor | None) -> str:
    return "nothing" if value is None else str(tuple(value.shape))


def _clips(data: Mapping[str, Any]) -> str:
    return f"{data['clips']} of {data['name'] or 'no name'} (hash {data['hash']})"


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."
