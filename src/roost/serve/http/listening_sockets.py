"""The sockets of a server: a unix socket in the lab's folder, and a TCP socket of the loopback interface."""

# Not durable: removes the socket of a server that has ended

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
"""The errors of a machine without ::1, or that forbids its use."""


def listen_unix(folder: Path) -> socket.socket:
    """Returns a listening unix socket that only its owner can open. The socket of a killed server is
    replaced.

    Raises:
        Refused: Another server listens there, the path is not a socket, or it is too long.
        OSError: The socket cannot be created.
    """
    path = folder / SOCKET_NAME
    _remove_stale_socket(path)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # no other user can open it, from its creation on
    try:
        found.bind(str(path))
    except OSError as error:
        found.close()
        if error.errno is None and "too long" in str(error):
            fix = "set ROOST_STATE to a folder with a shorter path"
            raise Refused("the path of the socket is too long", where=path, fix=fix) from None
        raise
    finally:
        os.umask(before)
    found.listen(_BACKLOG)
    return found


def remove_unix_socket(folder: Path) -> None:
    """Removes the unix socket of a server that ends."""
    with contextlib.suppress(OSError):  # otherwise the next server removes it
        (folder / SOCKET_NAME).unlink()


@contextlib.contextmanager
def listen_loopback(port: int | None) -> Iterator[socket.socket]:
    """Yields a listening TCP socket that no other machine can reach.

    ``localhost`` may also resolve to ::1, where this server does not listen. The same port is held there, so
    that no other process can receive requests, with the token, that are meant for this server.

    Args:
        port: The required port; None: `DEFAULT_PORT`, or the next free one; 0: any.

    Raises:
        Refused: The required port is in use, or is reserved for root.
    """
    with contextlib.ExitStack() as ours:
        yield _bind_free_port(port, ours)


def _bind_free_port(port: int | None, ours: contextlib.ExitStack) -> socket.socket:
    tried: Iterable[int] = range(DEFAULT_PORT, DEFAULT_PORT + _MAX_PORTS_TRIED)
    if port is not None:
        tried = [port] * (1 if port else _MAX_PORTS_TRIED)  # a port that is free here may be in use at ::1
    for one in tried:
        try:
            return _bind(one, ours)
        except OSError as error:
            if error.errno == errno.EACCES:
                fix = "give a port from 1024 on"
                raise Refused(
                    "this port is reserved for root", setting="--port", received=one, fix=fix
                ) from None
            if error.errno != errno.EADDRINUSE:
                raise
    if port is not None:
        fix = "give another port, or leave it out: then the next free one is used"
        raise Refused("the port is in use", setting="--port", received=port, fix=fix)
    raise Refused(f"no port from {DEFAULT_PORT} on is free", fix="give a port with --port")


def _bind(port: int, ours: contextlib.ExitStack) -> socket.socket:
    with contextlib.ExitStack() as opened:
        # With IPPROTO_TCP asyncio sets TCP_NODELAY: otherwise each answer waits 40 ms for an acknowledgement.
        found = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", port))
        found.listen(_BACKLOG)
        try:
            # Without SO_REUSEADDR, with which another process could bind the port too, as none listens here.
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
        raise Refused("this is not a socket of this user", where=path, fix="name another path for the socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise Refused("a server listens here already", where=path, fix="see `roost server status`")
