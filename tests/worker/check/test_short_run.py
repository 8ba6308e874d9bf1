from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

from roost.train.data.loader import Loader
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.stream import Stream
from roost.train.hook import Hook
from roost.train.hooks import Averaging
from roost.train.trainer import Trainer
from roost.worker.check.short_run import first_and_last_windows, known_length, shorten
from tests.train.parts import MLP, Still, built, plain


@pytest.mark.parametrize(
    ("num_batches", "per_step", "found"),
    [
        (1, 1, [range(1)]),
        (2, 1, [range(1), range(1, 2)]),
        (9, 1, [range(1), range(8, 9)]),
        (9, 4, [range(4), range(8, 9)]),
        (8, 4, [range(4), range(4, 8)]),
        (3, 4, [range(3)]),
        (4, 4, [range(4)]),
    ],
)
def test_the_first_window_and_the_last(num_batches: int, per_step: int, found: list[range]) -> None:
    assert first_and_last_windows(num_batches, per_step) == found


def loader(num_samples: int = 23, batch_size: int = 5, **given: Any) -> Loader:
    x = torch.arange(float(num_samples))
    return Loader(TensorDataset(x[:, None], x), plan=BatchPlan(num_samples, batch_size), **given)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_short_loader_gives_what_the_whole_one_gives(num_workers: int) -> None:
    whole = loader(num_workers=num_workers)
    short = whole.excerpt(first_and_last_windows(len(whole)))
    all_of_them = list(whole.once())
    first, last = short.once()
    assert torch.equal(first.value[1], all_of_them[0].value[1]) and not first.ends_epoch
    assert torch.equal(last.value[1], all_of_them[4].value[1]) and last.ends_epoch and last.num_samples == 3
    assert len(short) == 2


def test_the_length_of_a_stream_may_be_unknown() -> None:
    assert known_length(Stream(Still())) == len(Still())
    unknown = Stream(rows(), batch_size=2)
    assert known_length(unknown) is None
    assert [batch.num_samples for batch in unknown.excerpt(first_and_last_windows(2)).once()] == [2, 2]


def rows() -> torch.utils.data.IterableDataset[Any]:
    class Rows(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(9))

    return Rows()


class Notes(Hook):
    """Writes down when it is called."""

    every = "1000"

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_step(self, trainer: Trainer) -> None:
        self.said.append(f"step {trainer.progress.step}")

    def on_epoch(self, trainer: Trainer) -> None:
        self.said.append(f"epoch {trainer.progress.epoch} {trainer.progress.fraction:.3f}")


def test_a_shortened_trainer_walks_both_ends_of_an_epoch() -> None:
    drawn: list[int] = []

    class Counting(MLP):
        def loss(self, batch: Any) -> Mapping[str, torch.Tensor]:
            drawn.append(len(batch[1]))
            return super().loss(batch)

    notes, dropped = Notes(), Hook()
    trainer = plain(built(Counting), Still(), [notes, dropped], until="20ep")
    shorten(trainer, steps=3, with_hooks=lambda given: [hook for hook in given if hook is not dropped])
    assert trainer.fit() == "finished"
    assert drawn == [4, 2, 4] and trainer.calls.hooks == [notes]
    assert notes.said == ["epoch 1 0.014", "step 3"], "due at the end, and the run is as long as it was"
    assert (trainer.steps_per_epoch, trainer.total_steps) == (7, 140)


def test_an_average_of_a_shortened_trainer_begins_at_once() -> None:
    late = Averaging(every="50", start="3ep")
    trainer = plain(built(MLP), Still(), [late], until="20ep")
    shorten(trainer, steps=2, with_hooks=lambda given: given)
    assert trainer.fit() == "finished" and late.average.count == 2
