"""Databases."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.config import SystemConfig


class Squares:
    """Pictures with a bright side, left or right."""

    def __init__(self, configs: dict[str, Any], split: str, sys_config: SystemConfig) -> None:
        self.size, self.split = configs["size"], split
        self._db_inds = np.arange(40 if split == "training" else 12)
        self._data_rng: Any = None

    @property
    def db_inds(self) -> Any:
        return self._db_inds

    def shuffle_inds(self) -> None:
        self._db_inds = self._db_inds[self._data_rng.permutation(len(self._db_inds))]


datasets = {"Squares": Squares}
