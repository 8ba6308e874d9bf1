"""Orders to a session that runs: to save and end, or to end at once."""

from __future__ import annotations

import signal
import socket

from roost.base import process
from roost.base.errors import Refused, RoostError
from roost.package.sessions import Session


def ask(session: Session, *, now: bool = False) -> None:
    """Asks a session to save at its next step edge and end, or ends it at once; nothing if it does not run.

    Raises:
        Refused: It runs on another machine, or is a program that opened the package from Python.
        RoostError: It does not belong to you.
    """
    record = session.record or {}
    if session.state != "running":
        return  # it has ended, or has not begun
    if session.is_python:
        raise Refused(
            f"session {session.number} is a Python program (pid {record['pid']}) that has the package open",
            fix="end the program, or let it leave its `with` block",
        )
    if record["host"] != socket.gethostname():
        raise Refused(f"it runs on host {record['host']}", fix="stop it there")
    who = int(record["pid"]), record.get("start_ticks"), str(record.get("boot_id"))
    try:
        process.send(signal.SIGQUIT if now else signal.SIGTERM, *who)
        process.send(signal.SIGCONT, *who)  # a supervisor that was paused could not hear it
    except PermissionError as error:
        raise RoostError(f"the run of pid {record['pid']} is not yours", fix="ask its owner") from error
