"""Replicas of the model: broadcasts of rank 0's weights and buffers to all ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from roost.train.distributed.ranks import Ranks


class BufferSync:
    """Synchronizes the persistent buffers of a module with those of rank 0.

    Each rank trains on other samples, so its running statistics differ. As in torch's
    DistributedDataParallel, those of rank 0 are used.

    Args:
        module: The module with the buffers.
        ranks: The ranks that train it.
    """

    def __init__(self, module: nn.Module, ranks: Ranks) -> None:
        self._ranks = ranks
        self._owners = [
            (part._buffers, name)
            for part in module.modules()
            for name in part._buffers
            if name not in part._non_persistent_buffers_set
        ]

    def synchronize(self) -> None:
        """Copies rank 0's buffers to all ranks; all ranks call it after each step."""
        found = [buffer for buffers, name in self._owners if (buffer := buffers.get(name)) is not None]
        broadcast_tensors(found, self._ranks, "the buffers of a step")


def broadcast_tensors(tensors: Sequence[Tensor], ranks: Ranks, at: str) -> None:
    """Copies rank 0's values into tensors of the same shape and dtype on all ranks.

    Args:
        tensors: On any devices, the same devices on all ranks.
        ranks: The ranks; all of them must call this.
        at: Name of the synchronization point, as in `ControlChannel.exchange`.

    Raises:
        RuntimeError: Another rank has ended, or the timeout passed.
        RanksApart: Another rank waits at another synchronization point.
    """
    by_device: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            by_device.setdefault(tensor.device, []).append(tensor)
    with torch.no_grad():
        for device, ones in by_device.items():
            flat = torch.cat([one.detach().contiguous().reshape(-1).view(torch.uint8) for one in ones])
            if device.type == "cpu" and dist.get_backend() != "gloo":  # NCCL has no CPU tensors
                ranks.control.fill(flat, at)
            else:
                dist.broadcast(flat, 0)
            sizes = [one.numel() * one.element_size() for one in ones]
            for one, part in zip(ones, torch.split(flat, sizes), strict=True):
                # The clone is aligned for its dtype; a part of ``flat`` need not be.
                one.copy_(part.clone().view(one.dtype).reshape(one.shape))


def broadcast_module(module: nn.Module, ranks: Ranks) -> None:
    """Copies the weights and buffers of rank 0 to all ranks, so that all begin alike."""
    broadcast_tensors([*module.parameters(), *module.buffers()], ranks, "the start")
