"""Guards that are forked from a template (`roost.supervisor.forkserver.guard_template`), in a tenth of the
time of a start by exec."""

# Not durable: the pipes of a guard

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

from roost.supervisor import guard
from roost.supervisor.forkserver import guard_template

_ANSWER_SECONDS = 2.0
"""A template that does not answer in this time is paused, or the machine has no memory left: the guard is
started without it."""

_REAPED_SECONDS = 20.0
_UNKNOWN_EXIT_CODE = 1

GUARD_COMMAND = (sys.executable, "-I", "-S", str(Path(guard.__file__).resolve()))
"""Starts a guard, or a template."""


class ForkedGuard:
    """A guard that is a child of the template, with the needed part of the interface of `subprocess.Popen`.

    Args:
        pid: Its process.
        pidfd: Its pidfd.
        stdin: Receives the spec; before it nothing is run.
        stderr: Contains the error if the guard cannot start.
        exit_socket: Receives the exit status from the template, if the template sends it.
    """

    def __init__(
        self,
        pid: int,
        pidfd: int,
        stdin: IO[bytes],
        stderr: IO[bytes],
        exit_socket: socket.socket | None = None,
    ) -> None:
        self.pid, self.stdin, self.stderr = pid, stdin, stderr
        self.returncode: int | None = None
        self._pidfd, self._exit_socket = pidfd, exit_socket

    def send_signal(self, signum: int) -> None:
        """Sends a signal to the guard, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signum)

    def kill(self) -> None:
        """Kills the guard."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Returns None while the guard lives, then its exit code, or minus the signal that ended it; 1 if
        that is unknown."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(timeout=0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end of the guard; returns the same as `poll`.

        Args:
            timeout: Seconds.

        Raises:
            subprocess.TimeoutExpired: The guard still lives then.
        """
        if self.returncode is None:
            poller = select.poll()
            poller.register(self._pidfd, select.POLLIN)
            if not poller.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired("a guard", timeout or 0.0)
            self.returncode = self._code()
            self.close()
        return self.returncode

    def _code(self) -> int:
        if self._exit_socket is None:
            return _UNKNOWN_EXIT_CODE
        try:
            self._exit_socket.settimeout(_REAPED_SECONDS)
            return int(self._exit_socket.recv(16))
        except (OSError, ValueError):  # the template was killed, or is paused
            return _UNKNOWN_EXIT_CODE

    def close(self) -> None:
        """Closes the descriptors; a guard that lives continues, and its end cannot be awaited any more."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._exit_socket is not None:
            self._exit_socket.close()

    __del__ = close  # a caller that does not wait for the end need not close


class GuardTemplate:
    """The single template of a daemon for guards whose workers start by exec (`warm_templates` keeps the
    others).

    Started when it is first needed, and again after it has ended. If it fails, guards are started without it;
    guards that it has forked continue.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def open(self) -> None:
        """Starts the template, unless it runs. It reads requests only after its imports; no caller waits for
        those."""
        if self._process is not None or not hasattr(os, "pidfd_open"):
            return
        own_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                GUARD_COMMAND,
                stdin=child_end.fileno(),
                stdout=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        except OSError:  # no process, no memory: guards start by exec, more slowly
            own_end.close()
            return
        finally:
            child_end.close()
        self._connection = own_end

    def fork(self, fds: Sequence[int]) -> ForkedGuard | None:
        """Forks a guard; None if the caller must start one by exec.

        Args:
            fds: The guard gets copies of these, as number 3, 4, …

        Raises:
            OSError: There are no descriptors left.
        """
        self.open()
        found = request_guard(self._connection, fds) if self._connection is not None else None
        if found is None:
            self.close()
        return found

    def close(self) -> None:
        """Ends the template; guards that it has forked continue."""
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None


def request_guard(
    connection: socket.socket, fds: Sequence[int], *, reports_exit: bool = False
) -> ForkedGuard | None:
    """Has a template fork a guard; None if the template was killed, is paused, or cannot fork.

    Args:
        connection: A connection to the template.
        fds: As for `GuardTemplate.fork`.
        reports_exit: Whether the template will send the guard's exit status on this connection, which is then
            used for nothing else.

    Raises:
        OSError: There are no descriptors left.
    """
    if len(fds) + 2 > guard_template.MAX_FDS:
        return None
    connection.settimeout(_ANSWER_SECONDS)
    with ExitStack() as child_ends, ExitStack() as failed:
        stdin_fd, stdin = _pipe(child_ends, failed, caller_writes=True)
        stderr_fd, stderr = _pipe(child_ends, failed, caller_writes=False)
        try:
            pid, pidfd = _exchange(connection, [stdin_fd, stderr_fd, *fds])
        except (OSError, ValueError):
            return None
        failed.pop_all()
    return ForkedGuard(pid, pidfd, stdin, stderr, connection if reports_exit else None)


def _pipe(child_ends: ExitStack, failed: ExitStack, *, caller_writes: bool) -> tuple[int, IO[bytes]]:
    """Returns the guard's end of a pipe, which the caller closes in any case, and the other end, which is
    closed on failure."""
    read_fd, write_fd = os.pipe()
    child_fd, own_fd = (read_fd, write_fd) if caller_writes else (write_fd, read_fd)
    child_ends.callback(os.close, child_fd)
    return child_fd, failed.enter_context(open(own_fd, "wb" if caller_writes else "rb"))


def _exchange(connection: socket.socket, fds: Sequence[int]) -> tuple[int, int]:
    """Returns the pid and pidfd of a forked guard. Raises OSError or ValueError if there is none."""
    socket.send_fds(connection, [guard_template.FORK_REQUEST], fds)
    message, answered, _, _ = socket.recv_fds(connection, 256, 1, socket.MSG_CMSG_CLOEXEC)
    if len(answered) != 1:
        raise OSError(f"no guard was forked: {message.decode()}")
    return int(message), answered[0]
