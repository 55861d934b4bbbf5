"""Recognises errors that mean out of memory; every device words them differently."""

from __future__ import annotations

import torch


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means out of memory, so that a smaller batch might work."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and (
        "can't allocate memory" in text or "not enough memory" in text or "out of memory" in text
    )
