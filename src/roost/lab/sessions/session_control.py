"""Stop requests to a running session: to save and end, or to end at once.

A record can name any process: that of a copied package names the processes of the original. So a process gets
a signal only if it has this package's lock open, as guard and supervisor of its session have.
"""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

from roost.base.errors import Refused, RoostError
from roost.base.system import process_identity
from roost.package.sessions import ProcessIdentity, Session


def request_stop(session: Session, *, now: bool = False) -> None:
    """Requests that a session saves after its current step and ends, or ends at once; does nothing if it does
    not run.

    Args:
        session: The session.
        now: Whether it ends at once, without a checkpoint.

    Raises:
        Refused: The session runs on another machine, or its record does not name its processes.
        RoostError: The session belongs to another user.
    """
    record = session.recorded
    if session.state != "running" and not session.guard_is_alive:
        return  # it has ended, or has not started
    if session.is_python:
        raise Refused(
            f"session {session.number} is a Python program (pid {record.pid}) that has the package open",
            fix="end the program, or let it leave its `with` block",
        )
    if not (session.is_on_this_machine or session.guard_is_alive):
        raise Refused(f"the session runs on host {record.host}", fix="stop it there")
    signum = signal.SIGQUIT if now else signal.SIGTERM
    try:
        # The guard passes signals on to the supervisor; and it ends last, so it must not be paused either.
        was_sent = _send(signum, session.supervisor, session.lock)
        was_sent = _send(signal.SIGCONT if was_sent else signum, session.guard, session.lock) or was_sent
    except PermissionError as error:
        what = f"the run of pid {record.pid} belongs to another user"
        raise RoostError(what, fix="ask its owner") from error
    if not was_sent and session.is_locked:
        raise Refused(
            f"session {session.number} runs, but its record names none of its processes",
            where=session.lock,
            fix=f"find the holder of its lock (fuser -v {shlex.quote(str(session.lock))}), and end it",
        )


def _send(signum: int, process: ProcessIdentity | None, lock: Path | None) -> bool:
    """Sends a signal to a process of the session, and resumes it if it is paused; returns whether it exists.

    Args:
        signum: The signal.
        process: The process that the record names.
        lock: The package's lock; None: the session has none, and the caller has started it.
    """
    if process is None:
        return False
    holding = None if lock is None else str(lock)
    exists = process_identity.send_signal(signum, *process, holding=holding)
    process_identity.send_signal(signal.SIGCONT, *process, holding=holding)
    return exists
