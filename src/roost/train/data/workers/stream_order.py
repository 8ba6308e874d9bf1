"""In which order the batches of a stream come from its shares."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from roost.train.data.sequential_batches import empty_pass_error
from roost.train.data.workers.stream_shard import DRAW, IDLE, RESTORE, SKIP, ShardAnswer

_REPORT_SECONDS = 10.0


class StreamOrder:
    """Deals the batches of each pass in turn: the shares take turns, one that has ended is passed over, and
    when all have, the next pass begins with the first share again.

    ```
    tasks = course.tasks()                              # in rounds: task k is for share k % num_shards
    for batch in course.batches(map(share, tasks)): ...
    ```
    More tasks may be taken than answers were given: what was asked of a pass that has ended is answered with
    nothing.

    Args:
        num_shards: Of them.
        state: What `state` gave; None: the beginning.
        called: The set, for messages.
        only: End with the first pass.
    """

    def __init__(
        self, num_shards: int, state: Mapping[str, Any] | None, *, display_name: str, only: bool = False
    ) -> None:
        state = state or {"pass": 0, "turn": 0, "drawn": 0, "shares": [None] * num_shards}
        self.number: int = state["pass"]
        self._turn, self._num_drawn = state["turn"], state["drawn"]
        self._shares: list[Any] = list(state["shares"])
        self._has_ended = [bool(one) and one["pass"] == self.number and one["ended"] for one in self._shares]
        self._display_name, self._only = called, only
        self._left = [-1] * num_shards
        """Items that each share must still drop; -1: it was not heard of yet."""
        self._is_over = False

    @property
    def num_shards(self) -> int:
        """Of them."""
        return len(self._shares)

    def state(self, shares: list[Any] | None = None) -> dict[str, Any]:
        """As of the batch that was given last.

        Args:
            shares: What `Share.state` gives now, where the answers bring none.
        """
        return {
            "pass": self.number,
            "turn": self._turn,
            "drawn": self._num_drawn,
            "shares": list(self._shares if shares is None else shares),
        }

    def tasks(self) -> Iterator[tuple[str, Any]]:
        """What the shares must do."""
        for state in list(self._shares):
            yield RESTORE, state
        while any(self._left):
            for _ in self._shares:
                yield SKIP, None
        first = self._turn
        yield from [(IDLE, None)] * first
        while not self._is_over:
            number = self.number
            for _ in self._shares[first:]:
                yield (DRAW, number) if number == self.number else (IDLE, None)
            first = 0

    def batches(self, answers: Iterable[ShardAnswer]) -> Generator[tuple[Any, int], None, None]:
        """The batches, each with its samples.

        Raises:
            ContractError: A pass gives none.
        """
        said = self._say_what_is_dropped()
        for task, answer in enumerate(answers):
            share = task % len(self._shares)
            if answer.kind == SKIP:
                self._left[share] = answer.left
                said = self._say_how_far(said)
            if answer.kind != DRAW or answer.number != self.number or self._is_over:
                continue
            self._turn = (share + 1) % len(self._shares)
            self._has_ended[share] = answer.ended
            if answer.state is not None:
                self._shares[share] = _copy_views(answer.state)
            if answer.batch is not None:
                self._num_drawn += 1
                yield answer.batch
            if all(self._has_ended):
                self._end_pass()

    def _end_pass(self) -> None:
        if not self._num_drawn:
            raise empty_pass_error(self._display_name, self.number)
        self._is_over = self._only
        self.number, self._turn, self._num_drawn = self.number + 1, 0, 0
        self._has_ended = [False] * len(self._shares)

    # ---- dropping ---------------------------------------------------------------------------------------

    def _say_what_is_dropped(self) -> float:
        """Says it once; gives when."""
        stateless = [one for one in self._shares if one and one["set"] is None and one["iterator"] is None]
        number = sum(one["items"] for one in stateless if not one["ended"])
        if number:
            print(
                f"{self._display_name} has no state_dict(): {number:,} items are drawn and dropped "
                "to go on where it was",
                flush=True,
            )
        return time.monotonic() - _REPORT_SECONDS

    def _say_how_far(self, said: float) -> float:
        left = sum(self._left)
        if min(self._left) < 0 or not left or time.monotonic() - said < _REPORT_SECONDS:
            return said
        print(f"{self._display_name}: {left:,} items are still to be dropped", flush=True)
        return time.monotonic()


def _copy_views(state: Any) -> Any:
    """The same without views of shared memory: those would keep it from being used again."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, np.ndarray):
        return state.copy()
    if type(state) is dict:
        return {key: _copy_views(one) for key, one in state.items()}
    if type(state) in (list, tuple):
        return type(state)(map(_copy_views, state))
    return state
