"""What a trainer asks of whoever gives it batches."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from roost.train.data import batch_slices


class Interrupted(Exception):
    """A stop was requested while batches were waited for, or in the middle of an evaluation, whose results
    are dropped."""


class Batch(NamedTuple):
    """One micro-batch."""

    value: Any
    num_samples: int
    """0: it is empty; it counts as a batch, and nothing is computed of it."""
    last: bool
    """Whether it ends its epoch."""
    is_padding: bool = False
    """Of a rank for which a batch had no sample left: it is computed, and counts nothing."""


class Batches(ABC):
    """Batches of one split: of a set with a plan (`Loader`), or of what has no indices (`Stream`).

    Attributes:
        name: Of the set in words, for messages; may be empty.
        num_workers: Worker processes; None before "auto" has measured.
    """

    name: str = ""
    num_workers: int | None = 0
    has_indices: bool = False
    """Whether any batch can be asked for, so that one that fails can be passed over."""
    should_stop: Callable[[], bool] = staticmethod(lambda: False)
    """Asked now and then while a batch is waited for; whoever waits then gets `Interrupted`."""

    @property
    def num_shards(self) -> int:
        """Parts of the set that workers go through, one each, where their number decides on the batches; 0
        where it does not."""
        return 0

    @abstractmethod
    def __len__(self) -> int:
        """Batches of an epoch; of a stream that is only evaluated: at most so many."""

    @abstractmethod
    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        """Batches without end, epoch after epoch, from batch ``batch`` of ``epoch`` on."""

    @abstractmethod
    def once(self) -> Generator[Batch, None, None]:
        """The batches of one pass, always the same ones: for evaluation."""

    def shard(self, rank: int, world: int) -> Generator[tuple[int | None, Batch], None, None]:
        """One rank's share of what `once` gives, for a collective evaluation: every ``world``-th batch, each
        with its number, and as many on every rank. A batch without a number stands in where a rank has none
        left: it is computed with the others, and counts nothing. Without indices all batches are drawn."""
        with closing(self.once()) as batches:
            for first in itertools.count(0, world):
                number: int | None = None
                taken: Batch | None = None
                for place, one in zip(range(world), batches, strict=False):
                    if place == rank and one.num_samples:
                        number, taken = first + place, one
                    elif taken is None or not taken.num_samples:
                        taken = one
                if taken is None:
                    return
                yield number, taken

    def first_batch(self) -> Batch | None:
        """The first batch of a pass that holds something; None where none does."""
        with closing(self.once()) as batches:
            return next((one for one in batches if one.num_samples), None)

    def first_samples(self, num_samples: int) -> Batch | None:
        """The first samples as one batch, the same each time; None where there are none. Where whole batches
        come that cannot be joined or cut, it holds fewer, or more."""
        with closing(self.once()) as batches:
            return batch_slices.first_samples(batches, num_samples)

    @abstractmethod
    def excerpt(self, spans: Sequence[range]) -> Batches:
        """The same, as if an epoch had only the batches with these numbers, ascending; for a stream, which
        cannot jump, only their number counts."""

    @abstractmethod
    def describe(self) -> str:
        """What a person should know about the order of the batches."""

    def inexact_reasons(self) -> list[str]:
        """Why a run on these batches cannot be repeated or gone on with bit for bit, as far as can be found
        out; asked once, at the start of a session, after `load_state_dict`."""
        return []

    def sample_indices(self, epoch: int, batch: int, num_batches: int) -> list[int]:
        """The indices in the set of so many batches' samples, of all ranks, in their order; none without
        indices."""
        return []

    def redraw(self, epoch: int, batch: int, num_batches: int) -> list[Batch] | None:
        """So many batches drawn once more, in this process, whatever else is being drawn; None where that
        cannot be done."""
        return None

    def keep_num_shards(self, num_shards: int) -> None:  # noqa: B027  - to most it makes no difference
        """Goes on with as many parts as the run began with."""

    def state_dict(self) -> dict[str, Any]:
        """Plain data, as of the batch that was handed out last: what the pair (epoch, batch) does not say."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027  - most have no state
        """Takes over what `state_dict` gave; the next `epochs` goes on from there."""

    def close(self) -> None:  # noqa: B027  - nor processes
        """Ends the worker processes; they are started again when a batch is asked for."""
