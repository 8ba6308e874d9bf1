"""Which steps were bad: tensors on their device until somebody asks."""

from __future__ import annotations

import torch
from torch import Tensor

_FOLD_STEPS = 1024
"""Steps after which the waiting tensors are joined, so that memory stays bounded: 9 bytes a step."""


class DeviceFlags:
    """Takes a flag for each step, and tells afterwards whose was set. `add` reads nothing back."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Tensor]] = []
        self._joined: list[tuple[Tensor, Tensor]] = []
        """(steps,) their numbers, on the CPU, and (steps,) their flags."""

    def add(self, step: int, flag: Tensor) -> None:
        """Takes the flag of a step, () on any device."""
        self._waiting.append((step, flag))
        if len(self._waiting) >= _FOLD_STEPS:
            self._join()

    def _join(self) -> None:
        if self._waiting:
            steps, flags = zip(*self._waiting, strict=True)
            self._joined.append((torch.tensor(steps), torch.stack(flags)))
            self._waiting = []

    def read(self) -> tuple[list[int], int | None]:
        """The steps whose flag is set, in their order, and the newest whose is not; they stay. A sync point,
        if there is any step."""
        self._join()
        bad: list[int] = []
        good: list[int] = []
        for steps, flags in self._joined:
            flags = flags.cpu()
            bad += steps[flags].tolist()
            good += steps[~flags][-1:].tolist()
        return bad, good[-1] if good else None

    def clear(self) -> None:
        """Forgets all of them."""
        self._waiting, self._joined = [], []
