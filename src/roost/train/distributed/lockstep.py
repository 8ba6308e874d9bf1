"""Lockstep of the ranks outside of training steps: the same work at the same time, each rank on its data."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from roost.base.errors import ContractError, PeerLost
from roost.train.data.batches import Interrupted
from roost.train.distributed.ranks import Ranks

CONTINUING, ENDING, STOPPING, FAILED = range(4)
"""The state that a rank sends at each meeting."""


class Lockstep:
    """Synchronizes the ranks before each part of a work, so that they begin and end it together, whatever
    happens to one of them. With a single rank it waits for nothing.

    ```
    with Lockstep(ranks, "valid") as lockstep:
        for batch in batches:                       # as many for each rank
            lockstep.meet(STOPPING if stop() else CONTINUING)
            ...
        lockstep.meet(ENDING)
    ```

    A rank that raises between two meetings sends FAILED to the next meeting without waiting there: the other
    ranks may never reach it, because they wait for this rank in a collective of the work itself.

    Args:
        ranks: The ranks of the run.
        activity: The name of the work, for messages.
    """

    def __init__(self, ranks: Ranks, activity: str) -> None:
        self._ranks, self._activity = ranks, activity
        self._is_over = not ranks.are_several

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self._is_over:
            return
        if isinstance(error, Interrupted):
            self.meet(STOPPING)
        else:
            self._is_over = True
            with suppress(RuntimeError):  # the other ranks have ended
                self._ranks.control.exchange([FAILED, 0], self._activity)

    def meet(self, state: int, number: int = 0) -> Sequence[int]:
        """Waits for the other ranks; returns the numbers of all ranks, ordered by rank.

        Args:
            state: The state of this rank. The meeting to which all ranks send ENDING is the last one.
            number: An integer for the other ranks.

        Raises:
            Interrupted: A rank sent STOPPING; raised on every rank.
            PeerLost: Another rank has failed.
            RuntimeError: Another rank has ended, or the timeout passed.
            ContractError: Some ranks have no more data while others have; raised on every rank.
            RanksApart: Another rank waits at another synchronization point.
        """
        if not self._ranks.are_several:
            if state == STOPPING:
                raise Interrupted
            return (number,)
        self._is_over = True
        every = self._ranks.control.exchange([state, number], self._activity).wait()
        states, numbers = zip(*every, strict=True)
        if set(states) in ({CONTINUING}, {ENDING}):
            self._is_over = state == ENDING
            return numbers
        if FAILED in states:
            raise PeerLost(f"rank {states.index(FAILED)} has failed in: {self._activity}")
        if STOPPING in states:
            raise Interrupted
        first, last = states.index(ENDING), states.index(CONTINUING)
        raise ContractError(
            f"{self._activity}: rank {first} has no more batches, but rank {last} has",
            fix="make the set the same on every rank: roost shards it automatically",
        )
