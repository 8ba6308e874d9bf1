"""The tuning of the batch size, up to the memory, and of the step mode. Both change the bits of a run."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType
from typing import NamedTuple

from roost.base.system import host_memory
from roost.base.text.byte_sizes import format_bytes
from roost.base.text.durations import format_short_duration
from roost.config.step_modes import StepMode
from roost.package.results.tuning_report import CandidateRates, TargetFinding
from roost.project.batch_plans import batch_limits
from roost.project.data_loaders import set_kind
from roost.train.data.loader import Loader
from roost.train.step import timing
from roost.worker.tuning.budget import Budget
from roost.worker.tuning.candidate_rounds import CandidateFailed, CandidateRounds, MeasuredBlock
from roost.worker.tuning.measured_run import MeasuredRun

BATCH_SIZE, STEP_MODE = "data.batch_size", "step_mode"
_MAX_DOUBLINGS = 12
_MEMORY_SHARE = 0.8
"""The part of the free memory of the host that a larger batch may take by prediction: the kernel would not
refuse more, but kill a process."""
_MIN_COMPILE_SECONDS = 5.0
_COMPILE_SHARE = 0.7
"""The part of the time that a compilation may take; the rest is for the rounds."""


class LargerBatch(NamedTuple):
    """A batch size, with the accumulation that keeps the samples of a step, or nearly so."""

    size: int
    accumulation: int
    factor: float
    """The samples of a step, relative to those of the config."""


def larger_batch(size: int, *, present: int, accumulation: int) -> LargerBatch:
    """Returns the accumulation for another batch size: the least one that keeps at least as many samples in
    a step."""
    kept = max(1, math.ceil(accumulation * present / size))
    return LargerBatch(size, kept, kept * size / (accumulation * present))


# ---- the batch size --------------------------------------------------------------------------------------


def tune_batch_size(run: MeasuredRun, budget: Budget, report: Callable[[str], None]) -> TargetFinding:
    """Finds the batch size with the most samples per second: it is doubled while that gains, up to the set
    and the memory. ``gradient_accumulation_steps`` becomes smaller by the same factor, where it can.

    Args:
        run: The run.
        budget: The time.
        report: Prints a line about each measurement.
    """
    data, accumulation = run.settings.data, run.settings.gradient_accumulation_steps
    limits = batch_limits(data, "train")
    present = limits.num_samples or 0
    finding = TargetFinding(
        target="batch_size", setting=BATCH_SIZE, present=present, chosen=present, reason=""
    )
    loader = run.loader()
    most = loader.plan.num_samples if isinstance(loader, Loader) else math.inf
    if set_kind(run.data.train) in ("foreign", "sampled"):
        finding.reason = "the set makes whole batches itself"
    elif limits.max_tokens:
        finding.reason = f"{limits.tokens_key} limits a batch, not a number of samples"
    elif data.mix is not None and data.mix.batch_sizes:
        finding.reason = "each set has a batch size of its own (data.mix.batch_sizes)"
    elif present * 2 > most:
        finding.reason = f"the set has {most:,} samples: no larger batch can be made"
    if finding.reason:
        return finding
    guard = _MemoryGuard(run, present, loader.num_workers or 0)

    def measure(value: int | str, seconds: float) -> MeasuredBlock:
        size, kept, _ = larger_batch(int(value), present=present, accumulation=accumulation)
        guard.check(size)
        block = run.block(
            run.loader(batch_size=size, accumulation=kept),
            seconds,
            run.stepper.variant(accumulation=kept),
        )
        guard.record(size)
        return block

    sizes = [present * 2**power for power in range(1, _MAX_DOUBLINGS + 1) if present * 2**power <= most]
    rounds = CandidateRounds(
        measure,
        present,
        budget=budget,
        num_candidates=min(5, 1 + len(sizes)),
        least_seconds=4 * run.step_seconds,
        report=report,
    )
    rounds.ascend(sizes)
    rounds.repeat()
    rounds.fill(finding)
    if finding.chosen != present:
        batch = larger_batch(int(finding.chosen), present=present, accumulation=accumulation)
        finding.changes = {BATCH_SIZE: batch.size}
        if batch.accumulation != accumulation:
            finding.changes["gradient_accumulation_steps"] = batch.accumulation
        finding.consequences = consequences(batch, present=present, accumulation=accumulation)
    return finding


def consequences(batch: LargerBatch, *, present: int, accumulation: int) -> list[str]:
    """Returns what another batch size does to the results of a run, one line each."""
    before, now = present * accumulation, batch.size * batch.accumulation
    if now == before:
        return [
            f"a step still has {now:,} samples, in {batch.accumulation} micro-batches instead of "
            f"{accumulation}: other rounding, and batch norm sees {batch.size:,} samples at a time"
        ]
    factor = batch.factor
    return [
        f"a step has {now:,} samples instead of {before:,}, and an epoch 1/{factor:g} of the steps",
        f"the learning rate is not changed: multiply it by {factor:g} for SGD (Goyal 2017, "
        f"arXiv:1706.02677), by {math.sqrt(factor):.3g} for Adam (Malladi 2022, arXiv:2205.10287); or find "
        "it with --what lr",
        "max_steps, and all intervals and schedules in steps, then mean more epochs",
    ]


class _MemoryGuard:
    """Predicts the memory of the host that a batch size takes, from the sizes before it: in proportion."""

    def __init__(self, run: MeasuredRun, present: int, num_workers: int) -> None:
        self._run, self._first_mb = run, timing.resident_mb()
        self._is_on_host = run.runner.device.type == "cpu"
        sent = num_workers * (run.settings.data.prefetch + 2)
        self._bytes_per_sample = sent * run.batch_bytes / present
        self._measured: dict[int, float] = {}
        """Bytes of the training process by batch size."""

    def record(self, size: int) -> None:
        """Takes the memory after a size was measured."""
        grown = max(0.0, timing.peak_mb() - self._first_mb) * 2**20
        self._measured.setdefault(size, grown if self._is_on_host else 0.0)

    def check(self, size: int) -> None:
        """Raises `CandidateFailed` if a size would probably take more memory than is free."""
        free = host_memory.available_bytes()
        if free is None or not self._measured or size in self._measured:
            return
        last = max(self._measured)
        needed = self._measured[last] * size / last + self._bytes_per_sample * size
        if needed > _MEMORY_SHARE * free:
            raise CandidateFailed(
                f"would take about {format_bytes(needed)} of the host's memory, of which "
                f"{format_bytes(free)} are free"
            )


# ---- the step mode ---------------------------------------------------------------------------------------


def tune_step_mode(run: MeasuredRun, budget: Budget, report: Callable[[str], None]) -> TargetFinding:
    """Compares eager steps with compiled ones. The compilation is not part of the rates, but reported.

    Args:
        run: The run.
        budget: The time; a compilation that takes longer is ended.
        report: Prints a line about each measurement.
    """
    present = run.settings.step_mode
    other: StepMode = "compile" if present == "eager" else "eager"
    finding = TargetFinding(target="step_mode", setting=STEP_MODE, present=present, chosen=present, reason="")
    if budget.left < _MIN_COMPILE_SECONDS and other == "compile":
        finding.is_late = True
        finding.reason = f"the time does not suffice: a compilation needs {_MIN_COMPILE_SECONDS:g} s or more"
        return finding
    steppers = {present: run.stepper, other: run.stepper.variant(mode=other)}
    began = perf_counter()
    try:
        with time_limit(budget.left * _COMPILE_SHARE):
            run.block(run.loader(), 0.0, steppers[other])
    except TimeIsUp:
        finding.reason = (
            f"no compilation within {format_short_duration(perf_counter() - began)}: give more --seconds"
        )
    except Exception as error:  # noqa: BLE001  - any error of a compiler, or of code that cannot be compiled
        text = str(error).strip() or type(error).__name__
        finding.reason = f"{other} fails: {text.splitlines()[0]}"
    if finding.reason:
        finding.candidates = [CandidateRates(value=other, note=finding.reason)]
        report(f"{other}: {finding.reason}")
        return finding
    first_seconds = perf_counter() - began
    rounds = CandidateRounds(
        lambda value, seconds: run.block(run.loader(), seconds, steppers[_mode(value)]),
        present,
        budget=budget,
        num_candidates=2,
        least_seconds=4 * run.step_seconds,
        report=report,
    )
    rounds.ascend([other])
    rounds.repeat()
    rounds.fill(finding)
    if finding.chosen != present:
        finding.changes = {STEP_MODE: finding.chosen}
        finding.consequences = ["compiled steps round differently: the run has other bits"]
        if finding.chosen == "compile":
            rates = {one.value: one.median for one in finding.candidates}
            saved = 1 / rates["eager"] - 1 / rates["compile"]
            finding.reason += (
                f"; the first steps took {format_short_duration(first_seconds)}, which "
                f"{first_seconds / saved:,.0f} samples make up for"
            )
    return finding


def _mode(value: int | str) -> StepMode:
    return "compile" if value == "compile" else "eager"


class TimeIsUp(BaseException):
    """The time limit has passed. Not an Exception, because a compiler may catch those."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises `TimeIsUp` inside after so many seconds; only in the main thread, which signals reach."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
