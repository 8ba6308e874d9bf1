"""The options of the system."""

from __future__ import annotations

from typing import Any

import numpy as np


class SystemConfig:
    """Has the options that its functions ask for."""

    def __init__(self) -> None:
        self.dataset = ""
        self.batch_size = 1
        self.data_rng = np.random.RandomState(123)

    def update_config(self, new: dict[str, Any]) -> SystemConfig:
        for name, value in new.items():
            if hasattr(self, name):
                setattr(self, name, value)
        return self
