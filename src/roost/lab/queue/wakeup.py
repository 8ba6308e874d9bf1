"""How the daemon is woken: one byte on a socket in the lab's folder. Whoever has changed the queue sends it;
what was changed stands in the queue itself, so a byte that is lost costs time only."""

# Not durable: removes the socket of a daemon that is gone

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_NAME = "wake"
_KIND = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK


@contextlib.contextmanager
def _address(folder: Path) -> Iterator[str]:
    """By a descriptor of its folder: the path of a socket may have 107 bytes, that of a folder many more."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{_NAME}"
    finally:
        os.close(fd)


def listen(folder: Path) -> socket.socket:
    """A socket that becomes readable when somebody wakes the daemon; see `drain`. Only the one daemon of the
    folder may call this: it takes the place of the last one's.

    Raises:
        OSError: It cannot be made.
    """
    bell = socket.socket(socket.AF_UNIX, _KIND)
    try:
        with _address(folder) as address:
            Path(address).unlink(missing_ok=True)
            bell.bind(address)
    except BaseException:
        bell.close()
        raise
    return bell


def drain(bell: socket.socket) -> bool:
    """Takes all that has come, before the queue is looked at; gives whether anything had."""
    came = False
    with contextlib.suppress(BlockingIOError):
        while bell.recv(16):
            came = True
    return came


def send(folder: Path) -> None:
    """Wakes the daemon, if there is one."""
    # Nobody is there, nobody is there any more, or so many have called that it is awake.
    nobody = contextlib.suppress(FileNotFoundError, ConnectionRefusedError, BlockingIOError)
    with nobody, socket.socket(socket.AF_UNIX, _KIND) as caller, _address(folder) as address:
        caller.sendto(b"1", address)
