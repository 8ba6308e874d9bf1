"""What sessions and analyses have left behind whose guard and supervisor were both killed."""

from __future__ import annotations

import socket

from roost.analysis import analysis_folder
from roost.base.system import process_identity
from roost.package.package import PackageFolder
from roost.package.sessions import Session
from roost.supervisor.processes import abandoned_processes


def end_abandoned(package: PackageFolder) -> None:
    """Ends the processes of a package that nobody watches over any more."""
    found = [
        session
        for session in (*package.sessions(), *analysis_folder.read_all(package.path / analysis_folder.NAME))
        if _is_abandoned(session)
    ]
    if found:
        abandoned_processes.kill_abandoned(
            [str(session.request.get("token")) for session in found],
            [str((session.record or {}).get("cgroup") or "") for session in found],
        )


def _is_abandoned(session: Session) -> bool:
    """Whether its end was never written down, here and since the machine started, and its guard, which would
    do that still, is gone. One without a record has begun nothing: its worker died with its supervisor."""
    record = session.record or {}
    if record.get("state") != "running" or record.get("guard_pid") is None:
        return False
    boot = record.get("boot_id")
    # A name tells nothing of a machine whose kernel names its boot: containers share it, and names change.
    if boot != process_identity.boot_id() or (not boot and record.get("host") != socket.gethostname()):
        return False
    return session.state == "crashed" and not session.guard_is_alive
