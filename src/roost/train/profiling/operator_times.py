"""How long torch's operators take in traced steps, and how much of that does not depend on the batch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch

from roost.package.results.profiles.profile_record import OperatorTimes

COMPUTING = "compute the step"
"""The range of the trace in which a step is computed, after its batch was loaded."""
_NUM_EMPTY, _NUM_ROUNDS = 50, 5
_LIGHT = 8.0
"""An operator that takes less than this multiple of one on a single number would take as long with half
the batch."""
_HEAVY_OVERHEAD = 2.0
"""What a longer operator costs in addition to its work, as a multiple of one on a single number."""
_COMPILED = "ompiled"
"""In the names of what ``torch.compile`` made: its kernels are no operators of their own."""
_CPU = torch._C._autograd.DeviceType.CPU


def operator_times(events: Sequence[Any], num_steps: int) -> OperatorTimes | None:
    """Returns the operators of a traced step; None if they are not seen one by one.

    Of each operator its shortest time in all steps counts, if these have the same operators, otherwise the
    shortest step: in the others another process may have used the core.

    Args:
        events: The events of the profiler.
        num_steps: The number of traced steps.
    """
    on_host = [one for one in events if one.device_type == _CPU]
    ranges = [one.time_range for one in on_host if one.name == COMPUTING]
    if not ranges:
        return None
    steps = []
    for one in sorted(ranges, key=lambda one: float(one.end - one.start)):
        within = [event for event in on_host if one.start <= event.time_range.start <= one.end]
        if any(_COMPILED in event.name for event in within):
            return None
        found = [event for event in within if is_operator(event.name)]
        found.sort(key=lambda event: float(event.time_range.start))
        steps.append(_Step(found, one.end - one.start))
    alike = [step for step in steps if step.names == steps[0].names]
    operators = [min(times) for times in zip(*(step.times for step in alike), strict=True)]
    if not operators:
        return None
    empty, of_profiler = _empty_operator()
    worked = sum(us - _HEAVY_OVERHEAD * empty for us in operators if us > _LIGHT * empty)
    between = min(step.between for step in alike)
    taken = sum(operators) + between - of_profiler * len(operators)
    kernels = [one for one in events if one.device_type != _CPU and not _is_range(one)]
    return OperatorTimes(
        calls=len(operators),
        work_share=min(1.0, worked / max(taken, worked, 1e-9)),
        kernel_ms=sum(one.self_device_time_total for one in kernels) / 1000 / num_steps,
        empty_us=empty,
    )


class _Step:
    """The operators of one step: their names, and their own microseconds."""

    def __init__(self, events: Sequence[Any], microseconds: float) -> None:
        self.names = [event.name for event in events]
        self.times = [float(event.self_cpu_time_total) for event in events]
        self.between = max(0.0, microseconds - sum(self.times))
        """The time between the operators."""


def _is_range(one: Any) -> bool:
    """Whether an event of a device is not a kernel, but a range of the host that was projected there."""
    return bool(getattr(one, "is_user_annotation", False)) or one.name == COMPUTING


def is_operator(name: str) -> bool:
    """Whether a name is that of an operator: not of a range, whose own time is that of Python."""
    return "::" in name and not name.startswith("autograd::engine")


def _empty_operator() -> tuple[float, float]:
    """Measures an operator on a single number: its microseconds as the profiler sees it, and those that the
    profiler adds."""
    number = torch.zeros(())
    alone = min(_round(number) for _ in range(_NUM_ROUNDS))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        profiled = min(_round(number) for _ in range(_NUM_ROUNDS))
    found = [float(one.self_cpu_time_total) for one in profiler.events() if one.name == "aten::neg"]
    return statistics.median(found), max(0.0, profiled - alone)


def _round(number: torch.Tensor) -> float:
    """Returns the microseconds of one of some operators in a row."""
    started = perf_counter()
    for _ in range(_NUM_EMPTY):
        number.neg()
    return (perf_counter() - started) * 1e6 / _NUM_EMPTY
