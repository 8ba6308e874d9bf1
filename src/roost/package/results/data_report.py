"""What `roost show --data` finds out of each set: written by its worker, read by the operation."""

from __future__ import annotations

import msgspec


class LengthBin(msgspec.Struct, frozen=True):
    """Samples whose lengths are near to each other."""

    least: int
    most: int
    num_samples: int


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of which a set gives one for each of its samples: its lengths, its weights."""

    least: float
    median: float
    mean: float
    most: float
    num_zero: int
    bins: list[LengthBin] = []
    """Of lengths, from the shortest to the longest."""


class LabelClasses(msgspec.Struct, frozen=True, kw_only=True):
    """What a set tells of its labels."""

    number: int
    names: list[str] = []
    fewest: int | None = None
    """Samples of the class that has the fewest; None: it does not tell whose label is which."""
    most: int | None = None


class SetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a set tells of itself."""

    name: str
    class_name: str
    kind: str
    """In words: map-style, iterable, ..."""
    num_samples: int | None
    """None: nobody knows."""
    classes: LabelClasses | None = None
    lengths: Distribution | None = None
    weights: Distribution | None = None
    unreadable: list[str] = []
    """What it seems to tell and does not: a line for each."""


class BatchPart(msgspec.Struct, frozen=True):
    """One of the values that a batch is made of."""

    name: str
    """Dotted where it lies in a nest; empty: the batch is this one value."""
    kind: str
    """The type of its numbers, or of itself: float32, 64 str."""
    shape: list[int] | None = None
    """None: it is no tensor and no array."""


class FirstBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The first batch that is not empty."""

    num_samples: int
    num_bytes: int
    """Of its tensors and arrays."""
    parts: list[BatchPart]


class BatchSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How many samples the batches have, by their plan."""

    num_batches: int
    """That were looked at, of the first epoch."""
    least: int
    """Without the last batch, which may be what was left; so are the next two."""
    median: float
    most: int
    padding: float | None
    """Share of the numbers that only fill samples up to the longest of their batch; None: not known."""


class LoadingTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How long batches took to come, with nothing computed meanwhile. In seconds."""

    num_batches: int
    """That were drawn, empty ones too."""
    num_empty: int
    first: float
    """With the start of the workers."""
    batch: float | None = None
    """One of the later ones, on average; None: there were too few of them."""
    slowest: float | None = None
    sample: float | None = None


class SplitReport(msgspec.Struct, frozen=True, kw_only=True):
    """One set that is evaluated, or all that are trained on."""

    name: str
    """train, valid, valid/NAME, ..."""
    sets: list[SetReport]
    plan: str
    num_batches: int | None
    """Of an epoch, or of an evaluation; None: nobody knows."""
    num_steps: int | None
    """Of an epoch; None: it is not trained on."""
    sizes: BatchSizes | None = None
    num_workers: int | None = None
    workers: str = ""
    """Why so many, where roost has chosen them."""
    seeds: str = ""
    """Whether it follows roost's seeds, in words; empty: it was not found out."""
    inexact: list[str] = []
    """Why a run on it cannot be repeated or gone on with bit for bit."""
    batch: FirstBatch | None = None
    times: LoadingTimes | None = None
