"""Tensors of which each rank holds only some rows: torch's DTensor, sharded along the first dimension.

In runs without sharding, torch's modules for it are never imported.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def is_sharded(tensor: object) -> bool:
    """Whether this is a tensor of which other ranks hold the remaining rows."""
    home = sys.modules.get("torch.distributed.tensor")  # 0.4 s to import; imported if a DTensor exists
    return home is not None and isinstance(tensor, home.DTensor)


def local_shard(tensor: Tensor) -> Tensor:
    """The rows that this rank holds, in the same memory; the whole tensor if it is not sharded."""
    return tensor.detach().to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def any_sharded(tensors: Iterable[object]) -> bool:
    """Whether one of the tensors is sharded."""
    home = sys.modules.get("torch.distributed.tensor")
    return home is not None and any(isinstance(tensor, home.DTensor) for tensor in tensors)


def full_tensor(tensor: Tensor) -> Tensor:
    """All rows, those of the other ranks included; a collective, so all ranks must call it together."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def shard_like(value: Any, own: Any) -> Any:
    """Shards a whole tensor as ``own`` is, on its device; returns ``value`` itself if ``own`` is not sharded
    or has another shape. No communication: each rank has the whole tensor and takes its rows."""
    if not is_sharded(own) or is_sharded(value) or getattr(value, "shape", None) != own.shape:
        return value
    mesh, rows = own.device_mesh, local_shard(own).shape[0]
    begin = min(mesh.get_local_rank() * -(-len(value) // mesh.size()), len(value))  # as torch.chunk does
    part = value[begin : begin + rows]
    return type(own.data).from_local(
        part.to(own.device, copy=True, memory_format=torch.contiguous_format),
        mesh,
        own.placements,
        run_check=False,
        shape=own.shape,
        stride=own.stride(),
    )


def unsharded_class(module: nn.Module) -> type[nn.Module]:
    """The module's class as the project defined it: FSDP2 replaces the class of a module it wraps."""
    home = sys.modules.get("torch.distributed.fsdp")
    own = type(module)
    return own.__mro__[2] if home is not None and isinstance(module, home.FSDPModule) else own


def total_norm(tensors: Sequence[Tensor], kind: float) -> Tensor:
    """() the norm of all rows of all tensors together, the same on all ranks. A collective, so all ranks must
    call it together; no sync with the device.

    Args:
        tensors: At least one of them is sharded.
        kind: p of the norm.
    """
    found = _powers(tensors, kind)
    total = found.max() if kind == math.inf else found.sum().pow(1 / kind)
    return total.to(max((one.dtype for one in tensors), key=lambda one: one.itemsize))


def norms(tensors: Sequence[Tensor], kind: float = 2.0) -> list[Tensor]:
    """() the norm of each tensor in float64; otherwise as `total_norm`."""
    found = _powers(tensors, kind)
    return list(found if kind == math.inf else found.pow(1 / kind))


def _powers(tensors: Sequence[Tensor], kind: float) -> Tensor:
    """(tensors,) the sum of |x|^p over all rows of each tensor, or the greatest |x|: values that an
    all-reduce can combine. In float64, which can hold the square of any float32."""
    shards = [local_shard(one) for one in tensors]
    like: Any = next(one for one in tensors if is_sharded(one))
    # Neither an index nor a mask of the host is copied to the device, which would wait for it in each step.
    nothing = torch.zeros((), dtype=torch.float64, device=like.device)
    filled = [shard for shard in shards if shard.numel()]  # the last ranks may hold nothing
    parts = iter(torch._foreach_norm(filled, kind) if filled else ())
    own = torch.stack([next(parts).to(nothing) if shard.numel() else nothing for shard in shards])
    group = like.device_mesh.get_group()
    if kind == math.inf:
        # Gloo's maximum may drop a NaN.
        joined = torch.stack([own.nan_to_num(0.0, posinf=math.inf), own.isnan().to(own)])
        dist.all_reduce(joined, op=dist.ReduceOp.MAX, group=group)
        return torch.where(joined[1] > 0, math.nan, joined[0])
    powers = own.pow(kind)
    joined = powers.clone()
    dist.all_reduce(joined, group=group)
    are_sharded = [is_sharded(one) for one in tensors]
    if all(are_sharded):
        return joined
    # Tensors that are not sharded are equal on every rank.
    return torch.stack([(joined if one else powers)[place] for place, one in enumerate(are_sharded)])
