"""Some batches of another plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from roost.train.data.plans.batch_plan import Draws, Plan


@dataclass(frozen=True)
class PlanExcerpt:
    """Some batches of another plan, as if an epoch had no others.

    Args:
        whole: That plan.
        spans: The numbers of these batches, ascending, one behind the other or with gaps.
    """

    whole: Plan
    spans: tuple[range, ...]

    @property
    def num_samples(self) -> int:
        """Samples in the set."""
        return self.whole.num_samples

    @property
    def num_batches(self) -> int:
        """Batches in an epoch."""
        return sum(map(len, self.spans))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draws]:
        """The batches of one epoch from batch number ``start`` on."""
        for span in self.spans:
            first, start = start, max(0, start - len(span))
            if first < len(span) and span.step > 1:
                for number in span[first:]:  # each is gone to: what lies between would be made for nothing
                    yield next(iter(self.whole.batches(epoch, number)))
            elif first < len(span):
                yield from itertools.islice(self.whole.batches(epoch, span[first]), len(span) - first)

    def describe(self) -> str:
        """What a person should know."""
        return f"{self.num_batches:,} batches of: {self.whole.describe()}"
