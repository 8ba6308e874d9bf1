"""The batches of an evaluation that are skipped because computing or drawing them failed."""

from __future__ import annotations

from typing import Any

import torch

from roost.base.errors import RoostError, TrainingError
from roost.package.results import skipped_steps
from roost.package.results.skipped_steps import SkippedStep
from roost.train.accelerators.device_errors import breaks_device
from roost.train.accelerators.registry import empty_caches
from roost.train.data.batches import Batches, Interrupted
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.distributed.ranks import Ranks
from roost.train.failures import failed_step
from roost.train.failures.step_context import StepContext
from roost.train.failures.step_report import StepReporter, format_error


class SkippedBatches:
    """Decides which batches of an evaluation are skipped, as `on_step_error: skip` allows, and reports them.

    They count with the steps that training has skipped. An evaluation that a stop interrupts reports none:
    the next session repeats it.

    Args:
        context: The surroundings of the step after which the evaluation runs.
        reporter: Logs the batches.
        num_skipped: The steps and batches that were skipped so far.
        max_skipped: As many may be skipped before the run fails.
    """

    def __init__(
        self, context: StepContext, reporter: StepReporter, *, num_skipped: int, max_skipped: int
    ) -> None:
        self._context, self._reporter = context, reporter
        self._ranks: Ranks = context.ranks
        self.num_skipped, self._max_skipped = num_skipped, max_skipped
        self._own: list[tuple[SkippedStep, str]] = []
        """The batches of this rank that are not reported yet, each with its `machine_cause`."""

    def may_skip(self, error: Exception) -> bool:
        """Whether a batch that raised this may be skipped: a mistake of the user would fail the next one, and
        a device that broke computes nothing more."""
        is_mistake = isinstance(error, RoostError) and not isinstance(error, WorkerDied)
        return not (is_mistake or breaks_device(error) or isinstance(error, Interrupted))

    def skip(self, loader: Batches, split: str, number: int, error: Exception) -> None:
        """Skips a batch of this rank.

        Args:
            loader: The set.
            split: The name of the split.
            number: The number of the batch in a pass.
            error: The error; the local variables of its frames are freed.
        """
        progress = self._context.progress
        text, cause = format_error(error), failed_step.machine_cause(error)
        failed_step.clear_traceback_frames(error)
        if isinstance(error, torch.OutOfMemoryError):
            empty_caches()
        samples = loader.sample_indices(0, number, 1)
        skipped = SkippedStep(
            session=self._reporter.session,
            step=progress.step,
            epoch=progress.epoch,
            batch=number,
            kind="error",
            error=text,
            samples=samples,
            ids=loader.sample_ids(samples),
            split=split,
        )
        self._own.append((skipped, cause))

    def count(self, number: int) -> None:
        """Counts batches of all ranks; every rank must call it with the same number.

        Raises:
            TrainingError: Too many were skipped, in training included.
        """
        self.num_skipped += number
        if self.num_skipped > self._max_skipped:
            last = self.report()
            raise TrainingError(
                f"{self.num_skipped} steps and batches were skipped, the last one by: {last}",
                setting="max_skipped_steps",
                received=self._max_skipped,
                fix=f"look at the samples in {skipped_steps.NAME}, or allow more",
            )

    def report(self) -> str:
        """Prints and logs the batches of all ranks that were not reported yet; every rank must call it.
        Returns the error of the last one."""
        every: Any = [
            pair
            for own in self._ranks.control.gather(self._own, "the skipped batches of an evaluation")
            for pair in own
        ]
        self._own = []
        for skipped, cause in sorted(every, key=lambda pair: pair[0].batch):
            place = f"batch {skipped.batch} of {skipped.split} after step {skipped.step}"
            if self._ranks.is_main:
                self._reporter.log(skipped)
                print(f"skipped {place}: {skipped.error}", flush=True)
            if cause:
                self._context.note_inexact(f"{place} was skipped {cause}")
        return every[-1][0].error if every else ""
