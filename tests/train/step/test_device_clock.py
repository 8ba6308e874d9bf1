"""Device time of the parts of a step: the bookkeeping on any machine, the times on a GPU."""

from __future__ import annotations

import functools

import pytest
import torch

from roost.train.step.device_clock import DeviceClock
from roost.train.step.timing import BACKWARD, DATA, FORWARD, OPTIMIZER, PARTS


class Stream:
    """A device whose clock is turned by hand."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.made = 0
        self.waited_for: list[float] = []

    def event(self) -> Mark:
        self.made += 1
        return Mark()


class Mark:
    """An event of such a device."""

    stream: Stream
    ms: float

    def record(self, stream: Stream) -> None:
        self.stream, self.ms = stream, stream.ms

    def elapsed_time(self, end: Mark) -> float:
        return end.ms - self.ms

    def synchronize(self) -> None:
        self.stream.waited_for.append(self.ms)


def made() -> tuple[DeviceClock, Stream]:
    stream = Stream()
    return DeviceClock(stream.event, lambda: stream), stream


def step(clock: DeviceClock, stream: Stream, **parts: float) -> None:
    """A step of these parts, in ms; then 100 ms of something else."""
    clock.begin()
    for name, ms in parts.items():
        stream.ms += ms
        clock.record({"data": DATA, "forward": FORWARD, "backward": BACKWARD}[name])
    stream.ms += 100.0


def test_what_lies_between_two_records_belongs_to_the_second() -> None:
    clock, stream = made()
    step(clock, stream, data=1.0, forward=2.0, backward=4.0)
    step(clock, stream, forward=8.0)
    steps, seconds = clock.read(len(PARTS))
    assert steps == 2 and seconds == [0.001, 0.0, 0.01, 0.004, 0.0, 0.0, 0.0]
    assert stream.waited_for == [115.0], "once, for the last event"
    assert clock.read(len(PARTS)) == (0, [0.0] * len(PARTS))


def test_only_the_first_steps_are_measured_and_events_are_used_again() -> None:
    clock, stream = made()
    for _ in range(3):
        for _ in range(1000):
            step(clock, stream, data=1.0)
        steps, seconds = clock.read(len(PARTS))
        assert steps == 64 and seconds[DATA] == pytest.approx(0.064)
    assert stream.made == 128


def test_a_step_of_many_batches_is_measured_and_the_last_one() -> None:
    clock, stream = made()
    for _ in range(2):
        clock.begin()
        for _ in range(3000):
            stream.ms += 1.0
            clock.record(FORWARD)
    steps, seconds = clock.read(len(PARTS))
    assert steps == 1 and seconds[FORWARD] == pytest.approx(3.0) and stream.made == 3001


def test_without_a_step_nothing_is_recorded() -> None:
    clock, stream = made()
    clock.record(OPTIMIZER)
    assert clock.read(len(PARTS))[0] == 0 and stream.made == 0
    step(clock, stream, data=1.0)
    clock.read(len(PARTS))
    clock.record(OPTIMIZER)
    assert clock.read(len(PARTS)) == (0, [0.0] * len(PARTS)), "the step was read"


@pytest.mark.needs_gpu
def test_on_a_gpu() -> None:
    clock = DeviceClock(functools.partial(torch.cuda.Event, enable_timing=True), torch.cuda.current_stream)
    matrix = torch.randn(4096, 4096, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            clock.begin()
            clock.record(DATA)
            for _ in range(10):
                matrix = (matrix @ matrix).clamp(-1, 1)
            clock.record(FORWARD)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    steps, seconds = clock.read(len(PARTS))
    assert steps == 3 and seconds[FORWARD] > 10 * seconds[DATA] > 0
