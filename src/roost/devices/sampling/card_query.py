"""Asks `card_process` about the cards without ever waiting: a driver may hang, and the caller has a session
to watch."""

# Standard library only

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from roost.base.system import process_identity

_DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvhost-ctrl-gpu", "/dev/dxg")
"""One of these exists where NVIDIA's driver is loaded."""
_DEVICES_VARIABLE, _SIMULATED = "ROOST_DEVICES", "sim:"
_REAL = ("", "nvml")
_FIRST_ANSWER_SECONDS, _ANSWER_SECONDS = 20.0, 5.0
_RETRY_SECONDS = 30.0
_MAX_ANSWER_BYTES = 4 * 2**20
_MAX_VALUE = 1e12

NO_ANSWER = "the driver of the cards does not answer"
NOT_ASKED = "the cards could not be asked"


class CardSample(NamedTuple):
    """A card at one moment."""

    id: str
    name: str
    total_mb: int
    values: Mapping[str, float]
    """By the names of `machine_columns.CARD_COLUMNS`; those that the driver does not report are missing."""
    error: str = ""


class CardQuery:
    """A child process that answers about the cards, replaced when it hangs.

    Args:
        environment: The variables among which ROOST_DEVICES is looked up.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._devices = environment.get(_DEVICES_VARIABLE, "")
        self.is_needed = self._devices.startswith(_SIMULATED) or (
            self._devices in _REAL and any(os.path.exists(name) for name in _DRIVER_FILES)  # noqa: PTH110
        )
        """Whether this machine has cards; without a driver no process is started."""
        self.trouble = ""
        """Why `poll` has no answer; empty: it has, or will have one soon."""
        self.spent_cpu_seconds = 0.0
        """The processor time of the children that were ended."""
        self._child: _Child | None = None
        self._ended: _Child | None = None
        """The last child that was killed: a driver that hangs may hold it."""
        self._start_at = 0.0

    @property
    def pids(self) -> list[int]:
        """Process ids of the children that may exist."""
        return [child.pid for child in (self._child, self._ended) if child is not None]

    def poll(self) -> list[CardSample] | None:
        """Returns the answer to the question of the call before, if it has come, and asks the next one."""
        now = time.monotonic()
        if self._child is None:
            self._start(now)
            return None
        answer = self._child.answer()
        if answer is None:
            if self._child.has_ended:
                self._fail(NOT_ASKED, now)
            elif now >= self._child.deadline:
                self._fail(NO_ANSWER, now)
            return None
        found = _decoded(answer)
        if isinstance(found, str):
            self.trouble = found
            self._child.ask(now)
            return None
        self.trouble = ""
        self._child.ask(now)
        return found

    def close(self) -> None:
        """Ends the child."""
        if self._child is not None:
            self.spent_cpu_seconds += self._child.kill()
            self._child, self._ended = None, self._child

    def _start(self, now: float) -> None:
        # Otherwise a driver that hangs would collect processes that cannot be killed.
        if now < self._start_at or (self._ended is not None and not self._ended.has_ended):
            return
        if self._ended is not None:
            self._ended.forget()
            self._ended = None
        try:
            self._child = _Child(self._devices)
        except OSError as error:
            self.trouble, self._start_at = f"{NOT_ASKED}: {error.strerror}", now + _RETRY_SECONDS
            return
        self._child.ask(now)

    def _fail(self, trouble: str, now: float) -> None:
        self.close()
        self.trouble, self._start_at = trouble, now + _RETRY_SECONDS


class _Child:
    """A process that runs `card_process`. The owner of the query reaps it: only its pidfd is used here."""

    def __init__(self, devices: str) -> None:
        argv = [sys.executable, "-P", "-m", "roost.devices.sampling.card_process"]
        child_input, self._input = os.pipe()
        self._output, child_output = os.pipe()
        try:
            self.pid = os.posix_spawn(
                sys.executable,
                argv,
                {**os.environ, _DEVICES_VARIABLE: devices},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, child_input, 0),
                    (os.POSIX_SPAWN_DUP2, child_output, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[*range(1, signal.SIGSYS + 1)],
            )
        except BaseException:
            os.close(self._input)
            os.close(self._output)
            raise
        finally:
            os.close(child_input)
            os.close(child_output)
        self._pidfd = os.pidfd_open(self.pid)
        for fd in (self._input, self._output):
            os.set_blocking(fd, False)
        self.deadline = 0.0
        self._has_answered = False
        self._read = b""

    def ask(self, now: float) -> None:
        """Sends one question."""
        self.deadline = now + (_ANSWER_SECONDS if self._has_answered else _FIRST_ANSWER_SECONDS)
        with contextlib.suppress(OSError):  # it has ended, which the next call sees
            os.write(self._input, b"\n")

    def answer(self) -> bytes | None:
        """Returns the answer, a line, if it has come."""
        try:
            while (piece := os.read(self._output, 1 << 16)) and len(self._read) < _MAX_ANSWER_BYTES:
                self._read += piece
        except BlockingIOError:
            pass
        line, end, rest = self._read.partition(b"\n")
        if not end:
            return None
        self._has_answered, self._read = True, rest
        return line

    @property
    def has_ended(self) -> bool:
        poller = select.poll()
        poller.register(self._pidfd, select.POLLIN)
        return bool(poller.poll(0))

    def kill(self) -> float:
        """Kills the process; returns its processor time, which is read before it is reaped."""
        os.close(self._input)
        os.close(self._output)
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        found = process_identity.read_stat(self.pid)
        return 0.0 if found is None else found.cpu_seconds

    def forget(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._pidfd)


def _decoded(line: bytes) -> list[CardSample] | str:
    """The cards of an answer, or why there are none."""
    try:
        body = json.loads(line)
        if "error" in body:
            return str(body["error"])
        return [_card(one) for one in body["gpus"]]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return NOT_ASKED


def _card(body: dict[str, Any]) -> CardSample:
    values = {name: float(value) for name, value in body.get("values", {}).items() if abs(value) < _MAX_VALUE}
    return CardSample(
        str(body["id"]),
        str(body["name"]),
        int(body.get("total_mb", 0)),
        values,
        str(body.get("error", "")),
    )
