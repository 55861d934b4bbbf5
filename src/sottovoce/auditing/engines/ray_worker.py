"""The worker side of a Ray cluster: what a worker process keeps open, and how it does a task."""

from __future__ import annotations

import io
import os
import socket
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import SimpleNamespace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils import parametrize

from sottovoce import __version__
from sottovoce.auditing.engines.pool_worker import Raised, do_task
from sottovoce.auditing.run.executor import Executor
from sottovoce.auditing.run.tasks import FinishedTask, Task
from sottovoce.core.target import Target
from sottovoce.errors import InputError, SottovoceError, exits_are_errors

Packed = NDArray[np.uint8]
"""A target as bytes; an array, because Ray shows arrays to all processes of a node without a copy."""


@final
@dataclass(frozen=True, kw_only=True)
class Order:
    """A task and what a worker needs to know besides.

    packed: a reference to the plan's target, in a tuple so that it is fetched only where it is not open yet.
    device: "cuda" means whichever GPU the worker was given.
    folder: where relative paths count from, on nodes that have it.
    version: of the driver's sottovoce.
    """

    task: Task
    packed: tuple[Any] | None
    device: str
    threads: int
    folder: str
    version: str


@final
class RayWorker:
    """A process's bench, and the reference of the target that lies on it."""

    def __init__(self) -> None:
        self._bench: Executor | None = None
        self._on_bench: Any = None

    @exits_are_errors()
    def do(self, order: Order, device: str, fetch: Any) -> FinishedTask:
        """fetch: from the reference to the packed target."""
        if self._bench is None or self._bench.device != device:
            # A process may be given another GPU than last time; it keeps no model on the old one.
            self._bench, self._on_bench = Executor(device), None
        if order.packed is not None and self._on_bench != order.packed[0]:
            self._bench.clear()
            self._bench.offer(order.task.plan.model, unpack(fetch(order.packed[0]), device))
            self._on_bench = order.packed[0]
        return do_task(self._bench, order.task)


_STATION = RayWorker()


def do_order(order: Order) -> FinishedTask | Raised:
    """What Ray calls on a worker."""
    import ray

    try:
        check_version(order.version)
        _settle(order.folder, order.threads)
        given = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        device = own_device(order.device, given, os.environ.get("CUDA_VISIBLE_DEVICES"))
        return _STATION.do(order, device, ray.get)
    except ray.exceptions.RayError:
        raise
    except SottovoceError as error:
        return Raised(type(error), str(error))
    except Exception:
        return Raised(None, traceback.format_exc())


def check_version(driver: str) -> None:
    if driver != __version__:
        raise InputError(
            f"expected the same version of sottovoce on all nodes, got {driver} here and {__version__} on "
            f"{socket.gethostname()}; install the same version on both."
        )


def own_device(asked: str, given: Sequence[str], visible: str | None) -> str:
    """The device of a worker: where it was given GPUs, the first of them as torch counts those it can see."""
    if asked != "cuda" or not given:
        return "cpu" if asked == "cuda" else asked
    listed = [one.strip() for one in (visible or "").split(",") if one.strip()]
    place = listed.index(given[0]) if given[0] in listed else int(given[0])
    if place >= torch.cuda.device_count():
        raise InputError(
            f"expected GPU {given[0]} on {socket.gethostname()}, got {torch.cuda.device_count()} that torch "
            "can use; install a torch with CUDA there, or choose --device cpu."
        )
    return f"cuda:{place}"


def pack(target: Target) -> Packed:
    """A target with its weights as bytes, checked by unpacking it."""
    file = io.BytesIO()
    torch.save(target, file, pickle_module=SimpleNamespace(__name__="pickle", Pickler=_pickler()))
    packed = np.frombuffer(file.getvalue(), dtype=np.uint8)
    unpack(packed, "cpu")
    return packed


def _pickler() -> type:
    """Ray's own pickler, which also takes functions inside functions.

    Weights that are computed from others, as under weight normalisation, cannot be pickled, and need not:
    in a model that no one trains they stay what they are.
    """
    base: Any = import_module("ray.cloudpickle").Pickler

    class Pickler(base):  # type: ignore[misc]
        def reducer_override(self, item: Any) -> Any:
            if isinstance(item, torch.nn.Module) and parametrize.is_parametrized(item):
                return _itself, (_plain(item),)
            return super().reducer_override(item)

    return Pickler


def _plain(module: torch.nn.Module) -> torch.nn.Module:
    """A module of the class that it had before, with the weights as they are. torch's own way back changes a
    class that the module shares with its copies."""
    kind: type[torch.nn.Module] = type(module).__bases__[0]
    content = dict(vars(module))
    others: Any = dict(content["_modules"])
    computed = {
        name: torch.nn.Parameter(getattr(module, name).detach(), requires_grad=False)
        for name in others.pop("parametrizations")
    }
    plain = kind.__new__(kind)
    vars(plain).update(content, _modules=others, _parameters={**content["_parameters"], **computed})
    return plain


def _itself(module: torch.nn.Module) -> torch.nn.Module:
    return module


def unpack(packed: Packed, device: str) -> Target:
    """The target on a device. What was packed comes from the driver of this very run, as the code does."""
    target: Target = torch.load(io.BytesIO(packed.tobytes()), map_location=device, weights_only=False)
    return target


def _settle(folder: str, threads: int) -> None:
    if os.path.isdir(folder) and os.getcwd() != folder:
        os.chdir(folder)
    if os.getcwd() not in sys.path:
        # One's own modules most often lie in the folder of the command.
        sys.path.insert(0, os.getcwd())
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
