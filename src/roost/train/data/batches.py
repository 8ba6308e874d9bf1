"""`Batches`: the interface by which a trainer gets the batches of a split."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.train.data import batch_slices

if TYPE_CHECKING:
    from roost.train.profiling.worker_stacks import WorkerStacks


class Interrupted(Exception):
    """A stop was requested while a batch was awaited or during an evaluation, whose results are dropped."""


class Batch(NamedTuple):
    """A micro-batch and its place in the epoch."""

    value: Any
    num_samples: int
    """0: the batch is empty; it counts as a batch, and nothing is computed from it."""
    ends_epoch: bool
    is_padding: bool = False
    """The batch of a rank for which no sample was left: the rank computes it, and it counts as no sample."""

    @property
    def last(self) -> bool:
        """`ends_epoch`, by the name that hand-written loops in older packages use."""
        return self.ends_epoch


class Batches(ABC):
    """The batches of one split: of a set with a plan (`Loader`), of a `Stream` or of an `ExternalLoader`.

    Attributes:
        name: Name of the set for messages; may be empty.
        num_workers: Loader workers; None before "auto" was resolved.
        worker_count_reason: Why "auto" became this number; empty if the number was configured.
        seeding_unknown_reason: Why `inexact_reasons` could not find out whether the set follows the seeds;
            empty if it could.
    """

    name: str = ""
    num_workers: int | None = 0
    worker_count_reason: str = ""
    seeding_unknown_reason: str = ""
    worker_stacks: WorkerStacks | None = None
    """Where the first loader worker writes its stacks; set before the first batch. None: nowhere."""
    has_indices: bool = False
    """Whether any batch can be drawn directly, so that a failing batch can be skipped."""
    should_stop: Callable[[], bool] = staticmethod(lambda: False)
    """Called regularly while a batch is awaited; True raises `Interrupted` in the waiting thread."""

    @property
    def num_shards(self) -> int:
        """Shards of the set, one for each loader worker, if their number decides on the batches; else 0."""
        return 0

    @abstractmethod
    def __len__(self) -> int:
        """Batches of an epoch; of a stream that is only evaluated: the maximum."""

    @abstractmethod
    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        """Yields batches endlessly, epoch after epoch, from batch ``batch`` of ``epoch``."""

    @abstractmethod
    def once(self) -> Generator[Batch, None, None]:
        """Yields the batches of one pass, the same ones each time: for evaluation."""

    def shard(self, rank: int, world_size: int) -> Generator[tuple[int | None, Batch], None, None]:
        """Yields one rank's shard of `once` for a collective evaluation: every ``world_size``-th batch with
        its number, and the same count of batches on every rank. If no batch is left for a rank, it gets
        another one without a number as padding: it is computed with the others and counts as no sample.
        Without indices, each rank draws all batches."""
        with closing(self.once()) as batches:
            for first in itertools.count(0, world_size):
                number: int | None = None
                chosen: Batch | None = None
                for offset, batch in zip(range(world_size), batches, strict=False):
                    if offset == rank and batch.num_samples:
                        number, chosen = first + offset, batch
                    elif chosen is None or not chosen.num_samples:
                        chosen = batch
                if chosen is None:
                    return
                yield number, chosen

    def first_batch(self) -> Batch | None:
        """Returns the first non-empty batch of a pass; None if all are empty."""
        with closing(self.once()) as batches:
            return next((batch for batch in batches if batch.num_samples), None)

    def first_samples(self, num_samples: int) -> Batch | None:
        """Returns the first samples as one batch, the same each time; None if there are none. If the batches
        can be neither concatenated nor sliced, the result has fewer samples, or more."""
        with closing(self.once()) as batches:
            return batch_slices.first_samples(batches, num_samples)

    @abstractmethod
    def excerpt(self, spans: Sequence[range]) -> Batches:
        """Returns these batches as if an epoch had only the numbers in ``spans``, ascending; of a stream,
        which cannot jump, only the total length of ``spans`` counts."""

    @abstractmethod
    def describe(self) -> str:
        """Describes the order of the batches in one line, for the user."""

    def inexact_reasons(self) -> list[str]:
        """Returns why a run on these batches cannot be repeated or resumed bit for bit, as far as that can be
        found out. Called once, at the start of a session, after `load_state_dict`."""
        return []

    def sample_indices(self, epoch: int, batch: int, num_batches: int) -> list[int]:
        """Returns the indices of the samples of ``num_batches`` batches in order, of all ranks; none without
        indices."""
        return []

    def sample_ids(self, indices: Sequence[int]) -> list[int | float | str]:
        """Returns the ids that the set gives the samples with these indices; none if it gives none."""
        return []

    def order_digest(self) -> str | None:
        """Returns a digest of the order of the samples: equal for runs that train on the same samples in the
        same order, as far as their number and the first batches show. None without indices."""
        return None

    def redraw(self, epoch: int, batch: int, num_batches: int) -> list[Batch] | None:
        """Draws ``num_batches`` batches again in this process, independently of other iterators; None if that
        is not possible."""
        return None

    def keep_num_shards(self, num_shards: int) -> None:  # noqa: B027  - most batches do not depend on it
        """Continues with the number of shards with which the run began."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the newest batch as plain data: what (epoch, batch) does not say."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027  - most have no state
        """Loads the result of `state_dict`; the next `epochs` continues from there."""

    def close(self) -> None:  # noqa: B027  - most have no processes
        """Ends the loader workers; the next batch starts them again."""
