"""What the parts of a step take, as columns of a row and over a session."""

from __future__ import annotations

import mmap
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
import torch

from roost.package import records
from roost.package.results.time_breakdown import PARTS, STEP_PARTS
from roost.train.hooks import Records
from roost.train.step.device_clock import DeviceClock
from roost.train.step.stepper import Stepper
from roost.train.step.timing import (
    BACKWARD,
    DATA,
    FORWARD,
    OPTIMIZER,
    SAVE,
    TO_DEVICE,
    VALIDATE,
    Timing,
    resident_mb,
)
from tests.train.parts import MLP, Still, built, plain
from tests.train.step.test_device_clock import Stream, step


def spend(timing: Timing, **parts: float) -> None:
    """As the loop and the stepper do it."""
    for name, seconds in parts.items():
        timing.spent[PARTS.index(name.replace("_", " "))] += seconds


def begun(step: int = 0, samples: int = 0, now: float = 100.0) -> Timing:
    timing = Timing()
    timing.begin(step, samples, now)
    return timing


def test_the_parts_have_their_places() -> None:
    places = [DATA, TO_DEVICE, FORWARD, BACKWARD, OPTIMIZER, VALIDATE, SAVE]
    assert [PARTS[place].replace(" ", "_").upper() for place in places] == [
        "DATA", "TO_DEVICE", "FORWARD", "BACKWARD", "OPTIMIZER", "VALIDATE", "SAVE"
    ]  # fmt: skip


def test_a_row() -> None:
    timing = begun(10, 160)
    spend(timing, data=0.1, to_device=0.02, forward=0.3, backward=0.4, optimizer=0.08)
    row = timing.row(20, 320, 101.0)
    assert row.pop("perf/host_mb") > 10
    assert row == {
        "perf/data_ms": 10.0,
        "perf/to_device_ms": 2.0,
        "perf/forward_ms": 30.0,
        "perf/backward_ms": 40.0,
        "perf/optimizer_ms": 8.0,
        "perf/other_ms": 10.0,
        "perf/samples_per_second": 160.0,
    }


def test_a_row_covers_the_steps_since_the_previous_one() -> None:
    timing = begun()
    spent = timing.spent
    spend(timing, forward=0.5, validate=1.0, save=2.0)
    first = timing.row(5, 50, 105.0)
    assert (first["perf/validate_s"], first["perf/save_s"]) == (1.0, 2.0)
    assert first["perf/samples_per_second"] == 25.0, "validating and saving is no training"
    assert first["perf/other_ms"] == 300.0
    assert timing.spent is spent and spent == [0.0] * len(PARTS), "references to the list stay valid"
    second = timing.row(6, 60, 106.0)
    assert second.keys() == first.keys() - {"perf/validate_s", "perf/save_s"}
    assert second["perf/forward_ms"] == 0.0 and second["perf/other_ms"] == 1000.0


def test_a_row_without_a_step() -> None:
    """What a stop had cut short is done first by the session that goes on."""
    timing = begun(7, 26)
    spend(timing, validate=0.5)
    assert timing.row(7, 26, 101.0).keys() == {"perf/validate_s", "perf/host_mb"}


def test_all_so_far() -> None:
    timing = begun(10, 100)
    spend(timing, data=0.25, save=0.5)
    timing.row(12, 120, 101.0)
    spend(timing, data=0.25, validate=0.125)
    span = timing.session_span(13, 130, 102.0)
    assert (span.seconds, span.steps, span.samples) == (2.0, 3, 30)
    assert {part: seconds for part, seconds in span.parts.items() if seconds} == {
        "data": 0.5,
        "validate": 0.125,
        "save": 0.5,
    }
    assert span.host_mb > 10 and span.gpu_mb == 0.0
    assert timing.row(13, 130, 102.0)["perf/data_ms"] == 250.0, "to look changes nothing"
    timing.begin(13, 130, 103.0)
    assert timing.session_span(13, 130, 103.0).parts == dict.fromkeys(PARTS, 0.0)


def test_steps_that_a_rollback_took_back_have_taken_their_time() -> None:
    timing = begun()
    timing.row(10, 100, 101.0)
    spend(timing, forward=0.6)  # six steps, to 16; then back to 8, and on to 12
    timing.roll_back(8, 80)
    row = timing.row(12, 120, 103.0)
    assert row["perf/forward_ms"] == 60.0 and row["perf/samples_per_second"] == 50.0
    assert timing.session_span(12, 120, 103.0).steps == 20


def on_a_device(now: float = 100.0) -> tuple[Timing, DeviceClock, Stream]:
    stream = Stream()
    timing, clock = Timing(), DeviceClock(stream.event, lambda: stream)
    timing.device = clock
    timing.begin(0, 0, now)
    return timing, clock, stream


def test_the_device_measures_the_step_and_the_host_the_rest() -> None:
    timing, clock, stream = on_a_device()
    for _ in range(100):
        step(clock, stream, data=1.0, forward=2.0, backward=4.0)
    spend(timing, forward=0.001, validate=0.2)
    row = timing.row(100, 1000, 102.0)
    assert (row["perf/data_ms"], row["perf/forward_ms"], row["perf/backward_ms"]) == (1.0, 2.0, 4.0)
    assert row["perf/validate_s"] == 0.2 and row["perf/other_ms"] == 11.0


def test_steps_of_a_device_that_no_row_holds_yet_are_like_those_before() -> None:
    timing, clock, stream = on_a_device()
    spend(timing, forward=0.001)
    assert timing.session_span(1, 1, 101.0).parts["forward"] == 0.001, "nothing is known of it yet"
    for _ in range(10):
        step(clock, stream, forward=2.0)
    timing.row(10, 100, 101.0)
    waits = len(stream.waited_for)
    step(clock, stream, forward=50.0)
    assert timing.session_span(20, 200, 102.0).parts["forward"] == pytest.approx(0.04)
    assert len(stream.waited_for) == waits, "to look does not wait"


class Stamp:
    """An event of a device that is no other than the host."""

    def record(self, stream: None) -> None:
        self.at = perf_counter()

    def elapsed_time(self, end: Stamp) -> float:
        return (end.at - self.at) * 1000

    def synchronize(self) -> None:
        """It has taken place."""


@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_trainer_calls_the_clock_of_a_device(accumulation: int, tmp_path: Path) -> None:
    runner = built(MLP)
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), accumulation=accumulation)
    stepper.timing.device = DeviceClock(Stamp, lambda: None)
    begun = perf_counter()
    plain(runner, Still(), [Records(tmp_path, 3)], until="2ep", stepper=stepper).fit()
    seconds = perf_counter() - begun
    steps = -(-7 // accumulation) * 2
    span = stepper.timing.session_span(steps, 52)
    assert stepper.timing.device.read(len(PARTS))[0] == 0, "each row has read its own"
    assert all(span.parts[part] > 0 for part in STEP_PARTS)
    assert sum(span.parts[part] for part in STEP_PARTS) < seconds
    rows = records.fold(tmp_path).perf["perf/forward_ms"]
    assert rows[0] == [*range(3, steps + 1, 3), *([steps] if steps % 3 else [])] and min(rows[1]) > 0


def fresh_memory() -> mmap.mmap:
    """64 MB that the process did not have: what it gave free before may come again from elsewhere."""
    made = mmap.mmap(-1, 64 * 2**20)
    np.frombuffer(made, dtype=np.uint8)[:] = 1
    return made


def test_the_memory_is_looked_at_once_a_second() -> None:
    timing = begun()
    first = timing.row(1, 1, 100.1)["perf/host_mb"]
    kept = fresh_memory()
    assert timing.row(2, 2, 101.0)["perf/host_mb"] == first
    assert timing.row(3, 3, 101.2)["perf/host_mb"] > first + 32
    del kept


def test_memory_is_what_the_process_has(tmp_path: Path) -> None:
    before = resident_mb()
    kept = fresh_memory()
    assert 32 < resident_mb() - before < 128
    del kept
    assert resident_mb(tmp_path / "none") >= before, "without a current value, the peak"


@pytest.mark.needs_gpu
def test_the_memory_of_a_gpu() -> None:
    timing = Timing("cuda")
    timing.begin(0, 0, 100.0)
    kept = torch.ones(64 * 2**20 // 4, device="cuda")
    del kept
    row = timing.row(1, 1, 101.0)
    assert row["perf/gpu_mb"] >= 64.0
    assert timing.row(2, 2, 103.0)["perf/gpu_mb"] <= row["perf/gpu_mb"] - 64.0, "since the row before"
    assert timing.session_span(2, 2, 103.0).gpu_mb == row["perf/gpu_mb"], "the most"
