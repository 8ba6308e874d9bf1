from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from roost.train.data.batch_slices import IncompatibleBatches, concatenate_batches, first_samples, slice_batch
from roost.train.data.batches import Batch
from tests.train.parts import bits


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Held:
    x: Tensor
    names: list[str]


def made(begin: int, end: int) -> list[Any]:
    """The samples from ``begin`` on in nests of every kind."""
    x, names = torch.arange(begin, end), [f"n{number}" for number in range(begin, end)]
    return [
        x,
        (x, np.arange(begin, end)),
        [x.double(), x],
        {"x": x, "deep": {"names": names}},
        Pair(x, {"y": x + 1}),
        Held(x, names),
        names,
    ]


def plainly(value: Any) -> Any:
    return vars(value) if isinstance(value, Held) else list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("kind", range(len(made(0, 1))))
def test_what_is_cut_or_joined_is_like_what_was_collated_at_once(kind: int) -> None:
    whole, first, second, three = (made(*span)[kind] for span in ((0, 7), (0, 4), (4, 7), (0, 3)))
    assert bits(plainly(slice_batch(whole, 7, slice(3)))) == bits(plainly(three))
    assert bits(plainly(concatenate_batches([first, second]))) == bits(plainly(whole))
    assert type(slice_batch(whole, 7, slice(3))) is type(concatenate_batches([first, second])) is type(whole)


def test_a_list_of_samples_of_different_shapes() -> None:
    samples = [torch.zeros(3, 5), torch.zeros(2, 5), torch.zeros(1, 5), torch.zeros(4, 5)]
    assert [len(one) for one in slice_batch(samples, 4, slice(2))] == [3, 2]


@pytest.mark.parametrize(
    "value",
    [torch.tensor(1.0), {"x": torch.zeros(4), "edges": torch.zeros(9)}, object(), (torch.zeros(4), 3)],
)
def test_what_cannot_be_cut(value: Any) -> None:
    with pytest.raises(IncompatibleBatches):
        slice_batch(value, 4, slice(2))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 4)),
        (torch.zeros(2), torch.zeros(2).int()),
        ({"x": torch.zeros(2)}, {"y": torch.zeros(2)}),
        ([torch.zeros(2)], [torch.zeros(2), torch.zeros(2)]),
        (torch.tensor(0.0), torch.tensor(0.0)),
        (object(), object()),
        (torch.zeros(2), np.zeros(2)),
    ],
)
def test_what_cannot_be_joined(first: Any, second: Any) -> None:
    with pytest.raises(IncompatibleBatches):
        concatenate_batches([first, second])


def batches(*sizes: int, shape: int = 2) -> list[Batch]:
    return [Batch(torch.ones(size, shape + 0 * size) if size else None, size, False) for size in sizes]


@pytest.mark.parametrize(
    ("sizes", "num_samples", "has"),
    [
        ((4, 4, 4), 6, 6),
        ((4, 4, 4), 4, 4),
        ((0, 3, 0, 3), 5, 5),
        ((2, 2), 9, 4),
        ((8,), 3, 3),
        ((0, 0), 3, None),
    ],
)
def test_of_batches(sizes: tuple[int, ...], num_samples: int, has: int | None) -> None:
    drawn = iter(batches(*sizes))
    found = first_samples(drawn, num_samples)
    assert (None if found is None else (found.num_samples, len(found.value))) == (has and (has, has))
    if (sizes, num_samples) == ((4, 4, 4), 6):
        assert len(list(drawn)) == 1, "no further than needed"


def test_batches_that_cannot_be_joined_give_the_first() -> None:
    odd = [Batch(torch.ones(2, 3), 2, False), Batch(torch.ones(2, 4), 2, False)]
    found = first_samples(iter(odd), 3)
    assert found is not None and found.value.shape == (2, 3)
    whole = first_samples(iter([Batch(object(), 4, False)]), 3)
    assert whole is not None and whole.num_samples == 4
