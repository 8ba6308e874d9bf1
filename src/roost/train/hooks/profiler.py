"""The hook that profiles a few steps with torch's profiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from roost.base import durable
from roost.package.results.profiles.profile_record import OperatorTimes
from roost.train.accelerators.registry import accelerator_of
from roost.train.hook import Hook
from roost.train.profiling.operator_times import COMPUTING, is_operator, operator_times

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_TABLE_ROWS = 200
"""Number of operators in the table."""
_LOG_LEVEL = "6"
"""Above all severities of libkineto, so it prints nothing."""
_STEP_LABEL = "step "


class Profile(Hook):
    """Traces some steps of a session and everything between them: ``trace.json`` (for chrome://tracing or
    ui.perfetto.dev) and ``table.txt`` (the operators, sorted by their own time).

    Training is the same with and without it. If the profiler fails, or the disk is full, that is printed once
    and training continues.

    Args:
        folder: The folder of the two files; created when they are written, with its parent but no folder
            above.
        start_step: Steps of this session before the first traced one.
        steps: Number of traced steps.
        memory: Whether to trace memory allocations, too.
        stacks: Whether to record the lines of code, too.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        start_step: int = 10,
        steps: int = 5,
        memory: bool = False,
        stacks: bool = False,
    ) -> None:
        self._folder = Path(folder)
        self._first, self._end = start_step, start_step + steps
        self._memory, self._stacks = memory, stacks
        self._taken = -1
        """Steps of this session before the current one."""
        self._profiler: Any = None
        self._step_mark: Any = None
        self._take_step: Any = None
        """The trainer's own, while steps are traced."""
        self.is_over = False
        """Whether the last traced step is over, or there will be no trace."""
        self.operators: OperatorTimes | None = None
        """The operators of the traced steps; None: unknown."""

    def on_start(self, trainer: Trainer) -> None:
        self._taken, self.is_over, self.operators = -1, False, None

    def before_step(self, trainer: Trainer) -> None:
        """Starts the profile before its first step, marks each of its steps, and ends it after the last."""
        if self.is_over:
            return
        self._taken += 1
        if self._taken < self._first:
            return
        try:
            self._end_step_mark()
            if self._taken == self._end:
                self._finish(trainer, self._end - self._first)
                return
            if self._profiler is None:
                self._begin(trainer)
            self._step_mark = torch.profiler.record_function(f"{_STEP_LABEL}{trainer.progress.step + 1}")
            self._step_mark.__enter__()
        except Exception as error:  # noqa: BLE001  - an error of a profiler must not end the training
            self._fail(trainer, error)

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        """Writes the profile of the steps so far if the session ends within it, or prints that there is
        none."""
        if self.is_over:
            return
        taken = self._taken + 1
        if self._profiler is None:
            length = f"the session took {taken} step{'' if taken == 1 else 's'}"
            print(f"no profile: {length}, and profile.start_step is {self._first}", flush=True)
            return
        try:
            self._end_step_mark()
            self._finish(trainer, taken - self._first)
        except Exception as error:  # noqa: BLE001  - as above
            self._fail(trainer, error)

    def _begin(self, trainer: Trainer) -> None:
        if torch._C._autograd._profiler_enabled():
            raise RuntimeError("another profiler is running, and torch would end it")
        # Otherwise libkineto, which reads it when it first starts, prints to stderr.
        os.environ.setdefault("KINETO_LOG_LEVEL", _LOG_LEVEL)
        activities = [torch.profiler.ProfilerActivity.CPU]
        own = accelerator_of(trainer.runner.device).profiler_activity()
        if own is not None:
            activities.append(own)
        self._profiler = torch.profiler.profile(
            activities=activities, profile_memory=self._memory, with_stack=self._stacks
        )
        self._take_step = take_step = trainer.take_step
        trainer.take_step = lambda window: _in_range(take_step, window)
        self._profiler.start()

    def _end_step_mark(self) -> None:
        if self._step_mark is not None:
            mark, self._step_mark = self._step_mark, None
            mark.__exit__(None, None, None)

    def _finish(self, trainer: Trainer, num_steps: int) -> None:
        """Writes the trace of the last ``num_steps`` steps."""
        profiler, self._profiler, self.is_over = self._profiler, None, True
        trainer.take_step = self._take_step
        profiler.stop()
        averages = profiler.key_averages()
        self.operators = operator_times(profiler.events(), num_steps)
        traces_device = accelerator_of(trainer.runner.device).profiler_activity() is not None
        key = "self_device_time_total" if traces_device else "self_cpu_time_total"
        durable.make_folders(self._folder, below=self._folder.parent.parent)
        trace = self._folder / "trace.json"
        # The profiler writes the file itself, as a trace may be too large to be held in memory. The staging
        # is a folder: if torch cannot write a trace, it prints that, continues, and leaves another file.
        staging = durable.staging_name(trace)
        try:
            durable.make_folder(staging)
            profiler.export_chrome_trace(str(staging / trace.name))
            if not (staging / trace.name).exists():
                raise OSError(f"torch could not write {trace}; is the disk full?")
            durable.rename(staging / trace.name, trace)
        finally:
            durable.discard(staging)
        table = averages.table(sort_by=key, row_limit=_TABLE_ROWS, max_name_column_width=80)
        durable.write(self._folder / "table.txt", table.encode())
        last, planned = trainer.progress.step, self._end - self._first
        cut = f" (the session ended after {num_steps} of {planned})" if num_steps < planned else ""
        where = f"steps {last - num_steps + 1} to {last}{cut}"
        print(f"profile of {where}: {trace}; slowest: {_slowest_operators(averages, key)}", flush=True)

    def _fail(self, trainer: Trainer, error: Exception) -> None:
        profiler, self._profiler, self.is_over = self._profiler, None, True
        if self._take_step is not None:
            trainer.take_step = self._take_step
        if profiler is not None:
            with suppress(Exception):  # it may have ended, or never started
                profiler.stop()
        text = str(error).partition("\n")[0]
        print(f"no profile: {type(error).__name__}: {text}; training continues", flush=True)


def _slowest_operators(averages: Sequence[Any], key: str) -> str:
    """The three operators with the longest time of their own, with their shares of the total."""
    times = {one.key: getattr(one, key) for one in averages if _is_operator(one)}
    total = sum(times.values())
    if not total:
        return "nothing was measured"
    first = sorted(times, key=lambda name: -times[name])[:3]
    return ", ".join(f"{name} {times[name] / total:.0%}" for name in first)


def _is_operator(one: Any) -> bool:
    """Whether an entry is an operator: not a kernel, whose time is also in its operator."""
    return bool(one.device_type == torch._C._autograd.DeviceType.CPU and is_operator(one.key))


def _in_range(take_step: Callable[[Any], Any], window: Any) -> Any:
    with torch.profiler.record_function(COMPUTING):
        return take_step(window)
