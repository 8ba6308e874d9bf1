"""What the ranks of a run agree on before each step: one message, sent a window ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from roost.train.distributed.control_channel import ControlChannel, Exchange

REQUESTS = ("save", "hold", "best", "validate", "visualize")
"""What may be asked of one rank from outside of its hooks."""


class WindowDecision(NamedTuple):
    """What all ranks know of a window that each has drawn its share of."""

    stops: int | None
    """The first rank that was asked to stop."""
    requests: list[str]
    seconds: float
    """Of rank 0's clock."""
    failed: Sequence[int]
    """By rank, whether it could not draw its share: a code of `roost.train.failures.failed_step.failure_code`."""
    is_empty: bool
    """Whether there is no sample in it, or not every rank has something to compute for each micro-batch: then
    they cannot take the step together."""
    num_samples: int
    """Of all ranks."""
    differs: Literal["no", "sizes", "values"]
    """Whether what each rank draws whole is not the same on all, and in what."""
    options_differ: bool
    """Whether the optimizers would not move by the same rates and options on all."""


class Agreement:
    """What one rank is asked from outside, a signal or another thread, and what all make of it.

    Hooks need none: they run on every rank with the same rows, results and progress, and so ask for the same.

    Args:
        channel: Of the training threads.
    """

    def __init__(self, channel: ControlChannel) -> None:
        self._channel, self._lock = channel, threading.Lock()
        self._asked: set[str] = set()
        self._told: set[str] = set()
        """What of it is on its way."""
        self._stop = False
        self._seconds = channel.broadcast(time.monotonic(), "the start")

    def clock(self) -> float:
        """Seconds of rank 0's clock, as of the newest verdict: every rank finds the same things due."""
        return self._seconds

    def ask(self, *requests: str) -> None:
        """Requests, on behalf of all ranks; from any thread."""
        with self._lock:
            self._asked.update(requests)

    def ask_to_stop(self) -> None:
        """Asks all ranks to stop."""
        self._stop = True

    def tell(
        self,
        *,
        step: int,
        failed: int,
        num_batches: int,
        num_samples: int,
        sizes: int = 0,
        values: int = 0,
        options: int = 0,
    ) -> Exchange:
        """Begins to tell the other ranks of this one's share of a window, and of what it was asked.

        Args:
            step: That in which it is told.
            failed: Whether it could not be drawn: a code of `roost.train.failures.failed_step.failure_code`.
            num_batches: Its micro-batches that there is something to compute for.
            num_samples: Its samples.
            sizes: A digest of the sizes of what every rank draws whole; 0 where there is none.
            values: Likewise, of what its first batch holds.
            options: A digest of what its optimizers move by.
        """
        with self._lock:
            self._told = set(self._asked)
        bits = sum(1 << place for place, name in enumerate(REQUESTS) if name in self._told)
        now = time.monotonic_ns()
        return self._channel.exchange(
            [self._stop, bits, now, failed, num_batches, num_samples, sizes, values, options], f"step {step}"
        )

    def hear(self, exchange: Exchange) -> WindowDecision:
        """Waits until all have told.

        Raises:
            RuntimeError: Another rank is gone, or did not come in time.
            RanksApart: Another rank is at another place.
        """
        every = exchange.wait()
        stops, bits, clocks, failed, lengths, num_samples, sizes, values, options = zip(*every, strict=True)
        self._seconds = clocks[0] / 1e9
        with self._lock:
            self._asked -= self._told
        return WindowDecision(
            stops=_first_rank(stops),
            requests=[name for place, name in enumerate(REQUESTS) if any(one >> place & 1 for one in bits)],
            seconds=self._seconds,
            failed=failed,
            is_empty=not sum(num_samples) or min(lengths) == 0 or len(set(lengths)) > 1,
            num_samples=sum(num_samples),
            differs="sizes" if _differ(sizes) else "values" if _differ(values) else "no",
            options_differ=len(set(options)) > 1,
        )


def _first_rank(flags: tuple[int, ...]) -> int | None:
    return next((rank for rank, flag in enumerate(flags) if flag), None)


def _differ(digests: tuple[int, ...]) -> bool:
    return len({one for one in digests if one}) > 1
