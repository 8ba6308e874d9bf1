"""The signals of a worker: those that stop it, turned into a stop request that the training loop reads, and
the one that asks for its stacks."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn, Protocol

from roost.base.system.worker_protocol import STACKS_SIGNAL, STACKS_VARIABLE, STOP_SIGNALS


class Stoppable(Protocol):
    """An object that takes a stop request, such as a Trainer."""

    def request_stop(self, reason: str) -> None: ...


class StopRequested(Exception):
    """A stop signal has ended work that has nothing to save. The text is the reason of the stop."""


class StopSignals:
    """Keeps the first stop signal and requests the stop. The handler does nothing else: a save inside of it
    could see a half-done step. A signal that arrives while the run is still being built is passed on by
    `attach`."""

    def __init__(self) -> None:
        self._reason: str | None = None
        self._target: Stoppable | None = None
        self._pid = os.getpid()
        for number in STOP_SIGNALS:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # A process forked by the project (of a multiprocessing pool, say) must die of `terminate()`.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self._reason = self._reason or _stop_reason(number)
        if self._target is not None:
            self._target.request_stop(self._reason)

    def attach(self, target: Stoppable) -> None:
        """Sends stop signals to ``target`` from now on, including one that has arrived before."""
        self._target = target
        if self._reason is not None:
            target.request_stop(self._reason)

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Lets a stop signal raise `StopRequested` in the block, also one that has arrived before: the block
        has nothing to save, and may take minutes."""
        self.attach(_Raising())
        try:
            yield
        finally:
            self._target = None

    def release(self) -> None:
        """Lets stop signals end this process from now on: what follows has nothing to save."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if self._reason is not None:
            os.kill(os.getpid(), signal.SIGTERM)


class _Raising:
    def request_stop(self, reason: str) -> NoReturn:
        raise StopRequested(reason)


def _stop_reason(number: int) -> str:
    # The supervisor sends SIGTERM for Ctrl-C as well as for `roost stop`.
    return "stopped on request" if number == signal.SIGTERM else f"stopped by {signal.Signals(number).name}"


def register_stack_dump() -> None:
    """Makes this process, and every process forked from it, answer `STACKS_SIGNAL` by writing the stacks of
    all its threads into the supervisor's pipe. The handler is C code, so it works where Python cannot run."""
    given = os.environ.pop(STACKS_VARIABLE, None)
    if given is not None and sys.platform == "linux":
        fd = int(given)
        os.set_inheritable(fd, False)
        faulthandler.register(STACKS_SIGNAL, file=fd, all_threads=True, chain=False)
