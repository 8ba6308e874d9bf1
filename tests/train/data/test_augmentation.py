"""Random numbers of samples: never the same twice in a run, and the same in every process."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset

from roost.train.data.concatenated_set import concatenate
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan, Plan
from roost.train.data.plans.dataset_mixes import ChainedPlan, CombinedPlan, MixedPlan
from roost.train.data.plans.length_batches import LengthPlan
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.data.plans.virtual_epochs import VirtualEpochs
from roost.train.data.plans.weighted_sampling import WeightedPlan
from tests.train.parts import bits

SIZE, OTHER, EPOCHS = 11, 5, 4
GENERATORS = ("torch", "numpy", "python", "rng")


class Draws(Dataset[Tensor]):
    """(5,) float64: what each generator draws, and the index."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int, rng: np.random.Generator | None = None) -> Tensor:
        assert rng is not None
        torchs = float(torch.rand((), dtype=torch.float64))
        values = [torchs, np.random.rand(), random.random(), rng.random(), float(index)]
        return torch.tensor(values, dtype=torch.float64)


class Without(Draws):
    """The same without a generator of its own."""

    def __getitem__(self, index: int) -> Tensor:  # type: ignore[override]
        return super().__getitem__(index, rng=np.random.default_rng(0))


def one_set(plan: Callable[[], Plan]) -> Callable[[int], Loader]:
    return lambda workers: Loader(Draws(), plan=plan(), seed=3, num_workers=workers)


def several(plan: Callable[[], Plan], *, as_one: bool = False) -> Callable[[int], Loader]:
    sets: Mapping[str, Any] = {"a": Draws(), "b": Draws(OTHER)}
    return lambda workers: Loader(
        concatenate(sets) if as_one else sets, plan=plan(), seed=3, num_workers=workers
    )


def in_order(size: int = SIZE) -> BatchPlan:
    return BatchPlan(size, 3, shuffle=False)


KINDS: dict[str, Callable[[int], Loader]] = {
    "in order": one_set(in_order),
    "shuffled": one_set(lambda: BatchPlan(SIZE, 3, seed=3)),
    "weighted": one_set(lambda: WeightedPlan([1.0] * (SIZE - 1) + [30.0], 3, seed=3)),
    "lengths": one_set(lambda: LengthPlan(range(1, SIZE + 1), max_tokens=20, shuffle=True, seed=3)),
    "virtual": one_set(lambda: VirtualEpochs(in_order(), 7)),
    "virtual weighted": one_set(lambda: VirtualEpochs(WeightedPlan([1.0] * SIZE, 3, seed=3), 6)),
    "max_size_cycle": several(
        lambda: CombinedPlan({"a": in_order(), "b": in_order(OTHER)}, "max_size_cycle")
    ),
    "min_size": several(lambda: CombinedPlan({"a": in_order(), "b": in_order(OTHER)}, "min_size")),
    "sequential": several(lambda: ChainedPlan([(in_order(), 0), (in_order(OTHER), SIZE)]), as_one=True),
    "mixed": several(lambda: MixedPlan([SIZE, OTHER], [1, 9], 3, seed=3), as_one=True),
}


def values(loader: Loader, number: int | None = None) -> list[Any]:
    """So many batches; those of four epochs."""
    with closing(loader.epochs()) as endless:
        found = [one.value for one in islice(endless, number or EPOCHS * len(loader))]
    loader.close()
    return found


def rows(loader: Loader) -> Tensor:
    """(num_samples, 5) all that was read in four epochs."""
    parts = [list(one.values()) if isinstance(one, dict) else [one] for one in values(loader)]
    return torch.cat([part for batch in parts for part in batch if part is not None])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_drawn_twice(kind: str) -> None:
    """Neither by two samples of a batch, nor in two epochs, nor when one comes again, nor in two sets."""
    found = rows(KINDS[kind](0))
    assert len(found) >= EPOCHS * 2 * OTHER, "samples come more than once"
    assert len(found[:, 4].unique()) < len(found)
    for number, name in enumerate(GENERATORS):
        assert len(found[:, number].unique()) == len(found), name


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_same_for_any_number_of_workers(kind: str) -> None:
    here = bits(values(KINDS[kind](0)))
    assert bits(values(KINDS[kind](1))) == here
    assert bits(values(KINDS[kind](2))) == here


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("plan", [in_order(), WeightedPlan([1.0] * SIZE, 3, seed=3)], ids=["once", "again"])
def test_ranks_together_draw_what_one_process_draws(plan: Plan, world: int) -> None:
    """So two ranks never draw the same; and how many there are changes nothing."""
    alone = rows(Loader(Draws(), plan=plan, seed=3))
    shares = [Loader(Draws(), plan=ShardedPlan(plan, rank, world), seed=3) for rank in range(world)]
    num_batches = EPOCHS * len(shares[0])
    batches = zip(*(islice(share.epochs(), num_batches) for share in shares), strict=True)
    together = torch.cat([part.value for parts in batches for part in parts if part.num_samples])
    assert torch.equal(alone, together)


@pytest.mark.parametrize("kind", ["shuffled", "max_size_cycle", "mixed"])
def test_another_seed_draws_otherwise(kind: str) -> None:
    def with_seed(seed: int) -> Loader:
        made = KINDS[kind](0)
        return Loader(made.dataset, plan=made.plan, seed=seed)

    both = torch.cat([rows(with_seed(3)), rows(with_seed(4))])
    for number, name in enumerate(GENERATORS):
        assert len(both[:, number].unique()) == len(both), name


def test_a_sample_draws_the_same_in_whatever_batch_it_is() -> None:
    plans = [BatchPlan(SIZE, size, shuffle=shuffle, seed=3) for size, shuffle in ((1, True), (4, False))]
    plans.append(BatchPlan(SIZE, SIZE, seed=9))
    found = [rows(Loader(Draws(), plan=plan, seed=3)) for plan in plans]
    # (epoch, index): every plan gives each sample once an epoch.
    sorted_rows = [
        torch.cat([part[part[:, 4].argsort()] for part in one.view(EPOCHS, SIZE, 5)]) for one in found
    ]
    assert torch.equal(sorted_rows[0], sorted_rows[1]) and torch.equal(sorted_rows[0], sorted_rows[2])


# --- sets that ignore seeding -----------------------------------------------------------------------------

_TORCH, _NUMPY, _PYTHON = torch.Generator(), np.random.default_rng(), random.Random()
OWN: dict[str, Callable[[], float]] = {
    "torch": lambda: float(torch.rand((), generator=_TORCH)),
    "numpy": _NUMPY.random,
    "python": _PYTHON.random,
    "the system": lambda: float(int.from_bytes(os.urandom(4), "little")),
    "a counter": itertools.count().__next__,
}


class Ignores(Dataset[Tensor]):
    """Draws from a generator of its own."""

    def __init__(self, own: Callable[[], float], size: int = SIZE) -> None:
        self.own, self.size = own, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([float(index), float(self.own())])


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own", OWN)
def test_a_set_that_ignores_seeding_is_named(own: str, workers: int) -> None:
    loader = Loader(Ignores(OWN[own]), plan=in_order(), num_workers=workers, name="the training set")
    (why,) = loader.inexact_reasons()
    assert "the training set" in why and "generator" in why
    loader.close()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_set_that_draws_from_what_is_seeded_is_not(kind: str, workers: int) -> None:
    loader = KINDS[kind](workers)
    assert loader.inexact_reasons() == []
    loader.close()
    without = Loader(Without(), plan=in_order(), num_workers=workers)
    assert without.inexact_reasons() == []
    without.close()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("ignoring", ["a", "b"])
def test_one_of_several_sets_that_ignores_seeding_is_named(ignoring: str, workers: int) -> None:
    sets = {"a": Without(), "b": Without(OTHER)} | {ignoring: Ignores(OWN["torch"], OTHER)}
    plan = CombinedPlan({"a": in_order(OTHER), "b": in_order(OTHER)}, "min_size")
    as_one = concatenate(sets), ConcatDataset(list(sets.values()))
    for dataset, given in ((sets, plan), *((one, in_order(OTHER)) for one in as_one)):
        loader = Loader(dataset, plan=given, num_workers=workers, name="the training set")
        (why,) = loader.inexact_reasons()
        assert "the training set" in why and "generator" in why
        loader.close()
