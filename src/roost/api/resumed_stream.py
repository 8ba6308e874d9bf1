"""A stream of events that continues from its cursor after a lost connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from roost.api import error_mapping
from roost.api.api_call import StreamRequest
from roost.base.errors import RoostError
from roost.operations.responses import StreamEvent

T = TypeVar("T")

MOST_BYTES = 64 * 2**20
"""The maximum size of one piece."""
HEARTBEAT_SECONDS = 60.0
"""A server sends something more often than this, even without events: after so long in silence it is dead."""
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.05, 2.0


class ResumedStream(Generic[T]):
    """The position and state of a stream.

    Args:
        request: The request.
        patience_seconds: For so long the server may be unreachable after the loss of a connection.
    """

    def __init__(self, request: StreamRequest[T], patience_seconds: float) -> None:
        self._request, self._patience = request, patience_seconds
        self._decoder = msgspec.json.Decoder(request.data)
        self._cursor: str | None = None
        self._rest, self._fields = b"", dict[str, bytes]()
        self._pause = _SHORTEST_SECONDS
        self._unreachable_since: float | None = None
        """When the server became unreachable; None while it is reachable."""
        self.has_ended = False
        self.has_begun = False
        """Whether the server ever answered."""

    @property
    def given(self) -> dict[str, Any]:
        """The query of the next connection."""
        cursor = {} if self._cursor is None else {"cursor": self._cursor}
        return {**self._request.given, **cursor}

    def connected(self) -> None:
        """Begins a new connection, which continues from the cursor."""
        self._rest, self._fields, self.has_begun = b"", {}, True

    def require_busy(self, status: int, error: RoostError) -> None:
        """Raises the error of a response unless the server is only busy, in which case a later connection may
        succeed.

        Raises:
            RoostError: The error, with any status but 503.
        """
        if status != error_mapping.BUSY:
            raise error

    def pieces(self, data: bytes) -> Iterator[StreamEvent[T]]:
        """Yields the pieces that these bytes complete.

        Raises:
            RoostError: The bytes are not such a stream, a piece is too large, or the server reports an error.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MOST_BYTES:
            raise RoostError(f"the server sends a piece of more than {MOST_BYTES} bytes")
        for line in lines:
            self._mark_reachable()
            name, _, value = line.partition(b":")
            if line:
                self._fields[name.decode("ascii", "replace")] = value.removeprefix(b" ")
            elif "event" in (fields := self._fields):
                self._fields = {}
                if fields["event"] == b"end":
                    self.has_ended = True
                    return
                if fields["event"] == b"error":
                    raise error_mapping.response_error(0, fields.get("data", b""))
                yield self._piece(fields)

    def pause(self, why: Exception | None) -> float:
        """Returns the seconds to wait before the next connection.

        Raises:
            RoostError: The server has been unreachable for too long.
        """
        now = time.monotonic()
        if self._unreachable_since is None:
            self._unreachable_since = now
        if now - self._unreachable_since > self._patience:
            what = f"the server has been unreachable for {self._patience:g} s" + (f" ({why})" if why else "")
            fix = f"continue from the cursor {self._cursor}" if self._cursor is not None else None
            raise RoostError(what, fix=fix)
        seconds, self._pause = self._pause, min(2 * self._pause, _LONGEST_SECONDS)
        return seconds

    def _mark_reachable(self) -> None:
        self._unreachable_since, self._pause = None, _SHORTEST_SECONDS

    def _piece(self, fields: dict[str, bytes]) -> StreamEvent[T]:
        try:
            data = self._decoder.decode(fields.get("data", b""))
        except (ValueError, RecursionError) as error:
            raise RoostError(f"this version of roost cannot decode the stream: {error}") from None
        cursor = fields.get("id", b"").decode("ascii", "replace")
        self._cursor = cursor
        return StreamEvent(cursor, fields["event"].decode("ascii", "replace"), data)
