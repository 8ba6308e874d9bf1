"""Samples per second, recently."""

from __future__ import annotations

_SPAN_SECONDS = 1.0


class Rate:
    """The throughput of the last second or so, smoothed over two."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._samples = 0
        self._since: float | None = None

    def count(self, samples: int, seconds: float) -> None:
        """Adds samples that were done at ``seconds`` of training time."""
        if self._since is None:
            self._since = seconds
            return
        self._samples += samples
        span = seconds - self._since
        if span >= _SPAN_SECONDS or self.per_second == 0.0 and span > 0.05:
            rate = self._samples / span
            self.per_second = rate if self.per_second == 0.0 else (self.per_second + rate) / 2
            self._samples, self._since = 0, seconds
