"""The signals that guard and supervisor handle, ignore and block.

Calls `_signal`, the C module below `signal`: that one makes an enum of each number that it takes or returns,
which costs each session a millisecond, mostly for pages that a freshly forked process must copy.
"""

# Standard library only

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # it has no type stubs
import signal
from collections.abc import Callable, Iterable
from types import FrameType

from roost.base.system.worker_protocol import STOP_SIGNALS

KILL_SIGNAL = signal.SIGQUIT
"""The request to kill all processes of the session."""
CONTROL_SIGNALS = (*STOP_SIGNALS, KILL_SIGNAL)
GUARD_DIED = signal.SIGUSR2
"""Sent by the kernel to a supervisor whose guard was killed."""
HANDLED_SIGNALS = (signal.SIGCHLD, GUARD_DIED, *CONTROL_SIGNALS)
"""The signals for which a supervisor has handlers."""

IGNORED_SIGNALS = (
    signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU,
)  # fmt: skip
"""Signals that would end or pause a process without a request of the user."""


def ignore_others() -> None:
    """Ignores all other signals in a guard or supervisor: only control signals and SIGKILL end it."""
    for signum in IGNORED_SIGNALS:
        _signal.signal(signum, _signal.SIG_IGN)


def install_handler(signums: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> None:
    """Calls ``handler`` for each of these signals."""
    for signum in signums:
        _signal.signal(signum, handler)


def block(signums: Iterable[int]) -> None:
    """Blocks these signals in addition to those already blocked."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, signums)


def unblock_all() -> None:
    """Unblocks all signals."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def wait_for_signal(signums: Iterable[int]) -> int:
    """Waits for one of these blocked signals, and returns it."""
    return int(_signal.sigwait(signums))


def restore_defaults() -> None:
    """Restores the default actions for a worker, and unblocks all signals. SIGHUP stays ignored: a login
    session that ends sends it together with SIGTERM, and it must not interrupt the save that SIGTERM has
    started."""
    ignored_by_python = (signal.SIGPIPE, signal.SIGXFSZ)
    for signum in (*IGNORED_SIGNALS, *CONTROL_SIGNALS, signal.SIGCHLD, *ignored_by_python):
        if signum != signal.SIGHUP:
            _signal.signal(signum, _signal.SIG_DFL)
    unblock_all()
