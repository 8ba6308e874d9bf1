"""Sets without indices that draw from every generator, and what must hold: a run in pieces is the run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from roost.base import state_tree
from roost.train.data.batches import Batch, Batches
from tests.train.parts import bits

Make = Callable[[], Batches]


def drawn() -> Tensor:
    """(3,) of torch's, NumPy's and Python's generator."""
    return torch.tensor([float(torch.rand(())), float(np.random.rand()), random.random()])


class Numbers(IterableDataset[Tensor]):
    """(4,) a number with what it draws, each worker its share; begins anew at each iter()."""

    def __init__(self, num_items: int = 11) -> None:
        self.num_items, self.at, self.epoch = num_items, 0, 0
        self.log: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def numbers(self) -> list[int]:
        """Of this worker's share, in the order of this pass."""
        info = get_worker_info()
        all_of_them = random.Random(self.epoch).sample(range(self.num_items), self.num_items)
        return all_of_them[info.id :: info.num_workers] if info is not None else all_of_them

    def __iter__(self) -> Iterator[Tensor]:
        for number in self.numbers():
            self.log.append(number)
            yield self.item(number)

    def item(self, number: int) -> Tensor:
        return torch.cat([torch.tensor([float(number)]), drawn()])


class Stateful(Numbers):
    """Goes on where it was, and keeps an array that grows."""

    def __init__(self, num_items: int = 11) -> None:
        super().__init__(num_items)
        self.sums = np.zeros(3)

    def __iter__(self) -> Iterator[Tensor]:
        numbers = self.numbers()
        while self.at < len(numbers):
            number = numbers[self.at]
            self.at += 1
            self.sums += number
            self.log.append(number)
            yield torch.cat([self.item(number), torch.tensor(self.sums)])
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "sums": self.sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.sums = state["at"], state["sums"]


class Walk:
    """An iterator with a state."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers, self.at = numbers, 0

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> Tensor:
        if self.at == len(self.numbers):
            raise StopIteration
        self.at += 1
        return torch.cat([torch.tensor([float(self.numbers[self.at - 1])]), drawn()])

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Walked(Numbers):
    """Its iterators have the state."""

    def __iter__(self) -> Iterator[Tensor]:
        return Walk(self.numbers())


def take(batches: Batches, number: int, epoch: int = 0, batch: int = 0) -> list[Batch]:
    """So many batches from there."""
    with closing(batches.epochs(epoch, batch)) as endless:
        return list(islice(endless, number))


def saved(batches: Batches) -> Any:
    """Its state as it comes back from a checkpoint."""
    skeleton, leaves = state_tree.pack(batches.state_dict())
    copied = {
        name: state_tree.Leaf(leaf.dtype, leaf.shape, memoryview(bytearray(leaf.data)))
        for name, leaf in leaves.items()
    }
    return state_tree.unpack(skeleton, copied)


def in_pieces(make: Make, lengths: list[int]) -> list[Any]:
    """The bits of a run that is begun anew after each of so many batches, from its state."""
    state: Mapping[str, Any] | None = None
    found, position = [], 0
    for length in lengths:
        batches = make()
        if state is not None:
            batches.load_state_dict(state)
        with closing(batches.epochs(*divmod(position, len(batches)))) as endless:
            found += [bits(tuple(one)) for one in islice(endless, length)]
            state = saved(batches)
        batches.close()
        position += length
    return found


def whole(make: Make, number: int) -> list[Any]:
    """The bits of a run of so many batches."""
    batches = make()
    found = [bits(tuple(one)) for one in take(batches, number)]
    batches.close()
    return found
