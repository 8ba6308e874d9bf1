"""The accelerators by their type, as `torch.device.type` names it."""

from __future__ import annotations

import torch

from roost.devices import device_types
from roost.train.accelerators.accelerator import Accelerator
from roost.train.accelerators.cpu import Cpu
from roost.train.accelerators.cuda import Cuda
from roost.train.accelerators.mps import Mps
from roost.train.accelerators.xpu import Xpu

ACCELERATORS: dict[str, Accelerator] = {one.type: one for one in (Cpu(), Cuda(), Mps(), Xpu())}
"""Those with a file of their own. Their random generators are saved, in this order."""

_AUTOMATIC = ("cuda", "mps")
"""The types that ``auto`` takes, the first available one; any other must be asked for by name."""


def accelerator_of(device: torch.device | str) -> Accelerator:
    """Returns the accelerator of a device; for a type without a file of its own the general one."""
    type = device.type if isinstance(device, torch.device) else device.partition(":")[0]
    return ACCELERATORS.get(type) or Accelerator(type)


def automatic_type() -> str:
    """Returns the type of device that ``auto`` takes on this machine."""
    return next((type for type in _AUTOMATIC if ACCELERATORS[type].is_available()), "cpu")


def leased_accelerator() -> Accelerator:
    """Returns the accelerator whose cards `roost.devices` lists and the lab leases."""
    return ACCELERATORS[device_types.CARDS]


def empty_caches() -> None:
    """Returns unused memory of every accelerator that this process uses to its devices."""
    for one in ACCELERATORS.values():
        one.empty_cache()
