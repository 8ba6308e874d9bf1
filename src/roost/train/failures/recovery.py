"""Recovery from a failed step: one that raises, or whose loss or gradient is not finite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from roost.base.errors import ContractError, Damaged, NotFound, PeerLost, RoostError, TrainingError
from roost.package.checkpoints import checkpoint
from roost.package.results import skipped_steps
from roost.package.results.black_box import FailureNote
from roost.train.accelerators.registry import empty_caches
from roost.train.data.batches import Interrupted
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.events import Events, Value
from roost.train.failures import failed_step
from roost.train.failures.black_box_recorder import BlackBoxRecorder
from roost.train.failures.skipped_batches import SkippedBatches
from roost.train.failures.step_context import StepContext
from roost.train.failures.step_report import StepReporter, format_error, format_place, older_checkpoints
from roost.train.step.device_flags import DeviceFlags
from roost.train.step.loss import StepFunction
from roost.train.step.stepper import Stepper
from roost.train.step.windows import DrawnWindow, Windows

MAX_ROLLBACKS = 3
_NOT_FINITE = "the loss or a gradient is not finite"
_SKIPPED: Mapping[str, Value] = {"skipped": 1.0}


class Rollback(Exception):
    """Raised to return to the state before a step whose loss or gradient is not finite."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class Recovery:
    """Handles failed steps: skips the step, rolls the run back or ends it, keeps the step in the black box
    and reports it.

    A skipped step counts as a step: its window is consumed, and the weights stay as they are.

    Args:
        on_non_finite: "stop"; "skip" the step; or "rollback": return to the newest checkpoint before it and
            skip its window, at most 3 times.
        on_step_error: "raise"; or "skip", unless an optimizer has already stepped in that step. Failing
            batches of evaluations are skipped, too.
        max_skipped_steps: Steps and batches of evaluations that may be skipped before the run fails.
        black_box: Keeps the step by which the run fails.
        log: File that gets a line for each skipped step; no file when None.
        session: Number of the running session.
    """

    def __init__(
        self,
        *,
        on_non_finite: Literal["stop", "skip", "rollback"] = "stop",
        on_step_error: Literal["raise", "skip"] = "raise",
        max_skipped_steps: int = 100,
        black_box: BlackBoxRecorder | None = None,
        log: Path | None = None,
        session: int = 0,
    ) -> None:
        self.on_non_finite, self.on_step_error = on_non_finite, on_step_error
        self._max_skipped, self._reporter = max_skipped_steps, StepReporter(black_box, log, session)
        self.num_skipped = 0
        self.rolled_back_steps: set[int] = set()
        """The steps whose windows are skipped because of a rollback."""
        self._flags = DeviceFlags()
        """The flags on the device of the steps since the last check: whether loss and gradient are finite."""
        self._newest_good = 0
        """The newest step that was checked and is finite."""
        self._may_skip = True

    # ---- one step ---------------------------------------------------------------------------------------

    def begin(self, stepper: Stepper) -> None:
        """Called when training begins or continues; from here on the random generators are remembered.

        Raises:
            ContractError: The stepper has no guard, but the policy needs one.
        """
        guard = stepper.guard
        needs_check = self.on_non_finite != "stop"
        if (needs_check or self.on_step_error == "skip") and (
            guard is None or guard.checks_step < needs_check
        ):
            raise ContractError(
                "a step can be skipped only if the stepper has a guard, which keeps what the step changes",
                setting="on_non_finite" if needs_check else "on_step_error",
                received=self.on_non_finite if needs_check else self.on_step_error,
                fix="give the stepper a NonfiniteGuard (roost.train.step.nonfinite_check)",
            )
        self._may_skip = guard is not None or bool(self.rolled_back_steps)
        self._reporter.begin(stepper.optimizers.values())

    def attempt(
        self, context: StepContext, windows: Windows, take_step: StepFunction
    ) -> tuple[Mapping[str, Value], DrawnWindow]:
        """Draws a window and takes its step; returns the values to record and the window.

        Args:
            context: The surroundings of the step.
            windows: Draws the window.
            take_step: Takes the step of a window; returns the values to record.

        Raises:
            Interrupted: A stop was requested while it waited for data.
            Exception: The error of the step, if it may not be skipped; the black box holds the step then.
            TrainingError: Too many steps were skipped.
        """
        drawn = None
        try:
            self._reporter.before_step()
            drawn = windows.draw()
            if not drawn.window:
                return self._empty(context), drawn
            return (
                self._step(context, drawn.window, take_step) if self._may_skip else take_step(drawn.window)
            ), drawn
        except Interrupted:
            raise
        except Exception as error:
            values = self._failed(context, drawn and drawn.window, error)
            if values is None:
                raise
            return values, drawn or windows.placeholder()

    def _empty(self, context: StepContext) -> Mapping[str, Value]:
        """Records a step whose window has no sample."""
        words = "all of its batches are empty"
        if context.ranks.are_several:
            words += ", or those of one rank"
        note = self._reporter.note_for(context, context.progress.step + 1, "empty", words)
        self._reporter.log_skipped(note)
        print(f"skipped {format_place(note)}: {note.error}", flush=True)
        if failed_step.is_epoch_empty(context, note):
            raise failed_step.empty_epoch_error(f"in each step {words}")
        return _SKIPPED

    def _step(
        self, context: StepContext, window: Sequence[Any], take_step: StepFunction
    ) -> Mapping[str, Value]:
        """Takes a step that may be skipped."""
        number, guard = context.progress.step + 1, context.stepper.guard
        if number in self.rolled_back_steps:
            self._reporter.log_skipped(self._reporter.note_for(context, number, "rollback", _NOT_FINITE))
            return _SKIPPED
        if guard is None:
            return take_step(window)
        guard.reset()
        values = take_step(window)
        if guard.flag is not None:
            self._flags.add(number, guard.flag)
        return values

    def _failed(
        self, context: StepContext, window: Sequence[Any] | None, error: Exception
    ) -> Mapping[str, Value] | None:
        """Handles a step that raised; called within its ``except``. Returns the values to record in its
        place; None if the step may not be skipped, and then the black box holds it.

        Args:
            context: The surroundings of the step.
            window: The micro-batches of the step; None if drawing them failed.
            error: The error of the step.

        Raises:
            TrainingError: Too many steps were skipped.
        """
        note = self._reporter.note_for(context, context.progress.step + 1, "error", format_error(error))
        guard, why_not = context.stepper.guard, failed_step.why_not_skippable(context, window, error)
        if guard is not None and window is not None and not why_not:
            guard.restore()
        # A user's mistake would fail the next step, too; a loader worker that died need not.
        is_mistake = isinstance(error, RoostError) and not isinstance(error, WorkerDied | PeerLost)
        if self.on_step_error == "raise" or is_mistake or why_not:
            self._reporter.keep(context, note, window, with_state=True)
            if self.on_step_error == "skip" and why_not:
                error.add_note(f"not skipped: {why_not}")
            if not isinstance(error, RoostError):
                error.add_note(f"in {format_place(note)}")
            return None
        self._count_skipped(note)
        has_nothing = window is None and failed_step.is_epoch_empty(context, note)
        if has_nothing or self._are_too_many:
            self._reporter.keep(context, note, window, with_state=True)
            last = f"every step was skipped, the last one, step {note.step}, by: {note.error}"
            raise (failed_step.empty_epoch_error(last) if has_nothing else self._too_many(note)) from error
        for optim in context.stepper.optimizers.values():
            optim.clear()
        failed_step.clear_traceback_frames(error)
        if why := failed_step.machine_cause_on_any_rank(context.ranks, error):
            context.note_inexact(f"step {note.step} was skipped {why}")
        if isinstance(error, torch.OutOfMemoryError):
            empty_caches()
        return _SKIPPED

    # ---- evaluations --------------------------------------------------------------------------------------

    def skipped_batches(self, context: StepContext) -> SkippedBatches | None:
        """Returns what skips failing batches of an evaluation, counted with the steps; None if an error ends
        the run."""
        if self.on_step_error == "raise":
            return None
        return SkippedBatches(
            context, self._reporter, num_skipped=self.num_skipped, max_skipped=self._max_skipped
        )

    # ---- checks, where values are read from the device anyway -------------------------------------------

    def check_steps(self, context: StepContext) -> None:
        """Reads which steps since the last check were not finite. A sync point; called for rows and saves.

        Raises:
            Rollback: A step was not finite, and the policy is "rollback".
            TrainingError: Too many steps were skipped, or the weights themselves are not finite.
        """
        bad, good = self._flags.read()
        self._newest_good = good or self._newest_good
        if not bad:
            self._flags.clear()
            return
        # Weights can become non-finite by a finite gradient; from then on every step is non-finite.
        broken = failed_step.describe_nonfinite_weights(context.runner)
        if self.on_non_finite == "rollback":
            # The flags stay set until the rollback clears them, so no check in between can pass.
            raise Rollback(self._newest_good if broken and 0 < self._newest_good < bad[0] else bad[0])
        self._flags.clear()
        for step in bad:
            if broken and step > self._newest_good:
                raise self.nonfinite_error(context, broken, self._newest_good or step)
            note = self._reporter.note_for(context, step, "nonfinite", _NOT_FINITE)
            self._count_skipped(note)
            if self._are_too_many:
                self._reporter.keep(context, note, None, with_state=False)
                raise self._too_many(note)

    def check_before_save(self, context: StepContext, events: Events) -> None:
        """Makes sure that all steps before a checkpoint and the weights in it are finite. A sync point.

        Args:
            context: The surroundings of the next step.
            events: The metrics since the last row.

        Raises:
            Rollback: A step was not finite, and the policy is "rollback".
            TrainingError: A step or a weight is not finite, and the run ends by it.
        """
        self.check_steps(context)
        first = events.bad_step()
        if first is not None:
            raise self.nonfinite_error(context, _NOT_FINITE, first)
        if broken := failed_step.describe_nonfinite_weights(context.runner):
            step = self._newest_good or context.progress.step
            if self.on_non_finite == "rollback" and step:
                raise Rollback(step)
            raise self.nonfinite_error(context, broken, step or None)

    def nonfinite_error(self, context: StepContext, what: str, first: int | None) -> TrainingError:
        """The error of a run that stops because a value is not finite; keeps the first such step in the black
        box.

        Args:
            context: The surroundings of the next step.
            what: The value that is not finite, as a sentence.
            first: The first step with such a value; None if it is unknown.
        """
        from_before = ""
        if first is not None:
            note = self._reporter.note_for(context, first, "nonfinite", what)
            what = f"{what}, first in {format_place(note)}"
            if first > 1 and any(one.max_grad_norm is None for one in context.stepper.optimizers.values()):
                what += f"; without max_grad_norm the gradient of step {first - 1} was not checked"
            if context.last_finite is not None and context.last_finite[0] <= first:
                what += "; train/loss was {1:.4g} in the row of step {0}".format(*context.last_finite)
            self._reporter.keep(context, note, None, with_state=False)
            if note.checkpoint is not None:
                from_before = f"; checkpoint {note.checkpoint} is from before it"
        return TrainingError(what, fix=self._advice(context.stepper) + from_before)

    def _advice(self, stepper: Stepper) -> str:
        """The fix of values that are not finite, without the measures that are in use already."""
        clips = all(one.max_grad_norm is not None for one in stepper.optimizers.values())
        ways = ["lower the learning rate"]
        ways += [] if clips else ["set max_grad_norm of the optimizer, for example to 1.0"]
        ways += ["set on_non_finite: skip or rollback"] if self.on_non_finite == "stop" else []
        return f"{', '.join(ways)}, or look for bad samples"

    # ---- rollback ---------------------------------------------------------------------------------------

    def roll_back(self, context: StepContext, step: int, load: Callable[[int], object]) -> str:
        """Loads the newest good checkpoint before ``step`` and marks the window of ``step`` to be skipped;
        `begin` must be called next.

        Args:
            context: The surroundings of the step.
            step: The step that is not finite.
            load: Loads a checkpoint by its id, into all parts of the run.

        Returns:
            A line for the user.

        Raises:
            TrainingError: The run was rolled back too often, or there is no checkpoint.
        """
        note = self._reporter.note_for(context, step, "rollback", _NOT_FINITE)
        if len(self.rolled_back_steps) == MAX_ROLLBACKS or step in self.rolled_back_steps:
            self._reporter.keep(context, note, None, with_state=False)
            steps = sorted(self.rolled_back_steps)
            times = "a rollback (step" if len(steps) == 1 else f"{len(steps)} rollbacks (steps"
            raise TrainingError(
                f"step {step} is not finite either, after {times} {', '.join(map(str, steps))})",
                fix=self._reporter.fix_for(context, {*steps, step}),
            )
        progress = context.progress
        far, samples = progress.step, progress.samples
        id = self._load_older(context, load, before=step)
        self.rolled_back_steps.add(step)
        self._flags.clear()
        self._newest_good = 0
        context.stepper.timing.roll_back(far - progress.step, samples - progress.samples)
        self._reporter.log_rollback(progress.step)
        return (
            f"{note.error} in {format_place(note)}: rolled back to checkpoint {id} of step {progress.step}; "
            "its window is skipped from now on"
        )

    def _load_older(self, context: StepContext, load: Callable[[int], object], *, before: int) -> int:
        """Loads the newest good checkpoint before a step; returns its id."""
        checkpoints = context.checkpoints
        for manifest in older_checkpoints(checkpoints, context.ranks, before):
            assert checkpoints is not None
            try:
                load(manifest.id)
            except Damaged as error:
                if context.ranks.is_main:
                    aside = checkpoint.set_aside(checkpoints.store.path(manifest.id)).name
                    print(f"{error.message}; set aside as {aside}, trying the previous one", flush=True)
            except (NotFound, OSError) as error:
                print(f"cannot roll back to checkpoint {manifest.id}: {error}", flush=True)
            else:
                return manifest.id
        raise TrainingError(
            f"step {before} is not finite, and there is no checkpoint to roll back to",
            setting="on_non_finite",
            received="rollback",
            fix="save more often (checkpoint.every), or use skip",
        )

    # ---- skipping ---------------------------------------------------------------------------------------

    def _count_skipped(self, note: FailureNote) -> None:
        self.num_skipped += 1
        self._reporter.log_skipped(note)
        print(f"skipped {format_place(note)}: {note.error}", flush=True)

    @property
    def _are_too_many(self) -> bool:
        return self.num_skipped > self._max_skipped

    def _too_many(self, note: FailureNote) -> TrainingError:
        number = "1 step was" if self.num_skipped == 1 else f"{self.num_skipped} steps were"
        return TrainingError(
            f"{number} skipped, the last one, step {note.step}, by: {note.error}",
            setting="max_skipped_steps",
            received=self._max_skipped,
            fix=f"look at the samples in {skipped_steps.NAME}, or allow more skipped steps",
        )

    # ---- state ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of skipped steps and the windows that rollbacks skip."""
        return {"skipped": self.num_skipped, "passed_over": sorted(self.rolled_back_steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads the state. The windows that are skipped now are kept, because a rollback loads a state from
        before them."""
        self.num_skipped = state["skipped"]
        self.rolled_back_steps |= set(state["passed_over"])
