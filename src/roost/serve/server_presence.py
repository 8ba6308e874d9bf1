"""Whether a server is there: it holds a lock, and tells beside who it is and where."""

from __future__ import annotations

from pathlib import Path

from roost.base.errors import Refused
from roost.lab.background import background_process

_LOCK_NAME, _RECORD_NAME = "server.lock", "server.json"


class ServerRecord(background_process.ProcessRecord, frozen=True, kw_only=True):
    """A server."""

    port: int


def lock(folder: Path) -> int:
    """Becomes the server of a lab; gives the descriptor that makes us so until it is closed.

    Raises:
        Refused: There is one.
        OSError: The lock cannot be made.
    """
    if (fd := background_process.lock(folder / _LOCK_NAME)) is not None:
        return fd
    found = find_running(folder)
    who = f" (pid {found.pid}, port {found.port})" if found is not None else ""
    raise Refused(f"a server runs already{who}", fix="`roost server status` tells of it")


def write_record(folder: Path, port: int) -> None:
    """Tells who the server of a lab is: we, who hold its `lock` and listen at this port.

    Raises:
        OSError: It cannot be written.
    """
    background_process.write_record(folder / _RECORD_NAME, ServerRecord.of_this_process(port=port))


def find_running(folder: Path) -> ServerRecord | None:
    """The server that runs; None if there is none."""
    return background_process.find_running(folder / _RECORD_NAME, ServerRecord)


def stop(folder: Path) -> ServerRecord | None:
    """Ends the server, as `background.stop` does. Raises RoostError if it does not end."""
    return background_process.stop(folder / _RECORD_NAME, ServerRecord, "the server")
