"""Batches of samples of like length, or as many as a budget of tokens holds."""

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
    """What one batch may hold.

    Args:
        max_samples: Samples; any number when None.
        max_tokens: Tokens; any number when None.
        count_padding: Whether each sample counts as many tokens as the longest of its batch.
    """

    max_samples: int | None
    max_tokens: int | None
    count_padding: bool

    def is_full(self, lengths: list[int]) -> bool:
        """Whether a batch of these has no room for one more as long as its longest."""
        if self.max_samples is not None and len(lengths) >= self.max_samples:
            return True
        longest = max(lengths)
        tokens = (len(lengths) + 1) * longest if self.count_padding else sum(lengths) + longest
        return self.max_tokens is not None and tokens > self.max_tokens

    def cut(self, lengths: list[int], *, descending: bool) -> list[int]:
        """Where batches of samples in this order begin and end, each as large as can be: (num_batches + 1,)
        ascending, from 0 to the number of samples. None of them is longer than the budget.

        ``descending`` says that no sample is longer than the one before, which makes it much faster.
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
        for at, length in enumerate(lengths):
            longest = max(longest, length)
            if at - begin == most or (at - begin + 1) * longest > max_tokens:
                bounds.append(at)
                begin, longest = at, length
        return [*bounds, len(lengths)]


@dataclass(frozen=True, eq=False)
class LengthPlan:
    """Batches cut by a budget of tokens, of samples of like length, each once an epoch.

    - With ``sort`` the batches come in the order of their samples' lengths, samples of one length in a fresh
      order each epoch if it is shuffled.
    - Shuffled without ``sort`` they are made in the same way, and then come in a fresh order each epoch.
    - With neither, samples keep the set's order.

    Where samples are sorted the cuts depend on the sorted lengths alone, so every epoch has as many batches.

    Args:
        lengths: (num_samples,) whole numbers.
        batch_size: Samples that a batch may hold; any number when None.
        max_tokens: Tokens that a batch may hold; any number when None.
        count_padding: A batch costs its samples times its longest, else the sum of their lengths.
        sort: Order of the batches.
        shuffle: A fresh order each epoch.
        seed: Seed of the order.
        drop_last: Leave out the batch that is not full, if there is one: other samples each epoch if
            shuffled, else the shortest, or without ``sort`` the last. A batch is full when no other sample as
            long as its longest fits in.
        set_size: Samples of the set, where it is known: then the number of lengths is checked.

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
                f"sample {longest} alone has {length:,} tokens, more than a batch may hold",
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
        """Samples in the set."""
        return len(self._lengths)

    @property
    def num_batches(self) -> int:
        """Batches in an epoch."""
        return len(self._bounds) - 1

    def batches(self, epoch: int, start: int = 0) -> Iterator[Draw]:
        """The batches of one epoch from batch number ``start`` on."""
        (order, numbers), bounds = self._order(epoch), self._bounds
        for number in numbers[start:]:
            yield Draw(order[bounds[number] : bounds[number + 1]].tolist(), epoch)

    def describe(self) -> str:
        """What a person should know."""
        order = "shuffled batches of like length" if self.shuffle else "in the set's order"
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
        """Where batches begin and end in the order of any epoch, which has no sample that is left out."""
        budget = BatchBudget(self.batch_size, self.max_tokens, self.count_padding)
        # From the longest down, so what is left for a last batch is little, and the longest are not left out.
        lengths = (np.sort(self._lengths)[::-1] if self._is_sorted else self._lengths).tolist()
        bounds = budget.cut(lengths, descending=self._is_sorted)
        if self.drop_last and not budget.is_full(lengths[bounds[-2] :]):
            bounds.pop()
        if self.sort == "ascending":
            bounds = [bounds[-1] - bound for bound in reversed(bounds)]
        return bounds

    @cache_latest
    def _order(self, epoch: int) -> tuple[Int64Array, Int64Array]:
        """The order of the samples, and that of the batches which are cut out of it."""
        numbers = np.arange(self.num_batches)
        if not self._is_sorted:
            return np.arange(self.num_samples), numbers
        if self.sort is None:
            numbers = generator(self.seed, "batches", epoch).permutation(self.num_batches)
        return self._by_length(epoch), numbers

    def _by_length(self, epoch: int) -> Int64Array:
        num_taken = self._bounds[-1]
        # The cuts are those of the longest samples. Whichever are left out, the n-th longest of the others is
        # not longer than the n-th longest of all, so every batch still keeps the budget.
        chosen = np.arange(self.num_samples)
        if self.shuffle:
            chosen = generator(self.seed, "lengths", epoch).permutation(self.num_samples)[:num_taken]
        keys = self._lengths[chosen]
        if self.sort != "ascending":
            keys = keys.max() - keys
        # NumPy sorts numbers of up to 16 bits by radix, eight times as fast.
        keys = keys.astype(np.min_scalar_type(keys.max()))
        order = chosen[np.argsort(keys, kind="stable")]
        return order[-num_taken:] if self.sort == "ascending" else order[:num_taken]
