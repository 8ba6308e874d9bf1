"""The loop over the batches of one cell, by one of the ranks that share them.

::

    for each batch of this rank (batch i is that of rank i mod ranks) that has no rows yet:
        seed the random generators by the set and the number of the batch
        rows of its samples = Runner.test(batch, **variant)
        now and then: write the rows of whole batches as a part

There is no exchange between ranks: they find each other's batches in the parts. So a rank may have no batch,
a killed evaluation goes on with another number of ranks, and a row depends neither on the ranks nor on where
the evaluation was cut.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from roost.base.errors import RoostError
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.file_writer import FileWriter
from roost.evaluation.sample_values import SampleValues, split_values
from roost.package.results.evaluations import evaluation_rows
from roost.package.results.evaluations.row_columns import ERROR, GROUP, ID
from roost.train.accelerators.device_errors import breaks_device
from roost.train.accelerators.registry import empty_caches
from roost.train.data.batches import Batch
from roost.train.data.loader import Loader
from roost.train.data.workers.worker_errors import WorkerDied
from roost.train.failures import failed_step
from roost.train.failures.step_report import format_error, naming_samples
from roost.train.step import seeding

_PART_SECONDS = 2.0
"""A killed evaluation repeats so much at most."""
_PART_ROWS = 65_536
EMPTY = "the batch is empty"
"""The error of samples that the project's collate left out."""

Test = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Share:
    """The batches of a cell that one rank computes in one session."""

    rank: int
    world_size: int
    session: int

    def batches(self, count: int, finished: set[int]) -> list[int]:
        """Returns the numbers of the batches that this rank still has to compute."""
        return [one for one in range(self.rank, count, self.world_size) if one not in finished]


@dataclass(frozen=True, kw_only=True)
class CellLoop:
    """Computes the batches of a cell."""

    cell: Path
    evaluated: EvaluatedSet
    test: Test
    """`Runner.test` with the arguments of the variant."""
    to_device: Callable[[Any], Any]
    forward: Callable[[], AbstractContextManager[object]]
    """Returns a new context for a call of ``test``."""
    share: Share
    finished: set[int]
    """The batches that have rows."""
    seed: int
    skips_errors: bool
    """Whether a batch that fails is recorded and passed over."""
    advance: Callable[[int], None]
    """Called with the number of samples after each batch."""
    check: Callable[[SampleValues], None] = lambda values: None
    """Called with the values of the first batch, so that a mistake is found before the rest is computed."""

    def run(self) -> None:
        """Computes all batches of this rank that have no rows yet, and writes their rows.

        Raises:
            ContractError: ``test`` returned something that a row cannot hold.
            OSError: Rows could not be written; those of earlier parts remain.
            Exception: Any error of the project, unless it is passed over.
        """
        own = self.share.batches(len(self.evaluated.sizes), self.finished)
        if not own:
            return
        firsts = self.evaluated.firsts()
        with FileWriter(self.cell) as files:
            part = _Part(self.cell, self.share, files)
            try:
                with closing(self._drawn(own)) as batches:
                    for number, batch in batches:
                        first, size = firsts[number], self.evaluated.sizes[number]
                        places = range(first, first + size)
                        self._compute(number, batch, places, part, files)
                        self.advance(size)
                        part.write_if_due()
            finally:
                self.evaluated.batches.close()
            part.write()

    def _compute(
        self,
        number: int,
        batch: Batch | Exception,
        places: range,
        part: _Part,
        files: FileWriter,
    ) -> None:
        ids = self.evaluated.ids[places.start : places.stop]
        labels = {
            f"{GROUP}{name}": list(all_[places.start : places.stop])
            for name, all_ in self.evaluated.groups.items()
        }
        if isinstance(batch, Exception):
            part.add_skipped(number, ids, labels, format_error(batch))
            return
        if not batch.num_samples:
            if ids:
                part.add_skipped(number, ids, labels, EMPTY)
            else:
                part.add(number, ids, labels, SampleValues({}, {}))
            return
        try:
            with naming_samples(self.evaluated.name, ids):
                output = self._test(number, batch)
        except Exception as error:
            if not (self.skips_errors and may_skip(error)):
                raise
            text = format_error(error)
            failed_step.clear_traceback_frames(error)
            if isinstance(error, torch.OutOfMemoryError):
                empty_caches()
            print(f"skipped batch {number} of {self.evaluated.name}: {text}", flush=True)
            part.add_skipped(number, ids, labels, text)
            return
        # Not skipped: a value of a wrong type would be wrong in each batch, and a full disk remains full.
        with naming_samples(self.evaluated.name, ids):
            values = split_values(output, ids, files)
        if not part.is_checked:
            self.check(values)
            part.is_checked = True
        part.add(number, ids, labels, values)

    def _test(self, number: int, batch: Batch) -> Any:
        seeding.seed_batch(seeding.mix(self.seed, "evaluate", self.evaluated.name, number))
        with self.forward():
            return self.test(self.to_device(batch.value))

    # ---- reading ----------------------------------------------------------------------------------------

    def _drawn(self, own: Sequence[int]) -> Generator[tuple[int, Batch | Exception], None, None]:
        """Yields the batches with these numbers; in place of one that cannot be drawn and may be passed over,
        its error."""
        batches = self.evaluated.batches
        if not isinstance(batches, Loader):
            wanted = set(own)
            with closing(batches.once()) as drawn:
                for number, batch in enumerate(drawn):
                    if number in wanted:
                        yield number, batch
            return
        place = 0
        while place < len(own):
            rest = batches.excerpt(_spans(own[place:]))
            try:
                with closing(rest.once()) as drawn:
                    for batch in drawn:
                        yield own[place], batch
                        place += 1
            except Exception as error:
                if not (self.skips_errors and may_skip(error)):
                    raise
                print(
                    f"skipped batch {own[place]} of {self.evaluated.name}: {format_error(error)}", flush=True
                )
                yield own[place], error
                place += 1
            finally:
                rest.close()


def _spans(numbers: Sequence[int]) -> list[range]:
    """Returns ascending numbers as ranges; those of one rank have equal distances."""
    found: list[range] = []
    for number in numbers:
        last = found[-1] if found else None
        if last is not None and len(last) == 1 and number > last.start:
            found[-1] = range(last.start, number + 1, number - last.start)
        elif last is not None and number == last[-1] + last.step:
            found[-1] = range(last.start, number + 1, last.step)
        else:
            found.append(range(number, number + 1))
    return found


def may_skip(error: Exception) -> bool:
    """Whether a batch that raised this may be passed over: a mistake of the user would fail the next one,
    and a device that broke computes nothing more."""
    is_mistake = isinstance(error, RoostError) and not isinstance(error, WorkerDied)
    return not (is_mistake or breaks_device(error))


@dataclass
class _Part:
    """The rows of batches that are computed and not written yet."""

    cell: Path
    share: Share
    files: FileWriter
    batches: list[int] = field(default_factory=list)
    pieces: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    """The number of samples and the columns of each batch."""
    means: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    rows: int = 0
    is_checked: bool = False
    since: float = field(default_factory=time.monotonic)

    def add(self, number: int, ids: Sequence[Any], labels: Mapping[str, Any], values: SampleValues) -> None:
        self._add(number, ids, {**labels, **values.columns})
        if values.means:
            self.means[number] = {"samples": len(ids), **values.means}

    def add_skipped(self, number: int, ids: Sequence[Any], labels: Mapping[str, Any], error: str) -> None:
        self._add(number, ids, {**labels, ERROR: [error] * len(ids)})

    def _add(self, number: int, ids: Sequence[Any], columns: dict[str, Any]) -> None:
        self.batches.append(number)
        self.pieces.append((len(ids), {ID: ids, **columns}))
        self.rows += len(ids)

    def write_if_due(self) -> None:
        """Writes the part if it is old or large."""
        if self.rows >= _PART_ROWS or time.monotonic() - self.since >= _PART_SECONDS:
            self.write()

    def write(self) -> None:
        """Writes the part, after the files that its rows name."""
        if self.batches:
            self.files.wait()
            evaluation_rows.write_part(
                self.cell,
                self.batches,
                _joined(self.pieces),
                session=self.share.session,
                rank=self.share.rank,
                batch_values=self.means,
            )
        self.batches, self.pieces, self.means, self.rows = [], [], {}, 0
        self.since = time.monotonic()


def _joined(pieces: Sequence[tuple[int, Mapping[str, Any]]]) -> dict[str, Any]:
    """Returns the columns of several batches as one; a batch without a name has no values for it."""
    names = {name: None for _, columns in pieces for name in columns}
    found: dict[str, Any] = {}
    for name in names:
        parts = [columns.get(name) for _, columns in pieces]
        ranges = [one for one in parts if isinstance(one, range)]
        if len(ranges) == len(parts):  # the ids of a set that names none
            found[name] = np.concatenate([np.arange(one.start, one.stop, one.step) for one in ranges])
            continue
        if all(isinstance(one, np.ndarray) for one in parts):
            arrays: list[Any] = list(parts)
            if len({(one.dtype, one.shape[1:]) for one in arrays}) == 1:
                found[name] = np.concatenate(arrays)
                continue
        present = (
            [None] * count if one is None else one for (count, _), one in zip(pieces, parts, strict=True)
        )
        found[name] = list(itertools.chain.from_iterable(present))
    return found
