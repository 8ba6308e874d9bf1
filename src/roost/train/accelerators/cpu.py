"""The host itself: nothing to wait for, and no memory but its own."""

from __future__ import annotations

import torch

from roost.train.accelerators.accelerator import Accelerator


class Cpu(Accelerator):
    """The CPU. Its random generator is torch's default one, which needs no accelerator to be saved."""

    def __init__(self) -> None:
        super().__init__("cpu", "CPU")

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return False

    def why_unusable(self, device: torch.device) -> str | None:
        return None

    def name_for_rank(self, local_rank: int) -> str:
        return self.type

    def set_current(self, device: torch.device) -> None:
        return

    def synchronize(self) -> None:
        return

    def has_fused(self, optimizer: str) -> bool:
        return True
