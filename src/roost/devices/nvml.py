"""NVIDIA's cards. Whoever asks the driver may hang as long as it does, so a child process asks, and is killed
when it does not answer in time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from importlib.machinery import PathFinder
from pathlib import Path
from types import TracebackType
from typing import Self

from roost.base.errors import Refused
from roost.devices import driver_process, driver_report
from roost.devices.card import Card
from roost.devices.driver_report import DriverError

FIRST_ANSWER_SECONDS = 15.0
"""For the first answer of a child: where nobody uses the cards, the driver wakes each of them, in about a
second."""

_MAX_ANSWER_BYTES = 4 * 2**20
_KILL_WAIT_SECONDS = 0.5
"""A process that was killed is gone at once, but in the hands of a driver that hangs."""


class DriverClient:
    """Asks the driver again and again, by one child that is replaced when it hangs. For one thread, and for
    ``with``.

    Args:
        timeout_seconds: For an answer. The first one of a child has `FIRST_ANSWER_SECONDS`; but where cards are
            known from before, nobody waits for it longer than this.
    """

    def __init__(self, *, timeout_seconds: float = 2.0) -> None:
        self._timeout_seconds = timeout_seconds
        self._known: list[Card] = []
        self._child: _QueryProcess | None = None
        self._killed: _QueryProcess | None = None

    @property
    def pid(self) -> int | None:
        """Of the child; None: there is none now."""
        return self._child.process.pid if self._child is not None else None

    def cards(self) -> list[Card]:
        """The cards as they are now; with `Card.trouble`, and else as they were, if the driver does not tell.
        None without a driver.

        Raises:
            Refused: It has never told.
        """
        try:
            self._known = driver_report.parse_cards(self._line())
        except DriverError as why:
            if not isinstance(why, _StillOpening):
                self.close()
            if not self._known:
                raise Refused(
                    f"the NVIDIA driver does not tell what GPUs there are: {why}",
                    fix="see what nvidia-smi says, or compute on the CPU: -CPU",
                ) from None
            return [replace(card, trouble=str(why)) for card in self._known]
        return self._known

    def _line(self) -> bytes:
        if self._child is None:
            # Else a driver that hangs would gather processes that nobody can end.
            if self._killed is not None and not self._killed.has_gone():
                raise DriverError("the driver holds the process that asked it, which cannot be killed")
            self._child = _QueryProcess(self._timeout_seconds)
        return self._child.line(waits=self._timeout_seconds if self._known else None)

    def close(self) -> None:
        """Ends the child; the next question starts another."""
        if self._child is not None:
            self._child.kill()
            self._killed, self._child = self._child, None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _StillOpening(DriverError):
    """It is still in time with its first answer."""


class _QueryProcess:
    """`roost.devices.driver_process` in a process."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._has_answered = False
        self._asked_at: float | None = None
        self._read = b""
        # start_new_session: a Ctrl-C at the terminal is not for it.
        self.process = subprocess.Popen(
            _command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._input, self._output = self.process.stdin, self.process.stdout

    def line(self, waits: float | None) -> bytes:
        """One answer.

        Args:
            waits: At most so many seconds; None: as long as it may take.

        Raises:
            Untold: It is late, or has ended.
        """
        if self._asked_at is None:
            self._ask()
        assert self._asked_at is not None
        limit = self._timeout_seconds
        if not self._has_answered:
            limit = max(limit, FIRST_ANSWER_SECONDS)
        late = self._asked_at + limit
        until = late if waits is None else min(late, time.monotonic() + waits)
        while b"\n" not in self._read:
            if not self._has_more(until):
                if until < late:
                    raise _StillOpening("the driver has not answered yet: it is being opened")
                raise DriverError(f"the driver did not answer within {limit:g} s")
            self._read += self._more()
        self._has_answered, self._asked_at = True, None
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _ask(self) -> None:
        self._asked_at = time.monotonic()
        try:
            self._input.write(b"\n")
        except BrokenPipeError:
            raise self._ended() from None

    def _has_more(self, until: float) -> bool:
        poller = select.poll()
        poller.register(self._output, select.POLLIN)
        return bool(poller.poll(max(0.0, until - time.monotonic()) * 1000))

    def _more(self) -> bytes:
        if len(self._read) > _MAX_ANSWER_BYTES:
            raise DriverError(f"the driver's answer is longer than {_MAX_ANSWER_BYTES >> 20} MiB")
        if not (data := os.read(self._output.fileno(), 2**16)):
            raise self._ended()
        return data

    def _ended(self) -> DriverError:
        try:
            code = self.process.wait(_KILL_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            return DriverError("the process that asks the driver has closed its output")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return DriverError(f"the process that asks the driver has ended: {how}")

    def kill(self) -> None:
        self.process.kill()
        self._input.close()
        self._output.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_KILL_WAIT_SECONDS)

    def has_gone(self) -> bool:
        return self.process.poll() is not None


def _command() -> list[str]:
    # Not by `import`: roost itself never needs it in memory.
    found = PathFinder.find_spec("pynvml")
    if found is None or found.origin is None:
        raise DriverError("there is no pynvml to ask the driver: pip install nvidia-ml-py")
    files = [str(Path(file).resolve()) for file in (driver_process.__file__, found.origin)]
    return [sys.executable, "-I", "-S", *files, str(2 * FIRST_ANSWER_SECONDS)]
