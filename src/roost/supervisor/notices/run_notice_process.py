"""Starts the process that sends the notice of a run outside the queue: the guard at the run's end, the
supervisor at a stall, or if its remote copy does not get further (standard library only)."""

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
"""Variables that batch systems set for their jobs. At the end of a job they kill all of its processes."""
_BATCH_SECONDS = 30.0
_NOWHERE = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]


def send_end_notice(spec: SessionSpec, entry: RunNoticeEntry | None) -> None:
    """Sends the notice of a run's end. The package's lock is still held, so that no other session follows. In
    the job of a batch system it waits until the notice was sent, for 30 s at most, or until a control signal.

    Args:
        spec: Its first session; restarts may have followed automatically.
        entry: Its entry in the list, if it has one.
    """
    try:
        with os.scandir(spec.session_file.rpartition("/")[0]) as found:
            names = [one.name for one in found]
    except OSError:  # the package was moved or removed: its outcome is unknown
        return
    numbers = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    session = max((int(number) for number in numbers if number.isdecimal()), default=spec.session)
    if entry is not None:
        os.set_inheritable(entry.fd, True)  # the sending process keeps the lock of the entry
    pid = _start_sender(spec, session, entry.path if entry is not None else "")
    if pid is not None and any(name in spec.env for name in _BATCH_VARIABLES):
        _wait_for_sender(pid)


def send_stall_notice(spec: SessionSpec) -> None:
    """Sends the notice of a stall."""
    _start_sender(spec, spec.session, "stalled")


def send_durability_notice(spec: SessionSpec) -> None:
    """Sends the notice that the remote copy does not get further."""
    _start_sender(spec, spec.session, "not durable")


def _start_sender(spec: SessionSpec, session: int, third_argument: str) -> int | None:
    """Starts the sending process, if there is a file of receivers, and waits for nothing; returns its pid. It
    gets the environment of the user who started the run: that of this process may be of a template from which
    it was forked."""
    if not os.access(notice_folders.receivers_file(spec.env), os.F_OK):
        return None
    module = ["-P", "-m", "roost.lab.notices.run_notice"]
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, *module, spec.package, str(session), third_argument],
            spec.env,
            file_actions=_NOWHERE,
            setsigmask=(),
            setsigdef=(*signals.IGNORED_SIGNALS, signal.SIGPIPE, signal.SIGXFSZ),
        )
    except OSError:  # no process or memory; the outcome is in the session record
        return None


def _wait_for_sender(pid: int) -> None:
    """Waits for the end of the process, with the control signals and SIGCHLD blocked."""
    until = time.monotonic() + _BATCH_SECONDS
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        remaining = until - time.monotonic()
        if remaining <= 0:
            return
        found = signal.sigtimedwait((signal.SIGCHLD, *signals.CONTROL_SIGNALS), remaining)
        if found is not None and found.si_signo != signal.SIGCHLD:
            return
