"""The most memory that torch's allocator has held of a GPU since the process began. The allocator counts for
the whole process, so this does too; rows begin its counting anew."""

from __future__ import annotations

from typing import NamedTuple

import torch

_MB = 2**20


class PeakMemory(NamedTuple):
    """The most that was held at once, in MB."""

    reserved_mb: float = 0.0
    """With what the allocator keeps to give out again."""
    allocated_mb: float = 0.0
    """By tensors."""


_earlier_peaks: dict[int, PeakMemory] = {}
"""Of each GPU, until its counting was begun anew."""


def process_peak(device: torch.device | int) -> PeakMemory:
    """Of a GPU, since the process began."""
    index = _index(device)
    now = PeakMemory(
        torch.cuda.max_memory_reserved(index) / _MB,
        torch.cuda.max_memory_allocated(index) / _MB,
    )
    return PeakMemory(*map(max, now, _earlier_peaks.get(index, PeakMemory())))


def peak_since_last_call(device: torch.device | int) -> float:
    """MB of tensors at most since this was asked last."""
    index = _index(device)
    _earlier_peaks[index] = process_peak(index)
    allocated_mb = torch.cuda.max_memory_allocated(index) / _MB
    torch.cuda.reset_peak_memory_stats(index)
    return allocated_mb


def _index(device: torch.device | int) -> int:
    if isinstance(device, int):
        return device
    return device.index if device.index is not None else torch.cuda.current_device()
