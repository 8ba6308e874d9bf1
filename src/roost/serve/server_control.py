"""To start and stop the server of this user."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import RoostError
from roost.base.system import state_folder
from roost.lab.background import background_process
from roost.serve import server_presence
from roost.serve.server_presence import ServerRecord

_START_SECONDS = 30.0


def server_command(folder: Path, port: int | None, roots: Sequence[Path]) -> list[str]:
    """Returns the command line of the server's process."""
    given = ["--port", str(port)] if port is not None else []
    shown = [part for root in roots for part in ("--root", str(root.absolute()))]
    return [sys.executable, "-P", "-m", "roost.serve.server_process", str(folder), *given, *shown]


def start(port: int | None = None, roots: Sequence[Path] = ()) -> ServerRecord:
    """Starts the server in the background, and waits until it accepts requests.

    Args:
        port: The required port; None: the default port, or the next free one.
        roots: Folders of packages to show in addition to those from which tasks were submitted.

    Raises:
        Refused: A server is running already, the port is in use, or the lab's folder is not usable.
        RoostError: The server did not start.
        OSError: The server's log cannot be written, or no process can be started.
    """
    folder = state_folder.lab_folder()
    state_folder.prepare(folder)
    own = [*server_command(folder, port, roots), "--ready"]
    log = server_presence.files(folder).log
    failed = background_process.start(own, log, what="the server", seconds=_START_SECONDS)
    if failed is not None:
        raise failed
    found = server_presence.find_running(folder)
    if found is None:
        raise RoostError(
            "the server ended right after its start",
            where=log,
            fix="start it again; the log may say more",
        )
    return found


def stop() -> ServerRecord | None:
    """Stops the server and waits for its end; running tasks continue. Returns the record of the server, None
    if none was running.

    Raises:
        Refused: The lab's folder belongs to another user.
        RoostError: The server does not end.
    """
    folder = state_folder.lab_folder()
    state_folder.require_owner(folder)
    return server_presence.stop(folder)


def status() -> ServerRecord | None:
    """Returns the record of the running server; None if none runs.

    Raises:
        Refused: The lab's folder belongs to another user.
    """
    folder = state_folder.lab_folder()
    state_folder.require_owner(folder)
    return server_presence.find_running(folder)
