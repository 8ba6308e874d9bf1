"""Writing to a package from Python: its lock, its session, its checkpoints."""

from __future__ import annotations

import fcntl
import operator
import os
import sys
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from roost.base import durable
from roost.base.errors import Refused
from roost.config import interpolation
from roost.config.sections.checkpoint import CheckpointSettings
from roost.config.settings import parse_state_settings
from roost.package import live_progress, records
from roost.package.checkpoints import checkpoint, retention
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.pickled_values import Pickles
from roost.package.checkpoints.retention import RetentionPolicy, policy_from_settings
from roost.package.kinds import PackageKind, TaskKind
from roost.package.live_progress import ProgressFile
from roost.package.owner import takeover
from roost.package.owner.owner_thread import OwnerThread
from roost.package.package import PackageFolder
from roost.package.records import ROW_FIELDS, RecordsWriter
from roost.package.seals import session_seal
from roost.package.session_schema import SessionRequest
from roost.package.sessions import UnsupervisedRecord
from roost.train.progress import Progress

if TYPE_CHECKING:
    from roost.train.checkpointing.checkpoints import Checkpoints

STATE = "state"
"""The part of a checkpoint that holds what `roost.Package.save` was given."""
_PUBLICATION_SECONDS = 0.1
"""Interval at which rows update the progress record."""


class _FixedState:
    """A given state as the object with a ``state_dict`` that `Checkpoints` takes."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> Any:
        return self._state

    def load_state_dict(self, state: Any) -> None:
        self._state = state


class PackageWriter:
    """Writes to a package within one ``with`` block. The first write takes the lock and begins a session in
    this process, which ends with the block.

    A killed program leaves a session with the state "running" whose process is gone; readers take it as
    crashed. A forked child has a copy of this object; it neither writes nor ends the session.

    Args:
        package: The package.
        part: The name of the part of a checkpoint that holds a saved state.
        policy: Decides which checkpoints stay; None: that of the setting ``checkpoint``.
        pickles: As for `Checkpoints`.
    """

    def __init__(
        self,
        package: PackageFolder,
        *,
        part: str = STATE,
        policy: RetentionPolicy | None = None,
        pickles: Pickles | None = None,
    ) -> None:
        self._package, self._part, self._policy, self._pickles = package, part, policy, pickles
        self._pid = os.getpid()
        self._lock_fd: int | None = None
        self._owner: OwnerThread | None = None
        self._record: UnsupervisedRecord | None = None
        self._checkpoints: Checkpoints | None = None
        self._rows: RecordsWriter | None = None
        self._progress_file: ProgressFile | None = None
        self._logged: Progress | None = None
        """The position of the newest row of `log`."""
        self._next_publication = 0.0
        """The monotonic time from which the next row updates the progress record."""

    # ---- the session --------------------------------------------------------------------------------------

    def checkpoints(self) -> Checkpoints:
        """Returns the checkpoints to save to; the first call takes the lock and begins the session.

        Raises:
            Refused: Another process writes to this package, or this process was forked.
            CheckpointError: All checkpoints are damaged.
            OSError: The session cannot be recorded.
        """
        self.require_own_process()
        if self._checkpoints is None:
            self._begin_session(None)
        assert self._checkpoints is not None
        return self._checkpoints

    def set_current(self, id: int) -> None:
        """Begins a session at checkpoint ``id``, after ending the current one.

        Raises:
            NotFound: There is no such checkpoint.
            CheckpointError: The checkpoint is damaged.
            Refused: Another process writes to this package, or this process was forked.
            OSError: The session cannot be recorded.
        """
        self.require_own_process()
        path = self._package.store().path(id)
        # An open session continues if the checkpoint is damaged, so it is verified before that session ends.
        found = checkpoint.verify(path) if self._record is not None else None
        self._end_and_seal(None)
        self._begin_session(id, found)
        policy = self._retention_policy()
        manifests = checkpoint.read_manifests(self._package.checkpoints)
        tracks = retention.track_ids(manifests, policy, tip=id)
        self._package.write_derived(tracks, list(self._package.derived.get("inexact", [])))

    @property
    def is_of_this_process(self) -> bool:
        """Whether this process opened the package; a forked one has a copy of this object."""
        return os.getpid() == self._pid

    def require_own_process(self) -> None:
        """Raises Refused in a process that was forked from the one that opened the package."""
        if not self.is_of_this_process:
            raise Refused(
                f"the package was opened by process {self._pid}, and this one was forked from it",
                where=self._package.path,
                fix="write from the process that opened it",
            )

    def _begin_session(self, id: int | None, found: Manifest | None = None) -> None:
        package = self._package
        if self._lock_fd is None:
            self._lock_fd = package.lock()
            takeover.require_no_owner(package.path)
        request = SessionRequest(kind=TaskKind.PYTHON, command=list(sys.argv), overrides=[], checkpoint=id)
        if self._owner is not None:  # of a session that could not begin
            self._owner.end()
        self._owner = OwnerThread(package.path)
        number = package.new_session(request)
        asked, record = (package.path / "sessions" / f"{number}{name}.json" for name in (".request", ""))
        try:
            self._record = UnsupervisedRecord(record, number)
        except OSError:  # otherwise the session would be shown as starting while this program lives
            durable.discard(asked)
            self._owner.end()
            raise
        try:
            self._open_session(number, id, found)
        except BaseException as error:
            self._end_session(error)
            if id is not None:  # otherwise the run would continue from a checkpoint that no session used
                durable.discard(asked)
                durable.discard(record)
            raise

    def _open_session(self, number: int, id: int | None, found: Manifest | None) -> None:
        policy = self._retention_policy()
        from roost.train.checkpointing.checkpoints import Checkpoints  # torch, which readers do not need

        checkpoints = Checkpoints(
            self._package, policy, session=number, asynchronous=False, pickles=self._pickles
        )
        if id is not None and found is None:
            found = checkpoint.verify(self._package.store().path(id))
        found, said = checkpoints.verify_parent(verified=found)
        for line in said:
            warnings.warn(line, stacklevel=6)  # where the program calls `PackageFolder.save`
        self._progress_file = ProgressFile(self._package.progress)
        self._publish(found, "training")
        self._checkpoints = checkpoints

    def end(self, error: BaseException | None, *, is_done: bool = True) -> None:
        """Ends the session and releases the lock.

        Args:
            error: The error that ended the program's work: the session has failed; None: there was none.
            is_done: Without an error: whether the work is done; else it has stopped.
        """
        if not self.is_of_this_process:
            return
        try:
            # A training is done when its own session says so, not when a program has changed its package.
            is_python = PackageKind.of(self._package.request) is PackageKind.PYTHON
            self._end_and_seal(error, is_done=is_python and error is None and is_done)
        finally:
            if self._lock_fd is not None:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)  # a forked child's copy would keep it
                os.close(self._lock_fd)
                self._lock_fd = None

    def _end_and_seal(self, error: BaseException | None, *, is_done: bool = False) -> None:
        number = self._record.number if self._record is not None else None
        self._end_session(error, is_done=is_done)
        if self._owner is not None:
            self._owner.end()
            self._owner = None
        if number is not None:
            try:
                session_seal.write(session_seal.seal_path(self._package.path, number))
            except OSError as failed:  # a full disk; the session itself is recorded
                warnings.warn(f"no digests of session {number} could be written: {failed}", stacklevel=4)

    def _end_session(self, error: BaseException | None, *, is_done: bool = False) -> None:
        record, rows, checkpoints = self._record, self._rows, self._checkpoints
        if record is None:
            return
        self._record, self._rows, self._checkpoints = None, None, None
        if isinstance(error, SystemExit) and error.code in (None, 0):
            error = None
        try:
            self._publish(self._last_position(checkpoints), "ended")
            self._logged = None
            if rows is not None:
                rows.close()
        except OSError as late:
            record.end("failed", "exception", error=error or late)
            if error is None:
                raise
            error.add_note(f"the rows of this session may be incomplete: {late}")
        else:
            record.end("succeeded" if is_done else "stopped", "closed", error=error)

    def _last_position(self, checkpoints: Checkpoints | None) -> Manifest | Progress | None:
        """Returns the position of the newest checkpoint, or of a row after it."""
        newest, logged = checkpoints.newest if checkpoints is not None else None, self._logged
        if newest is None or (logged is not None and logged.step > newest.step):
            return logged
        return newest

    # ---- a checkpoint -------------------------------------------------------------------------------------

    def save(
        self, state: Any, *, hold: bool, step: int | None, epoch: int | None, metrics: Mapping[str, Any]
    ) -> Manifest:
        """Saves ``state`` as one checkpoint, with a row of its metrics. See `roost.Package.save`."""
        given = {name: _number(name, value) for name, value in metrics.items()}
        step, epoch = checked_count("step", step), checked_count("epoch", epoch)
        checkpoints = self.checkpoints()
        before = checkpoints.newest
        if before is not None and checkpoint.part_names(before) != [self._part]:
            parts, where, inexact = _trainer_parts(state, before, step=step, epoch=epoch)
        else:
            parts, inexact = {self._part: state}, []
            where = Progress(step=_step(step, before), epoch=epoch or 0)
        self._put_row(before, where, given)
        checkpoints.save(
            {name: _FixedState(part) for name, part in parts.items()},
            where,
            reason="held" if hold else "requested",
            held=hold,
            scheduled=None if inexact else self._next_scheduled(),
            metrics=given,
            inexact=inexact,
        )
        assert checkpoints.newest is not None
        self._publish(checkpoints.newest, "training")
        return checkpoints.newest

    def log(self, where: Progress, metrics: Mapping[str, Any]) -> None:
        """Appends a row of metrics; it is durable with the next checkpoint, or at the end of the session.

        Raises:
            Refused: A metric is no number, or has the name of another field of rows; or as in `checkpoints`.
            CheckpointError: As in `checkpoints`.
            OSError: The row could not be written; it is kept and written with the next one.
        """
        given = {name: _number(name, value) for name, value in metrics.items()}
        self._open_rows(self.checkpoints().newest, first_step=where.step).row(where.step, where.epoch, given)
        self._logged = where
        if time.monotonic() >= self._next_publication:
            self._next_publication = time.monotonic() + _PUBLICATION_SECONDS
            self._publish(where, "training")

    def _retention_policy(self) -> RetentionPolicy:
        return self._policy or policy_from_settings(_checkpoint_settings(self._package))

    def _next_scheduled(self) -> int:
        """Returns the number of scheduled saves of the lineage so far, by which the slow track counts."""
        line = self._package.store().lineage()
        return max((info.scheduled for info in line if info.scheduled is not None), default=-1) + 1

    def _put_row(self, before: Manifest | None, where: Progress, metrics: Mapping[str, float]) -> None:
        """Writes the metrics as a row for `ls` and `plot`, durable before the checkpoint is."""
        rows = self._open_rows(before)
        if metrics:
            rows.row(where.step, where.epoch, metrics)
        rows.sync()

    def _open_rows(self, before: Manifest | None, *, first_step: int = 0) -> RecordsWriter:
        """Returns the rows of this session, which continue from the step of the checkpoint ``before``.

        Without one, the program may have checkpoints of its own: the rows of earlier sessions before
        ``first_step``, that of its first row, count.
        """
        if self._rows is None:
            assert self._record is not None
            number, folder = self._record.number, self._package.path / "records"
            if before is not None:
                start = before.step
            else:
                start = max(0, min(first_step - 1, records.last_step(folder)))
            self._rows = RecordsWriter(folder / f"{number}.jsonl", session=number, start_step=start)
        return self._rows

    def _publish(self, info: Manifest | Progress | None, phase: str) -> None:
        if self._progress_file is None or info is None:
            return
        seen = live_progress.read(self._package.progress)
        total = seen.total_steps if seen is not None else 0
        self._progress_file.publish(
            info.step,
            info.epoch,
            info.batch,
            live_progress.PHASES.index(phase),
            total,
            seen.steps_per_epoch if seen is not None else 0,
            seen.samples if seen is not None else 0,
            seen.seconds if seen is not None else 0.0,
            0.0,
            min(1.0, info.step / total) if total else 0.0,
        )


def _checkpoint_settings(package: PackageFolder) -> CheckpointSettings:
    """Returns the section ``checkpoint`` of the package's settings."""
    context = {"project": str(package.project), "package": str(package.path)}
    return parse_state_settings(interpolation.resolve(package.settings, context)).checkpoint


def _number(name: str, value: Any) -> float:
    if name in ROW_FIELDS:
        fix = f"give it another name, such as 'train/{name}'"
        raise Refused("a row has a value of this name already", setting="metrics", received=name, fix=fix)
    detach = getattr(value, "detach", None)  # torch warns where a number is taken from a tensor with a graph
    try:
        return float(detach() if callable(detach) else value)
    except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        from roost.train.accelerators.device_errors import is_device_error  # imports torch

        if is_device_error(error):
            raise
        fix = "give a number, or a tensor with one element"
        raise Refused("is not a number", setting=f"metrics.{name}", received=value, fix=fix) from None


def checked_count(name: str, value: Any) -> int | None:
    """Returns a whole number from 0 on; None for None. Raises Refused for anything else."""
    if value is None:
        return None
    try:
        found = operator.index(value)
    except TypeError:
        found = -1
    if not 0 <= found < 2**63:
        fix = "give a whole number from 0 on that fits 64 bits"
        raise Refused(f"is not a number of {name}s", setting=name, received=value, fix=fix)
    return found


def _step(step: int | None, before: Manifest | None) -> int:
    """Returns the step of a new checkpoint; by default one more than the step of the checkpoint before."""
    if step is None:
        return before.step + 1 if before is not None else 1
    if before is not None and step < before.step:
        raise Refused(
            f"the package is at step {before.step} already",
            setting="step",
            received=step,
            fix=f"give a step from {before.step} on, or go back first: set_current(id)",
        )
    return step


def _trainer_parts(
    state: Any, before: Manifest, *, step: int | None, epoch: int | None
) -> tuple[dict[str, Any], Progress, list[str]]:
    """Returns the parts of a trainer's checkpoint that was changed by hand, such that `roost continue` can
    use it.

    Raises:
        Refused: The state has other parts, or another step is given.
    """
    names = checkpoint.part_names(before)
    if not isinstance(state, Mapping) or set(state) != set(names):
        raise Refused(
            f"checkpoint {before.id} is a trainer's, with the parts {', '.join(names)}, and `roost continue` "
            "could not continue from anything else",
            received=list(state) if isinstance(state, Mapping) else type(state).__name__,
            fix="change the result of load() and save it whole, or create a separate package: "
            "roost.Package.new(...)",
        )
    if (step, epoch) != (None, None):
        raise Refused(
            f"the step of a trainer's state is its own, {before.step}",
            received=step,
            fix="leave step and epoch out",
        )
    reason = f"changed from Python after checkpoint {before.id}"
    inexact = [*before.inexact, reason]
    parts = {**state, "trainer": {**state["trainer"], "inexact": [*state["trainer"]["inexact"], reason]}}
    return parts, Progress(step=before.step, epoch=before.epoch, batch=before.batch), inexact
