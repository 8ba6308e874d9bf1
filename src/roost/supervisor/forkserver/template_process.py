"""The template process: it has imported all that a guard and its supervisor need, and forks a guard for each
request.

    python -I -S template_process.py SOCKET

It listens at the path, and ends when its stdin does; its children continue. This one has loaded nothing but
the standard library and roost; `torch_template` is the other, whose guards can fork a worker that has torch
imported. A client (`template_client`) connects once for each guard and sends the guard's descriptors, which
become its numbers 0, 2, 3, 4, …; it receives the guard's pid with its pidfd, and later its exit code. The
spec comes through the guard's own stdin, so a guard whose client is gone runs nothing.
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
_LISTEN_BACKLOG = 64


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
    from roost.base.system import process_identity
    from roost.supervisor import session_record, session_restart, session_watch  # noqa: F401
    from roost.supervisor.monitoring import card_peaks, out_of_memory  # noqa: F401
    from roost.supervisor.output import output_cap  # noqa: F401
    from roost.supervisor.processes import cgroup, session_processes

    session_processes.prctl()
    cgroup.clone3()
    cgroup.can_create()  # finds the mount, once for all children
    process_identity.boot_id()
    codecs.lookup("ascii")  # imports the codec, which the session record needs


def serve(path: str, preload: Preload) -> NoReturn:
    """Listens, and forks a guard for each request; becomes the guard in each child.

    Args:
        path: Of the socket, which is created here: from now on this process can be forked.
        preload: What this process has loaded.
    """
    process_title.set_title("template")
    gc.collect()
    gc.freeze()  # else each child would copy the pages of all loaded modules
    _TemplateServer(path, preload).fork_guards()
    os._exit(guard.main(preload.warm))


class _TemplateServer:
    """The template at work: its clients, and its guards that have not ended yet, by their pidfds."""

    def __init__(self, path: str, preload: Preload) -> None:
        self._path, self._preload, self._forks = path, preload, True
        self._clients: dict[int, socket.socket] = {}
        self._guards: dict[int, tuple[int, socket.socket]] = {}
        """By pidfd: the pid of each guard, and the client that receives its exit code."""
        self._listening = _listen(path)
        self._identity = _identity(path)
        self._poller = select.poll()
        for fd in (0, self._listening.fileno()):
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
                if self._handle(fd):
                    return

    def _handle(self, fd: int) -> bool:
        """Handles one readable descriptor; returns whether this process is the guard that was forked for
        it."""
        if fd == 0:  # the process that keeps this one has closed it, or has ended
            self._end()
        elif fd in self._guards:
            self._reap(fd)
        elif fd in self._clients:
            return self._answer(fd)
        else:
            self._accept()
        return False

    def _end(self) -> NoReturn:
        if _identity(self._path) == self._identity:  # else another template listens there by now
            os.unlink(self._path)  # noqa: PTH108
        os._exit(0)

    def _end_if_done(self) -> Literal[False]:
        if not self._forks and not self._guards:
            self._end()
        return False

    def _accept(self) -> None:
        try:
            client = self._listening.accept()[0]
        except OSError:  # no descriptor is left: all clients start without this template
            self._poller.unregister(self._listening)
            self._listening.close()
            self._forks = False
            self._end_if_done()
            return
        self._clients[client.fileno()] = client
        self._poller.register(client, select.POLLIN)

    def _answer(self, fd: int) -> bool:
        client = self._clients[fd]
        try:
            message, fds, flags, _ = socket.recv_fds(
                client, len(FORK_REQUEST), MAX_FDS, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            message = b""
        if not message:
            self._poller.unregister(fd)
            self._clients.pop(fd).close()
            return False
        self._forks = self._forks and _identity(self._path) == self._identity and not self._preload.is_stale()
        if flags & socket.MSG_CTRUNC or not self._forks:
            _close(fds)
            _reply(client, b"the template is stale, or not all descriptors have arrived")
            return self._end_if_done()
        try:
            pid = os.fork()
        except OSError as error:
            _close(fds)
            return _reply(client, str(error).encode())
        if pid == 0:
            self._close_inherited()
            _renumber(fds)
            return True
        _close(fds)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:  # no descriptor is left: the client could get no pidfd
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return _reply(client, str(error).encode())
        self._guards[pidfd] = pid, client
        self._poller.register(pidfd, select.POLLIN)
        return _reply(client, str(pid).encode(), pidfd)

    def _reap(self, fd: int) -> None:
        pid, client = self._guards.pop(fd)
        self._poller.unregister(fd)
        os.close(fd)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        _reply(client, str(code).encode())
        self._end_if_done()

    def _close_inherited(self) -> None:
        """Closes the template's descriptors in a guard, except stdin, which is replaced."""
        _close(self._guards)
        for client in self._clients.values():
            client.close()
        self._listening.close()


def _listen(path: str) -> socket.socket:
    """Returns a socket that listens at a path; replaces what a killed template has left there."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder, name = os.path.split(path)
    os.chdir(folder)  # the path of a socket is limited to 107 bytes
    with suppress(FileNotFoundError):
        os.unlink(f"{name}.new")  # noqa: PTH108
    listening.bind(f"{name}.new")
    listening.listen(_LISTEN_BACKLOG)
    os.rename(f"{name}.new", name)  # noqa: PTH104
    os.chdir("/")
    return listening


def _identity(path: str) -> tuple[int, int] | None:
    """Returns what distinguishes a file from a later one at its path; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _reply(client: socket.socket, answer: bytes, *fds: int) -> Literal[False]:
    with suppress(OSError):  # the client is gone: a guard whose stdin ends runs nothing
        socket.send_fds(client, [answer], fds)
    return False


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
