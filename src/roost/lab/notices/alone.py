"""Sends who tells of a run that is in no queue: the guard does it when it has ended, the supervisor when it
stalls (standard library only)."""

from __future__ import annotations

import os
import signal
import sys

from roost.lab import signals
from roost.lab.notices import place
from roost.lab.spec import Spec

_NOWHERE = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]


def tell_end(spec: Spec) -> None:
    """Has it told how a run ended. Its lock is held still, so that no other session follows.

    Args:
        spec: Its first session; others may have followed by themselves.
    """
    try:
        with os.scandir(spec.session_file.rpartition("/")[0]) as found:
            names = [one.name for one in found]
    except OSError:  # the package was moved or removed: nobody knows how it ended
        return
    numbers = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    _send(spec, max((int(number) for number in numbers if number.isdecimal()), default=spec.session))


def tell_stall(spec: Spec) -> None:
    """Has it told that a session stalls."""
    _send(spec, spec.session, "stalled")


def _send(spec: Spec, session: int, *more: str) -> None:
    """Starts a process, and waits for nothing, if somebody wants to be told. It has the environment of
    whoever began the run: ours may be that of a process from which we were forked."""
    if not os.access(place.file(spec.env), os.F_OK):
        return
    module = ["-P", "-m", "roost.lab.notices.of_run"]
    try:
        os.posix_spawn(
            sys.executable,
            [sys.executable, *module, spec.package, str(session), *more],
            spec.env,
            file_actions=_NOWHERE,
            setsigmask=(),
            setsigdef=(*signals.IGNORED, signal.SIGPIPE, signal.SIGXFSZ),
        )
    except OSError:  # there is no room for it; the record of the session tells all the same
        return
