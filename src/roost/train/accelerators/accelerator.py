"""The questions about a type of device, and the answers for a type that has no file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from roost.train.accelerators.device_errors import is_device_error


class DeviceEvent(Protocol):
    """A point in the work of a stream."""

    def record(self, stream: Any) -> None:
        """Enqueues the event: it completes when all earlier work of the stream is done."""

    def wait(self, stream: Any) -> None:
        """Makes the later work of the stream wait for the event; the host does not wait."""

    def synchronize(self) -> None:
        """Waits until the event has completed."""

    def elapsed_time(self, end: Any) -> float:
        """Returns the milliseconds from this event to ``end``; both must be timed."""


class DeviceStream(Protocol):
    """A queue of work of a device."""

    def wait_stream(self, stream: Any) -> None:
        """Makes the later work of this stream wait for the work that another one has now."""

    def record_event(self) -> DeviceEvent:
        """Returns a new event, recorded in this stream."""


class Accelerator:
    """A type of device of torch. A subclass for each type overrides what differs.

    This class answers by `torch.accelerator`, and by the type's own module (``torch.xpu``) where this torch
    has no such function. It promises nothing that a device could do wrong silently: copies wait, the host
    measures the time, and nothing is fused.

    Args:
        type: The type, as in `torch.device.type`.
        label: The name of the type in messages.
    """

    copies_concurrently = False
    """Whether copies between the host and the device run concurrently with both, from and into pinned memory,
    ordered by streams and events."""
    times_events = False
    """Whether events measure the time between them."""
    reports_memory = False
    """Whether torch's allocator counts the memory of each device."""
    has_float64 = True
    """Whether it computes with float64."""
    always_has_fp16 = False
    """Whether every device of this type computes with float16."""
    is_nondeterministic = False
    """Whether torch's default algorithms give other bits each time, whatever the number of threads."""
    collective_backend = "gloo"
    """The backend of torch.distributed for tensors on these devices."""

    def __init__(self, type: str, label: str = "") -> None:
        self.type, self.label = type, label or type

    def _module(self) -> Any:
        """Returns torch's module for this type, such as ``torch.xpu``; None for a type like ``meta``."""
        try:
            return torch.get_device_module(self.type)
        except RuntimeError:
            return None

    def _ask(self, general: str, own: str, *arguments: Any) -> Any:
        """Calls ``torch.accelerator.<general>``; or ``own`` of the type's module, if this torch has no such
        function, or if another type is the accelerator of this process."""
        # torch 2.6 raises where there is no accelerator; later ones return None.
        current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        is_current = current is not None and current.type == self.type
        function = getattr(torch.accelerator, general, None) if is_current else None
        return (function or getattr(self._module(), own))(*arguments)

    # ---- the devices of this machine --------------------------------------------------------------------

    def is_available(self) -> bool:
        """Whether this torch can use such a device here."""
        module = self._module()
        return module is not None and bool(module.is_available())

    def is_initialized(self) -> bool:
        """Whether this process uses the type already. Most other questions create a context on a device,
        which takes some of its memory."""
        module = self._module()
        return module is not None and bool(getattr(module, "is_initialized", module.is_available)())

    def count(self) -> int:
        """Returns the number of devices that this process may use."""
        return int(self._ask("device_count", "device_count"))

    def current_index(self) -> int:
        """Returns the number of the current device."""
        return int(self._ask("current_device_index", "current_device"))

    def set_current(self, device: torch.device) -> None:
        """Makes a device the current one of this thread; without a number it is that already."""
        if device.index is not None:
            self._ask("set_device_index", "set_device", device)

    def use_device(self, device: torch.device) -> AbstractContextManager[object]:
        """Returns a context in which a device is the current one. A new thread needs it for each call of the
        runtime: its current device is 0, and the call would create a context there."""
        context: AbstractContextManager[object] = self._module().device(device)
        return context

    def why_unusable(self, device: torch.device) -> str | None:
        """Returns why a device cannot be used here, or None; torch itself refuses what it does not know."""
        if self._module() is None:
            return None
        if not self.is_available():
            return self.why_unavailable()
        count = self.count()
        return f"the number of GPUs here is {count}, counted from 0" if (device.index or 0) >= count else None

    def why_unavailable(self) -> str:
        """Returns why there is no such device here."""
        return f"this machine has no {self.type}"

    def name_for_rank(self, local_rank: int) -> str:
        """Returns the name of the device of a rank among those of this machine."""
        return f"{self.type}:{local_rank}"

    def model(self, device: torch.device | str) -> str | None:
        """Returns the model of a device; None if torch does not know it."""
        return None

    def uuid(self, index: int) -> str | None:
        """Returns the UUID of a device, without a prefix; None if torch does not know it."""
        return None

    def properties(self) -> list[dict[str, Any]]:
        """Returns name, memory in MB, capability and UUID of each device, as far as torch knows them."""
        return []

    def versions(self) -> dict[str, Any]:
        """Returns the versions of the libraries that compute, for ``environment.json``."""
        return {}

    def numeric_flags(self) -> dict[str, Any]:
        """Returns torch's settings that change bits on this type, for ``environment.json``."""
        return {"matmul_precision": float32_precision(getattr(torch.backends.mkldnn, "matmul", None))}

    def inexact_reasons(self, module: nn.Module) -> list[str]:
        """Returns why a run with this module does not continue with the same bits on this type, whatever the
        settings."""
        devices = {one.device for one in module.parameters() if one.device.type == self.type}
        return (
            ["a model on several devices: checkpoints hold one's random generator"]
            if len(devices) > 1
            else []
        )

    # ---- random numbers ---------------------------------------------------------------------------------

    def generators(self) -> Sequence[torch.Generator]:
        """Returns the generator of each device, in the order of their numbers; empty if torch has none, or
        before the type is in use. Their states are on the host: to read or set one neither waits for the
        device nor creates a context on it."""
        return ()

    def generator(self) -> torch.Generator | None:
        """Returns the generator of the current device, or None."""
        found = self.generators()
        return found[self.current_index()] if found else None

    # ---- work -------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Waits for all work of the current device."""
        self._ask("synchronize", "synchronize")

    def current_stream(self, device: torch.device) -> DeviceStream:
        """Returns the stream into which torch now puts the work of a device."""
        stream: DeviceStream = self._ask("current_stream", "current_stream", device)
        return stream

    def new_stream(self, device: torch.device) -> DeviceStream:
        """Returns another stream of a device."""
        stream: DeviceStream = self._module().Stream(device)
        return stream

    def use_stream(self, stream: DeviceStream) -> AbstractContextManager[object]:
        """Returns a context in which torch puts its work into the stream."""
        context: AbstractContextManager[object] = self._module().stream(stream)
        return context

    def timed_event(self) -> DeviceEvent:
        """Returns a new event for `DeviceEvent.elapsed_time`."""
        event: DeviceEvent = self._module().Event(enable_timing=True)
        return event

    def pinned_memory(self, num_bytes: int) -> Tensor:
        """Returns (num_bytes,) uint8 or more on the host, into which a device can copy asynchronously.
        Torch's allocator of such memory takes powers of two: all that it takes is returned."""
        return torch.empty(1 << (num_bytes - 1).bit_length(), dtype=torch.uint8, pin_memory=True)

    def profiler_activity(self) -> torch.profiler.ProfilerActivity | None:
        """Returns the activity by which torch's profiler traces the device itself, or None."""
        return None

    # ---- memory of device ``index``, in bytes, where `reports_memory` is true ---------------------------

    def reserved_bytes(self, index: int) -> int:
        """Returns the memory that the allocator holds now, its cache included."""
        return int(self._ask("memory_reserved", "memory_reserved", index))

    def peak_reserved_bytes(self, index: int) -> int:
        """Returns the most that the allocator held since `reset_peaks`."""
        return int(self._ask("max_memory_reserved", "max_memory_reserved", index))

    def peak_allocated_bytes(self, index: int) -> int:
        """Returns the most that tensors took since `reset_peaks`."""
        return int(self._ask("max_memory_allocated", "max_memory_allocated", index))

    def reset_peaks(self, index: int) -> None:
        """Makes both peaks start from the memory of now."""
        self._ask("reset_peak_memory_stats", "reset_peak_memory_stats", index)

    def out_of_memory_count(self, index: int) -> int:
        """Returns how often the allocator has failed."""
        return int(self._ask("memory_stats", "memory_stats", index).get("num_ooms", 0))

    def free_and_total_bytes(self, index: int) -> tuple[int, int]:
        """Returns the free memory of the device, all its users counted, and its total memory; creates a
        context."""
        free, total = self._ask("get_memory_info", "mem_get_info", index)
        return int(free), int(total)

    def total_bytes(self, index: int) -> int:
        """Returns the total memory of the device as torch's fractions count it."""
        return int(self._module().get_device_properties(index).total_memory)

    def limit_memory(self, fraction: float, index: int) -> None:
        """Limits the allocator to a fraction of the device's memory."""
        self._module().set_per_process_memory_fraction(fraction, index)

    def empty_cache(self) -> None:
        """Returns the allocator's unused memory to the devices, if this process uses any."""
        if self.is_initialized():
            self._ask("empty_cache", "empty_cache")

    # ---- numbers ----------------------------------------------------------------------------------------

    def autocast(self, dtype: torch.dtype) -> AbstractContextManager[object]:
        """Returns torch's autocast to a dtype; can be entered repeatedly."""
        return torch.autocast(self.type, dtype)

    def grad_scaler(self) -> torch.amp.GradScaler:
        """Returns a new scaler of losses for fp16."""
        return torch.amp.GradScaler(self.type)

    def computes_with(self, dtype: torch.dtype, device: torch.device) -> bool:
        """Whether autocast computes matrix products of this dtype on a device."""
        try:
            one = torch.ones(8, 8, device=device)
            with self.autocast(dtype):
                return (one @ one).dtype is dtype
        except RuntimeError as error:
            if is_device_error(error):
                raise
            return False

    def has_fused(self, optimizer: str) -> bool:
        """Whether torch has a fused kernel of an optimizer, and from 2.6 on, for this type.

        Args:
            optimizer: The path of a class of torch.optim that accepts ``fused``.
        """
        return False


def float32_precision(backend: Any) -> str | None:
    """Returns the float32 precision of a backend of torch. Reads the new attribute if torch has it (2.9):
    reading the old one after the new one was set is an error."""
    new: str | None = getattr(backend, "fp32_precision", None)
    if new is not None or backend is None:
        return new
    return "tf32" if backend.allow_tf32 else "ieee"
