"""The report of `roost show --data` about each set: written by its worker, read by the operation."""

from __future__ import annotations

import msgspec


class LengthBin(msgspec.Struct, frozen=True):
    """A bin of a histogram of lengths."""

    least: int
    most: int
    num_samples: int


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of numbers that a set has for each sample: lengths or weights."""

    least: float
    median: float
    mean: float
    most: float
    num_zero: int
    bins: list[LengthBin] = []
    """The histogram of lengths, from the shortest to the longest."""


class LabelClasses(msgspec.Struct, frozen=True, kw_only=True):
    """The label classes of a set."""

    number: int
    names: list[str] = []
    fewest: int | None = None
    """The number of samples of the smallest class; None: the set does not expose its labels."""
    most: int | None = None
    """The number of samples of the largest class."""


class SetReport(msgspec.Struct, frozen=True, kw_only=True):
    """The properties that a set exposes."""

    name: str
    class_name: str
    kind: str
    """A description: map-style, iterable, ..."""
    num_samples: int | None
    """None: unknown."""
    classes: LabelClasses | None = None
    lengths: Distribution | None = None
    weights: Distribution | None = None
    unreadable: list[str] = []
    """A line for each property that the set seems to expose but that cannot be read."""


class BatchPart(msgspec.Struct, frozen=True):
    """A value in a batch."""

    name: str
    """The dotted path in a nested batch; empty if the batch is this one value."""
    kind: str
    """The dtype, or the type of the value: float32, 64 str."""
    shape: list[int] | None = None
    """None if it is neither a tensor nor an array."""


class FirstBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The first batch that is not empty."""

    num_samples: int
    num_bytes: int
    """The size of its tensors and arrays."""
    parts: list[BatchPart]


class BatchSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of samples in the batches, according to their plan."""

    num_batches: int
    """The number of batches of the first epoch that were examined."""
    least: int
    """Without the last batch, which may be smaller; likewise the next two."""
    median: float
    most: int
    padding: float | None
    """The share of values that only pad samples to the longest of their batch; None: unknown."""


class LoadingTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The times in seconds to load batches, without computing meanwhile."""

    num_batches: int
    """The number of loaded batches, including empty ones."""
    num_empty: int
    first: float
    """The time of the first batch, including the start of the loader workers."""
    batch: float | None = None
    """The mean of the later batches; None: too few of them."""
    slowest: float | None = None
    sample: float | None = None


class SplitReport(msgspec.Struct, frozen=True, kw_only=True):
    """A split: one set for evaluation, or all sets for training."""

    name: str
    """train, valid, valid/NAME, ..."""
    sets: list[SetReport]
    plan: str
    num_batches: int | None
    """The number in an epoch, or in an evaluation; None: unknown."""
    num_steps: int | None
    """The number in an epoch; None: not a split for training."""
    sizes: BatchSizes | None = None
    num_workers: int | None = None
    workers: str = ""
    """The reason for the number of workers, if roost has chosen it."""
    seeds: str = ""
    """A text that says whether the split follows roost's seeds; empty: not tested."""
    inexact: list[str] = []
    """Reasons why a run on this split cannot be repeated or continued exactly."""
    batch: FirstBatch | None = None
    times: LoadingTimes | None = None
