"""Sends who tells of a run that is in no queue: the guard does it when it has ended, the supervisor when it
stalls (standard library only)."""

# Standard library only

from __future__ import annotations

import os
import signal
import sys
import time

from roost.supervisor import signals
from roost.supervisor.notices import notice_folders
from roost.supervisor.notices.run_notice_list import RunNoticeEntry
from roost.supervisor.session_spec import SessionSpec

_BATCH_VARIABLES = (
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "SGE_JOB_SPOOL_DIR",
    "OAR_JOB_ID",
    "FLUX_JOB_ID",
)
"""What batch systems set for their jobs. With a job they end all that it has left."""
_BATCH_SECONDS = 30.0
_NOWHERE = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]


def send_end_notice(spec: SessionSpec, entry: RunNoticeEntry | None) -> None:
    """Has it told how a run ended. Its lock is held still, so that no other session follows. In the job of a
    batch system it waits until it was told, 30 s at most, or until it gets an order.

    Args:
        spec: Its first session; others may have followed by themselves.
        entry: Its place on the list, if it has one.
    """
    try:
        with os.scandir(spec.session_file.rpartition("/")[0]) as found:
            names = [one.name for one in found]
    except OSError:  # the package was moved or removed: nobody knows how it ended
        return
    numbers = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    session = max((int(number) for number in numbers if number.isdecimal()), default=spec.session)
    if entry is not None:
        os.set_inheritable(entry.fd, True)  # it goes on holding the entry
    pid = _start_sender(spec, session, entry.path if entry is not None else "")
    if pid is not None and any(name in spec.env for name in _BATCH_VARIABLES):
        _wait_for_sender(pid)


def send_stall_notice(spec: SessionSpec) -> None:
    """Has it told that a session stalls."""
    _start_sender(spec, spec.session, "stalled")


def _start_sender(spec: SessionSpec, session: int, more: str) -> int | None:
    """Starts a process, and waits for nothing, if somebody wants to be told; gives its pid. It has the
    environment of whoever began the run: ours may be that of a process from which we were forked."""
    if not os.access(notice_folders.receivers_file(spec.env), os.F_OK):
        return None
    module = ["-P", "-m", "roost.lab.notices.run_notice"]
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, *module, spec.package, str(session), more],
            spec.env,
            file_actions=_NOWHERE,
            setsigmask=(),
            setsigdef=(*signals.IGNORED_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ),
        )
    except OSError:  # there is no room for it; the record of the session tells all the same
        return None


def _wait_for_sender(pid: int) -> None:
    """Waits for its end, with the orders and SIGCHLD blocked."""
    until = time.monotonic() + _BATCH_SECONDS
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        left = until - time.monotonic()
        if left <= 0:
            return
        found = signal.sigtimedwait((signal.SIGCHLD, *signals.CONTROL_SIGNALS), left)
        if found is not None and found.si_signo != signal.SIGCHLD:
            return
