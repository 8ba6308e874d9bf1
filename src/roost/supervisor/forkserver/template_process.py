"""The template process: it has imported all that a guard and its supervisor need, and forks a guard for each
request.

    python -I -S template_process.py SOCKET

It receives datagrams at the path, and ends when its stdin does; its children continue. This one has loaded
nothing but the standard library and roost; `torch_template` is the other, whose guards can fork a worker that
has torch imported.

Each datagram of a client (`template_client`) brings the descriptors of one guard: a socket for the answer,
and those that become the guard's numbers 0, 2, 3, 4, … The answer is the guard's pid with its pidfd, and
later its exit code. The spec comes through the guard's own stdin, so a guard whose client is gone runs
nothing. If the template is killed, the kernel closes the socket for the answer.
"""

# Standard library only
# Not durable: gives its socket a name; nothing resumes from it

from __future__ import annotations

import os
import sys

if __name__ == "__main__":  # with -I -S neither site-packages nor this folder is on the path
    sys.path.insert(0, __file__.rsplit(os.sep, 4)[0])

import codecs
import fcntl
import gc
import select
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

from roost.base.system import process_title
from roost.supervisor import guard

if TYPE_CHECKING:
    from roost.supervisor.forkserver.forked_worker import WarmWorker

FORK_REQUEST = b"fork"
FIRST_FD = 3
"""The number of the first descriptor that a guard gets after its stdin and stderr."""
MAX_FDS = 250
"""In one message; the kernel takes 253."""


class Preload(NamedTuple):
    """What a template process has loaded in addition to guard and supervisor, and for how long."""

    warm: WarmWorker | None = None
    """The worker that a fork can become; None: workers start by exec."""
    is_stale: Callable[[], bool] = lambda: False
    """Called before each fork: whether this process differs from one that starts now. It then forks no more,
    and ends with its last guard."""
    idle_seconds: float | None = None
    """The process ends after so long without a request and without a living guard; None: never."""


def load_modules() -> None:
    """Imports what guard and supervisor would import one by one after their start. None of it starts a
    thread: a fork copies only one."""
    from roost.base import durable  # noqa: F401
    from roost.base.system import prctl, process_identity
    from roost.supervisor import session_record, session_restart, session_watch  # noqa: F401
    from roost.supervisor.monitoring import card_peaks, out_of_memory  # noqa: F401
    from roost.supervisor.output import output_cap  # noqa: F401
    from roost.supervisor.processes import cgroup

    prctl.system_call()
    cgroup.clone3()
    cgroup.can_create()  # finds the mount, once for all children
    process_identity.boot_id()
    codecs.lookup("ascii")  # imports the codec, which the session record needs


def serve(path: str, preload: Preload) -> NoReturn:
    """Forks a guard for each request; becomes the guard in each child.

    Args:
        path: Of the socket for requests, which is created here: from now on this process can be forked.
        preload: What this process has loaded.
    """
    process_title.set_title("template")
    gc.collect()
    gc.freeze()  # else each child would copy the pages of all loaded modules
    _TemplateServer(path, preload).fork_guards()
    os._exit(guard.main(preload.warm))


class _TemplateServer:
    """The template at work: its socket, and its guards that have not ended yet."""

    def __init__(self, path: str, preload: Preload) -> None:
        self._path, self._preload, self._forks = path, preload, True
        self._guards: dict[int, tuple[int, socket.socket]] = {}
        """By pidfd: the pid of each guard, and the socket that takes its exit code to the client."""
        self._requests = _bind(path)
        self._identity = _identity(path)
        self._poller = select.poll()
        for fd in (0, self._requests.fileno()):
            self._poller.register(fd, select.POLLIN)

    def fork_guards(self) -> None:
        """Forks a guard for each request. Returns in every child, its descriptors in their places; never in
        the template itself."""
        idle_seconds = self._preload.idle_seconds
        while True:
            ready = self._poller.poll(None if idle_seconds is None else idle_seconds * 1000)
            if not ready and not self._guards:
                self._end()
            for fd, _ in ready:
                if fd == 0:  # the process that keeps this one has closed it, or has ended
                    self._end()
                elif fd in self._guards:
                    self._reap(fd)
                elif self._forks_guard():
                    return

    def _forks_guard(self) -> bool:
        """Reads one request and answers it; returns whether this process is the guard that was forked."""
        message, fds, flags, _ = socket.recv_fds(
            self._requests, len(FORK_REQUEST), MAX_FDS, socket.MSG_CMSG_CLOEXEC
        )
        if not fds:  # there is no descriptor left, so none for an answer: the client sees its end closed
            return self._refuse(None, "no descriptor has arrived")
        answer_fd, *guard_fds = fds
        answer = socket.socket(fileno=answer_fd)
        if flags & socket.MSG_CTRUNC or message != FORK_REQUEST:
            _close(guard_fds)
            return self._refuse(answer, "not all descriptors have arrived")
        if not self._forks or _identity(self._path) != self._identity or self._preload.is_stale():
            _close(guard_fds)
            return self._refuse(answer, "the template is stale")
        try:
            pid = os.fork()
        except OSError as error:
            _close(guard_fds)
            return self._refuse(answer, str(error))
        if pid == 0:
            self._close_inherited()
            answer.close()
            _renumber(guard_fds)
            return True
        _close(guard_fds)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:  # there is no descriptor left
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return self._refuse(answer, str(error))
        self._guards[pidfd] = pid, answer
        self._poller.register(pidfd, select.POLLIN)
        _send(answer, str(pid), pidfd)
        return False

    def _refuse(self, answer: socket.socket | None, why: str) -> Literal[False]:
        """Answers that no guard was forked. The client then removes the socket, so no other request comes:
        this process ends with its last guard."""
        self._forks = False
        if answer is not None:
            _send(answer, why)
            answer.close()
        if not self._guards:
            self._end()
        return False

    def _reap(self, fd: int) -> None:
        pid, answer = self._guards.pop(fd)
        self._poller.unregister(fd)
        os.close(fd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        _send(answer, str(code))
        answer.close()
        if not self._forks and not self._guards:
            self._end()

    def _end(self) -> NoReturn:
        if _identity(self._path) == self._identity:  # else another template listens there by now
            os.unlink(self._path)  # noqa: PTH108
        os._exit(0)

    def _close_inherited(self) -> None:
        """Closes the template's descriptors in a guard, except stdin, which is replaced."""
        for pidfd, (_, answer) in self._guards.items():
            os.close(pidfd)
            answer.close()
        self._requests.close()


def _bind(path: str) -> socket.socket:
    """Returns a socket that receives at a path; replaces what a killed template has left there."""
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    folder, name = os.path.split(path)
    os.chdir(folder)  # the path of a socket is limited to 107 bytes
    with suppress(FileNotFoundError):
        os.unlink(f"{name}.new")  # noqa: PTH108
    requests.bind(f"{name}.new")
    os.rename(f"{name}.new", name)  # noqa: PTH104
    os.chdir("/")
    return requests


def _identity(path: str) -> tuple[int, int] | None:
    """Returns what distinguishes a file from a later one at its path; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _send(answer: socket.socket, text: str, *fds: int) -> None:
    with suppress(OSError):  # the client is gone: a guard whose stdin ends runs nothing
        socket.send_fds(answer, [text.encode()], fds)


def _renumber(fds: Sequence[int]) -> None:
    """Gives the descriptors the numbers by which the guard knows them."""
    there = (0, 2, *range(FIRST_FD, FIRST_FD + len(fds) - 2))
    # First to numbers above all of these: an early one may have the number of a late one.
    above = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FD + len(fds)) for fd in fds]
    _close(fds)
    for fd, number in zip(above, there, strict=True):
        os.dup2(fd, number)
    _close(above)


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


if __name__ == "__main__":
    load_modules()
    serve(sys.argv[1], Preload())
