"""Files of weights: safetensors that say which network they are for, its shape, and what is known of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import safetensors
import safetensors.torch
from torch import Tensor, nn

from sottovoce.errors import InputError

FORMAT = "1"
Network = TypeVar("Network", bound=nn.Module)


@final
@dataclass(frozen=True)
class Weights:
    """What a file holds. shape: what its network is built with. facts: all else that was saved with it.
    maker: who writes such files, for messages."""

    path: Path
    shape: dict[str, Any]
    state: dict[str, Tensor]
    facts: dict[str, str]
    maker: str

    def fill(self, network: Network) -> Network:
        """The network with these weights in 32 bits, in evaluation and without gradients of its own."""
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
    """A file of weights for one kind of network; raises where it is none."""
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
