"""`Runner.test` at the end of a training: of what it returns, the values that can be averaged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roost.base.errors import ContractError


def own_test(runner: Any) -> Callable[[Any], dict[str, Tensor]] | None:
    """Returns a runner's own `test`, without arguments, restricted to tensors and numbers; None if it has
    none, so that `evaluate` measures its test sets."""
    method = getattr(type(runner), "test", None)
    if method is None or getattr(method, "is_default", False):
        return None

    def measure(batch: Any) -> dict[str, Tensor]:
        return _tensors(runner.test(batch))

    return measure


def _tensors(output: object) -> dict[str, Tensor]:
    """Returns tensors and numbers as tensors; text, media and ragged values are left out."""
    if not isinstance(output, Mapping):
        raise ContractError(
            "test() must return a mapping of results by name",
            received=type(output).__name__,
            fix='return {"accuracy": hits, "text": texts}',
        )
    found = {name: _tensor(value) for name, value in output.items()}
    return {str(name): tensor for name, tensor in found.items() if tensor is not None}


def _tensor(value: object) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float):
        return torch.tensor(float(value), dtype=torch.float64)
    if isinstance(value, np.ndarray | np.generic):
        return torch.from_numpy(np.asarray(value)) if value.dtype.kind in "biuf" else None
    if (
        isinstance(value, list | tuple)
        and value
        and all(isinstance(one, bool | int | float) for one in value)
    ):
        return torch.tensor([float(one) for one in value], dtype=torch.float64)
    return None
