"""Flags of bad steps, kept as tensors on their device until they are read."""

from __future__ import annotations

import torch
from torch import Tensor

_FOLD_STEPS = 1024
"""Steps after which waiting tensors are joined, so that memory stays bounded: 9 bytes a step."""


class DeviceFlags:
    """Collects a flag for each step, and later returns the steps whose flag is set. `add` is no sync
    point."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Tensor]] = []
        self._joined: list[tuple[Tensor, Tensor]] = []
        """(steps,) their numbers, on the CPU, and (steps,) their flags."""

    def add(self, step: int, flag: Tensor) -> None:
        """Adds the flag of a step, () on any device."""
        self._waiting.append((step, flag))
        if len(self._waiting) >= _FOLD_STEPS:
            self._join()

    def _join(self) -> None:
        if self._waiting:
            steps, flags = zip(*self._waiting, strict=True)
            self._joined.append((torch.tensor(steps), torch.stack(flags)))
            self._waiting = []

    def read(self) -> tuple[list[int], int | None]:
        """Returns the steps whose flag is set, in order, and the newest step whose flag is not set. The flags
        are kept. A sync point, if there is any step."""
        self._join()
        bad: list[int] = []
        good: list[int] = []
        for steps, flags in self._joined:
            flags = flags.cpu()
            bad += steps[flags].tolist()
            good += steps[~flags][-1:].tolist()
        return bad, good[-1] if good else None

    def clear(self) -> None:
        """Drops all flags."""
        self._waiting, self._joined = [], []
