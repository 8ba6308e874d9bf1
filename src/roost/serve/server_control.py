"""Starting, finding and ending the server of this user."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from roost.base.errors import RoostError
from roost.base.system import state_folder
from roost.lab.background import background_process
from roost.serve import server_presence
from roost.serve.server_presence import ServerRecord

LOG_NAME = "server.log"
_START_SECONDS = 30.0


def server_command(folder: Path, port: int | None, roots: Sequence[Path]) -> list[str]:
    """What is run as the server's own process."""
    given = ["--port", str(port)] if port is not None else []
    shown = [part for root in roots for part in ("--root", str(root.absolute()))]
    return [sys.executable, "-P", "-m", "roost.serve.server_process", str(folder), *given, *shown]


def start(port: int | None = None, roots: Sequence[Path] = ()) -> ServerRecord:
    """Starts the server in the background, and waits until it takes requests.

    Args:
        port: That was asked for; None: the usual one, or the next free one.
        roots: Folders of packages to show beside those that tasks were ever submitted from.

    Raises:
        Refused: One runs already, the port is taken, or the lab's folder will not do.
        RoostError: It did not start.
        OSError: Likewise.
    """
    folder = state_folder.lab_folder()
    state_folder.prepare(folder)
    own = [*server_command(folder, port, roots), "--ready"]
    failed = background_process.start(own, folder / LOG_NAME, what="the server", seconds=_START_SECONDS)
    if failed is not None:
        raise failed
    found = server_presence.find_running(folder)
    if found is None:
        raise RoostError("the server has ended already", where=folder / LOG_NAME, fix="start it again")
    return found


def stop() -> ServerRecord | None:
    """Ends the server, and waits for that; whatever runs goes on. Gives which it was, None if there was none.

    Raises:
        RoostError: It does not end.
    """
    return server_presence.stop(state_folder.lab_folder())
