"""The hook that corrects the limit of card memory once the libraries of the GPU are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from roost.train.hook import Hook, Phase
from roost.worker import card_memory

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class CardLimit(Hook):
    """Limits tensors again at the first row and at the first validation. The limit of the start leaves the
    driver what it needs for an empty context; the kernels of cuBLAS, cuDNN and NCCL, which the first steps
    load, would come on top of the reservation, out of the memory of another task.

    Each measurement asks the driver, which takes up to a second.

    Args:
        reserved_mb: As of `card_memory.limit_to_reservation`, like the others.
        device: Device of the run.
        is_rank: Whether this process is one of several ranks.
    """

    phase = Phase.REPORT
    every = ()  # no interval: each row requests it
    serves = "report"

    def __init__(self, reserved_mb: float, device: str, *, is_rank: bool) -> None:
        self._reserved_mb, self._device, self._is_rank = reserved_mb, device, is_rank
        self._had_row = self._had_validation = False

    def on_step(self, trainer: Trainer) -> None:
        if not self._had_row:
            self._had_row = True
            self._limit()

    def on_eval(self, trainer: Trainer, results: Mapping[str, float]) -> None:
        if not self._had_validation:
            self._had_validation = True
            self._limit()

    def _limit(self) -> None:
        card_memory.limit_to_reservation(self._reserved_mb, self._device, is_rank=self._is_rank)
