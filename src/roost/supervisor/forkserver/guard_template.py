"""The process that guards are forked from: it has loaded all that a guard and its supervisor will need.

It is a guard (`lab.guard`) whose stdin is a socket. The lab's daemon starts it (`lab.forked`), and it ends
when its stdin does; its children go on. `lab.loaded` is another, which has loaded torch, too, and which
whoever starts a session may ask. A message brings the descriptors of one guard, as that
will have them: 0, 2, 3, 4, …; the answer is the guard's pid, with a descriptor that stands for it. What to
run comes through the guard's own stdin, so one that nobody has heard of runs nothing.
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
"""The number of the first descriptor that a guard is given beside its stdin and stderr."""
MAX_FDS = 250
"""In a message; the kernel takes 253."""


def load_modules() -> None:
    """What guard and supervisor would import one by one, after their start. None of it starts a thread: of
    several a fork copies one."""
    from roost.base import durable  # noqa: F401
    from roost.base.system import process_identity
    from roost.supervisor import session_restart, session_watch  # noqa: F401
    from roost.supervisor.monitoring import card_peaks, out_of_memory  # noqa: F401
    from roost.supervisor.output import output_cap  # noqa: F401
    from roost.supervisor.processes import cgroup, session_processes

    session_processes.prctl()
    cgroup.clone3()
    cgroup.can_create()  # which finds the mount, once for all; as that finds the boot
    process_identity.boot_id()
    codecs.lookup("ascii")  # a module, too: the record of a session needs it


def serve(
    listening: socket.socket | None = None,
    *,
    is_stale: Callable[[], bool] = lambda: False,
    seconds: float | None = None,
) -> None:
    """Forks a guard for each message. Returns in every child, its descriptors in their places; never in the
    template itself.

    Args:
        listening: Where others may ask than the one who holds the other end of stdin. Each is told, too, how
            its guard has ended.
        is_stale: Tells before each fork whether this process has become another than one that starts now. It
            then forks no more, and ends with its last guard.
        seconds: Ends when nothing has happened for so long; None: never.
    """
    gc.collect()
    gc.freeze()  # else each child would copy the pages of all that is loaded
    own = _TemplateServer(listening, is_stale)
    while True:
        asking = own.poller.poll(None if seconds is None else seconds * 1000)
        if not asking and not own.has_guards:
            os._exit(0)
        for fd, _ in asking:
            if own.handle(fd):
                return


class _TemplateServer:
    """A template at work: who may ask it, and the guards of its that have not ended yet, by the descriptors
    that tell of them."""

    def __init__(self, listening: socket.socket | None, is_stale: Callable[[], bool]) -> None:
        self.poller = select.poll()
        self._is_stale, self._forks = is_stale, True
        self._listening = listening
        self._askers: dict[int, socket.socket] = {}
        self._guards: dict[int, tuple[int, socket.socket | None]] = {}
        """The pid of each, and who wants to be told how it has ended."""
        self._meet(socket.socket(fileno=0))
        if listening is not None:
            self.poller.register(listening, select.POLLIN)

    @property
    def has_guards(self) -> bool:
        """Whether one lives."""
        return bool(self._guards)

    def handle(self, fd: int) -> bool:
        """Does what a descriptor tells of; gives whether we are a guard that was forked for it."""
        if fd in self._guards:
            self._reap(fd)
        elif fd in self._askers:
            return self._answer(fd)
        elif self._listening is not None:
            return self._accept(self._listening)
        return False

    def _accept(self, listening: socket.socket) -> bool:
        try:
            self._meet(listening.accept()[0])
        except OSError:  # no descriptor is left: those who wait, and all after them, do without us
            self._gone(listening.fileno())
            listening.close()
            self._listening, self._forks = None, False
            return self._end_if_done()
        return False

    def _meet(self, asker: socket.socket) -> None:
        self._askers[asker.fileno()] = asker
        self.poller.register(asker, select.POLLIN)

    def _gone(self, fd: int) -> int:
        self.poller.unregister(fd)
        return fd

    def _answer(self, fd: int) -> bool:
        asker = self._askers[fd]
        try:
            message, fds, flags, _ = socket.recv_fds(asker, len(FORK_REQUEST), MAX_FDS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            message = b""
        if not message:
            if fd == 0:
                os._exit(0)
            self._askers.pop(self._gone(fd)).close()
            return False
        self._forks = self._forks and not self._is_stale()
        if flags & socket.MSG_CTRUNC or not self._forks:
            _close(fds)
            _reply(asker, b"it is stale, or not all descriptors have arrived")
            return self._end_if_done()
        try:
            pid = os.fork()
        except OSError as error:
            _close(fds)
            return _reply(asker, str(error).encode())
        if pid == 0:
            self._leave()
            _renumber(fds)
            return True
        _close(fds)
        try:
            pidfd = os.pidfd_open(pid)
        except OSError as error:  # no descriptor is left: nobody could be told of it
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return _reply(asker, str(error).encode())
        self._guards[pidfd] = pid, asker if fd else None
        self.poller.register(pidfd, select.POLLIN)
        return _reply(asker, str(pid).encode(), pidfd)

    def _reap(self, fd: int) -> None:
        pid, asker = self._guards.pop(fd)
        os.close(self._gone(fd))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if asker is not None:
            _reply(asker, str(code).encode())
        self._end_if_done()

    def _end_if_done(self) -> Literal[False]:
        if not self._forks and not self._guards:
            os._exit(0)
        return False

    def _leave(self) -> None:
        """In a guard: nothing of this is its."""
        _close(self._guards)
        self._askers.pop(0).detach()  # its number will have another meaning
        for asker in self._askers.values():
            asker.close()
        if self._listening is not None:
            self._listening.close()


def _reply(asker: socket.socket, answer: bytes, *fds: int) -> Literal[False]:
    with suppress(OSError):  # whoever has asked is gone: a guard whose stdin ends runs nothing
        socket.send_fds(asker, [answer], fds)
    return False


def _renumber(fds: Sequence[int]) -> None:
    """Gives the descriptors the numbers that the guard knows them by."""
    there = (0, 2, *range(FIRST_FD, FIRST_FD + len(fds) - 2))
    # Above all of these first: one that comes early may have the number of one that comes late.
    above = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FD + len(fds)) for fd in fds]
    _close(fds)
    for fd, number in zip(above, there, strict=True):
        os.dup2(fd, number)
    _close(above)


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)
