"""What becomes of a run when a step fails: an error in it, or a loss that is not finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from roost.base.errors import ContractError, Damaged, NotFound, PeerLost, RoostError, TrainingError
from roost.package.checkpoints import checkpoint
from roost.package.results import skipped_steps
from roost.package.results.black_box import FailureNote
from roost.train.checkpointing import rank_state
from roost.train.checkpointing.rank_state import RankState
from roost.train.data.batches import Interrupted
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.events import Value
from roost.train.failures import failed_step
from roost.train.failures.black_box_recorder import BlackBoxRecorder
from roost.train.failures.step_report import StepReporter, format_error, format_place, older_checkpoints
from roost.train.step.device_flags import DeviceFlags
from roost.train.step.windows import DrawnWindow, Windows, placeholder_window

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

MAX_ROLLBACKS = 3
_NOT_FINITE = "the loss or a gradient is not finite"
_SKIPPED: Mapping[str, Value] = {"skipped": 1.0}


class Rollback(Exception):
    """The run must go back to before this step, whose loss or gradient is not finite."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class Recovery:
    """Decides what a step that fails does to the run, keeps what is needed to look into it, and tells it.

    A step that is passed over counts as a step: the data go on, the weights stay.

    Args:
        on_non_finite: "stop"; "skip" the step; or "rollback": go back to the newest checkpoint before it, and
            pass over its window, at most 3 times.
        on_step_error: "raise"; or "skip", as long as no optimizer has moved in that step.
        max_skipped_steps: Steps that may be skipped before the run fails.
        box: Keeps the step at which the run ends.
        log: Takes a line for each step that was passed over; no file when None.
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
        self._most, self._reporter = max_skipped_steps, StepReporter(black_box, log, session)
        self.num_skipped = 0
        self.passed_over: set[int] = set()
        """Steps whose windows a rollback passes over."""
        self._flags = DeviceFlags()
        """Of the steps that were looked at since the last row."""
        self._newest_good = 0
        """The newest step that was looked at and found good."""
        self._may_skip = True

    # ---- one step ---------------------------------------------------------------------------------------

    def prepare(self, trainer: Trainer) -> None:
        """A run that may go back needs something to go back to, from its first step on."""
        checkpoints = trainer.checkpoints
        if self.on_non_finite == "rollback" and checkpoints is not None and checkpoints.newest is None:
            trainer.save("start")

    def begin(self, trainer: Trainer) -> None:
        """Training begins, or goes on: from here on the generators are watched.

        Raises:
            ContractError: The stepper has no guard, and the policy needs one.
        """
        guard = trainer.stepper.guard
        looks = self.on_non_finite != "stop"
        if (looks or self.on_step_error == "skip") and (guard is None or guard.checks_step < looks):
            raise ContractError(
                "a step can be passed over only where a guard keeps what it changes",
                setting="on_non_finite" if looks else "on_step_error",
                received=self.on_non_finite if looks else self.on_step_error,
                fix="give it: Stepper(..., guard=Guard(runner))",
            )
        self._may_skip = guard is not None or bool(self.passed_over)
        self._reporter.begin(trainer.stepper.optimizers.values())

    def attempt(self, trainer: Trainer, windows: Windows) -> tuple[Mapping[str, Value], DrawnWindow]:
        """Draws a window and takes its step; gives what is recorded, and the window.

        Raises:
            Interrupted: A stop came while the data were waited for.
            Exception: What the step raised, where it may not be passed over; the black box then holds it.
            TrainingError: Too many were passed over.
        """
        drawn = None
        try:
            self._reporter.before_step()
            trainer.events.begin_step()
            drawn = windows.draw()
            if not drawn.window:
                return self._empty(trainer), drawn
            return (
                self._step(trainer, drawn.window) if self._may_skip else trainer.take_step(drawn.window)
            ), drawn
        except Interrupted:
            raise
        except Exception as error:
            values = self._failed(trainer, drawn and drawn.window, error)
            if values is None:
                raise
            return values, drawn or placeholder_window(trainer)

    def _empty(self, trainer: Trainer) -> Mapping[str, Value]:
        """A step without anything to learn from."""
        words = "all of its batches are empty"
        if trainer.ranks.are_several:
            words += ", or those of one rank"
        note = self._reporter.note_for(trainer, trainer.progress.step + 1, "empty", words)
        self._reporter.log_skipped(note)
        print(f"passed over {format_place(note)}: {note.error}", flush=True)
        if failed_step.is_epoch_empty(trainer, note):
            raise failed_step.empty_epoch_error(f"in each step {words}")
        return _SKIPPED

    def _step(self, trainer: Trainer, window: Sequence[Any]) -> Mapping[str, Value]:
        """A step that may be passed over."""
        number, guard = trainer.progress.step + 1, trainer.stepper.guard
        if number in self.passed_over:
            self._reporter.log_skipped(self._reporter.note_for(trainer, number, "rollback", _NOT_FINITE))
            return _SKIPPED
        if guard is None:
            return trainer.take_step(window)
        guard.reset()
        values = trainer.take_step(window)
        if guard.flag is not None:
            self._flags.add(number, guard.flag)
        return values

    def _failed(
        self, trainer: Trainer, window: Sequence[Any] | None, error: Exception
    ) -> Mapping[str, Value] | None:
        """Called inside the ``except`` of a step that raised; gives what is recorded instead of it, or None
        where it may not be passed over: then the black box holds it.

        Args:
            trainer: Its progress is that of the step before.
            window: Its micro-batches; None when drawing them failed.

        Raises:
            TrainingError: Too many were passed over.
        """
        note = self._reporter.note_for(trainer, trainer.progress.step + 1, "error", format_error(error))
        guard, why_not = trainer.stepper.guard, failed_step.why_not_skippable(trainer, window, error)
        if guard is not None and window is not None and not why_not:
            guard.restore()
        # A mistake stays one at the next step; a worker that died need not.
        is_mistake = isinstance(error, RoostError) and not isinstance(error, WorkerDied | PeerLost)
        if self.on_step_error == "raise" or is_mistake or why_not:
            self._reporter.keep(trainer, note, window, with_state=True)
            if self.on_step_error == "skip" and why_not:
                error.add_note(f"not skipped: {why_not}")
            if not isinstance(error, RoostError):
                error.add_note(f"in {format_place(note)}")
            return None
        self._pass_over(note)
        has_nothing = window is None and failed_step.is_epoch_empty(trainer, note)
        if has_nothing or self._are_too_many:
            self._reporter.keep(trainer, note, window, with_state=True)
            last = f"each step was skipped; the last one, {note.step}: {note.error}"
            raise (failed_step.empty_epoch_error(last) if has_nothing else self._too_many(note)) from error
        for optim in trainer.stepper.optimizers.values():
            optim.clear()
        failed_step.clear_traceback_frames(error)
        if why := failed_step.machine_cause_on_any_rank(trainer.ranks, error):
            trainer.note_inexact(f"step {note.step} was skipped {why}")
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
        return _SKIPPED

    # ---- looking, where values are read anyway ----------------------------------------------------------

    def check_steps(self, trainer: Trainer) -> None:
        """Finds out which steps since the last look were bad. A sync point; for rows and saves.

        Raises:
            Rollback: There is one, and the policy goes back.
            TrainingError: Too many were skipped, or skipping does not help.
        """
        bad, good = self._flags.read()
        self._newest_good = good or self._newest_good
        if not bad:
            self._flags.clear()
            return
        # Weights that broke although the gradient was finite: from then on every step is bad.
        broken = failed_step.describe_nonfinite_weights(trainer)
        if self.on_non_finite == "rollback":
            # The flags stay: whoever catches this does not get further.
            raise Rollback(self._newest_good if broken and 0 < self._newest_good < bad[0] else bad[0])
        self._flags.clear()
        for step in bad:
            if broken and step > self._newest_good:
                raise self.nonfinite_error(trainer, broken, self._newest_good or step)
            note = self._reporter.note_for(trainer, step, "nonfinite", _NOT_FINITE)
            self._pass_over(note)
            if self._are_too_many:
                self._reporter.keep(trainer, note, None, with_state=False)
                raise self._too_many(note)

    def check_before_save(self, trainer: Trainer) -> None:
        """Makes sure that no bad step is older than the newest checkpoint, and its weights are finite.

        Raises:
            Rollback: There is one, and the policy goes back.
            TrainingError: There is one, and the run ends by it.
        """
        self.check_steps(trainer)
        first = trainer.events.bad_step()
        if first is not None:
            raise self.nonfinite_error(trainer, _NOT_FINITE, first)
        if broken := failed_step.describe_nonfinite_weights(trainer):
            step = self._newest_good or trainer.progress.step
            if self.on_non_finite == "rollback" and step:
                raise Rollback(step)
            raise self.nonfinite_error(trainer, broken, step or None)

    def nonfinite_error(self, trainer: Trainer, what: str, first: int | None) -> TrainingError:
        """The error of a run that stops at what is not finite; the black box holds the first bad step.

        Args:
            trainer: Where it is.
            what: What is wrong.
            first: That step, None when nobody knows.
        """
        from_before = ""
        if first is not None:
            note = self._reporter.note_for(trainer, first, "nonfinite", what)
            what = f"{what}, first in {format_place(note)}"
            if first > 1 and any(one.max_grad_norm is None for one in trainer.stepper.optimizers.values()):
                what += f"; without max_grad_norm nobody looked at the gradient of step {first - 1}"
            self._reporter.keep(trainer, note, None, with_state=False)
            if note.checkpoint is not None:
                from_before = f"; checkpoint {note.checkpoint} is from before it"
        return TrainingError(what, fix=self._advice(trainer) + from_before)

    def _advice(self, trainer: Trainer) -> str:
        """What to do about values that are not finite, without what is done already."""
        clips = all(one.max_grad_norm is not None for one in trainer.stepper.optimizers.values())
        ways = ["make the learning rate smaller"]
        ways += [] if clips else ["clip with max_grad_norm"]
        ways += ["set on_non_finite"] if self.on_non_finite == "stop" else []
        return f"{', '.join(ways)}, or look for bad samples"

    # ---- going back -------------------------------------------------------------------------------------

    def roll_back(self, trainer: Trainer, step: int) -> None:
        """Puts the trainer back to the newest good checkpoint before ``step``, and passes over its window.

        Raises:
            TrainingError: It was done too often, or there is no checkpoint.
        """
        note = self._reporter.note_for(trainer, step, "rollback", _NOT_FINITE)
        if len(self.passed_over) == MAX_ROLLBACKS or step in self.passed_over:
            self._reporter.keep(trainer, note, None, with_state=False)
            steps = sorted(self.passed_over)
            times = "a rollback (step" if len(steps) == 1 else f"{len(steps)} rollbacks (steps"
            raise TrainingError(
                f"step {step} is not finite either, after {times} {', '.join(map(str, steps))})",
                fix=self._reporter.fix_for(trainer, {*steps, step}),
            )
        progress, rank = trainer.progress, RankState(trainer)
        far, samples = progress.step, progress.samples
        id = self._load(trainer, rank, before=step)
        self.passed_over.add(step)
        self._flags.clear()
        self._newest_good = 0
        trainer.stepper.timing.roll_back(far - progress.step, samples - progress.samples)
        self._reporter.log_rollback(progress.step)
        trainer.handle_rollback()
        rank.restore()  # last: whatever the hooks drew on the way here is undone
        self.begin(trainer)
        print(
            f"{note.error} in {format_place(note)}: back to checkpoint {id} of step {progress.step}, "
            "and its window is passed over",
            flush=True,
        )

    def _load(self, trainer: Trainer, own: RankState, *, before: int) -> int:
        for info in older_checkpoints(trainer, before):
            assert trainer.checkpoints is not None
            try:
                rank_state.load(trainer, trainer.checkpoints, own, id=info.id)
            except Damaged as error:
                if trainer.ranks.is_main:
                    aside = checkpoint.set_aside(trainer.checkpoints.store.path(info.id)).name
                    print(f"{error.message}; set aside as {aside}, the one before it is tried", flush=True)
            except (NotFound, OSError) as error:
                print(f"not back to checkpoint {info.id}: {error}", flush=True)
            else:
                return info.id
        raise TrainingError(
            f"step {before} is not finite, and there is no checkpoint to go back to",
            setting="on_non_finite",
            received="rollback",
            fix="save more often (checkpoint.every), or use skip",
        )

    # ---- passing over -----------------------------------------------------------------------------------

    def _pass_over(self, note: FailureNote) -> None:
        self.num_skipped += 1
        self._reporter.log_skipped(note)
        print(f"skipped {format_place(note)}: {note.error}", flush=True)

    @property
    def _are_too_many(self) -> bool:
        return self.num_skipped > self._most

    def _too_many(self, note: FailureNote) -> TrainingError:
        number = "1 step was" if self.num_skipped == 1 else f"{self.num_skipped} steps were"
        return TrainingError(
            f"{number} skipped; the last one, {note.step}: {note.error}",
            setting="max_skipped_steps",
            received=self._most,
            fix=f"look at the samples in {skipped_steps.NAME}, or allow more",
        )

    # ---- state ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What was passed over so far."""
        return {"skipped": self.num_skipped, "passed_over": sorted(self.passed_over)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave. Which windows are passed over stays known: a rollback loads the
        state from before it."""
        self.num_skipped = state["skipped"]
        self.passed_over |= set(state["passed_over"])
