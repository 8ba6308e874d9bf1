"""The time that is left for measurements."""

from __future__ import annotations

import time


class Budget:
    """A time limit, which is divided among the measurements to come.

    Args:
        seconds: The whole time, from now on.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._deadline = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The remaining seconds; 0 or more."""
        return max(0.0, self._deadline - time.monotonic())

    def share(self, fraction: float) -> Budget:
        """Returns a budget of a fraction of the remaining time."""
        return Budget(self.left * fraction)
