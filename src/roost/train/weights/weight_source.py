"""Weights that were read, with their origin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class WeightSource:
    """Weights on the CPU, by their names in the file or checkpoint, with their origin."""

    weights: Mapping[str, Any]
    """Tensors; the extra state of a module may be any plain data."""
    path: Path
    description: str
    """The origin as text: ``checkpoint 3 of step 120``, ``a file of torch.save, its entry 'model'``."""
    sha256: str
    """The digest of the file that has the weights."""
    size: int
    """The size of that file in bytes."""
    notes: list[str] = field(default_factory=list)
    """Remarks about the reading for the user."""
