"""Sets with indices, most of which do something wrong."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from tests.train.parts import Points, Still


class WithGenerator(Points):
    """Asks for a generator of its own."""

    def __getitem__(self, index: int, rng: np.random.Generator | None = None) -> tuple[Tensor, Tensor]:
        assert rng is not None
        return self.x[index] + float(rng.standard_normal()), self.y[index]


class Broken(Still):
    """Sample 7 fails."""

    draws_randomness = True

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 7:
            raise ValueError("cannot decode")
        return super().__getitem__(index)


class Odd(Dataset[Any]):
    """Samples that cannot be joined."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return {
            "none": None,
            "shapes": torch.zeros(index),
            "keys": {f"x{index}": 1.0},
            "kinds": "text" if index % 2 else 1.0,
            "lengths": [1.0] * (index + 1),
            "objects": object(),
        }[self.kind]


class Rows(Dataset[int]):
    """A file of one row per sample, opened at the first one: seeks and reads, as readers of HDF5 do."""

    def __init__(self, path: Path) -> None:
        self.path, self.fd = path, -1

    def __len__(self) -> int:
        return self.path.stat().st_size // 8

    def __getitem__(self, index: int) -> int:
        if self.fd < 0:
            self.fd = os.open(self.path, os.O_RDONLY)
        os.lseek(self.fd, index * 8, os.SEEK_SET)
        time.sleep(0)  # lets another thread run
        return int(os.read(self.fd, 8))


class Draws(Still):
    """What one sample does when it is looked at whether seeding works."""

    draws_randomness = True

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.was_read = kind, False

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.was_read = True
        if self.kind == "unseeded":
            return self.x[index] + random.SystemRandom().random(), self.y[index]
        if self.kind == "raises":
            raise ValueError
        if self.kind == "dies":
            os._exit(3)
        while self.kind == "hangs":
            signal.pause()
        return self.x[index] + torch.randn(6), self.y[index]
