"""Wakes the daemon: a process that has changed the queue sends one byte to a socket in the lab's folder.

The change itself is in the queue, so a lost byte costs time only.
"""

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
    """Yields the socket's address through a descriptor of its folder: the path of a socket has at most 107
    bytes, that of a folder many more."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{_NAME}"
    finally:
        os.close(fd)


def listen(folder: Path) -> socket.socket:
    """Returns a socket that becomes readable when a process wakes the daemon; see `drain`.

    Only the one daemon of the folder may call this: it replaces the socket of the last daemon.

    Raises:
        OSError: The socket cannot be created.
    """
    wake_socket = socket.socket(socket.AF_UNIX, _KIND)
    try:
        with _address(folder) as address:
            Path(address).unlink(missing_ok=True)
            wake_socket.bind(address)
    except BaseException:
        wake_socket.close()
        raise
    return wake_socket


def drain(wake_socket: socket.socket) -> bool:
    """Reads all bytes from the socket, before the queue is read; returns whether there were any."""
    was_woken = False
    with contextlib.suppress(BlockingIOError):
        while wake_socket.recv(16):
            was_woken = True
    return was_woken


def send(folder: Path) -> None:
    """Wakes the daemon, if one runs."""
    # No daemon ever ran, the last one is gone, or the socket's buffer is full, so that the daemon is awake.
    ignored = contextlib.suppress(FileNotFoundError, ConnectionRefusedError, BlockingIOError)
    with ignored, socket.socket(socket.AF_UNIX, _KIND) as caller, _address(folder) as address:
        caller.sendto(b"1", address)
