"""`PlanExcerpt`: some batches of another plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from roost.train.data.plans.batch_plan import Draws, Plan


@dataclass(frozen=True)
class PlanExcerpt:
    """Some batches of another plan, as if an epoch had no others.

    Args:
        base: The other plan.
        spans: The numbers of these batches, ascending, contiguous or with gaps.
    """

    base: Plan
    spans: tuple[range, ...]

    @property
    def num_samples(self) -> int:
        return self.base.num_samples

    @property
    def num_batches(self) -> int:
        return sum(map(len, self.spans))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        for span in self.spans:
            first, start = start, max(0, start - len(span))
            if first < len(span) and span.step > 1:
                for number in span[first:]:  # each by its position, so that no batch between is made
                    yield next(iter(self.base.batches(epoch, number)))
            elif first < len(span):
                yield from itertools.islice(self.base.batches(epoch, span[first]), len(span) - first)

    def describe(self) -> str:
        return f"{self.num_batches:,} batches of: {self.base.describe()}"
