"""One model on every rank: the tensors of rank 0, on all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from roost.train.distributed.ranks import Ranks


class BufferSync:
    """The buffers of a module that its state_dict has, brought to what they are on rank 0.

    Each rank has seen other samples, and so has other running statistics; as in torch's
    DistributedDataParallel those of rank 0 count.

    Args:
        module: Has them.
        ranks: Who trains it together.
    """

    def __init__(self, module: nn.Module, ranks: Ranks) -> None:
        self._ranks = ranks
        self._owners = [
            (part._buffers, name)
            for part in module.modules()
            for name in part._buffers
            if name not in part._non_persistent_buffers_set
        ]

    def spread(self) -> None:
        """Called by all ranks after each step."""
        found = [buffer for buffers, name in self._owners if (buffer := buffers.get(name)) is not None]
        broadcast_tensors(found, self._ranks, "the buffers of a step")


def broadcast_tensors(tensors: Sequence[Tensor], ranks: Ranks, at: str) -> None:
    """Puts into these tensors, of one shape and type on all ranks, what rank 0 has in them.

    Args:
        tensors: On any devices, the same on all ranks.
        ranks: Who calls this together.
        at: As in `Channel.exchange`.

    Raises:
        RuntimeError: Another rank is gone, or did not come in time.
        RanksApart: Another rank is at another place.
    """
    alike: dict[torch.device, list[Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            alike.setdefault(tensor.device, []).append(tensor)
    with torch.no_grad():
        for device, ones in alike.items():
            flat = torch.cat([one.detach().contiguous().reshape(-1).view(torch.uint8) for one in ones])
            if device.type == "cpu" and dist.get_backend() != "gloo":  # NCCL takes nothing from the CPU
                ranks.control.fill(flat, at)
            else:
                dist.broadcast(flat, 0)
            sizes = [one.numel() * one.element_size() for one in ones]
            for one, part in zip(ones, torch.split(flat, sizes), strict=True):
                # A copy begins at an address that its type may have.
                one.copy_(part.clone().view(one.dtype).reshape(one.shape))


def broadcast_module(module: nn.Module, ranks: Ranks) -> None:
    """Has every rank begin with the weights and buffers of rank 0, whatever its own code has drawn."""
    broadcast_tensors([*module.parameters(), *module.buffers()], ranks, "the start")
