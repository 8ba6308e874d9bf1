"""The process that uploads a package to its remote copy while the session runs, started by the guard
(`roost.worker.remote_upload`).

::

    guard                                   upload process
    starts it after the supervisor          uploads every some seconds; prints into the output
    the last worker has ended: "ended T"    uploads the rest, prints how far the run is durable, answers
    waits, at most until T
    writes the seal: "sealed"               uploads the seal, ends

It is no part of the session: neither the supervisor nor a limit ends it. If the guard is killed, it
sees by the lock of the package when the session has ended. If it is killed itself, as by a lack of memory,
the guard says so and starts it again.
"""

# Standard library only

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from roost.supervisor import signals
from roost.supervisor.output.output_file import open_output, write_line
from roost.supervisor.session_spec import SessionSpec

_MODULE = ("-P", "-m", "roost.worker.remote_upload")
_TICK_SECONDS = 0.05
_MIN_WAIT_SECONDS = 1.0
"""At a deadline that has come the process is still given this to say how far the copy is."""
_ANSWER_SECONDS = 5.0
"""So much later than the end of the wait the process has said that. One that has not is paused, or hangs."""
_SEAL_SECONDS = 20.0
"""How long the seal, a few kilobytes, may take after that."""
_MAX_STARTS = 4


class UploadProcess:
    """The upload process of a session and of those that restart it.

    Args:
        spec: The first session.
    """

    def __init__(self, spec: SessionSpec) -> None:
        self._spec = spec
        self._pid: int | None = None
        self._request_fd = self._answer_fd = -1
        self._num_starts = 0
        self._is_killed = self._is_given_up = self._is_stopped = False

    @property
    def pids(self) -> list[int]:
        """The process, if it lives: what kills the rest of a session spares it."""
        return [] if self._pid is None else [self._pid]

    def start(self) -> None:
        """Starts the process, unless the session has no remote copy or it was started before."""
        if self._spec.remote_wait_seconds is not None and not self._num_starts:
            self._spawn()
        else:
            self.restart_if_killed()

    def restart_if_killed(self) -> None:
        """Starts the process again if it was killed, and says so; after some kills only says so."""
        self._collect()
        if not self._is_killed:
            return
        self._is_killed = False
        self._is_given_up = self._is_stopped or self._num_starts >= _MAX_STARTS
        then = "nothing more is uploaded" if self._is_given_up else "it is started again"
        self._print(f"remote copy: the process that uploads was killed: {then}")
        if not self._is_given_up:
            self._spawn()

    def _print(self, line: str) -> None:
        with contextlib.suppress(OSError):
            output_fd = open_output(self._spec.output)
            try:
                write_line(output_fd, line)
            finally:
                os.close(output_fd)

    def _spawn(self) -> None:
        self._num_starts += 1
        for fd in (self._request_fd, self._answer_fd):
            if fd >= 0:
                os.close(fd)
        request_fd, self._request_fd = os.pipe()
        self._answer_fd, answer_fd = os.pipe()
        try:
            output_fd = open_output(self._spec.output)
            files = [
                (os.POSIX_SPAWN_DUP2, fd, to) for fd, to in ((request_fd, 0), (answer_fd, 1), (output_fd, 2))
            ]
            arguments = [self._spec.package, str(self._spec.session)]
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *_MODULE, *arguments],
                self._spec.env,
                file_actions=files,
                setsigmask=(),
                setsigdef=(*signals.IGNORED_SIGNALS, *signals.CONTROL_SIGNALS, signal.SIGPIPE),
            )
            os.close(output_fd)
        except OSError:  # no process or descriptor left: `remote.json` remains as it was
            self._pid = None
        os.close(request_fd)
        os.close(answer_fd)
        os.set_blocking(self._answer_fd, False)

    def wait_for_upload(self) -> None:
        """Waits until all is uploaded that the workers have left, but not longer than ``remote.wait`` and the
        deadline. To be called with the control signals blocked: one of them ends the wait."""
        wait = self._spec.remote_wait_seconds or 0.0
        if self._spec.remote_deadline is not None:
            wait = min(wait, self._spec.remote_deadline - time.time())
        wait = max(_MIN_WAIT_SECONDS, wait)
        deadline, until = time.time() + wait, time.monotonic() + wait + _ANSWER_SECONDS
        self.restart_if_killed()
        while self._pid is not None:
            self._send(f"ended {deadline:.3f}\n")
            has_answered = self._wait(until - time.monotonic())
            if not has_answered:
                self.kill()
                self._is_given_up = True
            elif not self._is_killed:
                return
            self.restart_if_killed()
        if self._is_given_up:
            package = os.path.basename(self._spec.package)  # noqa: PTH119  - without pathlib
            self._print(f"remote copy: NOT durable to the end; `roost push {package}` continues it")

    def end(self) -> None:
        """Has the seal uploaded, and ends the process."""
        if self._pid is None:
            return
        self._send("sealed\n")
        self._wait(_SEAL_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends the process at once: nothing more is uploaded."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = None

    def _collect(self) -> None:
        """Notes the end of the process."""
        if self._pid is None:
            return
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == self._pid:
            self._pid, self._is_killed = None, status != 0

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError):  # it was killed
            os.write(self._request_fd, line.encode())

    def _wait(self, seconds: float) -> bool:
        """Waits for an answer or for the end of the process; returns whether one of them came."""
        until = time.monotonic() + seconds
        while self._pid is not None and time.monotonic() < until:
            self._collect()
            if self._pid is None:
                return True
            with contextlib.suppress(BlockingIOError):
                if os.read(self._answer_fd, 1):
                    return True
            found = signal.sigtimedwait((signal.SIGCHLD, *signals.CONTROL_SIGNALS), _TICK_SECONDS)
            if found is not None and found.si_signo != signal.SIGCHLD and not self._is_stopped:
                self._is_stopped = True  # it says how far the copy is, and answers
                os.kill(self._pid, signal.SIGTERM)
                until = min(until, time.monotonic() + _ANSWER_SECONDS)
        return self._pid is None
