from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import torch

from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.stream import Stream
from roost.train.data.workers import sample_threads

NUMBERS = torch.randn(1 << 20, generator=torch.Generator().manual_seed(3))


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Sums:
    """Samples that are computed: on two threads it is another sum."""

    draws_randomness = False

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        if index >= len(self):
            raise IndexError
        return (NUMBERS + index).sum()


class Items(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(Sums())


def test_the_threads_are_put_back() -> None:
    with pytest.raises(KeyError), sample_threads.single_thread():
        assert torch.get_num_threads() == 1
        raise KeyError
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    with sample_threads.single_thread():
        pass
    assert torch.get_num_threads() == 1


def test_what_is_computed_does_not_depend_on_who_fetches_it() -> None:
    with sample_threads.single_thread():
        wanted = torch.stack([(NUMBERS + index).sum() for index in range(2)])
    assert not torch.equal(wanted, torch.stack([Sums()[index] for index in range(2)])), (
        "the test sees nothing"
    )
    for workers in (0, 1):
        loader = Loader(Sums(), plan=BatchPlan(2, 2, shuffle=False), num_workers=workers)
        stream = Stream(Items(), batch_size=2, num_batches=1, num_workers=workers)
        for one in (loader, stream):
            with closing(one.epochs()) as batches:
                assert torch.equal(next(batches).value, wanted), (type(one).__name__, workers)
            one.close()
