"""The peak GPU memory of torch's allocator since the process started.

The allocator counts for the whole process, and so does this module. Each row of metrics resets the
allocator's counters, so earlier peaks are kept here.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from roost.train.accelerators.registry import accelerator_of

_MB = 2**20


class PeakMemory(NamedTuple):
    """Peaks of the allocator on one GPU, in MB."""

    reserved_mb: float = 0.0
    """Memory held by the allocator, its cache included."""
    allocated_mb: float = 0.0
    """Memory of tensors."""


_earlier_peaks: dict[torch.device, PeakMemory] = {}
"""The peaks of each GPU until its counters were last reset."""


def process_peak(device: torch.device) -> PeakMemory:
    """Returns the peaks of a GPU since the process started."""
    accelerator, gpu = accelerator_of(device), _numbered(device)
    now = PeakMemory(
        accelerator.peak_reserved_bytes(gpu.index) / _MB,
        accelerator.peak_allocated_bytes(gpu.index) / _MB,
    )
    return PeakMemory(*map(max, now, _earlier_peaks.get(gpu, PeakMemory())))


def peak_since_last_call(device: torch.device) -> float:
    """Returns the peak memory of tensors in MB since the last call, and resets the counters."""
    accelerator, gpu = accelerator_of(device), _numbered(device)
    _earlier_peaks[gpu] = process_peak(gpu)
    allocated_mb = accelerator.peak_allocated_bytes(gpu.index) / _MB
    accelerator.reset_peaks(gpu.index)
    return allocated_mb


def _numbered(device: torch.device) -> torch.device:
    """Returns the device with its number; without one it is the current device."""
    if device.index is not None:
        return device
    return torch.device(device.type, accelerator_of(device).current_index())
