"""The peak GPU memory of torch's allocator since the process started.

The allocator counts for the whole process, and so does this module. Each row of metrics resets the
allocator's counters, so earlier peaks are kept here.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

_MB = 2**20


class PeakMemory(NamedTuple):
    """Peaks of the allocator on one GPU, in MB."""

    reserved_mb: float = 0.0
    """Memory held by the allocator, its cache included."""
    allocated_mb: float = 0.0
    """Memory of tensors."""


_earlier_peaks: dict[int, PeakMemory] = {}
"""The peaks of each GPU until its counters were last reset."""


def process_peak(device: torch.device | int) -> PeakMemory:
    """Returns the peaks of a GPU since the process started."""
    index = _index(device)
    now = PeakMemory(
        torch.cuda.max_memory_reserved(index) / _MB,
        torch.cuda.max_memory_allocated(index) / _MB,
    )
    return PeakMemory(*map(max, now, _earlier_peaks.get(index, PeakMemory())))


def peak_since_last_call(device: torch.device | int) -> float:
    """Returns the peak memory of tensors in MB since the last call, and resets the counters."""
    index = _index(device)
    _earlier_peaks[index] = process_peak(index)
    allocated_mb = torch.cuda.max_memory_allocated(index) / _MB
    torch.cuda.reset_peak_memory_stats(index)
    return allocated_mb


def _index(device: torch.device | int) -> int:
    if isinstance(device, int):
        return device
    return device.index if device.index is not None else torch.cuda.current_device()
