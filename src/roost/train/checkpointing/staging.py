"""Staging: the copy of a state that is written while training changes the state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from roost.base import state_tree
from roost.base.state_tree import Leaf
from roost.base.system.host_memory import available_bytes
from roost.base.text.byte_sizes import format_bytes
from roost.train.accelerators.accelerator import DeviceEvent, DeviceStream
from roost.train.accelerators.registry import accelerator_of

_ALIGNMENT = 64
_FIRST_BLOCK_BYTES, _BLOCK_BYTES = 1 << 20, 1 << 26
_MIN_FREE_RATIO = 4
"""A block is page-locked only if the host has so many times its size left: torch may take twice the size, and
the kernel cannot swap it out."""
_SHORT_COPY_BYTES = 1 << 22
"""Up to this size, copying takes less time than starting a thread."""


class StagingMemory:
    """Memory that is reused from one copy to the next: the page faults of new memory cost five times the
    copy.

    Args:
        new: Returns (num_bytes,) uint8 on the host, or more, which is used too.
    """

    def __init__(self, new: Callable[[int], Tensor]) -> None:
        self._new = new
        self._blocks: list[Tensor] = []
        self._taken: list[int] = []
        """The bytes in use at the start of each block."""

    def reset(self) -> None:
        """Frees all allocations for reuse."""
        self._taken = [0] * len(self._blocks)

    def allocate(self, num_bytes: int) -> Tensor:
        """Returns (num_bytes,) uint8, aligned for every dtype, of the first block with so much left: one may
        be much larger than the tensor for which it was made."""
        for number, block in enumerate(self._blocks):
            begin = self._taken[number]
            if begin + num_bytes <= len(block):
                self._taken[number] = begin + -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
                return block[begin : begin + num_bytes]
        held = sum(len(block) for block in self._blocks)
        size = max(num_bytes, min(_BLOCK_BYTES, max(_FIRST_BLOCK_BYTES, held)))
        self._blocks.append(self._new(size))
        self._taken.append(0)
        return self.allocate(num_bytes)


class _DeferredCopy(NamedTuple):
    """A tensor that is copied during training; it must not change before the copy is made."""

    tensor: Tensor
    version: int
    to: Tensor
    """The copy, of the same shape and dtype."""


class Staging:
    """Copies states, one at a time.

    ```
    staging.begin(defer=parameters)
    files = part_files.pack(states, leaf_of=staging.leaf)  # copies all other tensors
    staging.copy_deferred()                                # copies the deferred ones, in any thread
    staging.has_changed()                                  # in the training thread, before it changes them
    staging.wait()                                         # before the bytes are read
    ```
    """

    def __init__(self) -> None:
        self._host = StagingMemory(unpinned_memory)
        self._pinned: dict[str, StagingMemory] = {}
        """The pinned memory of each type of accelerator that copies concurrently."""
        self._has_warned = False
        self._defer: Collection[int] = ()
        self._deferred: list[_DeferredCopy] = []
        self._remaining: list[_DeferredCopy] = []
        """The deferred copies on the CPU, which `copy_deferred` makes."""
        self._streams: dict[torch.device, DeviceStream] = {}
        self._events: list[tuple[torch.device, DeviceEvent]] = []
        self._gpu_sources: list[Tensor] = []
        """The tensors from which a GPU may still be copying."""

    def begin(self, *, defer: Iterable[Tensor] = ()) -> None:
        """Begins a new copy and discards the previous one.

        Args:
            defer: Tensors that do not change before `has_changed` is called. Those on the CPU that are not
                contiguous are copied at once nevertheless.
        """
        self._host.reset()
        for memory in self._pinned.values():
            memory.reset()
        self._defer = {tensor.data_ptr() for tensor in map(_local_tensor, defer) if _may_defer(tensor)}
        self._deferred, self._remaining, self._events, self._gpu_sources = [], [], [], []

    def leaf(self, value: Any) -> Leaf:
        """Returns the leaf of a tensor or an array, whose bytes are, or will be, a copy; see
        `state_tree.make_leaf`."""
        if not isinstance(value, Tensor):
            found = state_tree.make_leaf(value)
            to = self._host.allocate(found.data.nbytes)
            _copy_bytes(to, found.data)
            return replace(found, data=_view(to))
        tensor, is_shard = state_tree.local_part(value)
        tensor = tensor.detach()
        name = state_tree.dtype_name(tensor)
        on_gpu = _copies_concurrently(tensor)
        memory = self._pinned_memory(tensor.device) if on_gpu else self._host
        to = memory.allocate(tensor.numel() * tensor.element_size())
        late = tensor.data_ptr() in self._defer and (on_gpu or tensor.is_contiguous())
        shaped = to.view(tensor.dtype).view(tensor.shape)
        if late:
            self._deferred.append(_DeferredCopy(tensor, tensor._version, shaped))
        elif on_gpu:
            shaped.copy_(tensor, non_blocking=True)  # ordered before the later kernels of this stream
            self._gpu_sources.append(tensor)
        elif tensor.is_cpu and tensor.is_contiguous() and not _is_lazy(tensor):
            _copy_bytes(to, state_tree.tensor_leaf(tensor).data)
        else:
            shaped.copy_(tensor)
        return Leaf(name, tuple(tensor.shape), _view(to), is_shard)

    def _pinned_memory(self, device: torch.device) -> StagingMemory:
        if device.type not in self._pinned:
            self._pinned[device.type] = StagingMemory(
                partial(self._page_locked_memory, accelerator_of(device).pinned_memory)
            )
        return self._pinned[device.type]

    def _page_locked_memory(self, new: Callable[[int], Tensor], num_bytes: int) -> Tensor:
        """Returns page-locked memory from ``new``; or memory that is not, if the host has little left. A copy
        from a GPU into that is right too: the call returns when it is done."""
        free = available_bytes()
        if free is None or num_bytes * _MIN_FREE_RATIO <= free:
            return new(num_bytes)
        if not self._has_warned:
            self._has_warned = True
            print(
                f"checkpoints are copied into memory that is not page-locked, for {format_bytes(num_bytes)} "
                f"are much of the {format_bytes(free)} that are left here; training waits for each copy",
                flush=True,
            )
        return unpinned_memory(num_bytes)

    def start_gpu_copies(self) -> None:
        """Starts the deferred copies of GPU tensors, on a separate stream of each GPU, concurrently with the
        next kernels of the current stream."""
        devices = {one.tensor.device for one in self._deferred if _copies_concurrently(one.tensor)}
        for device in devices:
            accelerator = accelerator_of(device)
            stream = self._streams.setdefault(device, accelerator.new_stream(device))
            stream.wait_stream(accelerator.current_stream(device))
            with accelerator.use_stream(stream):
                for one in self._deferred:
                    if one.tensor.device == device:
                        one.to.copy_(one.tensor, non_blocking=True)
                        self._gpu_sources.append(one.tensor)
                self._events.append((device, stream.record_event()))
        for device in {tensor.device for tensor in self._gpu_sources}:
            self._events.append((device, accelerator_of(device).current_stream(device).record_event()))
        self._remaining = [one for one in self._deferred if not _copies_concurrently(one.tensor)]

    @property
    def is_short(self) -> bool:
        """Whether the remaining copies on the CPU take less time than starting a thread."""
        return sum(one.to.numel() * one.to.element_size() for one in self._remaining) <= _SHORT_COPY_BYTES

    def copy_deferred(self) -> None:
        """Makes the deferred copies of CPU tensors."""
        for one in self._remaining:
            _copy_bytes(_bytes_of(one.to), state_tree.tensor_leaf(one.tensor).data)
        self._remaining = []

    def has_changed(self) -> bool:
        """Whether a deferred tensor was changed since `begin`; the copy is torn then. Called by the thread
        that changes the tensors, because torch counts a change only after it was made."""
        return any(one.tensor._version != one.version for one in self._deferred)

    def order_after_copies(self) -> None:
        """Orders the later kernels of the GPUs after their copies; does not block."""
        for device, event in self._events:
            event.wait(accelerator_of(device).current_stream(device))

    def wait(self) -> None:
        """Waits until the GPUs have copied; called before the bytes are read."""
        for device, event in self._events:
            with accelerator_of(device).use_device(device):  # mostly called by a thread of its own
                event.synchronize()
        self._deferred, self._gpu_sources = [], []  # frees tensors that training has replaced meanwhile


def _local_tensor(tensor: Tensor) -> Tensor:
    own: Tensor = state_tree.local_part(tensor)[0]
    return own


def unpinned_memory(num_bytes: int) -> Tensor:
    """Returns (num_bytes,) uint8."""
    return torch.empty(num_bytes, dtype=torch.uint8)


def _copies_concurrently(tensor: Tensor) -> bool:
    return accelerator_of(tensor.device).copies_concurrently


def _may_defer(tensor: Tensor) -> bool:
    if tensor.layout is not torch.strided or not (tensor.is_cpu or _copies_concurrently(tensor)):
        return False
    return bool(tensor.numel()) and not tensor.is_inference() and not _is_lazy(tensor)


def _is_lazy(tensor: Tensor) -> bool:
    return tensor.is_conj() or tensor.is_neg()


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _copy_bytes(to: Tensor, data: memoryview[Any]) -> None:
    # Not by torch, which would create its thread pool again for each thread that copies. NumPy releases the
    # interpreter lock.
    np.copyto(to.numpy(), np.asarray(data))


def _view(tensor: Tensor) -> memoryview[Any]:
    return tensor.numpy().data if tensor.numel() else memoryview(b"")
