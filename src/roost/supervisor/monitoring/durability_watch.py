"""Detects that the remote copy of a run does not get further: the process that uploads says so in a file."""

# Standard library only

from __future__ import annotations

import json

_LOOK_SECONDS = 60.0
NOT_DURABLE_SECONDS = 600.0
"""For so long uploads must have failed: a store that does not answer for a minute is no news."""


class DurabilityWatch:
    """Reads ``remote.json`` of a package once a minute.

    Args:
        path: The file; it need not exist.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._next_look = 0.0
        self._noticed: object = None
        """Since when uploads failed at the last notice."""

    def is_notice_due(self, now: float, *, wall: float) -> bool:
        """Whether uploads have failed for ten minutes, once for each time that this begins.

        Args:
            now: Monotonic seconds.
            wall: Unix seconds.
        """
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_SECONDS
        since = self._error_since()
        if since is None or since == self._noticed or wall - since < NOT_DURABLE_SECONDS:
            return False
        self._noticed = since
        return True

    def _error_since(self) -> float | None:
        try:
            with open(self._path, "rb") as file:
                found = json.load(file)["error_since"]
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return found if isinstance(found, float | int) else None
