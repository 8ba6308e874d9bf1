"""torch.cuda as far as its memory goes, for machines without a GPU."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

MB = 2**20


class FakeCuda:
    """One process on cards of 10,000 MB, of which tensors have what a test says."""

    def __init__(self, count: int) -> None:
        self.reserved = [0.0] * count
        self.allocated = [0.0] * count
        self.free_mb, self.ooms = 9_000.0, 0
        self.fractions: dict[int, float] = {}
        self.resets: list[int] = []
        self.uuids: list[str | None] = [None] * count

    def put_in_place(self, patch: pytest.MonkeyPatch) -> None:
        for name, found in {
            "is_initialized": lambda: True,
            "device_count": lambda: len(self.reserved),
            "current_device": lambda: 0,
            "max_memory_reserved": lambda index: int(self.reserved[index] * MB),
            "max_memory_allocated": lambda index: int(self.allocated[index] * MB),
            "memory_reserved": lambda index: int(self.reserved[index] * MB),
            "memory_stats": lambda index: {"num_ooms": self.ooms},
            "mem_get_info": lambda index: (int(self.free_mb * MB), 10_000 * MB),
            "get_device_properties": lambda index: SimpleNamespace(
                total_memory=10_000 * MB, uuid=self.uuids[index]
            ),
            "set_per_process_memory_fraction": lambda share, index: self.fractions.update({index: share}),
            "reset_peak_memory_stats": self._reset,
        }.items():
            patch.setattr(torch.cuda, name, found)

    def _reset(self, index: int) -> None:
        self.resets.append(index)
        self.allocated[index] = self.reserved[index] = 0.0
