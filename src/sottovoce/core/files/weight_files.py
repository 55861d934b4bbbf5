"""Files of weights: safetensors with the network's name, its shape and further facts.

Also notes which weight files are read while something is opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from hashlib import file_digest
from pathlib import Path
from typing import Any, TypeVar, final

import safetensors
import safetensors.torch
from torch import Tensor, nn

from sottovoce.errors import InputError

FORMAT = "1"
Network = TypeVar("Network", bound=nn.Module)
_noting: ContextVar[set[Path] | None] = ContextVar("noting", default=None)


@contextmanager
def noting_files() -> Iterator[set[Path]]:
    """Collects the weight files that are read in this block, as reported by `note_file`."""
    around, files = _noting.get(), set[Path]()
    token = _noting.set(files)
    try:
        yield files
    finally:
        _noting.reset(token)
        if around is not None:
            around |= files


def note_file(path: Path) -> None:
    """Report that a weight file is read. Call it also when its content comes from a cache."""
    files = _noting.get()
    if files is not None:
        files.add(path)


def digest_files(paths: Iterable[Path]) -> dict[str, str]:
    """The SHA-256 of files by their names; of two with one name the second gets its folder in front."""
    found: dict[str, str] = {}
    for path in sorted(paths):
        name = path.name if path.name not in found else f"{path.parent.name}/{path.name}"
        found[name] = _digest(path, path.stat().st_mtime_ns)
    return found


@lru_cache(maxsize=64)
def _digest(path: Path, changed_ns: int) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@final
@dataclass(frozen=True)
class Weights:
    """The content of a file.

    shape: the settings that its network is built with.
    facts: whatever else was saved with it.
    maker: what writes such files, for messages.
    """

    path: Path
    shape: dict[str, Any]
    state: dict[str, Tensor]
    facts: dict[str, str]
    maker: str

    def fill(self, network: Network) -> Network:
        """The network with these weights in 32 bits, in evaluation mode and without gradients."""
        wanted = {name: tuple(value.shape) for name, value in network.state_dict().items()}
        for name in sorted(wanted.keys() | self.state.keys()):
            here, there = wanted.get(name), tuple(self.state[name].shape) if name in self.state else None
            if here != there:
                raise InputError(
                    f"{self.path}: expected {name} {here or 'nothing'}, got {there or 'nothing'}; name a "
                    f"file of {self.maker}."
                )
        network.load_state_dict({name: value.float() for name, value in self.state.items()})
        return network.requires_grad_(False).eval()


def save_weights(
    path: Path,
    architecture: str,
    shape: Mapping[str, Any],
    state: Mapping[str, Tensor],
    facts: Mapping[str, str],
) -> None:
    """Write a file that `read_weights` reads."""
    about = {"format": FORMAT, "architecture": architecture, "shape": json.dumps(shape)}
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
    safetensors.torch.save_file(tensors, path, metadata={**facts, **about})


def read_weights(path: Path, architecture: str, maker: str) -> Weights:
    """Read a weight file for one kind of network; raises if it is for another."""
    note_file(path)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            facts = dict(file.metadata() or {})
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise InputError(
            f"{path}: expected weights as safetensors, got {str(error).splitlines()[0]}; check the path."
        ) from error
    if facts.get("architecture") != architecture or "shape" not in facts:
        raise InputError(
            f"{path}: expected weights of a {architecture}, got those of "
            f"{facts.get('architecture', 'another model')}; name a file of {maker}."
        )
    return Weights(path, json.loads(facts["shape"]), state, facts, maker)
