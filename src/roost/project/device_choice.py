"""The device that a model is placed on."""

from __future__ import annotations

import os

import torch

from roost.base.errors import Refused


def choose_device(asked: str, *, local_rank: int | None = None) -> str:
    """Returns the device to use: the one asked for, or with ``auto`` the first available of cuda, mps, cpu.

    Args:
        asked: auto, or a name of a torch device.
        local_rank: The number of this rank among those on this machine; it selects the GPU of that number.

    Raises:
        Refused: There is no such device, or this machine does not have it.
    """
    if asked == "auto":
        others = "mps" if torch.backends.mps.is_available() else "cpu"
        asked = "cuda" if torch.cuda.is_available() else others
    if local_rank is not None and asked == "cuda":
        asked = f"cuda:{local_rank}"
    if wrong := _wrong(asked):
        raise Refused(
            wrong, setting="device", received=asked, fix="use -CPU, or one of auto, cpu, cuda, cuda:1"
        )
    return asked


def _wrong(asked: str) -> str | None:
    """Returns why a device cannot be used here, or None."""
    try:
        device = torch.device(asked)
    except RuntimeError:
        return "there is no such device"
    if device.type == "cuda":
        if not torch.cuda.is_available():
            return f"no GPU is visible: {why_no_gpu()}"
        count = torch.cuda.device_count()
        return f"the number of GPUs here is {count}, counted from 0" if (device.index or 0) >= count else None
    is_missing = device.type == "mps" and not torch.backends.mps.is_available()
    return "this machine has no mps" if is_missing else None


def why_no_gpu() -> str:
    """Returns the reason why torch sees no GPU on this machine."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} was built without CUDA"
    if visible is not None:
        return f"CUDA_VISIBLE_DEVICES is {visible!r}"
    return "there is none, or its driver is not loaded (nvidia-smi shows it)"
