"""The template process that guards are forked from: it has imported all that a guard and its supervisor need.

It is a guard (`roost.supervisor.guard`) whose stdin is a socket. The lab's daemon starts it (`forked_guard`),
and it ends when its stdin does; its children continue. A `torch_template` is another, which has imported
torch too and accepts requests from any process of the user. A message brings the descriptors of one guard,
which become its numbers 0, 2, 3, 4, …; the answer is the guard's pid, with its pidfd. The spec comes through
the guard's own stdin, so a guard whose requester is gone runs nothing.
"""

# Standard library only

from __future__ import annotations

import codecs
import fcntl
import gc
import os
import select
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Literal

FORK_REQUEST = b"fork"
FIRST_FD = 3
"""The number of the first descriptor that a guard gets after its stdin and stderr."""
MAX_FDS = 250
"""In one message; the kernel takes 253."""


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


def serve(
    listening: socket.socket | None = None,
    *,
    is_stale: Callable[[], bool] = lambda: False,
    seconds: float | None = None,
) -> None:
    """Forks a guard for each message. Returns in every child, its descriptors in their places; never in the
    template itself.

    Args:
        listening: Accepts requests of processes other than the one at the other end of stdin. They also
            receive the exit status of their guard.
        is_stale: Called before each fork: whether this process differs from one that starts now. It then
            forks no more, and ends with its last guard.
        seconds: Ends when nothing has happened for so long; None: never.
    """
    gc.collect()
    gc.freeze()  # else each child would copy the pages of all loaded modules
    own = _TemplateServer(listening, is_stale)
    while True:
        asking = own.poller.poll(None if seconds is None else seconds * 1000)
        if not asking and not own.has_guards:
            os._exit(0)
        for fd, _ in asking:
            if own.handle(fd):
                return


class _TemplateServer:
    """The template at work: its clients, and its guards that have not ended yet, by their pidfds."""

    def __init__(self, listening: socket.socket | None, is_stale: Callable[[], bool]) -> None:
        self.poller = select.poll()
        self._is_stale, self._forks = is_stale, True
        self._listening = listening
        self._clients: dict[int, socket.socket] = {}
        self._guards: dict[int, tuple[int, socket.socket | None]] = {}
        """By pidfd: the pid of each guard, and the client that receives its exit status."""
        self._add_client(socket.socket(fileno=0))
        if listening is not None:
            self.poller.register(listening, select.POLLIN)

    @property
    def has_guards(self) -> bool:
        """Whether a guard lives."""
        return bool(self._guards)

    def handle(self, fd: int) -> bool:
        """Handles one readable descriptor; returns whether this process is the guard that was forked for
        it."""
        if fd in self._guards:
            self._reap(fd)
        elif fd in self._clients:
            return self._answer(fd)
        elif self._listening is not None:
            return self._accept(self._listening)
        return False

    def _accept(self, listening: socket.socket) -> bool:
        try:
            self._add_client(listening.accept()[0])
        except OSError:  # no descriptor is left: all clients start without this template
            self._unregister(listening.fileno())
            listening.close()
            self._listening, self._forks = None, False
            return self._end_if_done()
        return False

    def _add_client(self, client: socket.socket) -> None:
        self._clients[client.fileno()] = client
        self.poller.register(client, select.POLLIN)

    def _unregister(self, fd: int) -> int:
        self.poller.unregister(fd)
        return fd

    def _answer(self, fd: int) -> bool:
        client = self._clients[fd]
        try:
            message, fds, flags, _ = socket.recv_fds(
                client, len(FORK_REQUEST), MAX_FDS, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            message = b""
        if not message:
            if fd == 0:
                os._exit(0)
            self._clients.pop(self._unregister(fd)).close()
            return False
        self._forks = self._forks and not self._is_stale()
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
        self._guards[pidfd] = pid, client if fd else None
        self.poller.register(pidfd, select.POLLIN)
        return _reply(client, str(pid).encode(), pidfd)

    def _reap(self, fd: int) -> None:
        pid, client = self._guards.pop(fd)
        os.close(self._unregister(fd))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if client is not None:
            _reply(client, str(code).encode())
        self._end_if_done()

    def _end_if_done(self) -> Literal[False]:
        if not self._forks and not self._guards:
            os._exit(0)
        return False

    def _close_inherited(self) -> None:
        """Closes the template's descriptors in a guard."""
        _close(self._guards)
        self._clients.pop(0).detach()  # the number 0 becomes that of another file
        for client in self._clients.values():
            client.close()
        if self._listening is not None:
            self._listening.close()


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
