"""Which signals mean something to guard and supervisor."""

from __future__ import annotations

import signal

ASK = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""Save and end. SIGUSR1 is what batch systems send ahead of a time limit."""
KILL = signal.SIGQUIT
"""End everything at once."""
ORDERS = (*ASK, KILL)

_IGNORED = (
    signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip
"""What would end or pause a process that nobody has asked to."""


def ignore() -> None:
    """For a guard or supervisor: nothing but orders and SIGKILL ends it."""
    for signum in _IGNORED:
        signal.signal(signum, signal.SIG_IGN)


def restore() -> None:
    """Default actions for a worker, and nothing blocked. SIGHUP stays ignored: a session that logs out sends
    it beside SIGTERM, and it must not cut off the saving that SIGTERM began."""
    ignored_by_python = (signal.SIGPIPE, signal.SIGXFSZ)
    for signum in (*_IGNORED, *ORDERS, signal.SIGCHLD, *ignored_by_python):
        if signum != signal.SIGHUP:
            signal.signal(signum, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
