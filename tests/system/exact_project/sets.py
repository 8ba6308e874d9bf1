"""Sets of every kind: each sample is jittered anew whenever it is read, by torch, NumPy and Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from halts import Reads
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, default_collate, get_worker_info

import roost

BATCH_SIZE = 3


class Points(torch.utils.data.Dataset[Any]):
    """Random points in two classes; those of ``nan`` are not finite, those of ``error`` cannot be read."""

    def __init__(
        self,
        size: int,
        seed: int,
        *,
        jitter: float,
        nan: Sequence[int] = (),
        error: Sequence[int] = (),
        reads: int | None = None,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x = torch.randn(size, 1, 4, 4, generator=generator)
        self.y = (self.x.sum((1, 2, 3)) > 0).long()
        self.jitter = jitter
        self.x[list(nan)] = torch.nan
        self.error = frozenset(error)
        self.reads = Reads(reads)
        self.lengths = [1 + index * 7 % 9 for index in range(size)]
        self.weights = [float(length) for length in self.lengths]

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.reads()
        if index in self.error:
            raise OSError(f"sample {index} is rotten")
        x = self.x[index] + self.jitter * torch.randn(1, 4, 4)
        x = x * (1 + self.jitter * np.random.rand()) + self.jitter * random.gauss(0, 1)
        return x.float(), self.y[index]


class Drawing(torch.utils.data.Dataset[Any]):
    """The same with a generator that it is given."""

    def __init__(self, points: Points) -> None:
        self.points = points

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int, rng: np.random.Generator | None = None) -> tuple[Tensor, Tensor]:
        assert rng is not None
        x, y = self.points[index]
        return (x + 0.1 * rng.standard_normal((1, 4, 4))).float(), y


class Flow(IterableDataset[Any]):
    """The points in an order of each pass, each worker its share; without a state."""

    def __init__(self, points: Points) -> None:
        self.points, self.epoch = points, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self) -> list[int]:
        info, size = get_worker_info(), len(self.points)
        order = torch.randperm(size, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        return order if info is None else order[info.id :: info.num_workers]

    def __iter__(self) -> Iterator[Any]:
        for index in self.order():
            yield self.points[index]


class StatefulFlow(Flow):
    """Goes on where it was; what it gives depends on all that it has given."""

    def __init__(self, points: Points) -> None:
        super().__init__(points)
        self.at, self.sums = 0, np.zeros(1)

    def __iter__(self) -> Iterator[Any]:
        order = self.order()
        while self.at < len(order):
            x, y = self.points[order[self.at]]
            self.at += 1
            self.sums += float(x.mean())
            yield x + 0.01 * float(self.sums[0]), y
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "sums": self.sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.sums = state["at"], state["sums"]


def sampled(points: Points) -> roost.Sampled:
    """Whole batches from a cursor that wraps around, in a new order each time it does."""

    def sample(state: dict[str, Any], index: int, augment: bool) -> tuple[Any, int]:
        if index == 0 and augment:
            random.shuffle(state["order"])
        rows = state["order"][index : index + BATCH_SIZE]
        following = index + BATCH_SIZE
        return default_collate([points[row] for row in rows]), following if following < len(points) else 0

    return roost.Sampled(sample, {"order": list(range(len(points)))})


def of_torchdata(points: Points, **options: Any) -> Any:
    """Its loader, whose batches are made in this process or in workers."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    return StatefulDataLoader(points, BATCH_SIZE, shuffle=True, **options)


def still(points: Points) -> Points:
    """The same, drawing nothing."""
    points.jitter = 0.0
    return points


def nodes(points: Points) -> Any:
    """torchdata's nodes."""
    from torchdata import nodes

    batches = nodes.Batcher(nodes.MapStyleWrapper(points, RandomSampler(points)), BATCH_SIZE, drop_last=False)
    return nodes.Mapper(batches, default_collate)


def halves(points: Points) -> dict[str, Any]:
    """Two sets, of 60 and of 30 where there are 90, the second with a generator that it is given."""
    first, second = Points(60, 1, jitter=points.jitter), Points(30, 4, jitter=points.jitter)
    first.reads = second.reads = points.reads
    return {"a": first, "b": Drawing(second)}


def some_empty(samples: list[Any]) -> Any:
    """No batch, for each third of what samples there are."""
    return None if int(1000 * float(samples[0][0].abs().sum())) % 3 == 0 else default_collate(samples)


KINDS: dict[str, Callable[[Points], Any]] = {
    "points": lambda points: points,
    "drawing": Drawing,
    "halves": halves,
    "flow": Flow,
    "stateful": StatefulFlow,
    "sampled": sampled,
    "loader": lambda points: DataLoader(points, BATCH_SIZE, shuffle=True),
    "torchdata": of_torchdata,
    "processes": lambda points: of_torchdata(still(points), num_workers=2),
    "nodes": nodes,
}
"""What the points are trained on as."""
