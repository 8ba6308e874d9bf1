"""NVIDIA's cards, queried in a child process: a query can hang as long as the driver hangs, and a child that
does not answer in time can be killed."""

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
from roost.devices.card import Card
from roost.devices.driver import driver_process, driver_report
from roost.devices.driver.driver_report import DriverError, DriverHealth

FIRST_ANSWER_SECONDS = 15.0
"""Limit for the first answer of a child. The driver wakes each card that no process uses, which takes about a
second."""

_MAX_ANSWER_BYTES = 4 * 2**20
_KILL_WAIT_SECONDS = 0.5
"""A killed process ends at once, unless a driver that hangs holds it."""


class DriverClient:
    """Queries the driver repeatedly by one child process, which is replaced when it hangs. A context manager,
    for one thread.

    Args:
        timeout_seconds: Limit for an answer. The first answer of a child has `FIRST_ANSWER_SECONDS`; but if
            cards are known from before, a call waits no longer than ``timeout_seconds`` for it either.
    """

    def __init__(self, *, timeout_seconds: float = 2.0) -> None:
        self._timeout_seconds = timeout_seconds
        self._known: list[Card] = []
        self._child: _QueryProcess | None = None
        self._killed: _QueryProcess | None = None
        """The last child that was killed: it may still exist."""

    @property
    def pid(self) -> int | None:
        """Process id of the child; None if there is none now."""
        return self._child.process.pid if self._child is not None else None

    def cards(self) -> list[Card]:
        """Returns the cards as they are now; an empty list without a driver. If the driver does not answer:
        the cards as they were, with `Card.trouble`.

        Raises:
            Refused: The driver has never answered.
        """
        try:
            self._known = driver_report.parse_cards(self._answer())
        except DriverError as error:
            if not isinstance(error, _StillOpening):
                self.close()
            if not self._known:
                raise Refused(
                    f"the NVIDIA driver does not report its GPUs: {error}",
                    fix="see what nvidia-smi says, or compute on the CPU: -CPU",
                ) from None
            return [replace(card, trouble=str(error)) for card in self._known]
        return self._known

    def _answer(self) -> bytes:
        if self._child is None:
            # Otherwise a driver that hangs would collect processes that cannot be killed.
            if self._killed is not None and not self._killed.has_ended():
                raise DriverError("the driver holds the process that queried it, which cannot be killed")
            self._child = _QueryProcess(self._timeout_seconds)
        return self._child.answer(wait_seconds=self._timeout_seconds if self._known else None)

    def close(self) -> None:
        """Ends the child; the next query starts another."""
        if self._child is not None:
            self._child.kill()
            self._killed, self._child = self._child, None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_health(timeout_seconds: float = FIRST_ANSWER_SECONDS) -> DriverHealth:
    """Returns the state of the driver now; one without a version where there is none.

    Raises:
        DriverError: The driver does not answer in time, or as expected.
    """
    try:
        done = subprocess.run(
            _command(),
            input=b"health\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=timeout_seconds,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DriverError(f"the driver did not answer within {timeout_seconds:g} s") from None
    return driver_report.parse_health(done.stdout)


class _StillOpening(DriverError):
    """The driver is being opened: the limit for the first answer is not over yet."""


class _QueryProcess:
    """A process that runs `roost.devices.driver.driver_process`."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._has_answered = False
        self._sent_at: float | None = None
        self._read = b""
        # start_new_session: a Ctrl-C at the terminal must not reach it.
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

    def answer(self, wait_seconds: float | None) -> bytes:
        """Returns one answer, a line.

        Args:
            wait_seconds: The longest wait of this call; None: until the limit of an answer.

        Raises:
            DriverError: The answer is late, or the process has ended.
        """
        if self._sent_at is None:
            self._send_query()
        assert self._sent_at is not None
        limit = self._timeout_seconds
        if not self._has_answered:
            limit = max(limit, FIRST_ANSWER_SECONDS)
        deadline = self._sent_at + limit
        until = deadline if wait_seconds is None else min(deadline, time.monotonic() + wait_seconds)
        while b"\n" not in self._read:
            if not self._is_readable(until):
                if until < deadline:
                    raise _StillOpening("the driver has not answered yet: it is being opened")
                raise DriverError(f"the driver did not answer within {limit:g} s")
            self._read += self._read_more()
        self._has_answered, self._sent_at = True, None
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _send_query(self) -> None:
        self._sent_at = time.monotonic()
        try:
            self._input.write(b"\n")
        except BrokenPipeError:
            raise self._end_error() from None

    def _is_readable(self, until: float) -> bool:
        poller = select.poll()
        poller.register(self._output, select.POLLIN)
        return bool(poller.poll(max(0.0, until - time.monotonic()) * 1000))

    def _read_more(self) -> bytes:
        if len(self._read) > _MAX_ANSWER_BYTES:
            raise DriverError(f"the driver's answer is longer than {_MAX_ANSWER_BYTES >> 20} MiB")
        if not (data := os.read(self._output.fileno(), 2**16)):
            raise self._end_error()
        return data

    def _end_error(self) -> DriverError:
        try:
            code = self.process.wait(_KILL_WAIT_SECONDS)
        except subprocess.TimeoutExpired:
            return DriverError("the process that queries the driver has closed its output")
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return DriverError(f"the process that queries the driver has ended: {how}")

    def kill(self) -> None:
        self.process.kill()
        self._input.close()
        self._output.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_KILL_WAIT_SECONDS)

    def has_ended(self) -> bool:
        return self.process.poll() is not None


def _command() -> list[str]:
    # pynvml is found but not imported: this process never needs it in memory.
    found = PathFinder.find_spec("pynvml")
    if found is None or found.origin is None:
        raise DriverError("pynvml, which queries the driver, is not installed: pip install nvidia-ml-py")
    files = [str(Path(file).resolve()) for file in (driver_process.__file__, found.origin)]
    return [sys.executable, "-I", "-S", *files, str(2 * FIRST_ANSWER_SECONDS)]
