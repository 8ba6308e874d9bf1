"""Orders to a session that runs: to save and end, or to end at once."""

from __future__ import annotations

import shlex
import signal

from roost.base.errors import Refused, RoostError
from roost.base.system import process_identity
from roost.package.sessions import Session


def ask(session: Session, *, now: bool = False) -> None:
    """Asks a session to save at its next step edge and end, or ends it at once; nothing if it does not run.

    Raises:
        Refused: It runs on another machine, or as a process that its record does not tell.
        RoostError: It does not belong to you.
    """
    record = session.record or {}
    if session.state != "running" and not session.guard_is_alive:
        return  # it has ended, or has not begun
    if session.is_python:
        raise Refused(
            f"session {session.number} is a Python program (pid {record['pid']}) that has the package open",
            fix="end the program, or let it leave its `with` block",
        )
    if not (session.is_on_this_machine or session.guard_is_alive):
        raise Refused(f"it runs on host {record.get('host')}", fix="stop it there")
    signum = signal.SIGQUIT if now else signal.SIGTERM
    try:
        # The guard passes on what it hears; and it ends last, so it must not be paused either.
        was_heard = _send(signum, session, "")
        was_heard = _send(signal.SIGCONT if was_heard else signum, session, "guard_") or was_heard
    except PermissionError as error:
        raise RoostError(f"the run of pid {record.get('pid')} is not yours", fix="ask its owner") from error
    if not was_heard and session.is_locked:
        raise Refused(
            f"session {session.number} runs, but its record does not tell as which process",
            where=session.lock,
            fix=f"see who holds its lock (fuser -v {shlex.quote(str(session.lock))}), and end that",
        )


def _send(signum: int, session: Session, whose: str) -> bool:
    """Sends it to the supervisor, or to the guard, and lets that one go on; gives whether it is there."""
    record = session.record or {}
    pid = record.get(f"{whose}pid")
    if not isinstance(pid, int):
        return False
    who = pid, record.get(f"{whose}start_ticks"), str(record.get("boot_id"))
    was_there = process_identity.send_signal(signum, *who)
    process_identity.send_signal(signal.SIGCONT, *who)
    return was_there
