"""The rendezvous of the ranks of one machine: a file store in a folder that only this user can enter.

Unlike a port, a file cannot be taken by another process. For libraries that want a port, one is chosen too.
"""

# Standard library only
# Not durable: makes and removes the folder in which ranks meet; nothing resumes from it

from __future__ import annotations

import os
import shutil
import socket

from roost.base.system.worker_protocol import RENDEZVOUS_VARIABLE

_PREFIX = "/tmp/roost-meeting-"
"""Not in TMPDIR: the process that cleans up after a killed session may have another TMPDIR."""


def rendezvous_folder(token: str) -> str:
    """Returns the folder of the session with this token."""
    return f"{_PREFIX}{token}"


def create_folder(token: str) -> dict[str, str]:
    """Creates the folder; returns the variables that each rank gets in its environment.

    Raises:
        OSError: The folder cannot be created.
    """
    folder = rendezvous_folder(token)
    os.mkdir(folder, 0o700)  # noqa: PTH102  - must fail if the folder exists
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        RENDEZVOUS_VARIABLE: f"{folder}/store",
    }


def remove_folder(token: str) -> None:
    """Removes the folder, if it exists."""
    shutil.rmtree(rendezvous_folder(token), ignore_errors=True)
