"""Saving and loading the state of a run.

A save, from the request to the renamed folder and what follows it:

```
Trainer.save
    Checkpointer.save
        finish the previous save                # its hooks are called, if they were not yet
        prepare                                 # the state must be finite; hooks make their files durable
        Checkpoints.save
            copy                                # `staging`; some tensors during the next step: `late_copies`
            PendingSave starts a thread         # `checkpoint_writer`; training continues
                write                           # each rank its files
                commit                          # the manifest, and one rename
                retain                          # remove the checkpoints that no track keeps
    Checkpointer.finish, after a later step
        Hook.on_save
```

A loop without a Trainer calls `Checkpoints.save`: it copies, and its thread does the rest.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from roost.base.errors import TrainingError
from roost.train.checkpointing.checkpoint_writer import (
    FAILURE_WAIT_SECONDS,
    PendingSave,
    TornCopy,
    prepare_together,
)
from roost.train.checkpointing.checkpoints import Checkpoints, Stateful
from roost.train.checkpointing.late_copies import LateCopies
from roost.train.distributed.ranks import Ranks
from roost.train.progress import Progress
from roost.train.step.timing import SAVE, Timing

_LONG_WAIT_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class StateToSave:
    """The state that a checkpoint will hold, and what its manifest will say."""

    parts: Mapping[str, Stateful]
    progress: Progress
    held: bool
    """Whether the checkpoint is in the held track."""
    metrics: Mapping[str, float]
    """Metrics measured at exactly this step, for the best track."""
    inexact: list[str]
    """Why the run is not exact any more."""


class Checkpointer:
    """Saves the state of a run while its training continues.

    State that the next forward and backward pass may change is copied at once; the tensors of `late_copies`
    are copied during these passes, and code that changes them calls `wait_until_copied` first. A thread then
    writes the copy, and `on_save` is called at the next `poll`. With several ranks it is called before the
    next save or at the end, so at the same step on each.

    Args:
        checkpoints: Where to save; None: nothing is saved.
        ranks: The ranks that train and save together.
        timing: The time that saving takes from training is counted here.
        late_copies: The tensors that may be copied late.
        prepare: Called on every rank before the copy: checks that the state may be saved, makes durable what
            must not be older outside a checkpoint than inside it, and returns the state.
        drop_requests: Called when the state is copied, or could not be: the requests for this save are
            served.
        request_save: Called if a copy was torn, so that the state is saved again.
        on_save: Called with the folder of each committed checkpoint.
        publish: Called with the phase of the run: "saving", then "training".
    """

    def __init__(
        self,
        checkpoints: Checkpoints | None,
        *,
        ranks: Ranks,
        timing: Timing,
        late_copies: LateCopies,
        prepare: Callable[[], StateToSave],
        drop_requests: Callable[[], None],
        request_save: Callable[[], None],
        on_save: Callable[[Path], None],
        publish: Callable[[str], None],
    ) -> None:
        self.checkpoints = checkpoints
        self._ranks, self._timing, self._late_copies = ranks, timing, late_copies
        self._prepare, self._drop_requests, self._request_save = prepare, drop_requests, request_save
        self._on_save, self._publish = on_save, publish
        self._pending: PendingSave | None = None
        """The save that is being written."""
        self._waited, self._has_warned = 0.0, False
        self._pid: int | None = None
        """The process that trains, once it has begun."""

    def begin(self) -> None:
        """Called when training begins or continues, before the first step."""
        self._pid = os.getpid()
        if self.checkpoints is not None and self.checkpoints.asynchronous:
            self._late_copies.begin_first_step()

    # ---- saving -----------------------------------------------------------------------------------------

    def save(self, reason: str, *, scheduled: int | None = None, is_last: bool = False) -> bool:
        """Saves the current state. If the disk fails, it prints the error and training continues with the
        older checkpoints, except in the last save and when the folder of the checkpoints was removed.

        Args:
            reason: start, scheduled, best, held, requested, signal or final.
            scheduled: Number of the scheduled save, counted from 0; None for other reasons.
            is_last: Whether this is the last save of the session.

        Returns:
            Whether a checkpoint is committed or being written; at the start and at the end: whether it is
            committed.

        Raises:
            TrainingError: The state is not finite, so the newest good checkpoint must remain the newest; or
                the last checkpoint could not be written; or the folder of the checkpoints was removed; or
                this process was forked from the one that trains.
        """
        checkpoints = self.checkpoints
        if checkpoints is None:
            return False
        if self._pid not in (None, os.getpid()):
            raise TrainingError(
                f"process {self._pid} trains, and this one is a copy of it that the project's code made: "
                "both would save into one package",
                fix="end the copy by os._exit(), or start it by multiprocessing",
            )
        self._finish_previous()
        waits = is_last or reason == "start"
        late = [] if waits else self._late_copies.tensors()
        start = perf_counter()
        self._publish("saving")
        try:
            state = prepare_together(self._ranks, self._prepare)
            self._pending = checkpoints.save(
                state.parts,
                state.progress,
                reason=reason,
                held=state.held,
                scheduled=scheduled,
                metrics=state.metrics,
                inexact=state.inexact,
                defer=late,
                prints_error=self._ranks.are_several,
            )
        except OSError as error:
            return self._failed(error, is_last=is_last)
        finally:
            self._drop_requests()
            self._timing.spent[SAVE] += perf_counter() - start
        if waits or not checkpoints.asynchronous:
            return self.finish(is_last=is_last)
        self._publish("training")
        return True

    def _finish_previous(self) -> None:
        start = perf_counter()
        self.finish()
        self._waited += perf_counter() - start
        if self._waited > _LONG_WAIT_SECONDS and not self._has_warned:
            self._has_warned = True
            print(
                f"training has waited {self._waited:.0f} s for checkpoints that were still being written "
                "when the next one was due; save less often (checkpoint.every)",
                flush=True,
            )

    # ---- while a save is being written ------------------------------------------------------------------

    @property
    def is_copying(self) -> bool:
        """Whether the state must not change yet, because tensors are still being copied."""
        return self._pending is not None and not self._pending.is_copied

    def before_optimizer_step(self) -> None:
        """Called in each step, before an optimizer changes weights."""
        if self._late_copies.is_in_first_step:
            self._late_copies.end_first_pass()
        if self._pending is not None:
            self.wait_until_copied()

    def wait_until_copied(self) -> None:
        """Waits until the state is copied; called before a hook runs, or any other code changes it. On a GPU
        it does not block: later kernels are ordered after the copy."""
        if self._pending is not None:
            start = perf_counter()
            self._pending.wait_until_copied()
            self._timing.spent[SAVE] += perf_counter() - start

    def poll(self) -> None:
        """Called after a step, before its hooks: finishes a save that is done."""
        if self._pending is None:
            return
        self.wait_until_copied()  # if no optimizer has stepped, the copy may be still to be made
        if self._pending.is_done and not self._ranks.are_several:
            self.finish()

    def finish(self, *, is_last: bool = False) -> bool:
        """Waits until the pending save is committed, then calls `on_save`.

        Args:
            is_last: Whether this is the last save of the session.

        Returns:
            Whether it was committed; False also if no save is pending.

        Raises:
            TrainingError: The last checkpoint could not be written, or the folder was removed.
            PeerLost: Another rank has ended.
        """
        saved = self._pending
        if saved is None:
            return False
        start = perf_counter()
        if not saved.is_done:
            self._publish("saving")
        self.wait_until_copied()
        self._pending = None
        try:
            path = saved.wait()
        except OSError as error:
            return self._failed(error, is_last=is_last, is_reported=saved.is_reported)
        except TornCopy as error:
            self._late_copies.give_up()
            print(f"checkpoint not written: {error}; it is saved again, copied before training", flush=True)
            if not self._ranks.are_several:  # otherwise the caller is about to save
                self._request_save()
            return False
        finally:
            self._timing.spent[SAVE] += perf_counter() - start
        self._on_save(path)
        self._publish("training")
        return True

    def finish_after_failure(self) -> None:
        """As `finish`, for a run that fails: gives up a save that the other ranks do not complete in
        `FAILURE_WAIT_SECONDS`. They may be waiting for this rank within the step, until it ends."""
        if self._ranks.are_several and self.checkpoints is not None:
            self.wait_until_copied()
            if not self.checkpoints.wait(FAILURE_WAIT_SECONDS):
                self._pending = None
        self.finish()

    def _failed(self, error: OSError, *, is_last: bool, is_reported: bool = False) -> bool:
        checkpoints = self.checkpoints
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
                fix=f"{_fix_of(error)}, then run `roost continue`; it {begins}",
            ) from error
        if not is_reported:
            print(f"checkpoint not written: {error}; training continues, older ones are intact", flush=True)
        return False


def _fix_of(error: OSError) -> str:
    """Returns what to do so that the next session can save."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free disk space"
    if error.errno in (errno.EPERM, errno.EACCES, errno.EROFS):
        return "make the package's Checkpoints writable"
    return "repair the disk or its mount"
