"""What a program writes to a package from Python: its lock, its session, its checkpoints."""

from __future__ import annotations

import fcntl
import operator
import os
import sys
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from roost.base import durable
from roost.base.errors import Refused
from roost.config import interpolation
from roost.config.sections.checkpoint import CheckpointSettings
from roost.config.settings import parse_state_settings
from roost.package import live_progress
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.retention import policy_from_settings
from roost.package.live_progress import ProgressFile
from roost.package.package import PackageFolder
from roost.package.records import RecordsWriter
from roost.package.sessions import UnsupervisedRecord
from roost.train.progress import Progress

if TYPE_CHECKING:
    from roost.train.checkpointing.checkpoints import Checkpoints

STATE = "state"
"""The part of a checkpoint that holds what `roost.Package.save` was given."""


class _FixedState:
    """What was given, as `Checkpoints` wants it."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def state_dict(self) -> Any:
        return self._state

    def load_state_dict(self, state: Any) -> None:
        self._state = state


class PackageWriter:
    """One ``with`` block of a package: nothing until the first write, then the lock and a session, which is
    this very process, until the block is left.

    A killed program leaves a session that says "running" and whose process is gone, which reads as crashed.
    A forked child has a copy of this object; it neither writes nor ends the session.
    """

    def __init__(self, package: PackageFolder) -> None:
        self._package = package
        self._pid = os.getpid()
        self._lock_fd: int | None = None
        self._record: UnsupervisedRecord | None = None
        self._checkpoints: Checkpoints | None = None
        self._rows: RecordsWriter | None = None
        self._board: ProgressFile | None = None

    # ---- the session --------------------------------------------------------------------------------------

    def checkpoints(self) -> Checkpoints:
        """To save with; the first call takes the lock and begins the session.

        Raises:
            Refused: Somebody else writes to this package, or this process was forked.
            CheckpointError: There are checkpoints, and none is good.
            OSError: The session cannot be written down.
        """
        self._require_own_process()
        if self._checkpoints is None:
            self._begin(None)
        assert self._checkpoints is not None
        return self._checkpoints

    def go_on_from(self, id: int) -> None:
        """Begins a session at checkpoint ``id``; the one before it, if there is one, ends.

        Raises:
            NotFound: There is no such checkpoint.
            CheckpointError: It is damaged.
            Refused: Somebody else writes to this package, or this process was forked.
            OSError: The session cannot be written down.
        """
        self._require_own_process()
        path = self._package.store().path(id)
        # In a session that is open it is looked at first: that one then goes on if it is damaged.
        found = checkpoint.verify(path) if self._record is not None else None
        self._end_session(None)
        self._begin(id, found)

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise Refused(
                f"the package was opened by process {self._pid}, and this one was forked from it",
                where=self._package.path,
                fix="write from the process that opened it",
            )

    def _begin(self, id: int | None, found: Manifest | None = None) -> None:
        package = self._package
        if self._lock_fd is None:
            self._lock_fd = package.lock()
        request = {"kind": "python", "command": list(sys.argv), "overrides": [], "checkpoint": id}
        number = package.new_session(request)
        asked, record = (package.path / "sessions" / f"{number}{name}.json" for name in (".request", ""))
        try:
            self._record = UnsupervisedRecord(record, number)
        except OSError:  # else it would read as starting, as long as this program lives
            durable.discard(asked)
            raise
        try:
            self._go_on(number, id, found)
        except BaseException as error:
            self._end_session(error)
            if id is not None:  # else the run would go on from there, where nobody ever was
                durable.discard(asked)
                durable.discard(record)
            raise

    def _go_on(self, number: int, id: int | None, found: Manifest | None) -> None:
        policy = policy_from_settings(_checkpoint_settings(self._package))
        from roost.train.checkpointing.checkpoints import Checkpoints  # torch: who only reads goes without

        checkpoints = Checkpoints(self._package, policy, session=number, asynchronous=False)
        if id is not None and found is None:
            found = checkpoint.verify(self._package.store().path(id))
        found, said = checkpoints.verify_parent(verified=found)
        for line in said:
            warnings.warn(line, stacklevel=6)  # where the program calls `PackageFolder.save`
        self._board = ProgressFile(self._package.progress)
        self._publish(found, "training")
        self._checkpoints = checkpoints

    def end(self, error: BaseException | None) -> None:
        """Ends the session, as failed when an error left the block, and gives the lock back."""
        if os.getpid() != self._pid:
            return
        try:
            self._end_session(error)
        finally:
            if self._lock_fd is not None:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)  # a forked child's copy would keep it
                os.close(self._lock_fd)
                self._lock_fd = None

    def _end_session(self, error: BaseException | None) -> None:
        record, rows, checkpoints = self._record, self._rows, self._checkpoints
        if record is None:
            return
        self._record, self._rows, self._checkpoints = None, None, None
        if isinstance(error, SystemExit) and error.code in (None, 0):
            error = None
        try:
            self._publish(checkpoints.newest if checkpoints is not None else None, "ended")
            if rows is not None:
                rows.close()
        except OSError as late:
            record.end("failed", "exception", error=error or late)
            if error is None:
                raise
            error.add_note(f"the rows of this session may be incomplete: {late}")
        else:
            record.end("stopped", "closed", error=error)

    # ---- a checkpoint -------------------------------------------------------------------------------------

    def save(
        self, state: Any, *, hold: bool, step: int | None, epoch: int | None, metrics: Mapping[str, Any]
    ) -> Manifest:
        """Saves ``state`` as one checkpoint, with a row of its metrics; see `roost.Package.save`."""
        given = {name: _number(name, value) for name, value in metrics.items()}
        step, epoch = _count("step", step), _count("epoch", epoch)
        checkpoints = self.checkpoints()
        before = checkpoints.newest
        if before is not None and checkpoint.part_names(before) != [STATE]:
            parts, where, inexact = _trainer_parts(state, before, step=step, epoch=epoch)
        else:
            parts, inexact = {STATE: state}, []
            where = Progress(step=_step(step, before), epoch=epoch or 0)
        self._put_row(before, where, given)
        checkpoints.save(
            {name: _FixedState(part) for name, part in parts.items()},
            where,
            reason="held" if hold else "requested",
            held=hold,
            scheduled=None if inexact else self._count(),
            metrics=given,
            inexact=inexact,
        )
        assert checkpoints.newest is not None
        self._publish(checkpoints.newest, "training")
        return checkpoints.newest

    def _count(self) -> int:
        """How many were saved before on this line: the slow track counts by it."""
        line = self._package.store().lineage()
        return max((info.scheduled for info in line if info.scheduled is not None), default=-1) + 1

    def _put_row(self, before: Manifest | None, where: Progress, metrics: Mapping[str, float]) -> None:
        """The metrics as a row, durable before its checkpoint stands; so `ls` and `plot` show them."""
        if self._rows is None:
            assert self._record is not None
            number = self._record.number
            path = self._package.path / "records" / f"{number}.jsonl"
            self._rows = RecordsWriter(
                path, session=number, start_step=before.step if before is not None else 0
            )
        if metrics:
            self._rows.row(where.step, where.epoch, metrics)
        self._rows.sync()

    def _publish(self, info: Manifest | None, phase: str) -> None:
        if self._board is None or info is None:
            return
        seen = live_progress.read(self._package.progress)
        total = seen.total_steps if seen is not None else 0
        self._board.publish(
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
    """The section ``checkpoint`` in effect."""
    context = {"project": str(package.project), "package": str(package.path)}
    return parse_state_settings(interpolation.resolve(package.settings(), context)).checkpoint


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, ArithmeticError, RuntimeError):
        fix = "give a number, or a tensor with one element"
        raise Refused("is no number", setting=f"metrics.{name}", received=value, fix=fix) from None


def _count(name: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        found = operator.index(value)
    except TypeError:
        found = -1
    if not 0 <= found < 2**63:
        fix = "give a whole number from 0 on that fits 64 bits"
        raise Refused(f"is no number of {name}s", setting=name, received=value, fix=fix)
    return found


def _step(step: int | None, before: Manifest | None) -> int:
    """The step of a new checkpoint; a number more than the one before when it is not given."""
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
    """The parts of a checkpoint that `roost continue` can go on from: what a trainer saved, changed by hand.

    Raises:
        Refused: It is something else, or of another step.
    """
    names = checkpoint.part_names(before)
    if not isinstance(state, Mapping) or set(state) != set(names):
        raise Refused(
            f"checkpoint {before.id} is a trainer's, with the parts {', '.join(names)}, and `roost continue` "
            "could not go on from anything else",
            received=list(state) if isinstance(state, Mapping) else type(state).__name__,
            fix="change what load() gives and save that whole, or make a package of its own: "
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
