"""Asks a template process (`roost.supervisor.forkserver.template_process`) for a guard: a fork takes a tenth
of the time of a start by exec.

There is one template for guards, which the lab's daemon alone uses, and one for each environment with which
workers were started lately: its guards fork the worker, too, with torch imported. Such a template listens in
the lab's folder under a name for everything it was started with (`environment_key`): a process that would
start a worker with the same environment finds it there, and with any other does not. Without a template, and
in any case of doubt, guard and worker start by exec.
"""

# Not durable: the pipes of a guard, and the sockets of the templates; nothing resumes from them

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

from roost.base.errors import Refused
from roost.base.system import state_folder
from roost.supervisor.forkserver import environment_key, template_process
from roost.supervisor.forkserver.forked_worker import WORKER_ARGUMENTS
from roost.supervisor.session_spec import SessionSpec

COLD_VARIABLE = "ROOST_COLD"
"""If set to any value, workers start cold."""
FOLDER_VARIABLE = "ROOST_WARM"
"""A folder of templates that serve several labs, instead of the lab's own."""
_ANSWER_SECONDS = 2.0
"""A template that does not answer in this time is paused, or the machine has no memory left: the guard is
started without it."""
_REAPED_SECONDS = 20.0
_UNKNOWN_EXIT_CODE = 1


def template_folder() -> Path:
    """Returns the folder in which templates listen."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else state_folder.lab_folder() / "warm"


def worker_template(spec: SessionSpec) -> Path | None:
    """Returns where the template for the worker of a session listens, if there is one; None if the worker
    must start cold."""
    key = None
    if _allows_warm_start(spec):
        key = environment_key.environment_key(spec.argv[: 1 + len(WORKER_ARGUMENTS)], spec.env)
    return None if key is None else template_folder() / key


def _allows_warm_start(spec: SessionSpec) -> bool:
    """Whether the worker may start warm: ranks and launchers have an environment of their own, a terminal
    other streams."""
    is_worker = tuple(spec.argv[1 : 1 + len(WORKER_ARGUMENTS)]) == WORKER_ARGUMENTS and not (
        spec.is_command or spec.is_launcher
    )
    is_cold = bool(spec.env.get(COLD_VARIABLE) or os.environ.get(COLD_VARIABLE))
    return sys.platform == "linux" and is_worker and not (spec.ranks or spec.terminal or is_cold)


def fork_guard(
    spec: SessionSpec, fds: Sequence[int], guard_template: Path | None = None
) -> ForkedGuard | None:
    """Has a template fork the guard of a session: the template for its worker, else the one for guards.
    Returns None if neither does: the caller starts a guard by exec.

    Args:
        spec: The session.
        fds: The guard gets copies of these, as number 3, 4, …
        guard_template: Where the template for guards listens; None: there is none.
    """
    for path in (worker_template(spec), guard_template):
        guard = _request_guard(path, fds) if path is not None else None
        if guard is not None:
            return guard
    return None


def is_listening(path: Path) -> bool:
    """Whether a template listens at a path."""
    try:
        _connect(path).close()
    except (OSError, Refused):
        return False
    return True


def _request_guard(path: Path, fds: Sequence[int]) -> ForkedGuard | None:
    """Has the template that listens at a path fork a guard; None if there is no template, or it was killed,
    is paused, or cannot fork."""
    # `Path.exists` raises an error where this user may not search the folder.
    if not os.path.exists(path) or len(fds) + 3 > template_process.MAX_FDS:  # noqa: PTH110
        return None
    with ExitStack() as child_ends, ExitStack() as failed:
        try:
            answer, answer_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            failed.callback(answer.close)
            child_ends.callback(answer_end.close)
            stdin_fd, stdin = _pipe(child_ends, failed, caller_writes=True)
            stderr_fd, stderr = _pipe(child_ends, failed, caller_writes=False)
            with _connect(path) as requests:
                sent = [answer_end.fileno(), stdin_fd, stderr_fd, *fds]
                socket.send_fds(requests, [template_process.FORK_REQUEST], sent)
        except (OSError, Refused):
            return None
        child_ends.close()  # else the answer of a template that is killed now would be awaited
        try:
            pid, pidfd = _read_answer(answer)
        except (OSError, ValueError):
            with suppress(OSError):
                path.unlink()  # no other process must wait for it
            return None
        failed.pop_all()
    return ForkedGuard(pid, pidfd, stdin, stderr, answer)


def _connect(path: Path) -> socket.socket:
    """Returns a socket that sends to the template that listens at a path.

    Raises:
        OSError: There is none, or no descriptor is left.
        Refused: Other users may have put it there.
    """
    # The template gets the lock, and all that the worker may know.
    state_folder.require_owner_and_mode(path.parent, 0o700)
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    requests.setblocking(False)  # the queue of a paused template may be full: do not wait
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # The path of a socket is limited to 107 bytes.
            requests.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
    except OSError:
        requests.close()
        raise
    return requests


def _pipe(child_ends: ExitStack, failed: ExitStack, *, caller_writes: bool) -> tuple[int, IO[bytes]]:
    """Returns the guard's end of a pipe, which the caller closes in any case, and the other end, which is
    closed on failure."""
    read_fd, write_fd = os.pipe()
    child_fd, own_fd = (read_fd, write_fd) if caller_writes else (write_fd, read_fd)
    child_ends.callback(os.close, child_fd)
    return child_fd, failed.enter_context(open(own_fd, "wb" if caller_writes else "rb"))


def _read_answer(answer: socket.socket) -> tuple[int, int]:
    """Returns the pid and pidfd of a forked guard. Raises OSError or ValueError if there is none."""
    answer.settimeout(_ANSWER_SECONDS)
    message, fds, _, _ = socket.recv_fds(answer, 256, 1, socket.MSG_CMSG_CLOEXEC)
    if len(fds) != 1:
        raise OSError(f"no guard was forked: {message.decode()}")
    return int(message), fds[0]


class ForkedGuard:
    """A guard that is a child of the template, with the needed part of the interface of `subprocess.Popen`.

    Args:
        pid: Its process.
        pidfd: Its pidfd.
        stdin: Receives the spec; before it nothing is run.
        stderr: Contains the error if the guard cannot start.
        answer: Receives its exit code from the template.
    """

    def __init__(
        self,
        pid: int,
        pidfd: int,
        stdin: IO[bytes],
        stderr: IO[bytes],
        answer: socket.socket,
    ) -> None:
        self.pid, self.stdin, self.stderr = pid, stdin, stderr
        self.returncode: int | None = None
        self._pidfd, self._answer = pidfd, answer

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
        try:
            self._answer.settimeout(_REAPED_SECONDS)
            return int(self._answer.recv(16))
        except (OSError, ValueError):  # the template was killed, or is paused
            return _UNKNOWN_EXIT_CODE

    def close(self) -> None:
        """Closes the descriptors; a guard that lives continues, and its end cannot be awaited any more."""
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        self._answer.close()

    __del__ = close  # a caller that does not wait for the end need not close
