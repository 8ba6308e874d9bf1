"""Apple's GPUs, by Metal. Never run: no machine with one was available."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from roost.train.accelerators.accelerator import Accelerator


class Mps(Accelerator):
    """MPS: one device, which shares the memory of the host."""

    has_float64 = False

    def __init__(self) -> None:
        super().__init__("mps", "MPS")

    def is_available(self) -> bool:
        return torch.backends.mps.is_available()

    def is_initialized(self) -> bool:
        return self.is_available()  # it has no context that a question could create

    def count(self) -> int:
        return 1

    def set_current(self, device: torch.device) -> None:
        return  # there is no other

    def name_for_rank(self, local_rank: int) -> str:
        return self.type

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def empty_cache(self) -> None:
        if self.is_available():
            torch.mps.empty_cache()

    def current_index(self) -> int:
        return 0

    def generators(self) -> Sequence[torch.Generator]:
        return (torch.mps._get_default_mps_generator(),)
