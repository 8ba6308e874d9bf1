"""The limit of the bandwidth of an upload."""

from __future__ import annotations

import threading
import time

_MB = 10**6
_PIECE_SECONDS = 2.0
"""How long one piece takes at the limit: a put uses the whole bandwidth for a moment."""
_MIN_PIECE_BYTES = 2**18


class TransferRate:
    """Delays puts so that on average no more than the limit is sent.

    Args:
        max_mb_per_second: The limit; None: none.
        stop: Ends a delay at once.
    """

    def __init__(self, max_mb_per_second: float | None, stop: threading.Event) -> None:
        self._bytes_per_second = None if max_mb_per_second is None else max_mb_per_second * _MB
        self._stop, self._lock = stop, threading.Lock()
        self._free_at = time.monotonic()

    def piece_bytes(self, most: int) -> int:
        """Returns the size of pieces that suits the limit."""
        if self._bytes_per_second is None:
            return most
        return max(_MIN_PIECE_BYTES, min(most, int(self._bytes_per_second * _PIECE_SECONDS)))

    def wait_for(self, num_bytes: int) -> None:
        """Waits until this many bytes may be sent."""
        if self._bytes_per_second is None:
            return
        with self._lock:
            now = time.monotonic()
            at = max(now, self._free_at)
            self._free_at = at + num_bytes / self._bytes_per_second
        self._stop.wait(max(0.0, at - now))
