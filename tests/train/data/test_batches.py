from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from typing import Any

import pytest

from roost.train.data.batches import Batch, Batches


class Given(Batches):
    """Batches from a list; knows when a pass over it has ended."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes, self.ended = sizes, 0

    def __len__(self) -> int:
        return len(self.sizes)

    def once(self) -> Generator[Batch, None, None]:
        try:
            for number, size in enumerate(self.sizes, 1):
                yield Batch([number] * size or None, size, number == len(self))
        finally:
            self.ended += 1

    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        yield from itertools.chain.from_iterable(self.once() for _ in itertools.count())

    def excerpt(self, spans: Sequence[range]) -> Batches:
        return Given([self.sizes[number] for span in spans for number in span])

    def describe(self) -> str:
        return "as given"


@pytest.mark.parametrize(
    ("sizes", "value"), [([2, 1], [1, 1]), ([0, 0, 3], [3, 3, 3]), ([0], None), ([], None)]
)
def test_the_first_that_holds_something(sizes: list[int], value: Any) -> None:
    given = Given(sizes)
    found = given.first_batch()
    assert (found and found.value) == value
    assert given.ended == 1, "the pass is left at once, not at garbage collection"


def test_what_most_have_not() -> None:
    given = Given([1])
    assert (
        given.inexact_reasons(),
        given.sample_indices(0, 0, 1),
        given.redraw(0, 0, 1),
        given.state_dict(),
    ) == (
        [],
        [],
        None,
        {},
    )
    assert not given.has_indices and given.num_shards == 0
    given.load_state_dict({})
    given.keep_num_shards(3)
    given.close()
