"""The operation ``join``: another machine takes part in a session that was started elsewhere."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path

from roost.analysis import preconditions
from roost.base import durable
from roost.base.errors import Refused
from roost.devices import lease_files
from roost.operations.reading import package_schema
from roost.operations.sessions import foreground_lease, multi_node, rank_layout, requirements
from roost.operations.sessions.running_session import RunningSession, newest_session
from roost.operations.sessions.session_deadline import deadline_of, deadline_variables
from roost.operations.sessions.session_request import (
    StartedSession,
    free_cores,
    output_size,
    start_worker,
    supervisor_limits,
)
from roost.package import sessions
from roost.package.package import PackageFolder
from roost.package.results import system_metrics
from roost.package.session_schema import SessionRecord, SessionRequest


def join(package: Path | str) -> StartedSession:
    """Starts the ranks of this machine under a supervisor of its own. It takes no lock, which the machine
    where the session was started holds.

    Args:
        package: On a disk that all machines share, at the same path.

    Raises:
        NotFound: There is no such package.
        DamagedPackage: A file of it is not as roost writes it.
        Refused: No session of several machines is running, or all machines have joined; or this machine lacks
            the GPUs, another process holds them, or the deadline is past.
        OSError: The record of this machine cannot be written.
        RoostError: The supervisor did not start.
    """
    opened = package_schema.open_checked(package)
    session = newest_session(opened)
    if session is None or session.state != "running" or session.request.num_nodes == 1:
        raise Refused(
            "no session of several machines is running in this package",
            where=opened.path,
            fix="start it on the first machine: roost run ... --num-nodes 2 --rendezvous HOST:PORT",
        )
    request = session.request
    settings = package_schema.checked_settings(opened, preconditions.project_folder(opened, None))
    cards, ends = rank_layout.cards_of_this_machine(request, settings), deadline_of(settings.limits)
    session_cards = foreground_lease.cards_of_session(SessionRequest.from_json({**request, "cards": cards}))
    requirements.require_versions(settings.require)
    requirements.require_cards(
        settings.require, session_cards.cards, device=request.device, is_chosen=cards is not None
    )
    foreground_lease.require_free(session_cards)
    own = rank_layout.rank_environments(request, settings)[0]
    task = str(session.number)
    launched = multi_node.torchrun_launch(request, own, token=str(request.token), is_host=False)
    running = _claim_node(opened, session.number, request.num_nodes)
    try:
        with closing(foreground_lease.take_leases(session_cards, opened.path)) as leases:
            process = start_worker(
                running,
                task,
                token=secrets.token_hex(16),
                lock_fd=None,
                cpu=request.device == "cpu",
                cards=cards,
                leases=leases,
                deadline=ends.at,
                limits=supervisor_limits(settings.limits)._replace(
                    wall_seconds=ends.seconds_left(), host_memory_mb=request.host_memory_mb
                ),
                core_ids=free_cores(request.cores),
                stacks=str(running.record.with_suffix(".stacks.txt")),
                system=str(opened.path / system_metrics.FOLDER / f"{running.record.stem}.jsonl"),
                samples=lease_files.make_samples_folder(),
                card_ids=leases.card_ids,
                argv=launched.argv,
                added={**launched.environment, **deadline_variables(settings.limits)},
                is_launcher=True,
            )
    except BaseException as error:  # makes the place free again
        record = SessionRecord(state="failed", reason="start", error=str(error))
        durable.write(running.record, sessions.to_json(record))
        raise
    return StartedSession(opened.path, running, process, notes=ends.notes)


def _claim_node(package: PackageFolder, number: int, num_nodes: int) -> RunningSession:
    """Claims one of the places for machines by a record with a number of its own. The place of a machine that
    has ended is free again; its number is not."""
    num_taken, node = 0, 0
    while num_taken < num_nodes - 1:
        node += 1
        record = package.path / "sessions" / f"{number}.node-{node}.json"
        output = package.path / f"_output_node_{node}.txt"
        running = RunningSession(
            package.path,
            number,
            request=package.path / "sessions" / f"{number}.request.json",
            record=record,
            output=output,
            offset=output_size(output),
        )
        try:
            starting = SessionRecord(state="starting", **sessions.own_identity())
            durable.write_new(record, [sessions.to_json(starting)])
        except FileExistsError:
            num_taken += running.session().is_live
            continue
        return running
    raise Refused(
        f"all {num_nodes} machines have joined session {number}",
        where=package.path,
        fix="start the session with a larger --num-nodes if more machines should take part",
    )
