"""How long the upload of a checkpoint takes, as measured so far: a session with a deadline must end so much
earlier."""

from __future__ import annotations

from pathlib import Path

from roost.package.checkpoints.checkpoint import Manifest
from roost.package.remote import remote_status

_SHARE = 1 / 9
"""The part of the session's own time that is left for the last upload in any case, but no more than
``remote.wait``: a tenth of all the time (`roost.lab.sessions.upload_reserve`)."""
MARGIN = 1.25
"""Factor on the measured time: the rate of a network varies."""


class UploadTime:
    """The time that the last upload of a session takes.

    Args:
        package: The package.
        wait_seconds: ``remote.wait``.
    """

    def __init__(self, package: Path, wait_seconds: float) -> None:
        self._package, self._wait_seconds = package, wait_seconds

    def seconds(self, newest: Manifest | None) -> float | None:
        """Returns how long the rest of the present upload takes, and then that of a checkpoint of this size;
        None: no upload was measured yet.

        Args:
            newest: The newest checkpoint; None: there is none yet.
        """
        status = remote_status.read(self._package)
        if newest is None or status is None or not status.mb_per_second:
            return None
        return MARGIN * (status.pending_bytes + newest.size_bytes) / 1e6 / status.mb_per_second

    def excess_seconds(self, upload_seconds: float, length_seconds: float) -> float:
        """Returns how much longer an upload takes than what the deadline of the session leaves for it
        already.

        Args:
            upload_seconds: As `seconds` returns it.
            length_seconds: From the start of the session to that deadline.
        """
        return max(0.0, upload_seconds - min(self._wait_seconds, _SHARE * length_seconds))
