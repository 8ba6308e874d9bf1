"""One worker's part of a stream: what it draws and who it says it is."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset, get_worker_info

from roost.train.data.workers.stream_shard import DRAW, IDLE, RESTORE, SKIP, StreamShard, StreamSpec
from tests.train.data.sets import Numbers, Stateful
from tests.train.parts import bits


def share(dataset: Any, batch_size: int | None = 2, **options: Any) -> StreamShard:
    fresh = copy.deepcopy(dataset.state_dict()) if hasattr(dataset, "state_dict") else None
    return StreamShard(StreamSpec(dataset, batch_size, None, False, 3, "the set", fresh), **options)


class Who(IterableDataset[Any]):
    """Items name the worker that draws them."""

    def __iter__(self) -> Iterator[Any]:
        while True:
            info = get_worker_info()
            assert info is not None and info.dataset is self
            yield torch.tensor([info.id, info.num_workers, info.seed])


def test_worker_info_is_set_only_while_it_draws() -> None:
    one = share(Who(), 1, worker=1, num_workers=3)
    rows = []
    for number in (0, 0, 1):
        answer = one((DRAW, number))
        assert answer.batch is not None and get_worker_info() is None
        rows.append(answer.batch[0][0].tolist())
    assert [row[:2] for row in rows] == [[1, 3]] * 3
    assert rows[0][2] == rows[1][2] != rows[2][2], "its seed is that of the pass"


def test_tasks() -> None:
    one = share(Numbers(3))
    assert one((IDLE, None)).kind == IDLE
    assert one((RESTORE, None)) == one((SKIP, None)) and one((SKIP, None)).num_to_skip == 0
    answers = [one((DRAW, 0)) for _ in range(3)]
    assert [answer.batch and answer.batch[1] for answer in answers] == [2, 1, None]
    assert [answer.ended for answer in answers] == [False, True, True]
    assert answers[1].state == {"pass": 0, "items": 3, "ended": True, "set": None, "iterator": None}


@pytest.mark.parametrize("kind", [Numbers, Stateful])
def test_going_back_to_a_state_and_to_the_beginning(kind: type[Numbers]) -> None:
    one = share(kind(), sends_state=True)
    first = [one((DRAW, 0)) for _ in range(2)]
    state = copy.deepcopy(first[-1].state)
    after = [bits(one((DRAW, 0)).batch) for _ in range(2)]
    answer = one((RESTORE, state))
    while answer.num_to_skip:
        answer = one((SKIP, None))
    assert [bits(one((DRAW, 0)).batch) for _ in range(2)] == after
    one((RESTORE, None))
    assert [bits(one((DRAW, 0)).batch) for _ in range(2)] == [bits(answer.batch) for answer in first]


def test_each_item_is_items_begun_before_it_is_drawn() -> None:
    items_begun: list[int] = []
    one = share(Numbers(3), on_item=items_begun.append)
    one((DRAW, 0))
    one((DRAW, 0))
    assert items_begun == [0, 1, 2, 3], "the last one is the end"


def test_a_batch_is_made_in_private_memory() -> None:
    batch = share(Numbers(3))((DRAW, 0)).batch
    assert batch is not None and not batch[0].is_shared()
