"""Tasks on the machines of a Ray cluster, or on a local one that is started for the run.

Ray's own retries are not used: a task that kills its worker is handed back to be halved, and one whose node
left is given out again, which is not the task's fault.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, final

from sottovoce.auditing.engines.engine import Engine
from sottovoce.auditing.engines.pool_worker import Raised
from sottovoce.auditing.engines.ray_address import check_address, loopback_only
from sottovoce.auditing.engines.ray_worker import Order, do_order, pack
from sottovoce.auditing.run.tasks import FinishedTask, LostTask, Task
from sottovoce.core.target import Target
from sottovoce.errors import InputError, MissingExtra, StoreError
from sottovoce.perception.ears.learned import OWN

LEAVING = 3
"""Nodes that may leave under a task before it counts as lost."""
CRASHES = 1
"""Workers that may die over a task for reasons unknown before it counts as lost."""
PATIENCE_SECONDS = 300.0
"""How long a cluster may have no room for any task at all."""
LOOK_SECONDS = 1.0
LEAST_STORE, MOST_STORE = 200 * 2**20, 2 * 2**30
"""Bytes of a local object store: a twentieth of the memory between these. Larger models go over the disk."""

# Ray has no setting for a cluster on loopback alone: this one, meant for other systems, has that effect.
_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# Every worker sees all GPUs and takes the one it was given: a process may get another for its next task, and
# CUDA reads what is visible only once.
_ALL_GPUS = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"


@dataclass
class _Flight:
    """A task in progress, and how often it failed before."""

    order: Order
    left: int = 0
    crashed: int = 0


@final
class RayEngine(Engine):
    """Ray tasks over shards of clips, at most twice as many as there is room for.

    address: of a running cluster, HOST:PORT, ray://HOST:PORT or auto; None starts one on this machine.
    workers: tasks done at once; None: as many as the CPUs, or the GPUs at each plan's `gpu_share`, allow.
    device: auto takes the GPUs that the cluster has; cpu none.
    cpus: CPUs, and threads, of one worker; None: 1 on a running cluster, a fair share of a local one.
    store_bytes: object store of a local cluster.
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        *,
        device: str = "auto",
        cpus: int | None = None,
        store_bytes: int | None = None,
    ) -> None:
        for name, number in (("workers", workers), ("cpus", cpus)):
            if number is not None and number < 1:
                raise InputError(f"expected {name} of 1 or more, got {number}.")
        cores = os.cpu_count() or 1
        self._cpus = cpus or (max(1, cores // (workers or cores)) if address is None else 1)
        self._most = workers
        self._own = False
        self._model: tuple[str, Target, Any] | None = None
        self._doers: dict[float, Any] = {}
        self._ray = self._join(address, store_bytes, (workers or cores // self._cpus or 1) * self._cpus)
        self.device = self._choose(device)
        self.workers = self._room(1.0)
        if not self.workers:
            self.close()
            raise InputError(
                f"expected a cluster with {self._cpus} free CPU for a worker, got none; add a node to it."
            )

    def offer(self, model: str, target: Target) -> None:
        """Put the target into the object store, once; each worker process unpacks it once."""
        if self._model is not None and self._model[0] == model and self._model[1] is target:
            return
        self._model = None
        try:
            packed = pack(target)
        # Whatever prevents a copy of someone's own model, it can still be opened by name.
        except Exception as error:
            logging.getLogger(__name__).warning(
                "%s cannot be sent to workers (%s); each opens it by its name.", model, error
            )
            return
        self._model = model, target, self._ray.put(packed)

    def run(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[FinishedTask | LostTask]:
        waiting = iter(tasks)
        flying: dict[Any, _Flight] = {}
        idle_since = time.monotonic()
        try:
            while True:
                task = None
                while not stop() and len(flying) < self._bound(flying):
                    task = next(waiting, None)
                    if task is None:
                        break
                    self._send(_Flight(self._order(task)), flying)
                if not flying:
                    return
                ready, _ = self._ray.wait(list(flying), num_returns=1, timeout=LOOK_SECONDS)
                for ref in ready:
                    yield from self._landed(ref, flying)
                idle_since = self._watch(flying, idle_since)
        finally:
            for ref in flying:
                self._ray.cancel(ref, force=True)

    def close(self) -> None:
        self._model = None
        if self._own:
            self._ray.shutdown()
            self._own = False

    def _order(self, task: Task) -> Order:
        model = self._model if self._model is not None and self._model[0] == task.plan.model else None
        return Order(
            task=task,
            packed=None if model is None else (model[2],),
            device=self.device,
            threads=self._cpus,
            folder=os.getcwd(),
            version=_version(),
        )

    def _send(self, flight: _Flight, flying: dict[Any, _Flight]) -> None:
        flying[self._doer(self._share(flight.order.task)).remote(flight.order)] = flight

    def _doer(self, share: float) -> Any:
        """The Ray task for workers with `share` of a GPU."""
        if share not in self._doers:
            variables = {name: os.environ[name] for name in (OWN,) if name in os.environ}
            self._doers[share] = self._ray.remote(
                num_cpus=self._cpus,
                num_gpus=share,
                max_retries=0,
                max_calls=0,  # Ray would end a process after one task on a GPU, and the open model with it.
                runtime_env={"env_vars": {**variables, _ALL_GPUS: "1"}},
            )(do_order)
        return self._doers[share]

    def _landed(self, ref: Any, flying: dict[Any, _Flight]) -> Iterator[FinishedTask | LostTask]:
        """The results of a task, or the task submitted again."""
        flight, errors = flying.pop(ref), self._ray.exceptions
        try:
            found = self._ray.get(ref)
        except errors.OutOfMemoryError as error:
            yield LostTask(flight.order.task, f"Ray ended its worker to save memory ({_first_line(error)})")
        except (errors.NodeDiedError, errors.ObjectLostError) as error:
            flight.left += 1
            yield from self._again(flight, flying, flight.left <= LEAVING, "its node left", error)
        except errors.WorkerCrashedError as error:
            flight.crashed += 1
            yield from self._again(flight, flying, flight.crashed <= CRASHES, "its worker died", error)
        except (errors.RayTaskError, errors.RaySystemError, errors.RuntimeEnvSetupError) as error:
            raise InputError(
                "expected this version of sottovoce, and Ray, on every node, got a worker that cannot start "
                f"({_first_line(error)}); install the same versions on all nodes."
            ) from error
        else:
            if isinstance(found, Raised):
                raise found.error()
            yield found

    def _again(
        self, flight: _Flight, flying: dict[Any, _Flight], more: bool, what: str, error: Exception
    ) -> Iterator[LostTask]:
        if more:
            self._send(flight, flying)
        else:
            yield LostTask(flight.order.task, f"{what} ({_first_line(error)})")

    def _watch(self, flying: dict[Any, _Flight], since: float) -> float:
        """When there last was room for the tasks in progress; raises if there has been none for too long."""
        if not flying or self._room(self._share(next(iter(flying.values())).order.task)):
            return time.monotonic()
        if time.monotonic() - since > PATIENCE_SECONDS:
            raise StoreError(
                f"expected a node with room for a worker, got none for {PATIENCE_SECONDS / 60:.0f} minutes; "
                "what was recorded is safe: add nodes and run the same command again to continue."
            )
        return since

    def _bound(self, flying: dict[Any, _Flight]) -> int:
        """How many tasks may be submitted: a second one waits for each worker, unless workers are limited."""
        share = self._share(next(iter(flying.values())).order.task) if flying else 1.0
        room = max(1, self._room(share))
        return 2 * room if self._most is None or self._own else min(self._most, 2 * room)

    def _share(self, task: Task) -> float:
        return task.plan.gpu_share if self.device == "cuda" else 0.0

    def _room(self, share: float) -> int:
        """Workers that the living nodes have room for, each with `share` of a GPU where GPUs are used."""
        wanted = {"CPU": float(self._cpus)}
        if self.device == "cuda" and share > 0:
            wanted["GPU"] = share
        return sum(
            min(int(node["Resources"].get(kind, 0.0) / amount + 1e-6) for kind, amount in wanted.items())
            for node in self._ray.nodes()
            if node["Alive"]
        )

    def _choose(self, device: str) -> str:
        gpus = self._ray.cluster_resources().get("GPU", 0.0)
        if device == "auto":
            return "cuda" if gpus else "cpu"
        if device.startswith("cuda"):
            if not gpus:
                self.close()
                raise InputError(
                    "expected a cluster with GPUs, got none; add --device cpu, or add nodes with GPUs."
                )
            return "cuda"
        return device

    def _join(self, address: str | None, store_bytes: int | None, cpus: int) -> Any:
        if address is not None and address != "auto":
            check_address(address)
        if "ray" not in sys.modules:
            # Ray reads these when it is imported, and never again.
            if address is None or loopback_only(address):
                os.environ.setdefault(_LOOPBACK, "0")
            if address is None:
                os.environ.setdefault("RAY_AUTH_MODE", "token")
                os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        ray = _import_ray()
        if ray.is_initialized():
            if address is not None:
                raise InputError(
                    "this process has already joined a Ray cluster; call ray.shutdown() first, or leave "
                    "--address out."
                )
            return ray
        quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            ray.init(
                "local",
                num_cpus=cpus,
                include_dashboard=False,
                object_store_memory=store_bytes or _store_bytes(),
                **quiet,
            )
        else:
            _connect(ray, address, quiet)
        self._own = True
        return ray


def _connect(ray: Any, address: str, settings: dict[str, Any]) -> None:
    try:
        ray.init(address, **settings)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise InputError(
            f"expected a Ray cluster at {address!r}, got none that can be joined ({_first_line(error)}); "
            "check the address, and that Ray and Python are the same here as there."
        ) from error


def _import_ray() -> Any:
    try:
        return import_module("ray")
    except ImportError:
        raise MissingExtra(
            'expected Ray, got none; run pip install "sottovoce[ray]", here and on every node.'
        ) from None


def _store_bytes() -> int:
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return LEAST_STORE
    return min(max(memory // 20, LEAST_STORE), MOST_STORE)


def _version() -> str:
    return import_module("sottovoce").__version__  # type: ignore[no-any-return]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
