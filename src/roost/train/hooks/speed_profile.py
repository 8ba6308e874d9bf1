"""The hook that measures what holds a run back."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from roost.base import durable
from roost.base.system import cpu_cores
from roost.package.results.profiles.bottlenecks import (
    find_bottlenecks,
    format_bottleneck,
    milliseconds_per_step,
)
from roost.package.results.profiles.profile_record import (
    IDLE,
    MAX_LINES,
    NAME,
    PICTURE,
    Activity,
    HotLine,
    ProfileRecord,
)
from roost.package.results.time_breakdown import TimeBreakdown
from roost.train.agenda import CallTimes
from roost.train.data.external_loader import ExternalLoader
from roost.train.hook import Hook
from roost.train.hooks.checkpoint_save import Save
from roost.train.hooks.profiler import Profile
from roost.train.hooks.records import Records
from roost.train.hooks.statistics import Statistics
from roost.train.hooks.validation import Validate
from roost.train.profiling.flame_graph import ThreadLooks, flame_graph, short_name
from roost.train.profiling.stack_sampler import Sample, StackSampler
from roost.train.profiling.step_parts import split
from roost.train.profiling.worker_stacks import WorkerStacks

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_SETTINGS: dict[type[Hook], str] = {
    Records: "log_every",
    Statistics: "statistics.every",
    Validate: "validate_every",
    Save: "checkpoint.every",
}
_MIN_LINE_LOOKS = 3


class SpeedProfile(Hook):
    """Measures the steps after those that `Profile` traces, for some seconds: the time of each part and hook,
    and the stacks of the training thread and of the first loader worker. Writes ``profile.json`` and
    ``flame.svg``, and prints what holds the run back.

    Training has the same bits with and without it. An error is printed once, and training continues.

    Args:
        folder: As for `Profile`.
        trace: The hook of the traced steps.
        seconds: How long is measured; at least one step.
        project: The folder of the user's code, whose lines are named.
        session: The number of the session.
    """

    def __init__(
        self,
        folder: Path | str,
        trace: Profile,
        *,
        seconds: float = 20.0,
        project: Path | None = None,
        session: int = 0,
    ) -> None:
        self._folder, self._trace, self._project = Path(folder), trace, project
        self._seconds, self._session = seconds, session
        self._stacks: WorkerStacks | None = None
        self._measured: _Measured | None = None
        self._is_over = False

    def on_start(self, trainer: Trainer) -> None:
        self._measured, self._is_over = None, False
        self._stacks = trainer.loaders["train"].worker_stacks = WorkerStacks(self._project)

    def before_step(self, trainer: Trainer) -> None:
        """Begins after the traced steps, and ends when the time is over."""
        if self._is_over:
            return
        if self._measured is not None:
            if self._measured.elapsed >= self._seconds:
                self._finish(trainer)
        elif self._trace.is_over:
            self._begin(trainer)

    def before_save(self, trainer: Trainer) -> None:
        if trainer.at_end:  # that save is made once, however long the run is
            self._finish(trainer)

    def on_stop(self, trainer: Trainer, reason: str) -> None:
        self._finish(trainer)
        if self._stacks is not None:
            trainer.loaders["train"].worker_stacks = None
            self._stacks.close()
            self._stacks = None

    def _begin(self, trainer: Trainer) -> None:
        assert self._stacks is not None
        try:
            self._measured = _Measured(trainer, self._project, self._stacks)
        except Exception as error:  # noqa: BLE001  - a measurement must not end the training
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._is_over = True
        text = str(error).partition("\n")[0]
        print(f"no profile: {type(error).__name__}: {text}; training continues", flush=True)

    def _finish(self, trainer: Trainer) -> None:
        measured, self._measured = self._measured, None
        if measured is None:
            return
        self._is_over = True
        try:
            measured.end(trainer)
            if measured.span.steps > 0:
                self._write(self._record(trainer, measured), measured)
        except Exception as error:  # noqa: BLE001  - as above
            self._fail(error)

    def _record(self, trainer: Trainer, measured: _Measured) -> ProfileRecord:
        span, loader = measured.span, trainer.loaders["train"]
        hooks = [call.hook for call in trainer.calls.step if not call.epoch_only]
        lines = [*_hot_lines(measured.stacks), *_hot_lines(measured.worker.stacks, "worker")]
        lines.sort(key=lambda one: -one.number)
        return ProfileRecord(
            session=self._session,
            time=time.time(),
            device=trainer.runner.device.type,
            cores=cpu_cores.usable_cores(),
            first_step=measured.first_step,
            last_step=measured.first_step + span.steps - 1,
            seconds=span.seconds,
            samples=span.samples,
            parts=span.parts,
            hooks=measured.times.seconds,
            calls=dict(measured.times.numbers),
            num_workers=None if isinstance(loader, ExternalLoader) else loader.num_workers,
            batches_per_step=trainer.stepper.batches_per_step,
            intervals={
                setting: str(hook.every)
                for hook in hooks
                for kind, setting in _SETTINGS.items()
                if isinstance(hook, kind) and isinstance(hook.every, str | int)
            },
            cpu_wait=span.cpu.wait_share if span.cpu.is_known else None,
            operators=self._trace.operators,
            loading=measured.loading,
            lines=lines[:MAX_LINES],
        )

    def _write(self, record: ProfileRecord, measured: _Measured) -> None:
        lines = list(format_bottleneck(find_bottlenecks(record)[0]))
        steps = f"steps {record.first_step} to {record.last_step}, {record.seconds:.1f} s"
        times = milliseconds_per_step(record)
        threads = [
            ThreadLooks(f"the training thread: {sum(times.values()):.3g} ms a step", measured.stacks, times)
        ]
        if (one := record.loading) is not None and record.num_workers:
            of_worker = {"data": one.busy / one.seconds, IDLE: one.idle / one.seconds}
            threads.append(ThreadLooks("the first loader worker", measured.worker.stacks, of_worker))
        picture = flame_graph(
            threads,
            title=f"where the time goes: {steps}",
            lines=[line.strip() for line in lines],
            project=self._project,
        )
        durable.make_folders(self._folder, below=self._folder.parent.parent)
        durable.write(self._folder / PICTURE, picture.encode())
        durable.write(self._folder / NAME, msgspec.json.format(msgspec.json.encode(record), indent=1))
        print(f"profile of {steps}: {self._folder / PICTURE}", flush=True)
        for line in lines:
            print(line, flush=True)


class _Measured:
    """A measurement in progress, and its results.

    Args:
        trainer: The trainer, before the first measured step.
        project: See `SpeedProfile`.
        worker_stacks: Those of the first loader worker.
    """

    def __init__(self, trainer: Trainer, project: Path | None, worker_stacks: WorkerStacks) -> None:
        self.first_step = trainer.progress.step + 1
        self._worker_stacks, self._worker_before = worker_stacks, worker_stacks.read()
        self._sampler = StackSampler(project)
        self.times = trainer.agenda.times = CallTimes()
        self._before = self.span = _session_span(trainer)
        self.stacks = Counter[Sample]()
        self.worker = self._worker_before
        self.loading: Activity | None = None
        trainer.stepper.timing.data_cpu = 0.0
        self._started = time.monotonic()
        self._sampler.start()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._started

    def end(self, trainer: Trainer) -> None:
        """Ends the measurement, and sets its results."""
        timing = trainer.stepper.timing
        self.span = _session_span(trainer) - self._before
        cpu, timing.data_cpu, trainer.agenda.times = timing.data_cpu, None, None
        self.stacks = self._sampler.stop()
        self.worker = self._worker_stacks.read().since(self._worker_before)
        if trainer.loaders["train"].num_workers == 0:
            # While other processes use the cores, computing takes longer than its time on a core.
            got = 1 - self.span.cpu.wait_share
            seconds = self.span.parts["data"]
            self.loading = Activity(seconds=seconds, computing=min(seconds, (cpu or 0.0) / max(got, 0.01)))
        elif self.worker.seconds > 0 and self.worker.computing is not None:
            self.loading = Activity(
                seconds=self.worker.seconds, computing=self.worker.computing, idle=self.worker.idle
            )


def _session_span(trainer: Trainer) -> TimeBreakdown:
    return trainer.stepper.timing.session_span(trainer.progress.step, trainer.progress.samples)


def _hot_lines(stacks: Counter[Sample], name: str | None = None) -> list[HotLine]:
    """Returns the lines of the project's code that were seen often.

    Args:
        stacks: The stacks of a thread.
        name: The part to name; by default the part of each stack.
    """
    lines: Counter[tuple[str, str, bool]] = Counter()
    for sample, number in stacks.items():
        part, frames = split(sample.stack)
        place = next((short_name(frame) for frame in frames if frame[2]), None)
        if place is not None:
            lines[name or part, place, sample.is_computing] += number
    return [
        HotLine(part=part, place=place, is_computing=is_computing, number=number)
        for (part, place, is_computing), number in lines.most_common(MAX_LINES)
        if number >= _MIN_LINE_LOOKS
    ]
