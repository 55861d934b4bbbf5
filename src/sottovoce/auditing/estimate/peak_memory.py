"""How much memory something takes at its peak."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch

_STATUS, _REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: str) -> None:
    """Forget earlier peaks, where the system can: elsewhere the peak is that of the process so far."""
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        _REFS.write_text("5")
    except OSError:
        return


def current_bytes(device: str) -> int:
    """The memory in use now."""
    if device.startswith("cuda"):
        return int(torch.cuda.memory_allocated(device))
    return _status("VmRSS") or peak_bytes(device)


def peak_bytes(device: str) -> int:
    """The most memory that was in use since the last reset: of the GPU, or of this process."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated(device))
    found = _status("VmHWM")
    if found or sys.platform == "win32":
        return found
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _status(name: str) -> int:
    """A figure of this process as Linux gives it; 0 elsewhere."""
    found = re.search(rf"{name}:\s+(\d+) kB", _STATUS.read_text()) if _STATUS.exists() else None
    return 1024 * int(found[1]) if found else 0
