from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from roost.base.errors import ContractError, PeerLost
from roost.train.data.batches import Batches, Interrupted
from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.data.stream import Stream
from roost.train.distributed.ranks import Ranks
from roost.train.distributed.shared_windows import SharedWindows
from roost.train.step.stepper import Stepper
from roost.train.trainer import Trainer
from tests.messages import Messages
from tests.train.parts import MLP, built
from tests.train.team import silent, team

SIZE = 10


class Numbers:
    """Each sample is its index."""

    draws_randomness = False

    def __init__(self, bad: int = -1) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Tensor:
        if index == self.bad:
            raise ValueError("cannot decode")
        return torch.tensor([index])


class Flow(IterableDataset[Tensor]):
    """The same without indices, with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[Tensor]:
        while self.at < SIZE:
            self.at += 1
            yield torch.tensor([self.at - 1])
        self.at = 0

    def __len__(self) -> int:
        return SIZE

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def indexed(ranks: Ranks, batch_size: int = 4, **options: Any) -> Batches:
    plan = BatchPlan(SIZE, batch_size, shuffle=False)
    dataset = Numbers(options.pop("bad", -1))
    return Loader(dataset, plan=ShardedPlan(plan, ranks.rank, ranks.world_size), **options)


def windows_of(ranks: Ranks, batches: Batches, *, accumulation: int = 1) -> tuple[Trainer, SharedWindows]:
    runner = built(MLP)
    stepper = Stepper(torch.optim.SGD(runner.parameters(), lr=0.1), accumulation=accumulation, ranks=ranks)
    trainer = Trainer(runner, {"train": batches}, stepper, until=100, ranks=ranks)
    windows = trainer._make_windows()
    assert isinstance(windows, SharedWindows)
    return trainer, windows


def drawn(trainer: Trainer, windows: SharedWindows, number: int) -> list[Any]:
    """Of each window: its values, the samples of this rank, those of all."""
    found = []
    for _ in range(number):
        one = windows.draw()
        found.append(([batch.flatten().tolist() for batch in one.window], one.num_samples, one.all_samples))
        trainer.progress.advance(one.num_batches, one.all_samples, one.last)
    return found


def test_together_they_are_the_windows_of_one_process() -> None:
    def work(ranks: Ranks) -> list[Any]:
        return drawn(*windows_of(ranks, indexed(ranks)), 4)

    assert team(3, work) == [
        [([[0, 1]], 2, 4), ([[4, 5]], 2, 4), ([[8]], 1, 2), ([[0, 1]], 2, 4)],
        [([[2]], 1, 4), ([[6]], 1, 4), ([[9]], 1, 2), ([[2]], 1, 4)],
        [([[3]], 1, 4), ([[7]], 1, 4), ([[8]], 0, 2), ([[3]], 1, 4)],  # a stand-in
    ]


def test_of_what_has_no_indices_each_takes_its_share_of_each_batch() -> None:
    def work(ranks: Ranks) -> list[Any]:
        return drawn(*windows_of(ranks, Stream(Flow(), batch_size=4)), 4)

    assert team(3, work) == [
        [([[0, 1]], 2, 4), ([[4, 5]], 2, 4), ([[8]], 1, 2), ([[0, 1]], 2, 4)],
        [([[2]], 1, 4), ([[6]], 1, 4), ([[9]], 1, 2), ([[2]], 1, 4)],
        [([[3]], 1, 4), ([[7]], 1, 4), ([[8]], 0, 2), ([[3]], 1, 4)],
    ]


def test_the_state_is_that_of_the_window_that_was_taken() -> None:
    """Though the next one has been drawn already."""

    def work(ranks: Ranks) -> list[Any]:
        trainer, windows = windows_of(ranks, Stream(Flow(), batch_size=4))
        drawn(trainer, windows, 1)
        state, progress = windows.state_of_data(), trainer.progress.state_dict()
        other, others = windows_of(ranks, Stream(Flow(), batch_size=4))
        other.loaders["train"].load_state_dict(state)
        other.progress.load_state_dict(progress)
        return drawn(other, others, 2) + drawn(trainer, windows, 2)

    found = team(2, work)
    assert found[0][:2] == found[0][2:] == [([[4, 5]], 2, 4), ([[8]], 1, 2)]
    assert found[1][:2] == found[1][2:]


def test_accumulated_windows() -> None:
    def work(ranks: Ranks) -> list[Any]:
        return drawn(*windows_of(ranks, indexed(ranks), accumulation=2), 2)

    assert team(2, work) == [
        [([[0, 1], [4, 5]], 4, 8), ([[8]], 1, 2)],
        [([[2, 3], [6, 7]], 4, 8), ([[9]], 1, 2)],
    ]


def test_what_one_rank_cannot_draw_all_hear_of_and_go_on_after(messages: Messages) -> None:
    def work(ranks: Ranks) -> list[Any]:
        trainer, windows = windows_of(ranks, indexed(ranks, bad=5))
        found = drawn(trainer, windows, 1)
        with pytest.raises((ValueError, PeerLost)) as raised:
            windows.draw()
        trainer.progress.advance(1, 0, False)
        return [*found, type(raised.value).__name__, str(raised.value), *drawn(trainer, windows, 2)]

    one, other = team(2, work)
    assert one == [([[0, 1]], 2, 4), "ValueError", "cannot decode", ([[8]], 1, 2), ([[0, 1]], 2, 4)]
    kind, said = other[1:3]
    assert kind == "PeerLost" and re.search(r"\brank 0\b.*ValueError: cannot decode\b.*\bsample 5\b", said)
    messages.check(said)
    assert other[3:] == [([[9]], 1, 2), ([[2, 3]], 2, 4)]


def test_an_empty_share_is_replaced_by_another() -> None:
    """If no share has a sample, no rank takes the step."""

    def some(samples: list[Tensor]) -> Tensor | None:
        kept = [one for one in samples if one < 6]
        return torch.stack(kept) if kept else None

    def work(ranks: Ranks) -> list[Any]:
        return drawn(*windows_of(ranks, indexed(ranks, collate=some)), 4)

    one, other = team(2, work)
    assert one == [([[0, 1]], 2, 4), ([[4, 5]], 2, 2), ([], 0, 0), ([[0, 1]], 2, 4)]
    assert other == [([[2, 3]], 2, 4), ([[2, 3]], 0, 2), ([], 0, 0), ([[2, 3]], 2, 4)]


def test_a_stop_is_heard_before_the_window_that_was_drawn_after_it() -> None:
    def work(ranks: Ranks) -> int:
        trainer, windows = windows_of(ranks, indexed(ranks))
        drawn(trainer, windows, 1)
        if ranks.rank == 1:
            trainer.request_stop("requested")
        with pytest.raises(Interrupted):
            drawn(trainer, windows, 9)
        return trainer.progress.step

    assert team(2, work) == [2, 2]


def test_batches_that_cannot_be_shared(messages: Messages) -> None:
    def whole(samples: list[Tensor]) -> dict[str, Any]:
        return {"x": torch.stack(samples), "scale": 3}

    def work(ranks: Ranks) -> str:
        with pytest.raises(ContractError) as refused:
            windows_of(ranks, Stream(Flow(), batch_size=4, collate=whole))[1].draw()
        return str(refused.value)

    first, second = team(2, work)
    assert first == second
    messages.check(first)


def test_a_stop_leaves_the_state_of_the_window_that_was_taken() -> None:
    """So that a set with a state does not read again from its beginning."""

    def work(ranks: Ranks) -> list[Any]:
        trainer, windows = windows_of(ranks, Stream(Flow(), batch_size=4))
        drawn(trainer, windows, 1)
        trainer.request_stop("requested")
        with pytest.raises(Interrupted):
            drawn(trainer, windows, 9)
        return [trainer.progress.step, windows.state_of_data()["position"]]

    assert team(2, work) == [[2, 2], [2, 2]]


class Split(Flow):
    """One that shares itself out by rank, evenly or not."""

    def __init__(self, rank: int, *, evenly: bool) -> None:
        super().__init__()
        self.rank, self.evenly = rank, evenly

    def __iter__(self) -> Iterator[Tensor]:
        for number, one in enumerate(super().__iter__()):
            if number % 2 == self.rank or (self.rank == 0 and not self.evenly):
                yield one


def test_a_set_that_gives_each_rank_other_batches_is_an_error(messages: Messages) -> None:
    def work(ranks: Ranks) -> str:
        batches = Stream(Split(ranks.rank, evenly=False), batch_size=4, num_batches=3)
        with pytest.raises(ContractError) as refused:
            drawn(*windows_of(ranks, batches), 3)
        return str(refused.value)

    first, second = team(2, work)
    assert first == second
    messages.check(first)


def test_a_set_that_gives_each_rank_other_values_is_reported(messages: Messages) -> None:
    def work(ranks: Ranks) -> list[str]:
        batches = Stream(Split(ranks.rank, evenly=True), batch_size=4, num_batches=2)
        trainer, windows = windows_of(ranks, batches)
        with silent():
            drawn(trainer, windows, 2)
        return trainer.inexact

    first, second = team(2, work)
    assert first == second and len(first) == 1
    messages.check(first[0])
