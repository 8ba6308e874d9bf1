"""Asynchronous saves of a trainer's state during training, and the handling of disk errors."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from roost.base.errors import TrainingError
from roost.train.checkpointing.checkpoint_writer import TornCopy, prepare_together
from roost.train.checkpointing.pending_save import FAILURE_WAIT_SECONDS, PendingSave
from roost.train.distributed import sharded_tensors
from roost.train.step.timing import SAVE

if TYPE_CHECKING:
    from roost.train.trainer import Trainer

_ParameterMarks = list[tuple[int, Tensor]]
_LONG_WAIT_SECONDS = 10.0


class CheckpointSaver:
    """Saves a trainer's state. State that the next forward and backward pass may change is copied at once;
    parameters, averages and optimizer states are copied during these passes, and code that changes them calls
    `wait_until_copied` first. A thread then writes the copy, and the hooks are called at the next `poll`.

    With several ranks the hooks are called before the next save or at the end, so at the same step on each.

    Args:
        trainer: The trainer; it need not have checkpoints.
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._pending: PendingSave | None = None
        """The save that is being written."""
        self._first_step: tuple[_ParameterMarks, _ParameterMarks] | None = None
        """Marks of the trained parameters, before and after the forward and backward pass of the first
        step."""
        self._may_copy_late: bool | None = False
        """Whether forward and backward are known to leave the parameters unchanged; None until a save
        compares the marks."""
        self._waited, self._has_said = 0.0, False

    def begin(self) -> None:
        """Called when training begins or continues: observes in the first step whether the forward pass
        changes parameters, as an embedding with ``max_norm`` does."""
        self._may_copy_late = False
        checkpoints = self._trainer.checkpoints
        if checkpoints is not None and checkpoints.asynchronous:
            observe = functools.partial(self._note_marks_after_forward, self._marks())
            self._trainer.stepper.before_optimizer_step = observe

    def _note_marks_after_forward(self, before: _ParameterMarks) -> None:
        self._trainer.stepper.before_optimizer_step = None
        self._first_step, self._may_copy_late = (before, self._marks()), None

    def _marks(self) -> _ParameterMarks:
        """The version and norm of each parameter: a change through ``.data`` does not change the version. No
        sync point."""
        return [(parameter._version, _norm(parameter)) for parameter in self._trained_parameters()]

    def _may_defer(self) -> bool:
        """Whether parameters may be copied during the forward and backward pass. A sync point the first
        time."""
        if self._may_copy_late is None and self._first_step is not None:
            self._may_copy_late = _are_unchanged(*self._first_step)
            self._first_step = None
        return bool(self._may_copy_late)

    def _trained_parameters(self) -> list[Tensor]:
        """The parameters that an optimizer changes."""
        optims = self._trainer.stepper.optimizers.values()
        return [parameter for optim in optims for parameter in optim.parameters if parameter.requires_grad]

    # ---- saving -----------------------------------------------------------------------------------------

    def save(self, reason: str, *, scheduled: int | None = None) -> bool:
        """Saves the current state. If the disk fails, it prints the error and training continues with the
        older checkpoints, except in the last save and when the folder of the checkpoints was removed.

        Args:
            reason: start, scheduled, best, held, requested, signal or final.
            scheduled: Number of the scheduled save, counted from 0; None for other reasons.

        Returns:
            Whether a checkpoint is committed or being written; at the start and at the end: whether it is
            committed.

        Raises:
            TrainingError: The state is not finite, so the newest good checkpoint must remain the newest; or
                the last checkpoint could not be written; or the folder of the checkpoints was removed.
        """
        trainer, checkpoints = self._trainer, self._trainer.checkpoints
        if checkpoints is None:
            return False
        self._wait_for_previous()
        waits = trainer.at_end or reason == "start"
        defer = [] if waits or not self._may_defer() else list(self._deferrable_tensors())
        start = perf_counter()
        trainer.publish("saving")
        trainer.recovery.check_before_save(trainer)
        trainer.stepper.check()
        pending = bool(trainer.agenda.pending)  # if so, this step's results and held save come later
        try:
            prepare_together(trainer.ranks, self._call_before_save)
            self._pending = checkpoints.save(
                trainer.parts(),
                trainer.progress,
                reason=reason,
                held=trainer.requested("hold") and not pending,
                scheduled=scheduled,
                metrics={} if pending else trainer.results,
                inexact=trainer.inexact,
                defer=defer,
                prints_error=trainer.ranks.are_several,
            )
        except OSError as error:
            return self._failed(error, is_last=trainer.at_end)
        finally:
            trainer.agenda.drop_save_requests()
            trainer.stepper.timing.spent[SAVE] += perf_counter() - start
        if waits or not checkpoints.asynchronous:
            return self.finish(is_last=trainer.at_end)
        if defer:
            trainer.stepper.before_optimizer_step = self.wait_until_copied
        trainer.publish("training")
        return True

    def _call_before_save(self) -> None:
        for hook in self._trainer.calls.before_save:
            hook.before_save(self._trainer)

    def save_at_end(self) -> None:
        """Saves the final state of the run, unless a checkpoint of exactly that state is committed."""
        trainer = self._trainer
        trainer.recovery.check_steps(trainer)  # also without hooks that cut rows or save
        self.finish()
        newest = trainer.checkpoints.newest if trainer.checkpoints else None
        is_saved = newest is not None and newest.step == trainer.progress.step and not trainer.agenda.pending
        if trainer.progress.step and not is_saved:
            self.save("final" if trainer.finished else "signal")

    def _deferrable_tensors(self) -> Iterator[Tensor]:
        """The tensors that only an optimizer or a hook changes. The project may change other parameters at
        any time, such as those of an averaged teacher, and through ``.data`` without a new version."""
        trainer = self._trainer
        yield from self._trained_parameters()
        for optim in trainer.stepper.optimizers.values():
            for state in optim.optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, Tensor))
        for average in trainer.averages.values():
            yield from average.state_dict()["weights"].values()

    @property
    def is_writing(self) -> bool:
        """Whether a save is being written."""
        return self._pending is not None and not self._pending.is_done

    # ---- while a save is being written ------------------------------------------------------------------

    def wait_until_copied(self) -> None:
        """Waits until the state is copied; called before an optimizer steps, a hook runs, or any other code
        changes it. On a GPU it does not block: later kernels are ordered after the copy."""
        if self._pending is not None:
            start = perf_counter()
            self._trainer.stepper.before_optimizer_step = None
            self._pending.wait_until_copied()
            self._trainer.stepper.timing.spent[SAVE] += perf_counter() - start

    def poll(self) -> None:
        """Called after a step, before its hooks: finishes a save that is done."""
        if self._pending is None:
            return
        if self._trainer.stepper.before_optimizer_step is not None:  # no optimizer has stepped
            self.wait_until_copied()
        if self._pending.is_done and not self._trainer.ranks.are_several:
            self.finish()

    def finish(self, *, is_last: bool = False) -> bool:
        """Waits until the pending save is committed, then calls the hooks.

        Args:
            is_last: Whether this is the last save of the session.

        Returns:
            Whether it was committed; False also if no save is pending.

        Raises:
            TrainingError: The last checkpoint could not be written, or the folder was removed.
            PeerLost: Another rank has ended.
        """
        trainer, saved = self._trainer, self._pending
        if saved is None:
            return False
        start = perf_counter()
        if not saved.is_done:
            trainer.publish("saving")
        self.wait_until_copied()
        self._pending = None
        try:
            path = saved.wait()
        except OSError as error:
            return self._failed(error, is_last=is_last, is_reported=saved.is_reported)
        except TornCopy as error:
            self._may_copy_late = False
            print(f"checkpoint not written: {error}; it is saved again, copied before training", flush=True)
            if not trainer.ranks.are_several:  # otherwise the caller is about to save
                trainer.agenda.request("save")
            return False
        finally:
            trainer.stepper.timing.spent[SAVE] += perf_counter() - start
        for hook in trainer.calls.save:
            hook.on_save(trainer, path)
        trainer.publish("training")
        return True

    def finish_after_failure(self) -> None:
        """As `finish`, for a run that fails: gives up a save that the other ranks do not complete in
        `FAILURE_WAIT_SECONDS`. They may be waiting for this rank within the step, until it ends."""
        trainer = self._trainer
        if trainer.ranks.are_several and trainer.checkpoints is not None:
            self.wait_until_copied()
            if not trainer.checkpoints.wait(FAILURE_WAIT_SECONDS):
                self._pending = None
        self.finish()

    def _wait_for_previous(self) -> None:
        start = perf_counter()
        self.finish()
        self._waited += perf_counter() - start
        if self._waited > _LONG_WAIT_SECONDS and not self._has_said:
            self._has_said = True
            print(
                f"training has waited {self._waited:.0f} s for checkpoints that were still being written "
                "when the next one was due; save less often (checkpoint.every)",
                flush=True,
            )

    def _failed(self, error: OSError, *, is_last: bool, is_reported: bool = False) -> bool:
        checkpoints = self._trainer.checkpoints
        assert checkpoints is not None
        if not checkpoints.store.folder.exists():
            raise TrainingError(
                "the folder of the checkpoints was removed, so no further training can be saved",
                where=checkpoints.store.folder,
                fix="start the run again; there is no checkpoint to continue from",
            ) from error
        if is_last:
            before = checkpoints.newest
            begins = (
                f"continues from step {before.step}" if before else "begins at step 0: there is no checkpoint"
            )
            raise TrainingError(
                f"the last checkpoint could not be written: {error}",
                fix=f"free disk space, then run `roost continue`; it {begins}",
            ) from error
        if not is_reported:
            print(f"checkpoint not written: {error}; training continues, older ones are intact", flush=True)
        return False


def _norm(parameter: Tensor) -> Tensor:
    """() the norm of the rows that this rank holds, in float32 for 16-bit types."""
    own = sharded_tensors.local_shard(parameter.detach())
    norm: Tensor = torch.linalg.vector_norm(own.float() if own.itemsize < 4 else own)
    return norm


def _are_unchanged(before: _ParameterMarks, after: _ParameterMarks) -> bool:
    if len(before) != len(after):
        return False
    return all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(before, after, strict=True))
