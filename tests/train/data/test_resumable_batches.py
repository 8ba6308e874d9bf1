"""The batches of a loop of the user's own: what is yielded after a break, an error and a saved position."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import roost
from roost.base.errors import Refused
from roost.train.data.resumable_batches import ResumableBatches
from tests.messages import Messages

SAMPLES = 10


def torch_loader() -> Any:
    return DataLoader([float(n) for n in range(SAMPLES)], batch_size=4, shuffle=True)


def roost_loader() -> Any:
    plan = roost.BatchPlan(SAMPLES, 4, seed=0)
    return roost.Loader([float(n) for n in range(SAMPLES)], plan=plan)


LOADERS = [torch_loader, roost_loader]


def values(batches: Any) -> list[list[float]]:
    return [torch.as_tensor(batch).tolist() for batch in batches]


def flat(nested: list[list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(nested))


@pytest.mark.parametrize("make", LOADERS)
def test_each_loop_is_one_epoch_in_another_order(make: Any) -> None:
    batches = ResumableBatches(make())
    first, second = values(batches), values(batches)
    assert [len(one) for one in first] == [len(one) for one in second] == [4, 4, 2]
    assert first != second and sorted(flat(first)) == sorted(flat(second)) == list(range(SAMPLES))
    assert len(batches) == 3 and (batches.epoch, batches.batch) == (2, 0)


@pytest.mark.parametrize("make", LOADERS)
@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 7])
def test_a_saved_position_continues_after_the_batch_in_use(make: Any, number: int) -> None:
    whole = ResumableBatches(make())
    expected = [values(whole) for _ in range(3)]
    order = flat(expected)
    cut = ResumableBatches(make())
    drawn = itertools.chain.from_iterable(iter(cut) for _ in range(3))
    assert values(itertools.islice(drawn, number)) == order[:number]
    state = cut.state_dict()
    other = ResumableBatches(make())
    other.load_state_dict(state)
    assert (other.epoch, other.batch) == divmod(number, 3)
    rest = [values(other) for _ in range(3 - number // 3)]
    assert flat(rest) == order[number:]


@pytest.mark.parametrize("make", LOADERS)
def test_a_loop_that_is_left_early_loses_no_batch(make: Any) -> None:
    expected = values(ResumableBatches(make()))
    batches = ResumableBatches(make())
    for batch in batches:
        first = torch.as_tensor(batch).tolist()
        break
    assert [first, *values(batches)] == expected
    assert batches.epoch == 1


def test_an_error_of_the_set_loses_no_batch() -> None:
    class Fails(list[float]):
        fails = True

        def __getitem__(self, index: Any) -> Any:
            if self.fails and index == 5:
                raise OSError("the drive is away")
            return super().__getitem__(index)

    data = Fails(float(n) for n in range(SAMPLES))
    batches = ResumableBatches(DataLoader(data, batch_size=4))
    found = []
    with pytest.raises(OSError, match="the drive is away"):
        found += [torch.as_tensor(batch).tolist() for batch in iter(batches)]
    assert (batches.epoch, batches.batch) == (0, 1)
    data.fails = False
    assert values(batches) == [[4, 5, 6, 7], [8, 9]]


def test_an_object_that_is_no_loader_is_refused(messages: Messages) -> None:
    with pytest.raises(Refused) as refused:
        ResumableBatches([1, 2])
    messages.check(refused.value)
