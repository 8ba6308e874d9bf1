"""``evaluate``: every selected checkpoint with every variant on every test set of a package, by a session of
its own, at a terminal or as a task of the lab."""

from __future__ import annotations

import os
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from roost.base import durable
from roost.base.errors import Refused, UsageError
from roost.base.system.worker_protocol import MISTAKE
from roost.devices.resource_request import TaskOptions
from roost.lab.sessions.abandoned_sessions import end_abandoned
from roost.lab.sessions.session_plan import SessionPlan, add_session, callers_environment
from roost.operations.evaluating.evaluation_request import (
    CheckedRequest,
    EvaluateRequest,
    check_request,
    find_folder,
    make_folder,
    require_settings,
)
from roost.operations.sessions import foreground_lease
from roost.operations.sessions.rank_layout import RankLayout, RankRequest, plan_ranks, rank_environments
from roost.operations.sessions.running_session import RunningSession, running_session
from roost.operations.sessions.session_deadline import deadline_of, deadline_variables
from roost.operations.sessions.session_request import (
    WORKER,
    free_cores,
    output_size,
    own_environment,
    require_startable,
    supervisor_limits,
    threads_of,
)
from roost.package.kinds import TaskKind
from roost.package.results.evaluations import evaluation_folder
from roost.package.results.evaluations.evaluation_folder import EvaluationFolder
from roost.package.session_folder import SessionFolder
from roost.package.session_schema import SessionRequest
from roost.package.setting_locations import setting_locations
from roost.supervisor import guard_start
from roost.supervisor.guard_start import GuardProcess

if TYPE_CHECKING:
    from roost.operations.queue.new_tasks import NewTasks


@dataclass
class StartedEvaluation:
    """An evaluation whose session runs independently of the caller; or none, because it had finished."""

    folder: Path
    running: RunningSession | None = None
    """None if it had finished before."""
    process: GuardProcess | None = None
    """The guard, for a caller that stays."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, one line each."""
    is_new: bool = False
    """Whether the folder was made for this session."""

    def discard_refused(self) -> bool:
        """Removes the folder of a new evaluation whose worker found a mistake, such as a set that does not
        exist, before it had a grid; returns whether it has. Called after the session, whose output the caller
        has shown."""
        assert self.process is not None
        self.process.wait()  # it writes into the folder until then
        sessions = SessionFolder(self.folder, self.folder).sessions()
        is_refused = len(sessions) == 1 and sessions[-1].recorded.reason == MISTAKE
        if self.is_new and is_refused and not (self.folder / evaluation_folder.CELLS).exists():
            _discard(self.folder)
            return True
        return False


def evaluate(request: EvaluateRequest) -> StartedEvaluation:
    """Begins an evaluation, or goes on with the one of this name.

    Raises:
        NotFound: There is no such package, checkpoint, project or file of variants.
        UsageError: A selector, the template, the name or the ranks are not valid.
        ConfigError: The variants, an override or the settings are not valid.
        CheckpointError: There are checkpoints, but roost has written none of them.
        Refused: The evaluation of this name was asked something else, or runs; or the devices are taken.
        DamagedPackage: A file of the package is not as roost writes it.
        RoostError: Its session did not start; or a file of a finished cell is not as it was written.
        OSError: The package cannot be written.
    """
    checked = check_request(request)
    layout = _layout(checked, request.ranks, request.device)
    session_cards = require_startable(layout.request, checked.settings, trains=False)
    found = find_folder(checked, request.name)
    if found is not None and _is_finished(found):
        return StartedEvaluation(found.path, notes=[f"the evaluation {found.path.name} has finished"])
    folder = found or make_folder(checked, request.name)
    started = StartedEvaluation(folder.path, notes=[*checked.notes, *layout.notes], is_new=found is None)
    end_abandoned(folder)
    lock_fd = folder.lock()
    try:
        deadline = deadline_of(checked.settings.limits)
        with closing(foreground_lease.take_leases(session_cards, checked.package.path)) as leases:
            plan = _plan(checked, layout.request)
            plan.limits["wall_seconds"] = deadline.seconds_left()
            offset = output_size(folder.output)
            shown = session_cards.ids if session_cards.hide_others else layout.request.cards
            spec = add_session(
                folder,
                plan,
                cards=None if layout.request.device == "cpu" else shown,
                core_ids=free_cores(layout.request.cores),
                leases=leases if leases.fds else None,
                deadline=deadline.at,
                is_queued=False,
            )
            started.process = guard_start.start_session(spec, lock_fd=lock_fd).process
    except BaseException:
        if started.is_new and not folder.sessions():  # as when the cards are taken
            _discard(folder.path)
        raise
    finally:
        os.close(lock_fd)
    started.running = running_session(folder, spec.session, offset=offset)
    started.notes += [*deadline.notes, *session_cards.notes]
    return started


def _discard(folder: Path) -> None:
    durable.discard(folder)
    with suppress(OSError):  # it has other evaluations
        durable.remove_empty_folder(folder.parent)


def submit_evaluate(request: EvaluateRequest, options: TaskOptions) -> NewTasks:
    """Queues an evaluation as a task of the lab, after the same checks.

    Args:
        request: As for `evaluate`; devices and ranks follow from the options.
        options: The options of the task.

    Raises:
        UsageError: As for `evaluate`, or options contradict each other.
        Refused: As for `evaluate`; or the task could never start, or the lab's folder cannot be used.
        NotFound, CheckpointError, DamagedPackage, ConfigError, RoostError: As for `evaluate`.
    """
    from roost.operations.queue.reading_task import (
        queue_reading_task,  # the queue, which `evaluate` does not use
    )

    checked = check_request(request)
    found = find_folder(checked, request.name)
    if found is not None and _is_finished(found):
        raise Refused(
            "this evaluation has finished, and nothing is left to queue",
            received=found.path.name,
            where=found.path,
            fix="give another --name to evaluate again",
        )
    queued = queue_reading_task(
        checked.package,
        TaskKind.EVALUATE,
        checked.body,
        options,
        checked.settings,
        open_folder=lambda: found or make_folder(checked, request.name),
    )
    return queued.with_notes(checked.notes)


def _is_finished(folder: SessionFolder) -> bool:
    """Whether an evaluation has finished, and its cells are as they were written.

    Raises:
        RoostError: They are not.
    """
    found = EvaluationFolder(folder.path)
    if found.is_finished:
        found.require_whole()
        return True
    return False


def _layout(checked: CheckedRequest, ranks: RankRequest, device: str) -> RankLayout:
    """Returns the ranks of a session: one, unless the request says otherwise; the training's own ranks and
    strategy do not count."""
    if ranks.strategy == "fsdp":
        raise UsageError(
            "each rank of an evaluation holds the whole model",
            setting="--strategy",
            received="fsdp",
            fix="use ddp",
        )
    if ranks.num_nodes > 1:
        raise UsageError("an evaluation runs on one machine", setting="--num-nodes", received=ranks.num_nodes)
    settings = msgspec.structs.replace(
        require_settings(checked.settings), sync_batch_norm=False, strategy=None, devices="auto"
    )
    if ranks.strategy is None and ranks.devices is None:
        ranks = replace(ranks, strategy="single")
    return plan_ranks(ranks, settings, device=device, terminal="", where=setting_locations(checked.package))


def _plan(checked: CheckedRequest, layout: SessionRequest) -> SessionPlan:
    request = SessionRequest(
        kind=TaskKind.EVALUATE,
        command=list(checked.body["command"]),
        project=checked.body["project"],
        **layout,
    )
    limits = supervisor_limits(checked.settings.limits)._replace(host_memory_mb=layout.host_memory_mb)
    return SessionPlan(
        request=dict(request),
        argv=list(WORKER),
        env=callers_environment(),
        own_env={
            **own_environment(cpu=layout.device == "cpu"),
            **threads_of(layout.cores),
            **deadline_variables(checked.settings.limits),
        },
        limits=limits._asdict(),
        ranks=rank_environments(layout, checked.settings),
    )
