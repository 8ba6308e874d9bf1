"""The recent throughput of a run, in samples per second."""

from __future__ import annotations

_MIN_SPAN_SECONDS = 1.0
_FIRST_SPAN_SECONDS = 0.05


class ThroughputMeter:
    """Measures samples per second of training time over about the last two seconds."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._samples, self._seconds = -1, 0.0

    def update(self, samples: int, seconds: float) -> None:
        """Adds a measurement: ``samples`` so far, in ``seconds`` of training time so far."""
        span = seconds - self._seconds
        if self._samples < 0:
            self._samples, self._seconds = samples, seconds
        elif span >= (_MIN_SPAN_SECONDS if self.per_second else _FIRST_SPAN_SECONDS):
            rate = (samples - self._samples) / span
            self.per_second = (self.per_second + rate) / 2 if self.per_second else rate
            self._samples, self._seconds = samples, seconds
