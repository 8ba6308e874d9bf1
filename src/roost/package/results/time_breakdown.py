"""The time of a run by parts (data, forward, …): the columns ``perf/…`` of its rows, and a line of text.

These are measurements of one machine at one time: two runs that are equal bit for bit differ in them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from roost.base.system.cpu_wait import CpuTime
from roost.base.text.byte_sizes import format_memory
from roost.base.text.durations import format_duration
from roost.package.records import PERF, Columns

STEP_PARTS = ("data", "to device", "forward", "backward", "optimizer")
PARTS = (*STEP_PARTS, "validate", "save")
OTHER = "other"
"""The rest of the time: hooks, writing rows, Python between the parts."""


def column_name(part: str) -> str:
    """Returns the column of a part: ``perf/forward_ms``, the mean per step; ``perf/save_s``, the sum since
    the last row."""
    return f"{PERF}{part.replace(' ', '_')}_{'s' if part in PARTS[len(STEP_PARTS) :] else 'ms'}"


_MIN_CPU_WAIT_SHARE = 0.1
"""The share of the requested CPU time from which on the wait for it is shown."""
HOST_MB, GPU_MB, RATE = f"{PERF}host_mb", f"{PERF}gpu_mb", f"{PERF}samples_per_second"
EPOCH_SECONDS = f"{PERF}epoch_s"
"""The seconds from the end of the previous epoch to that of the newest one, with validations and saves; in
the first row after that end. Unknown for an epoch that a session has continued."""
_MS_COLUMNS = {part: column_name(part) for part in (*STEP_PARTS, OTHER)}
_SECONDS_COLUMNS = {part: column_name(part) for part in PARTS[len(STEP_PARTS) :]}


@dataclass(frozen=True)
class TimeBreakdown:
    """The time of a section of training by parts, with its steps and samples.

    ``parts`` are seconds by the names of `PARTS`; the rest of ``seconds`` is `OTHER`. ``host_mb`` is the
    memory at the end, ``gpu_mb`` the largest allocation; 0 if unknown. ``cpu`` is the CPU time of the
    process.
    """

    seconds: float = 0.0
    steps: int = 0
    samples: int = 0
    parts: dict[str, float] = field(default_factory=dict)
    host_mb: float = 0.0
    gpu_mb: float = 0.0
    cpu: CpuTime = field(default_factory=CpuTime)

    def __sub__(self, before: TimeBreakdown) -> TimeBreakdown:
        """Returns the section after ``before``, which is the beginning of this one."""
        return TimeBreakdown(
            self.seconds - before.seconds,
            self.steps - before.steps,
            self.samples - before.samples,
            {part: seconds - before.parts.get(part, 0.0) for part, seconds in self.parts.items()},
            self.host_mb,
            self.gpu_mb,
            self.cpu.since(before.cpu),
        )

    @property
    def samples_per_second(self) -> float:
        """The rate while training, without validations and saves."""
        seconds = self.seconds - sum(self.parts.get(part, 0.0) for part in _SECONDS_COLUMNS)
        return self.samples / seconds if seconds > 0 else 0.0

    @property
    def shares(self) -> dict[str, float]:
        """The share, from 0 to 1, of each part that took any time, and of the rest."""
        # On a GPU the parts are measured in some steps only, so their estimated sum may exceed the total.
        whole = max(self.seconds, sum(self.parts.values()))
        rest = whole - sum(self.parts.values())
        seconds = {**self.parts, OTHER: rest}
        return {part: taken / whole for part, taken in seconds.items() if taken > 0}

    def __str__(self) -> str:
        """``12.3s, 41,000 samples/s  data 4%  to device 0%  forward 31%  …  other 1%  memory 1.2 GB``"""
        rate = f", {self.samples_per_second:,.0f} samples/s" if self.samples else ""
        shares = [f"{part} {share:.0%}" for part, share in self.shares.items()]
        known = {"memory": self.host_mb, "GPU memory": self.gpu_mb}
        used = [f"{name} {format_memory(mb)}" for name, mb in known.items() if mb]
        is_busy = self.cpu.is_known and self.cpu.wait_share >= _MIN_CPU_WAIT_SHARE
        waited = [f"CPU wait {self.cpu.wait_share:.0%}"] if is_busy else []
        return "  ".join([f"{format_duration(self.seconds)}{rate}", *shares, *waited, *used])


def from_records(columns: Columns, *, after: int = 0) -> TimeBreakdown | None:
    """Returns the breakdown over all rows of a run; None if no row has times.

    It does not include the time after the newest row, nor steps of a session that a later session repeated.

    Args:
        columns: The history of the run.
        after: The step from which a fork continued: earlier rows are the time of its parent.
    """
    if after:
        columns = Columns(
            perf={name: _after(one, after) for name, one in columns.perf.items()}, starts=columns.starts
        )
    steps = [step for step, _ in _finite(columns, _MS_COLUMNS[OTHER])]
    if not steps:
        return None
    new = dict(zip(steps, _new_steps(steps, columns.starts), strict=True))
    trained = dict.fromkeys(steps, 0.0)
    parts = {
        part: sum(value for _, value in _finite(columns, name)) for part, name in _SECONDS_COLUMNS.items()
    }
    for part, name in _MS_COLUMNS.items():
        taken = {step: value * new.get(step, 0) / 1000 for step, value in _finite(columns, name)}
        parts[part] = sum(taken.values())
        trained = {step: seconds + taken.get(step, 0.0) for step, seconds in trained.items()}
    samples = sum(rate * trained.get(step, 0.0) for step, rate in _finite(columns, RATE))
    host_mb = [value for _, value in _finite(columns, HOST_MB)][-1:]
    return TimeBreakdown(
        seconds=sum(parts.values()),
        steps=sum(new.values()),
        samples=round(samples),
        parts={part: parts[part] for part in PARTS},
        host_mb=host_mb[0] if host_mb else 0.0,
        gpu_mb=max((value for _, value in _finite(columns, GPU_MB)), default=0.0),
    )


def _after(series: tuple[list[int], list[float]], step: int) -> tuple[list[int], list[float]]:
    steps, values = series
    first = bisect_right(steps, step)
    return steps[first:], values[first:]


def _finite(columns: Columns, name: str) -> Iterator[tuple[int, float]]:
    pairs = zip(*columns.perf.get(name, ([], [])), strict=True)
    return ((step, value) for step, value in pairs if math.isfinite(value))


def _new_steps(steps: Sequence[int], starts: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The number of steps of each row: those since the row before, or since its session began."""
    visible: list[int] = []
    for _, start in reversed(starts):
        if not visible or start < visible[-1]:  # otherwise a later session went back to before it
            visible.append(start)
    visible.sort()
    before = 0
    for step in steps:
        at = bisect_left(visible, step)
        yield step - max(before, visible[at - 1] if at else 0)
        before = step
