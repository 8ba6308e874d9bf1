"""Lightning's modules in a Trainer of roost; lightning itself is not needed. See `LightningRunner`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roost.project.lightning.lightning_dataset import LightningDataset as LightningDataset
    from roost.project.lightning.lightning_runner import LightningRunner as LightningRunner

_HOME = {"LightningDataset": "lightning_dataset", "LightningRunner": "lightning_runner"}


def __getattr__(name: str) -> Any:  # they import torch
    if name not in _HOME:
        raise AttributeError(f"module 'roost.compat.lightning' has no attribute {name!r}")
    return getattr(importlib.import_module(f"roost.project.lightning.{_HOME[name]}"), name)
