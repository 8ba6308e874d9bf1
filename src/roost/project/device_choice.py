"""The device that a model is placed on."""

from __future__ import annotations

import torch

from roost.base.errors import Refused
from roost.train.accelerators.registry import accelerator_of, automatic_type


def choose_device(asked: str, *, local_rank: int | None = None) -> str:
    """Returns the device to use: the one asked for, or with ``auto`` the first available of cuda, mps, cpu.

    Args:
        asked: auto, or a name of a torch device.
        local_rank: The number of this rank among those on this machine; it selects the GPU of that number.

    Raises:
        Refused: There is no such device, or this machine does not have it.
    """
    if asked == "auto":
        asked = automatic_type()
    if local_rank is not None and ":" not in asked:
        asked = accelerator_of(asked).name_for_rank(local_rank)
    if wrong := _wrong(asked):
        raise Refused(
            wrong, setting="device", received=asked, fix="use -CPU, or one of auto, cpu, cuda, mps, xpu"
        )
    return asked


def _wrong(asked: str) -> str | None:
    """Returns why a device cannot be used here, or None."""
    try:
        device = torch.device(asked)
    except RuntimeError:
        return "there is no such device"
    return accelerator_of(device).why_unusable(device)
