"""Work on a pair of batches that several metrics share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import ReferenceType, WeakKeyDictionary, ref

from sottovoce.core.batch import AudioBatch

Value = TypeVar("Value")
Measure = Callable[[AudioBatch, AudioBatch], Value]


def once_a_pair(measure: Measure[Value]) -> Measure[Value]:
    """Do the work once as long as both batches live, however many metrics ask.

    The value must not hold either batch: it would keep them alive.
    """
    found: WeakKeyDictionary[AudioBatch, tuple[ReferenceType[AudioBatch], Value]] = WeakKeyDictionary()

    @wraps(measure)
    def asked(clean: AudioBatch, changed: AudioBatch) -> Value:
        known = found.get(changed)
        if known is None or known[0]() is not clean:
            known = found[changed] = ref(clean), measure(clean, changed)
        return known[1]

    return asked
