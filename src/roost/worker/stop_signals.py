"""Turning signals into a request that the loop looks at."""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Protocol

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Stoppable(Protocol):
    """A Trainer, or whatever else can be asked to stop."""

    def request_stop(self, reason: str) -> None: ...


class StopSignals:
    """Remembers the first stop signal; the handler does nothing else, because saving inside of one can meet
    a half-done step. A signal that comes while the run is still being built is passed on by `attach`."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._target: Stoppable | None = None
        self._pid = os.getpid()
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A process that the project has forked, a pool's for example: it must die of `terminate()`.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._reason = self._reason or _stop_reason(number)
        if self._target is not None:
            self._target.request_stop(self._reason)

    def attach(self, target: Stoppable) -> None:
        """From now on signals go to ``target``, one that came before included."""
        self._target = target
        if self._reason is not None:
            target.request_stop(self._reason)


def _stop_reason(number: int) -> str:
    # SIGTERM is what the supervisor passes on: Ctrl-C and `roost stop` alike.
    return "stopped on request" if number == signal.SIGTERM else f"stopped by {signal.Signals(number).name}"
