"""The agreement of all ranks before each step: one message of each rank, sent one window ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

from roost.train.distributed.control_channel import ControlChannel, Exchange

REQUESTS = ("save", "hold", "best", "validate", "visualize")
"""The requests that one rank may get from outside of its hooks. Their order is that of the bits sent."""


class WindowDecision(NamedTuple):
    """The decision of all ranks about one window, the same on every rank."""

    stopping_rank: int | None
    """The first rank that was requested to stop; None if no rank was."""
    requests: list[str]
    clock_seconds: float
    """Rank 0's clock."""
    failure_codes: Sequence[int]
    """By rank, the code of its failure to draw its share
    (`roost.train.failures.failed_step.failure_code`)."""
    is_empty: bool
    """Whether the window has no sample, or a rank lacks data for one of its micro-batches: the ranks cannot
    take such a step together."""
    num_samples: int
    """Samples of the window on all ranks."""
    batch_difference: Literal["no", "sizes", "values"]
    """How the batches differ that every rank draws whole; "no" if they are the same on all ranks."""
    options_differ: bool
    """Whether the optimizers have other learning rates or options on some ranks than on others."""


class Agreement:
    """Brings requests that reach one rank (by a signal or another thread) to all ranks at the same step.

    Hooks do not need it: they run on every rank with the same rows, results and progress, so they make the
    same requests on every rank.

    Args:
        channel: The control channel of the training threads.
    """

    def __init__(self, channel: ControlChannel) -> None:
        self._channel, self._lock = channel, threading.Lock()
        self._requested: set[str] = set()
        self._sent: set[str] = set()
        """The requests in the message that was sent last and not received yet."""
        self._stop = False
        self._seconds = channel.broadcast(time.monotonic(), "the start")

    def clock(self) -> float:
        """Seconds of rank 0's clock at the newest decision, so that the same calls are due on every rank."""
        return self._seconds

    def request(self, *requests: str) -> None:
        """Adds requests for all ranks; may be called from any thread."""
        with self._lock:
            self._requested.update(requests)

    def request_stop(self) -> None:
        """Requests all ranks to stop; may be called from any thread."""
        self._stop = True

    def send(
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
        """Starts to send this rank's message about a window: its share, and the open requests.

        Args:
            step: The step that takes the window.
            failed: The failure to draw the share: a code of `roost.train.failures.failed_step.failure_code`.
            num_batches: Micro-batches of the share that have data.
            num_samples: Samples of the share.
            sizes: A digest of the sizes of all batches that every rank draws whole; 0 if there are none.
            values: A digest of the values of the first of these batches; 0 if there is none.
            options: A digest of the optimizers' options.
        """
        with self._lock:
            self._sent = set(self._requested)
        bits = sum(1 << place for place, name in enumerate(REQUESTS) if name in self._sent)
        now = time.monotonic_ns()
        return self._channel.exchange(
            [self._stop, bits, now, failed, num_batches, num_samples, sizes, values, options], f"step {step}"
        )

    def receive(self, exchange: Exchange) -> WindowDecision:
        """Waits for the messages of all ranks and returns the decision.

        Raises:
            RuntimeError: Another rank has ended, or the timeout passed.
            RanksApart: Another rank waits at another synchronization point.
        """
        every = exchange.wait()
        stops, bits, clocks, failed, lengths, num_samples, sizes, values, options = zip(*every, strict=True)
        self._seconds = clocks[0] / 1e9
        with self._lock:
            self._requested -= self._sent
        return WindowDecision(
            stopping_rank=_first_rank(stops),
            requests=[name for place, name in enumerate(REQUESTS) if any(one >> place & 1 for one in bits)],
            clock_seconds=self._seconds,
            failure_codes=failed,
            is_empty=not sum(num_samples) or min(lengths) == 0 or len(set(lengths)) > 1,
            num_samples=sum(num_samples),
            batch_difference="sizes" if _differ(sizes) else "values" if _differ(values) else "no",
            options_differ=len(set(options)) > 1,
        )


def _first_rank(flags: tuple[int, ...]) -> int | None:
    return next((rank for rank, flag in enumerate(flags) if flag), None)


def _differ(digests: tuple[int, ...]) -> bool:
    return len({one for one in digests if one}) > 1
