"""Whether an error means that memory ran out: every device says so in its own words."""

from __future__ import annotations

import torch


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a smaller batch might do."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "not enough memory" in text or "out of memory" in text
    )
