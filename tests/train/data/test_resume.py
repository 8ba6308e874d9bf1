"""Every kind of `Batches`: a run that goes on from what it saved is the run, from each position."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

import roost
from roost.train.data.batches import Batches
from roost.train.data.concatenated_set import concatenate
from roost.train.data.external_loader import ExternalLoader
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan, Plan
from roost.train.data.plans.dataset_mixes import ChainedPlan, CombinedPlan, MixedPlan
from roost.train.data.plans.length_batches import LengthPlan
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.data.plans.virtual_epochs import LimitedEpochs, VirtualEpochs
from roost.train.data.plans.weighted_sampling import WeightedPlan
from roost.train.data.stream import Stream
from roost.train.step import seeding
from tests.train.data.sets import Numbers, Stateful, Walked, drawn, saved
from tests.train.parts import bits

SIZE, OTHER = 19, 8
LENGTHS = [1 + index * 7 % 5 for index in range(SIZE)]


class Points(torch.utils.data.Dataset[Tensor]):
    """(5,) an index with what is drawn by every generator, and by the one that is given."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int, rng: np.random.Generator | None = None) -> Tensor:
        assert rng is not None
        return torch.cat([torch.tensor([float(index), rng.random()]), drawn()])


def gaps(samples: list[Tensor]) -> Any:
    """No batch, now and then."""
    return None if samples[0][0] % 3 == 0 else default_collate(samples)


def shuffled(size: int = SIZE, seed: int = 3) -> BatchPlan:
    return BatchPlan(size, 4, seed=seed)


def weighted() -> WeightedPlan:
    return WeightedPlan(LENGTHS, 4, seed=3)


def by_length(**options: Any) -> LengthPlan:
    return LengthPlan(LENGTHS, **{"shuffle": True, "seed": 3, "max_tokens": 14, **options})


def both(how: Any) -> CombinedPlan:
    return CombinedPlan({"a": shuffled(), "b": BatchPlan(OTHER, 3, seed=4)}, how)


def one_set(plan: Callable[[], Plan], **options: Any) -> Callable[[int], Batches]:
    return lambda workers: Loader(Points(), plan=plan(), seed=3, num_workers=workers, **options)


def each_set(how: Any) -> Callable[[int], Batches]:
    sets = {"a": Points(), "b": Points(OTHER)}
    return lambda workers: Loader(sets, plan=both(how), seed=3, num_workers=workers)


def as_one(plan: Callable[[], Plan]) -> Callable[[int], Batches]:
    sets = {"a": Points(), "b": Points(OTHER)}
    return lambda workers: Loader(concatenate(sets), plan=plan(), seed=3, num_workers=workers)


def stream(dataset: Callable[[], Any], **options: Any) -> Callable[[int], Batches]:
    given = {"batch_size": 3, "num_batches": 5, "seed": 3, **options}
    return lambda workers: Stream(dataset(), num_workers=workers, **given)


def sample(state: dict[str, Any], index: int, augment: bool) -> tuple[Tensor, int]:
    if index == 0:
        random.shuffle(state["order"])
    rows = torch.tensor(state["order"][index : index + 3], dtype=torch.float32)
    return torch.cat([rows, drawn()]), (index + 3) % 9


def foreign(loader: Callable[[], Any], num_batches: int | None = None) -> Callable[[int], Batches]:
    def make(workers: int) -> ExternalLoader:
        with seeding.isolated(1):  # as a run builds its data: some samplers draw a seed when they are made
            return ExternalLoader(loader(), num_batches=num_batches, seed=3)

    return make


def torchdata(dataset: Any, **options: Any) -> Any:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    return module.StatefulDataLoader(dataset, 4, **options)


def nodes() -> Any:
    module = pytest.importorskip("torchdata.nodes")
    points = Drawn()
    source = module.MapStyleWrapper(points, torch.utils.data.RandomSampler(points))
    return module.Mapper(module.Batcher(source, 4, drop_last=False), torch.stack)


class Drawn(torch.utils.data.Dataset[Tensor]):
    """(4,) items of external loaders."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Tensor:
        return torch.cat([torch.tensor([float(index)]), drawn()])


INDEXED: dict[str, Callable[[int], Batches]] = {
    "shuffled": one_set(shuffled),
    "in order": one_set(lambda: BatchPlan(SIZE, 4, shuffle=False, drop_last=True)),
    "arrays": lambda workers: Loader(TensorDataset(torch.arange(SIZE)), plan=shuffled(), num_workers=workers),
    "weighted": one_set(weighted),
    "weighted, fewer": one_set(lambda: WeightedPlan(LENGTHS, 4, seed=3, num_draws=10, drop_last=True)),
    "lengths": one_set(by_length),
    "sums of lengths": one_set(lambda: by_length(count_padding=False, batch_size=3)),
    "sorted": one_set(lambda: by_length(max_tokens=None, batch_size=4, sort="descending")),
    "sorted lengths": one_set(lambda: by_length(sort="ascending", drop_last=True)),
    "virtual, longer": one_set(lambda: VirtualEpochs(shuffled(), 7)),
    "virtual, shorter": one_set(lambda: VirtualEpochs(weighted(), 3)),
    "virtual, much longer": one_set(lambda: VirtualEpochs(by_length(), 9)),
    "limited": one_set(lambda: LimitedEpochs(shuffled(), 3)),
    "virtual and limited": one_set(lambda: LimitedEpochs(VirtualEpochs(weighted(), 7), 4)),
    "an excerpt": lambda workers: one_set(shuffled)(workers).excerpt([range(1, 2), range(3, 5)]),
    "a rank's share": one_set(lambda: ShardedPlan(weighted(), 1, 2)),
    "a rank's share with nothing": one_set(lambda: ShardedPlan(BatchPlan(OTHER, 1, seed=3), 0, 2)),
    "min_size": each_set("min_size"),
    "max_size_cycle": each_set("max_size_cycle"),
    "sequential": as_one(lambda: ChainedPlan([(shuffled(), 0), (shuffled(OTHER, 4), SIZE)])),
    "mixed": as_one(lambda: MixedPlan([SIZE, OTHER], [1, 2], 4, seed=3)),
    "mixed, virtual": as_one(lambda: VirtualEpochs(MixedPlan([SIZE, OTHER], [3, 1], 4, seed=3), 5)),
    "with gaps": one_set(shuffled, collate=gaps),
    "min_size with gaps": lambda workers: Loader(
        {"a": Points(), "b": Points(OTHER)}, plan=both("min_size"), seed=3, num_workers=workers, collate=gaps
    ),
}
STREAMS: dict[str, Callable[[int], Batches]] = {
    "without a state": stream(Numbers),
    "with a state": stream(Stateful),
    "with a state of the iterator": stream(Walked),
    "epochs of many passes": stream(lambda: Stateful(4), num_batches=6),
    "whole batches": stream(Stateful, batch_size=None),
    "the last batch left out": stream(Walked, drop_last=True),
    "a stream with gaps": stream(Stateful, collate=gaps),
    "an excerpt of a stream": lambda workers: stream(Stateful)(workers).excerpt([range(2), range(4, 5)]),
    "a function": stream(lambda: roost.Sampled(sample, {"order": list(range(9))})),
}
FOREIGN: dict[str, Callable[[int], Batches]] = {
    "a loader": foreign(lambda: DataLoader(Drawn(), 4, shuffle=True)),
    "torchdata's loader": foreign(lambda: torchdata(Drawn(), shuffle=True)),
    "torchdata's loader of a stream": foreign(lambda: torchdata(Stateful()), 4),
    "torchdata's nodes": foreign(nodes, 4),
}
EVERY = {**INDEXED, **STREAMS, **FOREIGN}

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")


def run(batches: Batches, number: int, position: int = 0) -> list[Any]:
    """The bits of so many batches from there, its workers ended."""
    with closing(batches.epochs(*divmod(position, len(batches)))) as endless:
        return [bits(tuple(one)) for one in islice(endless, number)]


def gone_on(batches: Batches, state: Any) -> Batches:
    batches.load_state_dict(state)
    return batches


@pytest.mark.parametrize("kind", EVERY)
def test_the_rest_follows_from_each_position(kind: str) -> None:
    """Over two epochs and their edges; the states are those of one run that goes on after each."""
    make = EVERY[kind]
    first = make(0)
    number = 2 * len(first) + 2
    reference, states, held = list[Any](), [saved(first)], [first.state_dict()]
    with closing(first.epochs()) as endless:
        for one in islice(endless, number):
            reference.append(bits(tuple(one)))
            states.append(saved(first))
            held.append(first.state_dict())
    assert run(make(0), number) == reference, "saving changes nothing"
    assert bits(held) == bits(states), "and what is saved is not changed by what comes later"
    for position, state in enumerate(states):
        assert run(gone_on(make(0), state), number - position, position) == reference[position:], position


@pytest.mark.parametrize("kind", EVERY)
def test_the_rest_follows_from_each_second_and_third_position(kind: str) -> None:
    """Gone on with once, twice, three times in one epoch and across its edge."""
    make = EVERY[kind]
    number = 2 * len(make(0)) + 2
    reference = run(make(0), number)
    for begin in range(number - 1):
        length = (1, len(make(0)) - 1)[begin % 2]
        batches, position = make(0), begin
        run(batches, begin)
        for _ in range(3):
            state = saved(batches)
            batches.close()
            batches = gone_on(make(0), state)
            some = min(length, number - position)
            assert run(batches, some, position) == reference[position : position + some], (begin, length)
            position += some


@pytest.mark.parametrize("kind", EVERY)
def test_one_object_gives_each_position_in_whatever_order(kind: str) -> None:
    """As after a step that failed, or went back."""
    make = EVERY[kind]
    one, number = make(0), 2 * len(make(0)) + 2
    reference = run(make(0), number)
    for position in random.Random(1).sample(range(number - 1), number - 1):
        assert run(one, 2, position) == reference[position : position + 2], position


@pytest.mark.parametrize("kind", INDEXED)
def test_the_number_of_workers_changes_nothing_and_may_change(kind: str) -> None:
    make = INDEXED[kind]
    number = 2 * len(make(0)) + 2
    reference, found, state = run(make(0), number), list[Any](), None
    for workers, length in ((2, 1), (1, len(make(0))), (0, 1), (2, number)):
        batches = make(workers)
        if state is not None:
            batches.load_state_dict(state)
        found += run(batches, min(length, number - len(found)), len(found))
        state = saved(batches)
        batches.close()
    assert found == reference


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_goes_on_with_the_workers_with_which_it_began(kind: str) -> None:
    make = STREAMS[kind]
    number = 2 * len(make(0)) + 2
    first = make(2)
    reference = run(first, number)
    first.close()
    found, state = list[Any](), None
    for workers, length in ((2, 1), (0, len(make(0))), (1, 1), (2, number)):
        batches = make(workers)
        if state is not None:
            batches.load_state_dict(state)
        found += run(batches, min(length, number - len(found)), len(found))
        state = copy.deepcopy(saved(batches))
        batches.close()
    assert found == reference


@pytest.mark.parametrize("kind", INDEXED)
def test_batches_drawn_once_more_are_the_same(kind: str) -> None:
    """Those of a step that is looked into later."""
    one = INDEXED[kind](0)
    reference = run(one, 2 * len(one))
    for position in range(2 * len(one)):
        again = one.redraw(*divmod(position, len(one)), 1)
        assert again is not None and [bits(tuple(each)) for each in again] == [reference[position]]


def test_a_batch_of_several_sets_is_empty_where_all_of_them_are() -> None:
    with closing(INDEXED["min_size with gaps"](0).epochs()) as endless:
        batches = list(islice(endless, 20))
    given = [one.value for one in batches if one.num_samples]
    assert 0 < len(given) < len(batches)
    assert any(one["a"] is None for one in given) and any(one["b"] is None for one in given)
    assert all(one.value is None for one in batches if not one.num_samples)
