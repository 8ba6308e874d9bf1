"""Tensors as NumPy arrays, and arrays as .npy files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Converts a tensor of any device and layout; to float32 if NumPy lacks its dtype (bfloat16, …)."""
    plain = tensor.detach().cpu()
    plain = plain.to_dense() if plain.layout is not torch.strided else plain
    plain = plain if has_numpy_type(plain) else plain.float()
    array: np.ndarray[Any, Any] = plain.resolve_conj().resolve_neg().numpy()
    return array


def has_numpy_type(tensor: torch.Tensor) -> bool:
    """Whether NumPy has the dtype of a tensor."""
    return not tensor.is_floating_point() or tensor.dtype in (torch.float16, torch.float32, torch.float64)


def npy_bytes(array: np.ndarray[Any, Any]) -> bytes:
    """Encodes an array in the .npy format.

    Raises:
        ValueError: The array holds objects.
    """
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return buffer.getvalue()
