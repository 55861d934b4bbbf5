"""Guards around a part while it works: has it changed a model, or used global random state?"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sottovoce.core.batch import AudioBatch
from sottovoce.testing.laws import Law, require

Result = TypeVar("Result")


def modules_of(part: object) -> list[torch.nn.Module]:
    """Every `torch.nn.Module` that a part holds, however deep: in attributes, containers and closures."""
    found: list[torch.nn.Module] = []
    seen: set[int] = set()
    waiting: list[object] = [part]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, Tensor | np.ndarray | str | bytes | type):
            continue
        seen.add(id(thing))
        if isinstance(thing, torch.nn.Module):
            found.append(thing)
        else:
            waiting.extend(_held_by(thing))
    return found


def _held_by(thing: object) -> list[object]:
    if isinstance(thing, Mapping):
        return list(thing.values())
    if isinstance(thing, list | tuple | set | frozenset):
        return list(thing)
    if isinstance(thing, MethodType):
        return [thing.__self__]
    if isinstance(thing, FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or ()]
    slots = [getattr(thing, name, None) for name in getattr(type(thing), "__slots__", ())]
    return [*getattr(thing, "__dict__", {}).values(), *slots]


@contextmanager
def unchanged(part: object) -> Iterator[None]:
    """Raise if a model that the part holds has changed in any bit."""
    modules = modules_of(part)
    before = [_snapshot(module) for module in modules]
    yield
    for module, old in zip(modules, before, strict=True):
        new = _snapshot(module)
        name = type(module).__name__
        for what, kept in old.items():
            changed = [key for key in kept if key not in new[what] or not _same(kept[key], new[what][key])]
            changed += [key for key in new[what] if key not in kept]
            require(not changed, Law.UNCHANGED, f"{what} of {name} changed: {', '.join(changed)}.")


@contextmanager
def handed_back(*lent: AudioBatch | Tensor) -> Iterator[None]:
    """Raise if clips, or rows `(batch, time)`, that a part was given have changed."""
    before = [(thing.copy() if isinstance(thing, AudioBatch) else thing.detach().clone()) for thing in lent]
    yield
    for old, new in zip(before, lent, strict=True):
        if isinstance(new, AudioBatch) and isinstance(old, AudioBatch):
            same, what = new.same_as(old), "the clips"
        else:
            assert isinstance(new, Tensor) and isinstance(old, Tensor)
            same, what = torch.equal(new, old), "a perturbation"
        require(same, Law.LENT, f"It wrote into {what} that it was given; work on a copy.")


def _snapshot(module: torch.nn.Module) -> dict[str, dict[str, Any]]:
    parameters = dict(module.named_parameters())
    return {
        "parameters": {name: value.detach().clone() for name, value in parameters.items()},
        "buffers": {name: value.detach().clone() for name, value in module.named_buffers()},
        "training mode": {name or "(itself)": part.training for name, part in module.named_modules()},
        "requires_grad": {name: value.requires_grad for name, value in parameters.items()},
        "kept gradients": {
            name: value.grad.detach().clone() for name, value in parameters.items() if value.grad is not None
        },
    }


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, Tensor):
        return old.shape == new.shape and bool(((old == new) | ((old != old) & (new != new))).all())
    return bool(old == new)


@contextmanager
def in_training_mode(part: object) -> Iterator[None]:
    """Put the part's models into training mode; restored afterwards."""
    modes = [(inner, inner.training) for module in modules_of(part) for inner in module.modules()]
    for inner, _ in modes:
        inner.training = True
    try:
        yield
    finally:
        for inner, training in modes:
            inner.training = training


def check_random_state(work: Callable[[], Result], agree: Callable[[Result, Result], str | None]) -> Result:
    """Do the work three times: twice from one global random state, once from another.

    agree: returns None if two results are the same, else what differs.
    """
    kept = _global_state()
    try:
        results = [_work_from(seed, work) for seed in (1, 1, 2)]
    finally:
        _restore(kept)
    difference = agree(results[0], results[1])
    require(difference is None, Law.SEEDED, f"Doing the same twice changed the {difference}.")
    difference = agree(results[0], results[2])
    require(
        difference is None, Law.GLOBAL_RANDOM, f"Another global seed changed the {difference}; use draws."
    )
    return results[0]


def _work_from(seed: int, work: Callable[[], Result]) -> Result:
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    before = _global_state()
    result = work()
    after = _global_state()
    for name in before:
        require(
            _same_state(before[name], after[name]),
            Law.GLOBAL_RANDOM,
            f"The random state of {name} changed; take random numbers from draws.",
        )
    return result


def _global_state() -> dict[str, Any]:
    return {"torch": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate()}


def _same_state(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor):
        return torch.equal(before, after)
    if isinstance(before, np.ndarray):
        return np.array_equal(before, after)
    if isinstance(before, tuple):
        return all(_same_state(old, new) for old, new in zip(before, after, strict=True))
    return bool(before == after)


def _restore(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    np.random.set_state(state["numpy"])
    random.setstate(state["random"])
