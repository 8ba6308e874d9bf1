from __future__ import annotations

from collections import namedtuple
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from roost.package.results.data_report import BatchPart
from roost.train.data.batches import Batch
from roost.train.data.plans.batch_plan import BatchPlan
from roost.train.data.plans.dataset_mixes import CombinedPlan
from roost.train.data.plans.length_batches import LengthPlan
from roost.worker.data_report import batch_timing
from roost.worker.data_report.batch_timing import BatchTimer, batch_sizes, describe_batch


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in its only item."""
    now = [0.0]
    monkeypatch.setattr(batch_timing, "perf_counter", lambda: now[0])
    return now


def batches(
    clock: list[float], took: Sequence[float], *, epoch: int = 0, empty: Sequence[int] = ()
) -> Generator[Batch, None, None]:
    """Batches of four samples that take so long."""
    for number, seconds in enumerate(took, 1):
        clock[0] += seconds
        is_empty = number - 1 in empty
        value = None if is_empty else torch.zeros(4)
        yield Batch(value, 0 if is_empty else 4, bool(epoch) and number % epoch == 0)


def test_the_first_batch_is_counted_apart(clock: list[float]) -> None:
    made = BatchTimer()
    made.draw(batches(clock, [8.0, 0.25, 0.5, 0.25]))
    times = made.times()
    assert times is not None and (times.first, times.num_batches, times.num_empty) == (8.0, 4, 0)
    assert times.batch == pytest.approx(1 / 3) and times.slowest == 0.5
    assert times.sample == pytest.approx(1 / 12)


def test_the_time_is_over(clock: list[float]) -> None:
    made = BatchTimer()
    made.draw(batches(clock, [9.0, *[0.5] * 100]), seconds=2.0)
    times = made.times()
    assert times is not None and times.num_batches == 5


@pytest.mark.parametrize(("epoch", "number"), [(9, 9), (3, 9), (1, 8), (0, 50)])
def test_an_epoch_is_enough_if_it_is_not_very_short(epoch: int, number: int, clock: list[float]) -> None:
    made = BatchTimer()
    made.draw(batches(clock, [0.01] * 50, epoch=epoch))
    times = made.times()
    assert times is not None and times.num_batches == number


def test_workers_bring_one_each_at_a_time(clock: list[float]) -> None:
    """Each of two takes 0.8 s: that is a batch in 0.4 s, wherever the drawing ends."""
    for number in (4, 5):
        made = BatchTimer()
        made.draw(batches(clock, [0.9, 0.0, 0.8, 0.0, 0.8][:number]))
        times = made.times(num_workers=2)
        assert times is not None and times.first == pytest.approx(0.9) and times.batch == pytest.approx(0.4)
        assert times.sample == pytest.approx(0.1)
    too_few = made.times(num_workers=3)
    assert too_few is not None and too_few.batch is None and too_few.sample is None


def test_empty_batches(clock: list[float]) -> None:
    made = BatchTimer()
    made.draw(batches(clock, [1.0, 1.0, 0.5], empty=[0, 2]), seconds=9)
    times = made.times()
    assert times is not None and (times.num_batches, times.num_empty) == (3, 2)
    assert made.batch is not None and made.batch.num_samples == 4, "the first that holds something"
    assert times.sample == pytest.approx(1.5 / 4)
    made = BatchTimer()
    made.draw(batches(clock, [1.0, 1.0], empty=[0, 1]))
    times = made.times()
    assert made.batch is None and times is not None and times.sample is None


def test_no_batch_at_all(clock: list[float]) -> None:
    made = BatchTimer()
    made.draw(batches(clock, []))
    assert made.batch is None and made.times() is None


def test_what_came_before_an_error_is_known() -> None:
    is_closed = []

    def failing() -> Generator[Batch, None, None]:
        try:
            yield Batch(torch.zeros(2), 2, False)
            raise ValueError("bad")
        finally:
            is_closed.append(True)

    made = BatchTimer()
    with pytest.raises(ValueError, match="bad"):
        made.draw(failing())
    times = made.times()
    assert made.batch is not None and times is not None and times.num_batches == 1 and is_closed


# ---- what a batch holds ---------------------------------------------------------------------------------

Pair = namedtuple("Pair", "left right")


@dataclass
class Labelled:
    x: Any
    label: str


@pytest.mark.parametrize(
    ("value", "parts", "num_bytes"),
    [
        (torch.zeros(4, 2), [BatchPart("", "float32", [4, 2])], 32),
        (
            {"x": torch.zeros(4, dtype=torch.int64), "name": ["a", "b"], "n": 3},
            [BatchPart("x", "int64", [4]), BatchPart("name", "2 str"), BatchPart("n", "int")],
            32,
        ),
        (
            [np.zeros((2, 3), np.float16), {"a": (torch.tensor(1.0),)}],
            [BatchPart("0", "float16", [2, 3]), BatchPart("1.a.0", "float32", [])],
            16,
        ),
        (Pair(torch.zeros(1), None), [BatchPart("left", "float32", [1]), BatchPart("right", "NoneType")], 4),
        (Labelled(torch.zeros(1), "a"), [BatchPart("x", "float32", [1]), BatchPart("label", "str")], 4),
        (
            [{"x": torch.zeros(2)} for _ in range(20)],
            [BatchPart("", "20 of these:"), BatchPart("[0].x", "float32", [2])],
            160,
        ),
        ([1, 2, 3], [BatchPart("", "3 int")], 0),
        ((), [BatchPart("", "nothing")], 0),
        (object(), [BatchPart("", "object")], 0),
    ],
)
def test_the_parts_of_a_batch(value: Any, parts: list[BatchPart], num_bytes: int) -> None:
    found = describe_batch(Batch(value, 4, False))
    assert (found.parts, found.num_bytes, found.num_samples) == (parts, num_bytes, 4)


# ---- the plan -------------------------------------------------------------------------------------------


def test_sizes_of_a_plan_without_its_last_batch() -> None:
    found = batch_sizes(BatchPlan(10, 4, shuffle=False))
    assert found is not None
    assert (found.num_batches, found.least, found.most, found.padding) == (3, 4, 4, None)
    alone = batch_sizes(BatchPlan(3, 4))
    assert alone is not None and (alone.least, alone.most) == (3, 3)


def test_padding() -> None:
    lengths = [1, 3, 2, 2]
    found = batch_sizes(BatchPlan(4, 2, shuffle=False), lengths)
    assert found is not None and found.padding == pytest.approx(1 - 8 / (6 + 4))
    sorted_ones = batch_sizes(
        LengthPlan(lengths, max_tokens=4, shuffle=False, sort="ascending", seed=0), lengths
    )
    assert sorted_ones is not None and sorted_ones.padding == pytest.approx(0)


def test_batches_of_several_sets_at_once_have_no_one_size() -> None:
    assert batch_sizes(CombinedPlan({"a": BatchPlan(4, 2), "b": BatchPlan(4, 2)}, "min_size")) is None
