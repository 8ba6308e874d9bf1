"""The sockets that a server listens on: one of our own in the lab's folder, and one of the loopback."""

# Not durable: removes the socket of a server that is gone

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from roost.base.errors import Refused

SOCKET_NAME = "server.sock"
DEFAULT_PORT = 9999
_MAX_PORTS_TRIED = 100
_BACKLOG = 128
_NO_IPV6_ERRNOS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.EPERM, errno.EACCES)
"""What a machine says that has no ::1, or lets nobody have it."""


def listen_unix(folder: Path) -> socket.socket:
    """A socket that only its owner can open; what a killed server has left in its place is removed.

    Raises:
        Refused: Somebody listens there, or something else lies there.
        OSError: It cannot be made.
    """
    path = folder / SOCKET_NAME
    _remove_stale_socket(path)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # from its first moment nobody else can open it
    try:
        found.bind(str(path))
    except OSError as error:
        found.close()
        if error.errno is None and "too long" in str(error):
            fix = "set ROOST_STATE to a folder with a shorter name"
            raise Refused("the name of its socket would be too long", where=path, fix=fix) from None
        raise
    finally:
        os.umask(before)
    found.listen(_BACKLOG)
    return found


def remove_unix_socket(folder: Path) -> None:
    """Removes the socket of a server that ends."""
    with contextlib.suppress(OSError):  # the next one does
        (folder / SOCKET_NAME).unlink()


@contextlib.contextmanager
def listen_loopback(port: int | None) -> Iterator[socket.socket]:
    """A socket that no other machine can reach, until the block ends.

    ``localhost`` may mean ::1 as well, where nobody listens. The port is held there, too: whoever else had it
    would get requests that are meant for us, with the token.

    Args:
        port: That was asked for; None: `DEFAULT_PORT`, or the next free one. 0: any.

    Raises:
        Refused: The one that was asked for is taken, or is not ours to have.
    """
    with contextlib.ExitStack() as ours:
        yield _bind_free_port(port, ours)


def _bind_free_port(port: int | None, ours: contextlib.ExitStack) -> socket.socket:
    tried: Iterable[int] = range(DEFAULT_PORT, DEFAULT_PORT + _MAX_PORTS_TRIED)
    if port is not None:
        tried = [port] * (1 if port else _MAX_PORTS_TRIED)  # any that is free may be taken at ::1
    for one in tried:
        try:
            return _bind(one, ours)
        except OSError as error:
            if error.errno == errno.EACCES:
                fix = "give one from 1024 on"
                raise Refused("this port is for root", setting="--port", received=one, fix=fix) from None
            if error.errno != errno.EADDRINUSE:
                raise
    if port is not None:
        fix = "give another one, or leave it out: then the next free one is taken"
        raise Refused("this port is in use", setting="--port", received=port, fix=fix)
    raise Refused(f"no port from {DEFAULT_PORT} on is free", fix="give one: --port")


def _bind(port: int, ours: contextlib.ExitStack) -> socket.socket:
    with contextlib.ExitStack() as opened:
        # Named, so that asyncio sends at once: else each answer waits 40 ms for the client's acknowledgement.
        found = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
        found.listen(_BACKLOG)
        try:
            # Without SO_REUSEADDR, with which another one could have the port, too: nobody listens here.
            held = opened.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_STREAM))
            held.bind(("::1", found.getsockname()[1]))
        except OSError as error:
            if error.errno not in _NO_IPV6_ERRNOS:
                raise
        ours.enter_context(opened.pop_all())
    return found


def _remove_stale_socket(path: Path) -> None:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise Refused("this is no socket of ours", where=path, fix="remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise Refused(
                "a server listens here already", where=path, fix="`roost server status` tells of it"
            )
