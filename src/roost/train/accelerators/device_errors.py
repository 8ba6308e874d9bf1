"""Errors of a device itself. Any operation may raise one: memory runs out anywhere, and a kernel fails after
the call that launched it, at whichever call waits for the device next. So a handler that takes an error for a
mistake in a value or a setting asks here first."""

from __future__ import annotations

from typing import Any

import torch

_BREAKING: Any = getattr(torch, "AcceleratorError", ())
"""The class of CUDA's errors since torch 2.8; before, they are a RuntimeError."""
_BREAKING_TEXTS = ("CUDA error: ", "HIP error: ")
_TEXTS = ("CUDA out of memory", "HIP out of memory", "CUBLAS_STATUS_", "CUDNN_STATUS_", "NCCL error")
"""In messages of a RuntimeError, also where torch quotes the error of a device: ``load_state_dict``."""


def is_device_error(error: BaseException) -> bool:
    """Whether the device failed, or its memory ran out; then the error says nothing about the values."""
    text = str(error)
    return (
        isinstance(error, torch.OutOfMemoryError)
        or breaks_device(error)
        or (isinstance(error, RuntimeError) and any(one in text for one in (*_BREAKING_TEXTS, *_TEXTS)))
    )


def breaks_device(error: BaseException) -> bool:
    """Whether the device cannot compute any more in this process after the error."""
    return isinstance(error, _BREAKING) or (
        isinstance(error, RuntimeError) and str(error).startswith(_BREAKING_TEXTS)
    )
