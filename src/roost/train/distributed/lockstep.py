"""Ranks that do the same work at the same time, each on data of its own, outside of training steps."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from roost.base.errors import ContractError, PeerLost
from roost.train.data.batches import Interrupted
from roost.train.distributed.ranks import Ranks

CONTINUING, ENDING, STOPPING, FAILED = range(4)
"""What a rank says of itself when it meets the others."""


class Lockstep:
    """Lets ranks meet before each part of a work, so that they begin and leave it together, whatever happens
    to one of them. Alone, nothing is waited for.

    ```
    with Lockstep(ranks, "valid") as lockstep:
        for batch in batches:                       # as many for each rank
            lockstep.meet(STOPS if stop() else GOES_ON)
            ...
        lockstep.meet(ENDS)
    ```

    A rank that raises between two meetings tells so at the next one, for which it does not wait: the others
    may never come there, when they wait for it in a collective of the work itself.

    Args:
        ranks: All of them.
        what: Is done, in words.
    """

    def __init__(self, ranks: Ranks, what: str) -> None:
        self._ranks, self._what = ranks, what
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
            with suppress(RuntimeError):  # nobody is left to be told
                self._ranks.control.exchange([FAILED, 0], self._what)

    def meet(self, state: int, number: int = 0) -> Sequence[int]:
        """Waits for the other ranks; gives the numbers that all have told, in their order.

        Args:
            state: Of this rank. The last meeting is that in which all say ENDS.
            number: Told to the others.

        Raises:
            Interrupted: A rank said STOPS; raised on every rank.
            PeerLost: Another rank has failed.
            RuntimeError: Another rank is gone, or did not come in time.
            ContractError: Some ranks are at the end, and others are not; raised on every rank.
            RanksApart: Another rank does something else.
        """
        if not self._ranks.are_several:
            if state == STOPPING:
                raise Interrupted
            return (number,)
        self._is_over = True
        every = self._ranks.control.exchange([state, number], self._what).wait()
        states, numbers = zip(*every, strict=True)
        if set(states) in ({CONTINUING}, {ENDING}):
            self._is_over = state == ENDING
            return numbers
        if FAILED in states:
            raise PeerLost(f"rank {states.index(FAILED)} has failed in: {self._what}")
        if STOPPING in states:
            raise Interrupted
        first, last = states.index(ENDING), states.index(CONTINUING)
        raise ContractError(
            f"{self._what}: rank {first} has no more batches, and rank {last} has",
            fix="let the set be the same on every rank: roost shares it out by itself",
        )
