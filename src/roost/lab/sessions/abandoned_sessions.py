"""Kills the processes of sessions and analyses whose guard and supervisor were both killed."""

from __future__ import annotations

import socket

from roost.analysis import analysis_folder
from roost.base.system import process_identity
from roost.package.session_folder import SessionFolder
from roost.package.sessions import Session
from roost.supervisor.processes import abandoned_processes


def end_abandoned(folder: SessionFolder) -> None:
    """Kills the processes of the sessions of a folder, and of a package's analyses, that have no guard and no
    supervisor left."""
    found = [
        session
        for session in (*folder.sessions(), *analysis_folder.read_all(folder.path / analysis_folder.NAME))
        if _is_abandoned(session)
    ]
    if found:
        abandoned_processes.kill_abandoned(
            [str(session.request.token) for session in found],
            [str(session.recorded.cgroup or "") for session in found],
        )


def _is_abandoned(session: Session) -> bool:
    """Returns whether a session ran on this machine since its boot, and its end was not recorded by its
    guard, which is gone. A session without a record started nothing: its worker died with its supervisor."""
    record = session.recorded
    if record.state != "running" or record.guard_pid is None:
        return False
    boot = record.boot_id
    # Host names are compared only where the kernel has no boot id: containers share a boot, and names change.
    if boot != process_identity.boot_id() or (not boot and record.host != socket.gethostname()):
        return False
    return session.state == "crashed" and not session.may_have_watchers
