"""The order in which the batches of a stream come from its shards, however far each is ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from roost.base.errors import ContractError
from roost.train.data.workers.stream_order import StreamOrder
from roost.train.data.workers.stream_shard import DRAW, IDLE, RESTORE, SKIP, ShardAnswer
from tests.messages import Messages


class Shares:
    """As many shares as there are lengths: each has so many batches a pass."""

    def __init__(self, *lengths: int) -> None:
        self.lengths, self.left = lengths, [(-1, 0)] * len(lengths)

    def do(self, share: int, task: tuple[str, Any]) -> ShardAnswer:
        kind, what = task
        if kind == RESTORE:
            self.left[share] = (what["pass"], what["left"]) if what else (-1, 0)
        if kind in (RESTORE, SKIP, IDLE):
            return ShardAnswer(IDLE if kind == IDLE else SKIP)
        number, left = self.left[share]
        left = self.lengths[share] if number != what else left
        batch = (f"{what}.{share}.{self.lengths[share] - left}", 1) if left else None
        self.left[share] = (what, max(0, left - 1))
        state = {"pass": what, "items": 0, "ended": not left, "set": {}, "iterator": None, "left": left - 1}
        return ShardAnswer(DRAW, what, batch, not left, {**state, "left": max(0, left - 1)})

    def answers(self, course: StreamOrder, ahead: int) -> Iterator[ShardAnswer]:
        """In the order of the tasks, of which so many are taken before the first answer is given."""
        waiting: deque[tuple[int, Any]] = deque()
        tasks = enumerate(course.tasks())
        while True:
            waiting.extend(islice(tasks, ahead + 1 - len(waiting)))
            if not waiting:
                return
            number, task = waiting.popleft()
            yield self.do(number % len(self.lengths), task)


def order(lengths: list[int], number: int, ahead: int = 0, state: Any = None) -> tuple[list[str], Any]:
    """So many batches, and the state after them."""
    course = StreamOrder(len(lengths), state, display_name="the set")
    batches = course.batches(Shares(*lengths).answers(course, ahead))
    return [batch for batch, _ in islice(batches, number)], course.state()


def test_the_shares_take_turns_and_one_that_has_ended_is_passed_over() -> None:
    found, _ = order([3, 1], 9)
    assert found == ["0.0.0", "0.1.0", "0.0.1", "0.0.2", "1.0.0", "1.1.0", "1.0.1", "1.0.2", "2.0.0"]


@pytest.mark.parametrize("lengths", [[3], [3, 1], [0, 2], [1, 4, 2]])
def test_it_is_the_same_order_however_far_the_shares_are_ahead_and_from_any_position(
    lengths: list[int],
) -> None:
    reference, _ = order(lengths, 20)
    for ahead in range(1, 8):
        assert order(lengths, 20, ahead)[0] == reference
        for position in range(1, 20):
            _, state = order(lengths, position, ahead)
            assert order(lengths, 20 - position, ahead, state)[0] == reference[position:], (ahead, position)


def test_one_pass_ends_by_itself_and_all_tasks_are_answered() -> None:
    course = StreamOrder(2, None, display_name="the set", single_pass=True)
    assert len(list(course.batches(Shares(2, 3).answers(course, 4)))) == 5


def test_a_pass_that_gives_nothing(messages: Messages) -> None:
    with pytest.raises(ContractError) as refused:
        order([0, 0], 1)
    assert "pass 0 of the set" in str(refused.value)
    messages.check(refused.value)


def test_a_state_holds_no_views_of_shared_memory() -> None:
    course = StreamOrder(1, None, display_name="the set")
    memory = np.zeros(2)
    own = {"pass": 0, "items": 1, "ended": False, "set": {"a": memory, "b": [torch.from_numpy(memory)]}}
    answers = iter([ShardAnswer(SKIP), ShardAnswer(DRAW, 0, ("x", 1), False, own)])
    next(course.batches(answers))
    memory += 1
    kept = course.state()["shares"][0]["set"]
    assert kept["a"].sum() == kept["b"][0].sum() == 0
