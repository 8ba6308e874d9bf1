"""`LengthPlan`: batches of samples of similar length, limited by samples or tokens."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from roost.base.errors import ConfigError
from roost.train.data.plans.batch_plan import Draw, format_epoch_length
from roost.train.data.plans.permutations import Int64Array, cache_latest, check_not_empty, generator
from roost.train.data.plans.sample_columns import lengths_of


@dataclass(frozen=True)
class BatchBudget:
    """The limits of one batch.

    Args:
        max_samples: Maximum samples; None: no limit.
        max_tokens: Maximum tokens; None: no limit.
        count_padding: Whether each sample counts as many tokens as the longest one of its batch.
    """

    max_samples: int | None
    max_tokens: int | None
    count_padding: bool

    def is_full(self, lengths: list[int]) -> bool:
        """Whether a batch of these lengths cannot take one more sample as long as its longest."""
        if self.max_samples is not None and len(lengths) >= self.max_samples:
            return True
        longest = max(lengths)
        tokens = (len(lengths) + 1) * longest if self.count_padding else sum(lengths) + longest
        return self.max_tokens is not None and tokens > self.max_tokens

    def cut(self, lengths: list[int], *, descending: bool) -> list[int]:
        """Cuts samples in this order into batches, each as large as possible. No sample may be longer than
        the budget.

        Args:
            lengths: Tokens of each sample.
            descending: Whether the lengths are sorted from the longest down, which is much faster to cut.

        Returns:
            (num_batches + 1,) bounds of the batches, ascending from 0 to the number of samples.
        """
        if self.max_tokens is None:
            return [*range(0, len(lengths), self.max_samples or len(lengths)), len(lengths)]
        if not self.count_padding:
            return self._cut_sums(lengths, self.max_tokens)
        if descending:
            return self._cut_descending(lengths, self.max_tokens)
        return self._cut_padded(lengths, self.max_tokens)

    def _cut_descending(self, lengths: list[int], max_tokens: int) -> list[int]:
        most, bounds = self.max_samples or len(lengths), [0]
        while bounds[-1] < len(lengths):
            longest = lengths[bounds[-1]]
            size = min(most, max_tokens // longest) if longest else most
            bounds.append(min(bounds[-1] + size, len(lengths)))
        return bounds

    def _cut_sums(self, lengths: list[int], max_tokens: int) -> list[int]:
        most, bounds = self.max_samples or len(lengths), [0]
        before = [0, *itertools.accumulate(lengths)]
        while (begin := bounds[-1]) < len(lengths):
            end = min(begin + most, len(lengths))
            bounds.append(bisect_right(before, before[begin] + max_tokens, begin, end + 1) - 1)
        return bounds

    def _cut_padded(self, lengths: list[int], max_tokens: int) -> list[int]:
        most, bounds = self.max_samples or len(lengths), [0]
        begin = longest = 0
        for position, length in enumerate(lengths):
            longest = max(longest, length)
            if position - begin == most or (position - begin + 1) * longest > max_tokens:
                bounds.append(position)
                begin, longest = position, length
        return [*bounds, len(lengths)]


@dataclass(frozen=True, eq=False)
class LengthPlan:
    """Batches of samples of similar length, limited by samples or tokens; each sample comes once an epoch.

    - With ``sort``, batches come in the order of their samples' lengths; with ``shuffle``, samples of equal
      length are in a new order each epoch.
    - With ``shuffle`` alone, batches are made in the same way and come in a new order each epoch.
    - With neither, samples keep the order of the set.

    The bounds of batches of sorted samples depend on the sorted lengths alone, so every epoch has the same
    number of batches.

    Args:
        lengths: (num_samples,) integers of 0 or more.
        batch_size: Maximum samples of a batch; None: no limit.
        max_tokens: Maximum tokens of a batch; None: no limit.
        count_padding: The tokens of a batch are its samples times its longest, else the sum of the lengths.
        sort: Order of the batches.
        shuffle: A new order each epoch.
        seed: Seed of the order.
        drop_last: Leave out the incomplete batch, if there is one: other samples each epoch if shuffled, else
            the shortest, or without ``sort`` the last. A batch is complete if no further sample as long as
            its longest fits.
        set_size: Samples of the set if known, to check the number of lengths.

    Raises:
        ConfigError: The lengths are not such numbers; a sample is longer than ``max_tokens``; nothing limits
            a batch; there is no sample, or not one batch.
    """

    lengths: npt.ArrayLike = field(repr=False)
    _: KW_ONLY
    batch_size: int | None = None
    max_tokens: int | None = None
    count_padding: bool = True
    sort: Literal["ascending", "descending"] | None = None
    shuffle: bool
    seed: int
    drop_last: bool = False
    set_size: int | None = None

    def __post_init__(self) -> None:
        if self.batch_size is None and self.max_tokens is None:
            fix = "give it, or data.max_tokens"
            raise ConfigError("nothing limits a batch", setting="data.batch_size", fix=fix)
        longest = int(self._lengths.argmax())
        length = int(self._lengths[longest])
        if self.max_tokens is not None and length > self.max_tokens:
            raise ConfigError(
                f"sample {longest} alone has {length:,} tokens, more than the limit of a batch",
                setting="data.max_tokens",
                received=self.max_tokens,
                fix=f"give {length} or more, or leave long samples out of the set",
            )
        if self.batch_size is None:
            check_not_empty(self.num_samples, self.num_batches, self.max_tokens, setting="data.max_tokens")
        else:
            check_not_empty(self.num_samples, self.num_batches, self.batch_size)

    @property
    def num_samples(self) -> int:
        return len(self._lengths)

    @property
    def num_batches(self) -> int:
        return len(self._bounds) - 1

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draw]:
        (order, numbers), bounds = self._order(epoch), self._bounds
        for number in numbers[start:]:
            yield Draw(order[bounds[number] : bounds[number + 1]].tolist(), epoch)

    def describe(self) -> str:
        order = "shuffled batches of similar length" if self.shuffle else "in the set's order"
        if self.sort is not None:
            order = f"by length, {self.sort}" + (", equal lengths shuffled" if self.shuffle else "")
        limits = []
        if self.batch_size is not None:
            limits.append(f"{self.batch_size:,} samples")
        if self.max_tokens is not None:
            limits.append(f"{self.max_tokens:,} tokens {'with' if self.count_padding else 'without'} padding")
        return f"{order}, at most {' and '.join(limits)} a batch, {format_epoch_length(self.num_batches)}"

    @cached_property
    def _lengths(self) -> Int64Array:
        setting = "data.sort_by_length" if self.max_tokens is None else "data.max_tokens"
        return lengths_of(self.lengths, setting=setting, set_size=self.set_size)

    @property
    def _is_sorted(self) -> bool:
        return self.shuffle or self.sort is not None

    @cached_property
    def _bounds(self) -> list[int]:
        """Bounds of the batches in the order of any epoch; samples that are left out are not in it."""
        budget = BatchBudget(self.batch_size, self.max_tokens, self.count_padding)
        # From the longest down: the last batch is then small, and the longest samples are not left out.
        lengths = (np.sort(self._lengths)[::-1] if self._is_sorted else self._lengths).tolist()
        bounds = budget.cut(lengths, descending=self._is_sorted)
        if self.drop_last and not budget.is_full(lengths[bounds[-2] :]):
            bounds.pop()
        if self.sort == "ascending":
            bounds = [bounds[-1] - bound for bound in reversed(bounds)]
        return bounds

    @cache_latest
    def _order(self, epoch: int) -> tuple[Int64Array, Int64Array]:
        """Returns the order of the samples, and the order of the batches that are cut from it."""
        numbers = np.arange(self.num_batches)
        if not self._is_sorted:
            return np.arange(self.num_samples), numbers
        if self.sort is None:
            numbers = generator(self.seed, "batches", epoch).permutation(self.num_batches)
        return self._by_length(epoch), numbers

    def _by_length(self, epoch: int) -> Int64Array:
        num_used = self._bounds[-1]
        # The bounds were made for the longest samples. Whichever samples are left out, the n-th longest of
        # the others is not longer than the n-th longest of all, so every batch stays within its limits.
        chosen = np.arange(self.num_samples)
        if self.shuffle:
            chosen = generator(self.seed, "lengths", epoch).permutation(self.num_samples)[:num_used]
        keys = self._lengths[chosen]
        if self.sort != "ascending":
            keys = keys.max() - keys
        # NumPy sorts integers of up to 16 bits by radix sort, eight times as fast.
        keys = keys.astype(np.min_scalar_type(keys.max()))
        order = chosen[np.argsort(keys, kind="stable")]
        return order[-num_used:] if self.sort == "ascending" else order[:num_used]
