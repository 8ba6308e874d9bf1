"""A stream that outlives its connection: what came is counted by its cursor, and asked for from there on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from roost.api import error_mapping
from roost.api.api_call import Following
from roost.base.errors import RoostError
from roost.operations.responses import Piece

T = TypeVar("T")

MOST_BYTES = 64 * 2**20
"""Of one piece."""
BEAT_SECONDS = 60.0
"""A server says something more often, even if nothing happens: what is silent for so long is dead."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.05, 2.0


class Followed(Generic[T]):
    """How far a stream has come.

    Args:
        following: What is asked.
        patience_seconds: For so long the server may be away, from the loss of a connection on.
    """

    def __init__(self, following: Following[T], patience_seconds: float) -> None:
        self._following, self._patience = following, patience_seconds
        self._cursor: str | None = None
        self._rest, self._fields = b"", dict[str, bytes]()
        self._pause = _SHORTEST_SECONDS
        self._away_since: float | None = None
        """None: it has said something since it was away, if it ever was."""
        self.has_ended = False
        self.has_begun = False
        """Whether the server was ever there."""

    @property
    def given(self) -> dict[str, Any]:
        """The query of the next connection."""
        cursor = {} if self._cursor is None else {"cursor": self._cursor}
        return {**self._following.given, **cursor}

    def connected(self) -> None:
        """The server is there, and says everything from the cursor on."""
        self._rest, self._fields, self.has_begun = b"", {}, True

    def require_busy(self, status: int, error: RoostError) -> None:
        """Passes over a server that has no room now; what else it refuses it will refuse again.

        Raises:
            RoostError: ``error``.
        """
        if status != error_mapping.BUSY:
            raise error

    def pieces(self, data: bytes) -> Iterator[Piece[T]]:
        """What these bytes complete.

        Raises:
            RoostError: It is no such stream, one piece is too large, or the server cannot go on with it.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_BYTES:
            raise RoostError(f"the server sends a piece of more than {MOST_BYTES} bytes")
        for line in lines:
            self._heard()
            name, _, value = line.partition(b":")
            if line:
                self._fields[name.decode("ascii", "replace")] = value.removeprefix(b" ")
            elif "event" in (fields := self._fields):
                self._fields = {}
                if fields["event"] == b"end":
                    self.has_ended = True
                    return
                if fields["event"] == b"error":
                    raise error_mapping.of(0, fields.get("data", b""))
                yield self._piece(fields)

    def pause(self, why: Exception | None) -> float:
        """Seconds until another connection is worth a try.

        Raises:
            RoostError: The server has been away for too long.
        """
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
        if now - self._away_since > self._patience:
            what = f"the server has been away for {self._patience:g} s" + (f" ({why})" if why else "")
            fix = f"go on from the cursor {self._cursor}" if self._cursor is not None else None
            raise RoostError(what, fix=fix)
        seconds, self._pause = self._pause, min(2 * self._pause, _LONGEST_SECONDS)
        return seconds

    def _heard(self) -> None:
        self._away_since, self._pause = None, _SHORTEST_SECONDS

    def _piece(self, fields: dict[str, bytes]) -> Piece[T]:
        try:
            data = msgspec.json.decode(fields.get("data", b""), type=self._following.data)
        except msgspec.MsgspecError as error:
            raise RoostError(f"the server sends what this roost does not understand: {error}") from None
        cursor = fields.get("id", b"").decode("ascii", "replace")
        self._cursor = cursor
        return Piece(cursor, fields["event"].decode("ascii", "replace"), data)
