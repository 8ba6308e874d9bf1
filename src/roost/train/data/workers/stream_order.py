"""`StreamOrder`: the order in which the batches of a stream come from its shards."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from roost.train.data.sequential_batches import empty_pass_error
from roost.train.data.workers.stream_shard import DRAW, IDLE, RESTORE, SKIP, ShardAnswer

_REPORT_SECONDS = 10.0
"""Interval of the status lines while items are skipped."""


class StreamOrder:
    """Takes the batches of each pass from the shards in turn. A shard that has reached its end is passed
    over; when all have, the next pass begins with the first shard.

    ```
    tasks = order.tasks()                              # in rounds: task k is for shard k % num_shards
    for batch in order.batches(map(shard, tasks)): ...
    ```
    More tasks may be taken than answers were given: a task of a pass that has ended gets an empty answer.

    Args:
        num_shards: Number of shards.
        state: Result of `state`; None: the beginning.
        display_name: The set, for messages.
        single_pass: End after the first pass.
    """

    def __init__(
        self,
        num_shards: int,
        state: Mapping[str, Any] | None,
        *,
        display_name: str,
        single_pass: bool = False,
    ) -> None:
        state = state or {"pass": 0, "turn": 0, "drawn": 0, "shares": [None] * num_shards}
        self.number: int = state["pass"]
        self._turn, self._num_drawn = state["turn"], state["drawn"]
        self._shard_states: list[Any] = list(state["shares"])
        self._has_ended = [
            bool(one) and one["pass"] == self.number and one["ended"] for one in self._shard_states
        ]
        self._display_name, self._single_pass = display_name, single_pass
        self._num_to_skip = [-1] * num_shards
        """Items that each shard must still skip; -1: it has not answered yet."""
        self._is_over = False

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return len(self._shard_states)

    def state(self, shard_states: list[Any] | None = None) -> dict[str, Any]:
        """Returns the state after the newest batch.

        Args:
            shard_states: The current `StreamShard.state` of each shard, if the answers do not contain it.
        """
        return {
            "pass": self.number,
            "turn": self._turn,
            "drawn": self._num_drawn,
            "shares": list(self._shard_states if shard_states is None else shard_states),
        }

    def tasks(self) -> Iterator[tuple[str, Any]]:
        """Yields the tasks of the shards, in rounds."""
        for state in list(self._shard_states):
            yield RESTORE, state
        while any(self._num_to_skip):
            for _ in self._shard_states:
                yield SKIP, None
        first = self._turn
        yield from [(IDLE, None)] * first
        while not self._is_over:
            number = self.number
            for _ in self._shard_states[first:]:
                yield (DRAW, number) if number == self.number else (IDLE, None)
            first = 0

    def batches(self, answers: Iterable[ShardAnswer]) -> Generator[tuple[Any, int], None, None]:
        """Yields the batches, each with its number of samples.

        Raises:
            ContractError: A pass has no batch.
        """
        reported = self._report_skipped_items()
        for task, answer in enumerate(answers):
            shard = task % len(self._shard_states)
            if answer.kind == SKIP:
                self._num_to_skip[shard] = answer.num_to_skip
                reported = self._report_skipping(reported)
            if answer.kind != DRAW or answer.number != self.number or self._is_over:
                continue
            self._turn = (shard + 1) % len(self._shard_states)
            self._has_ended[shard] = answer.ended
            if answer.state is not None:
                self._shard_states[shard] = _copy_views(answer.state)
            if answer.batch is not None:
                self._num_drawn += 1
                yield answer.batch
            if all(self._has_ended):
                self._end_pass()

    def _end_pass(self) -> None:
        if not self._num_drawn:
            raise empty_pass_error(self._display_name, self.number)
        self._is_over = self._single_pass
        self.number, self._turn, self._num_drawn = self.number + 1, 0, 0
        self._has_ended = [False] * len(self._shard_states)

    # ---- skipping ---------------------------------------------------------------------------------------

    def _report_skipped_items(self) -> float:
        """Prints how many items are skipped, if any; returns the time for `_report_skipping`."""
        stateless = [
            one for one in self._shard_states if one and one["set"] is None and one["iterator"] is None
        ]
        number = sum(one["items"] for one in stateless if not one["ended"])
        if number:
            print(
                f"{self._display_name} has no state_dict(): {number:,} items are drawn and dropped "
                "to resume at its position",
                flush=True,
            )
        return time.monotonic() - _REPORT_SECONDS

    def _report_skipping(self, reported: float) -> float:
        num_to_skip = sum(self._num_to_skip)
        if min(self._num_to_skip) < 0 or not num_to_skip or time.monotonic() - reported < _REPORT_SECONDS:
            return reported
        print(f"{self._display_name}: {num_to_skip:,} items are left to drop", flush=True)
        return time.monotonic()


def _copy_views(state: Any) -> Any:
    """Copies views of shared memory in a state: they would keep their slot from being reused."""
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, np.ndarray):
        return state.copy()
    if type(state) is dict:
        return {key: _copy_views(one) for key, one in state.items()}
    if type(state) in (list, tuple):
        return type(state)(map(_copy_views, state))
    return state
