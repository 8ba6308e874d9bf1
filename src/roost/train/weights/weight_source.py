"""Weights that were read, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class WeightSource:
    """Weights on the CPU, by the names that they have there."""

    weights: Mapping[str, Any]
    """Tensors; the extra state of a module may be anything plain."""
    path: Path
    about: str
    """In words: ``checkpoint 3 of step 120``, ``a file of torch.save, its entry 'model'``."""
    sha256: str
    """Of the file that holds the weights."""
    size: int
    """Of that file, in bytes."""
    notes: list[str] = field(default_factory=list)
    """What a person should hear about the reading."""
