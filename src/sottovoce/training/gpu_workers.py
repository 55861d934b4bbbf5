"""The processes that train: this one, or several that share their gradients through Accelerate."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn

from sottovoce.errors import InputError, MissingExtra

Value = TypeVar("Value")


class Workers(ABC):
    """The processes of a run. Every batch is split between them, and a step is that of the whole batch."""

    rank: int
    count: int
    device: torch.device

    @property
    @final
    def first(self) -> bool:
        """Whether this is the process that judges, logs and writes."""
        return self.rank == 0

    @abstractmethod
    def wrap(self, module: nn.Module) -> nn.Module:
        """The module on the device; with several processes its gradient is the mean of theirs."""

    @abstractmethod
    def backward(self, loss: Tensor) -> None: ...

    @abstractmethod
    def agree(self, value: Value) -> Value:
        """What the first process says."""

    @abstractmethod
    def collect(self, value: Value) -> list[Value]:
        """What each process says, by rank."""

    @abstractmethod
    def part(self) -> None:
        """The run is over."""


@final
class Alone(Workers):
    """One process on one device."""

    def __init__(self, device: torch.device | str) -> None:
        self.rank, self.count = 0, 1
        self.device = torch.device(device)

    def wrap(self, module: nn.Module) -> nn.Module:
        return module.to(self.device)

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def agree(self, value: Value) -> Value:
        return value

    def collect(self, value: Value) -> list[Value]:
        return [value]

    def part(self) -> None:
        return None


@final
class Together(Workers):
    """One of the processes that `accelerate launch` started."""

    def __init__(self, device: torch.device | str) -> None:
        try:
            import accelerate  # type: ignore[import-untyped]
        except ImportError as error:
            raise MissingExtra(
                f"training with several processes needs accelerate ({error}); type: "
                "pip install 'sottovoce[train]', or start one process."
            ) from error
        self._accelerator: Any = accelerate.Accelerator(cpu=torch.device(device).type == "cpu")
        self.rank = int(self._accelerator.process_index)
        self.count = int(self._accelerator.num_processes)
        self.device = self._accelerator.device
        if torch.device(device).type != self.device.type:
            raise InputError(
                f"these processes run on {device}, but --device asks for {self.device}; give --device "
                f"{self.device.type}, or set another with accelerate launch."
            )

    def wrap(self, module: nn.Module) -> nn.Module:
        wrapped: nn.Module = self._accelerator.prepare_model(module)
        return wrapped

    def backward(self, loss: Tensor) -> None:
        self._accelerator.backward(loss)

    def agree(self, value: Value) -> Value:
        from accelerate.utils import broadcast_object_list  # type: ignore[import-untyped]

        said: list[Value] = broadcast_object_list([value])
        return said[0]

    def collect(self, value: Value) -> list[Value]:
        from accelerate.utils import gather_object

        said: list[Value] = gather_object([value])
        return said

    def part(self) -> None:
        self._accelerator.wait_for_everyone()


def gather_workers(device: torch.device | str, log: Callable[[str], None]) -> Workers:
    """The processes that were started: several with `accelerate launch`, one otherwise."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        workers = Together(device)
        if workers.first:
            log(f"{workers.count} processes on {workers.device.type}, each with its part of every batch")
        return workers
    spare = torch.cuda.device_count() - 1 if torch.device(device).type == "cuda" else 0
    more = f"; {spare} more GPUs are idle: accelerate launch would use them" if spare > 0 else ""
    log(f"one process on {device}{more}")
    return Alone(device)
