"""The time and memory of training by part of a step: always measured, recorded with each row."""

from __future__ import annotations

import functools
import math
import os
import resource
import sys
from pathlib import Path
from time import perf_counter

import torch

from roost.base.system import cpu_wait
from roost.package.results.time_breakdown import (
    GPU_MB,
    HOST_MB,
    OTHER,
    PARTS,
    RATE,
    TimeBreakdown,
    column_name,
)
from roost.train.accelerators.registry import accelerator_of
from roost.train.model import peak_gpu_memory
from roost.train.step.device_clock import DeviceClock

DATA, TO_DEVICE, FORWARD, BACKWARD, OPTIMIZER, VALIDATE, SAVE = range(7)
"""The indices of the parts in `Timing.spent`."""

_COLUMNS = [column_name(part) for part in PARTS]
_OTHER = column_name(OTHER)
_MEMORY_CHECK_SECONDS = 1.0
"""The least time between two reads of the memory, which cost 10 µs each, on a GPU 100 µs."""


class Timing:
    """Sums the durations of the parts of a step.

    The loop and the stepper add to `spent` directly, as a call for each part would cost 2 µs a step:

    ```
    started = perf_counter()
    loss.backward()
    timing.spent[BACKWARD] += perf_counter() - started
    ```

    On a GPU that measures how long the host took to launch the work, so the parts of a step are taken from
    `device` instead: the mean over the measured steps is used for all steps of the row.

    Args:
        device: The device that computes the steps.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.spent = [0.0] * len(PARTS)
        """Host seconds of each part since the last row, always in this same list."""
        self.data_cpu: float | None = None
        """The CPU seconds of the training thread in part ``data``; None: they are not counted."""
        self.device: DeviceClock | None = None
        """The clock of a device whose events measure time; it must be called when a step begins and when each
        of its parts ends."""
        device = torch.device(device)
        accelerator = accelerator_of(device)
        self._gpu = device if accelerator.reports_memory else None
        if accelerator.times_events:
            stream = functools.partial(accelerator.current_stream, device)
            self.device = DeviceClock(accelerator.timed_event, stream)
        self.begin(0, 0)

    def begin(self, step: int, samples: int, now: float | None = None) -> None:
        """Begins a session: everything is counted from here.

        Args:
            step: The step of the run.
            samples: The samples of the run so far.
            now: `time.perf_counter`.
        """
        now = perf_counter() if now is None else now
        self._session_start = self._row_start = (step, samples, now)
        self._cpu_start = cpu_wait.read()
        self._totals = [0.0] * len(PARTS)
        self._per_step: list[float] | None = None
        self._memory_checked_at, self._host_mb, self._gpu_mb, self._most_gpu_mb = -math.inf, 0.0, 0.0, 0.0
        self.spent[:] = [0.0] * len(PARTS)
        if self.device is not None:
            self.device.read(len(PARTS))

    def end_part(self, part: int, started: float) -> None:
        """Ends a part of a step that the device computes; it began at ``started`` (`perf_counter`)."""
        self.spent[part] += perf_counter() - started
        if self.device is not None:
            self.device.record(part)

    def roll_back(self, steps: int, samples: int) -> None:
        """Adjusts the counts after a rollback by so many steps and samples: they and their time stay
        counted."""
        self._session_start, self._row_start = (
            (step - steps, count - samples, now)
            for step, count, now in (self._session_start, self._row_start)
        )

    def row(self, step: int, samples: int, now: float | None = None) -> dict[str, float]:
        """Returns the measurements since the last row, by column name, and resets them.

        The parts of a step are in ms per step, `validate` and `save` in seconds if there was any; samples per
        second of training time; memory in MB: of this process now, and the peak allocated on the GPU since
        its last read. On a GPU this waits for the steps so far, so it must be called after the values of the
        row were read.

        Args:
            step: The step of the run.
            samples: The samples of the run so far.
            now: `time.perf_counter`.
        """
        now = perf_counter() if now is None else now
        last_step, last_samples, last_now = self._row_start
        steps, count, seconds = step - last_step, samples - last_samples, now - last_now
        if self.device is not None:
            measured, device_seconds = self.device.read(len(PARTS))
            self._per_step = [taken / measured for taken in device_seconds] if measured else self._per_step
        parts = self._parts(steps)
        self._row_start = (step, samples, now)
        self._totals = [total + taken for total, taken in zip(self._totals, parts, strict=True)]
        self.spent[:] = [0.0] * len(PARTS)
        training = seconds - parts[VALIDATE] - parts[SAVE]
        row: dict[str, float] = {}
        if steps > 0 and training > 0:
            for place in range(VALIDATE):
                row[_COLUMNS[place]] = round(parts[place] / steps * 1000, 4)
            row[_OTHER] = round(max(0.0, training - sum(parts[:VALIDATE])) / steps * 1000, 4)
            row[RATE] = round(count / training, 1)
        for place in (VALIDATE, SAVE):
            if parts[place]:
                row[_COLUMNS[place]] = round(parts[place], 4)
        self._check_memory(now)
        row[HOST_MB] = round(self._host_mb, 1)
        if self._gpu is not None:
            row[GPU_MB] = round(self._gpu_mb, 1)
        return row

    def session_span(self, step: int, samples: int, now: float | None = None) -> TimeBreakdown:
        """Returns the measurements since `begin`, those since the last row included. It waits for nothing: on
        a GPU the steps since the last row are assumed to take as long as those of that row."""
        now = perf_counter() if now is None else now
        self._check_memory(now)
        first_step, first_samples, started = self._session_start
        parts = self._parts(step - self._row_start[0])
        totals = [total + taken for total, taken in zip(self._totals, parts, strict=True)]
        return TimeBreakdown(
            seconds=now - started,
            steps=step - first_step,
            samples=samples - first_samples,
            parts=dict(zip(PARTS, totals, strict=True)),
            host_mb=self._host_mb,
            gpu_mb=self._most_gpu_mb,
            cpu=cpu_wait.read().since(self._cpu_start),
        )

    def _parts(self, steps: int) -> list[float]:
        """Returns the seconds of each part since the last row, for ``steps`` steps."""
        if self._per_step is None:
            return list(self.spent)
        return [*(taken * steps for taken in self._per_step[:VALIDATE]), *self.spent[VALIDATE:]]

    def _check_memory(self, now: float) -> None:
        if now - self._memory_checked_at < _MEMORY_CHECK_SECONDS:
            return
        self._memory_checked_at, self._host_mb = now, resident_mb()
        if self._gpu is not None:
            self._gpu_mb = peak_gpu_memory.peak_since_last_call(self._gpu)
            self._most_gpu_mb = max(self._most_gpu_mb, self._gpu_mb)


def resident_mb(statm: Path = Path("/proc/self/statm")) -> float:
    """Returns the memory of this process in MB; the peak if the system does not report the current one."""
    try:
        with open(statm, "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    except OSError:
        return peak_mb()


def peak_mb() -> float:
    """Returns the peak memory of this process in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
