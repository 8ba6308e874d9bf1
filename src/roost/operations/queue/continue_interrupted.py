"""The operation ``up``: queues the next session of every run that was interrupted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import msgspec

from roost.base.errors import Refused, RoostError
from roost.base.system import process_identity
from roost.base.system.worker_protocol import TIME_LIMIT
from roost.devices.resource_request import TaskOptions
from roost.lab.queue.task import Task
from roost.lab.sessions import stuck_attempts
from roost.operations import resolve, work_progress
from roost.operations.lifecycle.continue_ import ContinueRequest
from roost.operations.listing.known_folders import known_folders
from roost.operations.listing.list_packages import find_packages
from roost.operations.listing.named_packages import select_packages
from roost.operations.queue.submit import submit_continue
from roost.operations.reading import package_schema
from roost.package.checkpoints import pruning
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.supervisor import attempt_progress

_STATES = frozenset(["crashed", "stopped"])


class InterruptedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that something else than its end or a request of the user has ended."""

    package: str
    reason: str
    step: int | None
    total_steps: int | None
    ended: float | None
    """Unix seconds; None: unknown, as nothing could record it."""
    stuck: str | None
    """Why it is not continued: the attempts that began without a person have got no further. None: it is."""


class ContinuedRun(NamedTuple):
    """A run that was queued again, or why it was not."""

    run: InterruptedRun
    task: Task | None
    notes: Sequence[str] = ()
    """Lines for the user."""
    error: RoostError | None = None


def find_interrupted(words: Sequence[str] = ()) -> list[InterruptedRun]:
    """Returns the runs that were interrupted and do not run or wait: those that crashed because they were
    killed or the machine went down, those that ended at a time limit, and those that a signal has stopped
    before the machine started anew, or on another machine. A run that was stopped since then was stopped by
    its user.

    Args:
        words: As `select_packages` takes them; empty: all packages of `known_folders`.

    Raises:
        NotFound: A word names nothing.
        UsageError: A query is not valid.
    """
    if words:
        paths = select_packages(words)
    else:
        known = [one for one in find_packages(known_folders()).selected if one.entry.summary.state in _STATES]
        paths = [one.folder / one.name for one in known]
    return [
        found
        for path in work_progress.track(paths, "reading packages")
        if (found := _interrupted(path)) is not None
    ]


def continue_all(runs: Sequence[InterruptedRun]) -> Iterator[ContinuedRun]:
    """Queues the next session of each run, and yields it; one that is refused does not stop the others. A run
    whose attempts go in circles is refused."""
    for run in runs:
        if run.stuck is not None:
            fix = f"see `roost logs {quote(run.package)}`, and then `roost continue {quote(run.package)}`"
            yield ContinuedRun(run, None, error=Refused(f"is not continued: {run.stuck}", fix=fix))
            continue
        request = ContinueRequest(package=Path(run.package), command=attempt_progress.UP_COMMAND)
        try:
            queued = submit_continue(request, TaskOptions())
        except RoostError as error:
            yield ContinuedRun(run, None, error=error)
        except OSError as error:  # its folder belongs to another user, or is read-only
            why = RoostError(error.strerror or str(error), where=error.filename)
            yield ContinuedRun(run, None, error=why)
        else:
            yield ContinuedRun(run, queued.tasks[0], queued.notes)


def _interrupted(path: Path) -> InterruptedRun | None:
    try:
        package = package_schema.open_checked(path)
        reason = _reason(package)
        if reason is None or resolve.unfinished_tasks(path):
            return None
        pruning.require_training_state(package, None)
    except (RoostError, OSError):  # damaged, foreign, pruned on purpose, or removed meanwhile
        return None
    from roost.operations.listing.package_summary import summarize

    summary = summarize(path)
    return InterruptedRun(
        package=str(package.path),
        reason=reason,
        step=summary.step,
        total_steps=summary.total_steps,
        ended=package.sessions()[-1].recorded.ended,
        stuck=stuck_attempts.stuck_text(package, str(package.sessions()[-1].request.kind)),
    )


def _reason(package: PackageFolder) -> str | None:
    """Returns why a package that can be continued was interrupted; None if it was not."""
    found = package.sessions()
    is_foreign = PackageKind.of(package.request) is PackageKind.IMPORT
    if not found or is_foreign or package.args.get("runner") is None:
        return None
    newest = found[-1]
    if newest.state == "crashed":
        return newest.error or "it was killed, or the machine went down"
    if newest.state != "stopped":
        return None
    record = newest.recorded
    if record.reason == TIME_LIMIT:
        return TIME_LIMIT
    if record.reason != "signal" or record.boot_id == process_identity.boot_id():
        return None
    return "stopped by a signal, before this machine started or on another one"
