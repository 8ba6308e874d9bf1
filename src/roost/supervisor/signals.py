"""Which signals mean something to guard and supervisor, and how they are heard.

By what `signal` is made of: that one makes an enum of each number that it takes or gives, for a millisecond
of each session, most of it the pages that a process copies which was just forked.
"""

# Standard library only

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # it has no types of its own
import signal
from collections.abc import Callable, Iterable
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""Save and end. SIGUSR1 is what batch systems send ahead of a time limit."""
KILL_SIGNAL = signal.SIGQUIT
"""End everything at once."""
CONTROL_SIGNALS = (*STOP_SIGNALS, KILL_SIGNAL)
GUARD_DIED = signal.SIGUSR2
"""What the kernel tells a supervisor whose guard was killed."""
HANDLED_SIGNALS = (signal.SIGCHLD, GUARD_DIED, *CONTROL_SIGNALS)
"""What a supervisor has handlers for."""

IGNORED_SIGNALS = (
    signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip
"""What would end or pause a process that nobody has asked to."""


def ignore_others() -> None:
    """For a guard or supervisor: nothing but orders and SIGKILL ends it."""
    for signum in IGNORED_SIGNALS:
        _signal.signal(signum, _signal.SIG_IGN)


def install_handler(signums: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> None:
    """Calls ``handler`` for each of these."""
    for signum in signums:
        _signal.signal(signum, handler)


def block(signums: Iterable[int]) -> None:
    """Holds these back, beside those that are held back already."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, signums)


def unblock_all() -> None:
    """Holds nothing back any more."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def wait_for_signal(signums: Iterable[int]) -> int:
    """Takes one of these, which are blocked, when it comes."""
    return int(_signal.sigwait(signums))


def restore_defaults() -> None:
    """Default actions for a worker, and nothing blocked. SIGHUP stays ignored: a session that logs out sends
    it beside SIGTERM, and it must not cut off the saving that SIGTERM began."""
    ignored_by_python = (signal.SIGPIPE, signal.SIGXFSZ)
    for signum in (*IGNORED_SIGNALS, *CONTROL_SIGNALS, signal.SIGCHLD, *ignored_by_python):
        if signum != signal.SIGHUP:
            _signal.signal(signum, _signal.SIG_DFL)
    unblock_all()
