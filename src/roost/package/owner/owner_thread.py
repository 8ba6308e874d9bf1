"""The heartbeat of a session without a supervisor: a thread of the Python program that has the package
open."""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

from roost.package import sessions
from roost.package.owner import owner_file
from roost.package.owner.owner_file import HEARTBEAT_SECONDS, Heartbeat


class OwnerThread:
    """Claims a package for the next session of this program, and renews that until `end`. The caller has the
    lock.

    The thread ends when another machine takes the package over. The program is not ended: its next save is
    refused (`owner_file.require_not_taken_over`).

    Args:
        package: The package.

    Raises:
        Refused: A session of another machine was begun at the same moment.
        OSError: The owner file cannot be written.
    """

    def __init__(self, package: Path) -> None:
        self._path = owner_file.path_of(package)
        self._session, self._token = sessions.next_number(package / "sessions"), secrets.token_hex(16)
        owner_file.claim(package, session=self._session, token=self._token)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="roost owner", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ends the thread and removes the owner file, unless another session owns the package now."""
        self._ended.set()
        self._thread.join()
        owner_file.release(self._path, self._session, self._token)

    def _run(self) -> None:
        heartbeat = Heartbeat(self._path, self._session, self._token)
        while heartbeat.beat() is None and not self._ended.wait(HEARTBEAT_SECONDS):
            pass
