"""Guards that are forked from a template (`lab.template`), in a tenth of the time in which one starts."""

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
"""Then it is paused, or the machine has no memory left: what is to be started starts without it."""

_REAPED_SECONDS = 20.0
_UNKNOWN_EXIT_CODE = 1

GUARD_COMMAND = (sys.executable, "-I", "-S", str(Path(guard.__file__).resolve()))
"""What starts a guard, and a template."""


class ForkedGuard:
    """A guard that is the template's child, with what of `subprocess.Popen` one needs.

    Args:
        pid: Its process.
        pidfd: Stands for it.
        stdin: Takes what it is to run; nothing is run before.
        stderr: What it says if it cannot start.
        told: By which the template tells how it has ended, where it does.
    """

    def __init__(
        self, pid: int, pidfd: int, stdin: IO[bytes], stderr: IO[bytes], told: socket.socket | None = None
    ) -> None:
        self.pid, self.stdin, self.stderr = pid, stdin, stderr
        self.returncode: int | None = None
        self._pidfd, self._told = pidfd, told

    def send_signal(self, signum: int) -> None:
        """Sends it a signal, if it still lives."""
        if self.returncode is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signum)

    def kill(self) -> None:
        """Kills it."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """None while it lives, then its exit code, or minus the signal that ended it; 1: nobody can tell."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(timeout=0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end; gives the same.

        Args:
            timeout: Seconds.

        Raises:
            subprocess.TimeoutExpired: It still lives then.
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
        if self._told is None:
            return _UNKNOWN_EXIT_CODE
        try:
            self._told.settimeout(_REAPED_SECONDS)
            return int(self._told.recv(16))
        except (OSError, ValueError):  # the template was killed, or is paused
            return _UNKNOWN_EXIT_CODE

    def close(self) -> None:
        """It goes on by itself, or has ended; nobody here will wait for it."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._told is not None:
            self._told.close()

    __del__ = close  # not everyone who starts a run waits for its end


class GuardTemplate:
    """The one template of a daemon for guards alone, whose workers start as usual (`lab.warm` keeps the
    others): started when it is first needed, and anew should it be gone. Whatever happens to it, a guard that
    it has not given is started as usual, and those that it has given go on."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: socket.socket | None = None

    def open(self) -> None:
        """Starts it, unless it is there. It is asked only once it has loaded itself, and nobody waits for
        that."""
        if self._process is not None or not hasattr(os, "pidfd_open"):
            return
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._process = subprocess.Popen(
                GUARD_COMMAND, stdin=its.fileno(), stdout=subprocess.DEVNULL, cwd="/", start_new_session=True
            )
        except OSError:  # no process, no memory: without it all goes on more slowly
            ours.close()
            return
        finally:
            its.close()
        self._asked = ours

    def fork(self, fds: Sequence[int]) -> ForkedGuard | None:
        """Forks a guard; None: start one as usual.

        Args:
            fds: It gets copies of these, as number 3, 4, …

        Raises:
            OSError: There are no descriptors left.
        """
        self.open()
        found = request_guard(self._asked, fds) if self._asked is not None else None
        if found is None:
            self.close()
        return found

    def close(self) -> None:
        """Ends it; those that it has given go on."""
        if self._asked is not None:
            self._asked.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._asked = None


def request_guard(asked: socket.socket, fds: Sequence[int], *, tells: bool = False) -> ForkedGuard | None:
    """Has a template fork a guard; None: it was killed, is paused, or cannot fork.

    Args:
        asked: A connection to it.
        fds: As for `GuardTemplate.fork`.
        tells: Whether the template will tell by this connection how the guard has ended; it is then for
            nothing else.

    Raises:
        OSError: There are no descriptors left.
    """
    if len(fds) + 2 > guard_template.MAX_FDS:
        return None
    asked.settimeout(_ANSWER_SECONDS)
    with ExitStack() as its, ExitStack() as failed:
        stdin_fd, stdin = _pipe(its, failed, ours_writes=True)
        stderr_fd, stderr = _pipe(its, failed, ours_writes=False)
        try:
            pid, pidfd = _exchange(asked, [stdin_fd, stderr_fd, *fds])
        except (OSError, ValueError):
            return None
        failed.pop_all()
    return ForkedGuard(pid, pidfd, stdin, stderr, asked if tells else None)


def _pipe(its: ExitStack, failed: ExitStack, *, ours_writes: bool) -> tuple[int, IO[bytes]]:
    """A pipe: the guard's end, which is closed here in any case, and ours, which is if all is for nothing."""
    read_fd, write_fd = os.pipe()
    its_fd, ours = (read_fd, write_fd) if ours_writes else (write_fd, read_fd)
    its.callback(os.close, its_fd)
    return its_fd, failed.enter_context(open(ours, "wb" if ours_writes else "rb"))


def _exchange(asked: socket.socket, fds: Sequence[int]) -> tuple[int, int]:
    """A guard's pid, and the descriptor that stands for it. Raises OSError or ValueError if there is none."""
    socket.send_fds(asked, [guard_template.FORK_REQUEST], fds)
    said, answered, _, _ = socket.recv_fds(asked, 256, 1, socket.MSG_CMSG_CLOEXEC)
    if len(answered) != 1:
        raise OSError(f"no guard was forked: {said.decode()}")
    return int(said), answered[0]
