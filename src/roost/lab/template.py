"""The process that guards are forked from: it has loaded all that a guard and its supervisor will need.

It is a guard (`lab.guard`) whose stdin is a socket. The lab's daemon starts it (`lab.forked`), and it ends
when nobody can ask it any more; its children go on. A message brings the descriptors of one guard, as that
will have them: 0, 2, 3, 4, …; the answer is the guard's pid, with a descriptor that stands for it. What to
run comes through the guard's own stdin, so one that nobody has heard of runs nothing.
"""

from __future__ import annotations

import codecs
import fcntl
import gc
import os
import select
import socket
from collections.abc import Iterable, Sequence

ASK = b"fork"
FIRST_FD = 3
"""The number of the first descriptor that a guard is given beside its stdin and stderr."""
MOST_FDS = 250
"""In a message; the kernel takes 253."""


def serve() -> None:
    """Forks a guard for each message on stdin. Returns in every child, its descriptors in their places; never
    in the template itself."""
    _load()
    asked = socket.socket(fileno=0)
    poller, guards = select.poll(), dict[int, int]()
    poller.register(0, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd in guards:
                poller.unregister(fd)
                os.close(fd)
                os.waitpid(guards.pop(fd), 0)
            elif _fork(asked, guards):
                asked.detach()
                return
            for new in guards:
                poller.register(new, select.POLLIN)


def _load() -> None:
    """What guard and supervisor would import one by one, after their start. None of it starts a thread: of
    several a fork copies one."""
    from roost.base import durable  # noqa: F401
    from roost.lab import capture, cgroup, peaks, restart, scope, watch  # noqa: F401

    scope.prctl()
    cgroup.clone3()
    codecs.lookup("ascii")  # a module, too: the record of a session needs it
    gc.collect()
    gc.freeze()  # else each child would copy the pages of all that is loaded


def _fork(asked: socket.socket, guards: dict[int, int]) -> bool:
    """Answers one message, and adds the guard by its descriptor; gives whether we are that guard."""
    message, fds, flags, _ = socket.recv_fds(asked, len(ASK), MOST_FDS, socket.MSG_CMSG_CLOEXEC)
    if not message:
        os._exit(0)
    if flags & socket.MSG_CTRUNC:
        _close(fds)
        asked.send(b"not all descriptors arrived")
        return False
    try:
        pid = os.fork()
    except OSError as error:
        _close(fds)
        asked.send(str(error).encode())
        return False
    if pid == 0:
        _close(guards)
        _place(fds)
        return True
    _close(fds)
    pidfd = os.pidfd_open(pid)
    guards[pidfd] = pid
    socket.send_fds(asked, [str(pid).encode()], [pidfd])
    return False


def _place(fds: Sequence[int]) -> None:
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
