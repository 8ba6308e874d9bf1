from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, TensorDataset

from roost.base import state_tree
from roost.base.errors import CheckpointError, ContractError
from roost.project.dlnest.epoch_batches import END, EpochBatches
from roost.train.step import seeding
from tests.messages import Messages


class Augmented(Dataset[Any]):
    """Eleven samples, changed at random by all three generators."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index + torch.rand(()).item(), np.random.rand(), random.random()])


class OwnGenerator(Augmented):
    def __init__(self) -> None:
        self.numbers = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.numbers.random())


class OwnOrder(Sampler[int]):
    """An order that follows from a state of its own."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        return iter([(i * self.passes) % 11 for i in range(11)])

    def __len__(self) -> int:
        return 11

    def state_dict(self) -> dict[str, int]:
        return {"passes": self.passes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.passes = state["passes"]


class Items(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(torch.rand(9))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(5)


LOADERS: dict[str, Callable[[], Any]] = {
    "no workers": lambda: DataLoader(Augmented(), batch_size=2, shuffle=True),
    "workers": lambda: DataLoader(
        Augmented(), batch_size=2, shuffle=True, num_workers=2, persistent_workers=True
    ),
    "own generator": lambda: DataLoader(Augmented(), batch_size=2, shuffle=True, generator=generator()),
    "with replacement": lambda: DataLoader(
        Augmented(), batch_size=3, sampler=RandomSampler(Augmented(), replacement=True, num_samples=70)
    ),
    "own order": lambda: DataLoader(Augmented(), batch_size=2, sampler=OwnOrder()),
    "a list": lambda: [torch.full((2,), float(i)) for i in range(6)],
    "an iterable set": lambda: DataLoader(Items(), batch_size=2),
}


def steps(
    batches: EpochBatches, number: int, cut: int | None = None
) -> Iterator[tuple[list[Any], dict[str, Any] | None]]:
    """Trains: each step draws numbers, too. Gives what each step had, and the state after step ``cut``."""
    epoch = drawn = 0
    batches.begin()
    for step in range(number):
        while (batch := batches.draw()) is END:
            batches.close()
            epoch, drawn = epoch + 1, 0
            batches.begin()
        drawn += 1
        had = [batch.tolist(), torch.rand(()).item(), np.random.rand(), random.random()]
        state = {"pass": batches.state(), "drawn": drawn, "rng": seeding.rng_state()} if step == cut else None
        yield had, state
    batches.close()


@pytest.mark.parametrize("kind", LOADERS)
def test_each_position_is_resumed_with_the_same_bits(kind: str) -> None:
    seeding.seed_all(1)
    expected = [had for had, _ in steps(EpochBatches(LOADERS[kind](), note_inexact=pytest.fail), 14)]
    for cut in (0, 3, 7):
        seeding.seed_all(1)
        run = steps(EpochBatches(LOADERS[kind](), note_inexact=pytest.fail), 14, cut)
        state = next(state for _, state in run if state is not None)
        run.close()
        state = state_tree.unpack(*state_tree.pack(state))  # as in a checkpoint
        seeding.seed_all(99)
        said: list[str] = []
        batches = EpochBatches(LOADERS[kind](), note_inexact=said.append)
        batches.resume(state["pass"], state["drawn"])
        seeding.set_rng_state(state["rng"])
        assert bool(said) == (kind == "an iterable set")
        found = []
        while len(found) < 13 - cut:
            if (batch := batches.draw()) is END:
                batches.close()
                batches.begin()
                continue
            found.append([batch.tolist(), torch.rand(()).item(), np.random.rand(), random.random()])
        batches.close()
        assert found == expected[cut + 1 :]


def test_a_set_with_a_generator_of_its_own_is_named_inexact() -> None:
    said: list[str] = []
    EpochBatches(DataLoader(OwnGenerator()), note_inexact=said.append).begin()
    assert said == ["the training loader draws from a generator that roost neither seeds nor saves"]


def test_an_iterator_is_named_inexact() -> None:
    said: list[str] = []
    EpochBatches(iter([1, 2]), note_inexact=said.append).begin()
    assert "only once" in said[0]


def test_a_pass_that_has_become_shorter_is_refused(messages: Messages) -> None:
    batches = EpochBatches([1, 2, 3], note_inexact=pytest.fail)
    batches.begin()
    with pytest.raises(ContractError) as refused:
        EpochBatches([1, 2], note_inexact=pytest.fail).resume(batches.state(), 3)
    messages.check(refused.value)


def test_another_number_of_generators_is_refused(messages: Messages) -> None:
    batches = EpochBatches(LOADERS["own generator"](), note_inexact=pytest.fail)
    batches.begin()
    with pytest.raises(CheckpointError) as refused:
        EpochBatches(LOADERS["no workers"](), note_inexact=pytest.fail).resume(batches.state(), 1)
    messages.check(refused.value)


def test_the_epoch_is_set_on_the_sampler() -> None:
    loader = DataLoader(
        TensorDataset(torch.arange(4.0)),
        sampler=torch.utils.data.DistributedSampler(range(4), 1, 0),  # type: ignore[arg-type]
    )
    batches = EpochBatches(loader, note_inexact=pytest.fail)
    batches.begin(epoch=3)
    assert loader.sampler.epoch == 3
    assert batches.length == 4
