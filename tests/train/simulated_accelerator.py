"""An accelerator of a made-up kind: its tensors lie in the memory of the host, its streams are queues.

It is as unfriendly as a device may be. The stream of the computation runs at once, as far as it need not wait
for another one; every other stream runs only when the host waits for it. So a copy whose order is not given
by streams and events takes place too late, and has wrong bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from roost.train.accelerators import registry
from roost.train.accelerators.accelerator import Accelerator

DEVICE = torch.device("hpu", 0)
"""A type that torch knows by name, and that no machine of ours has."""


class SimulatedStream:
    """A queue of work; ``done`` of it is finished."""

    def __init__(self, of: SimulatedAccelerator, name: str) -> None:
        self.of, self.name, self.is_eager = of, name, name == "main"
        self.work: list[tuple[float, Callable[[], object] | SimulatedEvent]] = []
        self.done, self.ms = 0, 0.0

    def put(self, work: Callable[[], object] | SimulatedEvent, ms: float = 0.0) -> None:
        self.work.append((ms, work))
        while self.is_eager and self._advance(forced=False):
            pass

    def run_until(self, end: int) -> None:
        while self.done < end:
            self._advance(forced=True)

    def _advance(self, *, forced: bool) -> bool:
        """Does the next thing; returns False if there is none, or if it must wait and is not forced."""
        if self.done == len(self.work):
            return False
        ms, next_one = self.work[self.done]
        if not isinstance(next_one, SimulatedEvent):
            next_one()
        elif next_one.is_pending and not forced:
            return False
        elif next_one.is_pending:
            next_one.complete()
        self.done, self.ms = self.done + 1, self.ms + ms
        return True

    def wait_stream(self, stream: SimulatedStream) -> None:
        self.of.calls.append(f"{self.name} waits for {stream.name}")
        self.put(SimulatedEvent(self.of)._placed(stream))

    def record_event(self) -> SimulatedEvent:
        event = SimulatedEvent(self.of)
        event.record(self)
        return event


class SimulatedEvent:
    """A place in a stream."""

    def __init__(self, of: SimulatedAccelerator) -> None:
        self.of = of

    def _placed(self, stream: SimulatedStream) -> SimulatedEvent:
        self.stream = stream
        stream.put(self._note_time)
        self.end = len(stream.work)
        return self

    def _note_time(self) -> None:
        self.ms = self.stream.ms

    @property
    def is_pending(self) -> bool:
        return self.stream.done < self.end

    def complete(self) -> None:
        self.stream.run_until(self.end)

    def record(self, stream: SimulatedStream) -> None:
        self.of.calls.append(f"record in {stream.name}")
        self._placed(stream)

    def wait(self, stream: SimulatedStream) -> None:
        self.of.calls.append(f"{stream.name} waits for an event of {self.stream.name}")
        stream.put(self)

    def synchronize(self) -> None:
        self.of.calls.append(f"the host waits for an event of {self.stream.name}")
        self.complete()

    def elapsed_time(self, end: SimulatedEvent) -> float:
        assert not self.is_pending and not end.is_pending, "read before it has taken place"
        return end.ms - self.ms


class SimulatedAccelerator(Accelerator):
    """The one device; `calls` are the requests to it in their order."""

    copies_concurrently = True
    times_events = True
    reports_memory = True

    def __init__(self) -> None:
        super().__init__(DEVICE.type, "SIM")
        self.calls: list[str] = []
        self.main = SimulatedStream(self, "main")
        self.current = self.main
        self.streams = [self.main]
        self.is_used = True
        self.random, self.other_random = torch.Generator(), torch.Generator()
        """The generators of the current device, and of one that this process does not train on."""
        self.reserved = self.peak = self.peak_allocated = 0

    def put_in_place(self, patch: pytest.MonkeyPatch) -> None:
        patch.setitem(registry.ACCELERATORS, DEVICE.type, self)

    def launch(self, kernel: Callable[[], object], ms: float = 0.0) -> None:
        """Puts a kernel into the current stream; returns at once."""
        self.calls.append(f"kernel in {self.current.name}")
        self.current.put(kernel, ms)

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return self.is_used

    def count(self) -> int:
        return 1

    def current_index(self) -> int:
        return 0

    def set_current(self, device: torch.device) -> None:
        self.calls.append(f"current device {device}")

    @contextmanager
    def use_device(self, device: torch.device) -> Iterator[None]:
        self.calls.append(f"current device {device} for a while")
        yield

    def generators(self) -> Sequence[torch.Generator]:
        self.calls.append("read the generators")
        return self.random, self.other_random

    def synchronize(self) -> None:
        self.calls.append("the host waits for everything")
        for stream in self.streams:
            stream.run_until(len(stream.work))

    def current_stream(self, device: torch.device) -> Any:
        assert device == DEVICE
        return self.current

    def new_stream(self, device: torch.device) -> Any:
        self.streams.append(SimulatedStream(self, f"side {len(self.streams)}"))
        return self.streams[-1]

    @contextmanager
    def use_stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    def timed_event(self) -> Any:
        return SimulatedEvent(self)

    def pinned_memory(self, num_bytes: int) -> Tensor:
        self.calls.append(f"pin {num_bytes} bytes")
        return torch.full((num_bytes,), 0xAA, dtype=torch.uint8)

    def reserved_bytes(self, index: int) -> int:
        return self.reserved

    def peak_reserved_bytes(self, index: int) -> int:
        return self.peak

    def peak_allocated_bytes(self, index: int) -> int:
        return self.peak_allocated

    def reset_peaks(self, index: int) -> None:
        self.calls.append("reset the peaks")
        self.peak, self.peak_allocated = self.reserved, 0

    def empty_cache(self) -> None:
        self.calls.append("empty the cache")


class SimulatedTensor(Tensor):
    """A tensor on that device. An asynchronous copy of it goes into the current stream."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return DEVICE

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not Tensor.copy_:
            return super().__torch_function__(func, types, args, kwargs)
        to, source = (one.as_subclass(Tensor) for one in args)
        device: Any = registry.accelerator_of(DEVICE)
        device.calls.append(f"copy in {device.current.name}")
        assert (kwargs or {}) == {"non_blocking": True}, "a copy that waits"
        device.current.put(lambda: to.copy_(source))
        return args[0]


def on_device(value: Tensor) -> SimulatedTensor:
    """The same memory, as a tensor of the device."""
    return value.as_subclass(SimulatedTensor)
