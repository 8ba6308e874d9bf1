"""The lock that the running server holds, and the record of its process and port next to it."""

from __future__ import annotations

from pathlib import Path

from roost.base.errors import Refused
from roost.lab.background import background_process
from roost.lab.background.background_process import ProcessFiles


class ServerRecord(background_process.ProcessRecord, frozen=True, kw_only=True):
    """The record of a running server, in ``server.json``."""

    port: int


def lock(folder: Path) -> int:
    """Makes this process the server of a lab, until the returned descriptor is closed.

    Raises:
        Refused: Another server is running.
        OSError: The lock file cannot be opened.
    """
    if (fd := background_process.lock(files(folder).lock)) is not None:
        return fd
    found = find_running(folder)
    process = f" (pid {found.pid}, port {found.port})" if found is not None else ""
    raise Refused(
        f"a server is running already{process}", fix="`roost client` shows it; `roost server stop` ends it"
    )


def write_record(folder: Path, port: int) -> None:
    """Writes the record of this process, which holds the `lock` and listens at ``port``.

    Raises:
        OSError: The record cannot be written.
    """
    background_process.write_record(files(folder), ServerRecord.of_this_process(port=port))


def files(folder: Path) -> ProcessFiles:
    """Returns the files of the server in the folder of a lab."""
    return ProcessFiles.of(folder, "server")


def find_running(folder: Path) -> ServerRecord | None:
    """Returns the record of the running server; None if there is none."""
    return background_process.find_running(files(folder), ServerRecord)


def stop(folder: Path) -> ServerRecord | None:
    """Stops the server, see `background_process.stop`.

    Raises:
        RoostError: The server does not end.
    """
    return background_process.stop(files(folder), ServerRecord, "the server")
