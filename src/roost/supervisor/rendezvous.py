"""Where the ranks of one machine find each other: a file in a folder that only we can enter, so that no port
can be taken. For libraries that want one a port is chosen too."""

# Standard library only
# Not durable: makes and removes the folder in which ranks meet; nothing resumes from it

from __future__ import annotations

import os
import shutil
import socket

from roost.base.system.worker_protocol import RENDEZVOUS_VARIABLE

_PREFIX = "/tmp/roost-meeting-"
"""Not in TMPDIR: whoever removes what a killed session left may have another."""


def rendezvous_folder(token: str) -> str:
    """The folder of a session."""
    return f"{_PREFIX}{token}"


def create_folder(token: str) -> dict[str, str]:
    """Makes the folder; gives what each rank has of it in its environment.

    Raises:
        OSError: It cannot be made.
    """
    folder = rendezvous_folder(token)
    os.mkdir(folder, 0o700)  # noqa: PTH102  - fails if somebody was there before
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        RENDEZVOUS_VARIABLE: f"{folder}/store",
    }


def remove_folder(token: str) -> None:
    """Removes the folder, if there is one."""
    shutil.rmtree(rendezvous_folder(token), ignore_errors=True)
