"""The windows of several ranks: each rank draws its share of a window, and all learn whether each could."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Generator
from contextlib import closing
from time import perf_counter
from typing import Any, NamedTuple

from roost.base.errors import ContractError
from roost.train.data import batch_sizes, batch_slices
from roost.train.data.batches import Batch, Batches, Interrupted
from roost.train.data.plans.rank_shards import shard_slice
from roost.train.distributed import rank_consistency
from roost.train.distributed.agreement import Agreement, WindowDecision
from roost.train.distributed.control_channel import Exchange
from roost.train.distributed.ranks import Ranks
from roost.train.failures import failed_step
from roost.train.progress import Progress
from roost.train.step.loss import Window
from roost.train.step.stepper import Stepper
from roost.train.step.timing import DATA, TO_DEVICE
from roost.train.step.windows import DrawnWindow, Windows


class _PrefetchedWindow(NamedTuple):
    """A window that was drawn one step ahead; its tensors are still on the CPU."""

    drawn: DrawnWindow | None
    """None if drawing failed."""
    error: Exception | None
    exchange: Exchange
    """The message about it to the other ranks."""
    data: dict[str, Any]
    """The state of the train loader before the window was drawn."""


class SharedWindows(Windows):
    """`Windows` for several ranks. Each window is drawn before the step of the previous one is taken, so the
    messages about it have arrived when they are needed.

    Args:
        loader, to_device, stepper, progress: As of `Windows`.
        ranks: The ranks that train together.
        agreement: Their agreement before each step.
        total_steps: No window is drawn for a later step.
        apply_decision: Called with what the ranks agreed on, before the window is returned.
        note_inexact: Called with the reason if the ranks draw other values.
    """

    def __init__(
        self,
        loader: Batches,
        to_device: Callable[[Any], Any],
        stepper: Stepper,
        progress: Progress,
        *,
        ranks: Ranks,
        agreement: Agreement,
        total_steps: int,
        apply_decision: Callable[[WindowDecision], None],
        note_inexact: Callable[[str], None],
    ) -> None:
        super().__init__(loader, to_device, stepper, progress)
        self._ranks, self._agreement, self._total_steps = ranks, agreement, total_steps
        self._optimizers = stepper.optimizers
        self._apply_decision, self._note_inexact = apply_decision, note_inexact
        self._prefetched: _PrefetchedWindow | None = None
        self._sizes = self._values = 0
        """Digests of the batches that every rank draws whole: of all sizes so far, of the first batch's
        values."""

    def draw(self) -> DrawnWindow:
        """Returns this rank's share of the next window.

        Raises:
            Interrupted: A rank was requested to stop.
            PeerLost: Another rank could not draw its share.
            ContractError: The ranks draw different batches, or their optimizers have different options.
            Exception: Any error of the set, its collate or `Runner.to_device`.
        """
        prefetched, self._prefetched = self._prefetched or self._prefetch(), None
        decision = self._agreement.receive(prefetched.exchange)
        self._apply_decision(decision)
        if decision.stopping_rank is not None:
            self._prefetched = prefetched  # not taken: `state_of_data` is the state before it
            raise Interrupted
        if decision.batch_difference != "no":
            self._report_difference(decision)
        if any(decision.failure_codes):
            words = failed_step.gather_first_error(self._ranks.control, prefetched.error)
            raise prefetched.error or failed_step.peer_error(
                decision.failure_codes, f"could not draw its batches: {words}"
            )
        if decision.options_differ:
            rank_consistency.raise_options_differ(self._optimizers, self._ranks, step=self._progress.step + 1)
        assert prefetched.drawn is not None
        if self._progress.step + 1 < self._total_steps:
            self._prefetched = self._prefetch()
        if self._clock is not None:
            self._clock.begin()
        return self._take(prefetched.drawn, decision)

    def close(self) -> None:
        super().close()
        self._prefetched = None

    def state_of_data(self) -> dict[str, Any]:
        """Returns the state of the train loader after the window that was taken last."""
        if self._prefetched is not None:
            return self._prefetched.data
        return self._loader.state_dict()

    def _prefetch(self) -> _PrefetchedWindow:
        """Draws the next window and starts to send the message about it."""
        start = perf_counter()
        data = self._loader.state_dict()
        drawn, error = None, None
        try:
            if self._drawing is None:
                self._drawing = self._windows()
            drawn = next(self._drawing)
        except Interrupted:
            self._drawing = None  # this rank was requested to stop; the message below says so
        except Exception as raised:  # noqa: BLE001  - raised when it is this window's turn
            self._drawing, error = None, raised
        self._timing.spent[DATA] += perf_counter() - start
        exchange = self._agreement.send(
            step=self._progress.step + 1,
            failed=failed_step.failure_code(error),
            num_batches=len(drawn.window) if drawn is not None else 0,
            num_samples=drawn.num_samples if drawn is not None else 0,
            sizes=self._sizes if drawn is not None else 0,
            values=self._values if drawn is not None else 0,
            options=rank_consistency.optimizer_options_digest(self._optimizers.values()),
        )
        return _PrefetchedWindow(drawn, error, exchange, data)

    def _note_whole_batch(self, batch: Batch) -> None:
        if not self._values:
            self._values = batch_sizes.digest(batch.value)
        self._sizes = zlib.crc32(b"%d %d" % (batch.num_samples, batch.ends_epoch), self._sizes) or 1

    def _report_difference(self, decision: WindowDecision) -> None:
        """Handles batches that differ although every rank should draw the same ones: an error if their sizes
        differ, an inexact run if only their values do.

        Raises:
            ContractError: The sizes differ.
        """
        called = self._loader.name or "the training set"
        if decision.batch_difference == "sizes":
            raise ContractError(
                f"{called} gives each rank batches of other sizes",
                fix="make it give the same batches on every rank: roost draws a set without indices whole on "
                "each rank and shards each batch automatically",
            )
        self._note_inexact(
            f"{called} gives each rank other values: it draws from a generator that roost does not seed, or "
            "it shards itself by rank, and then samples are lost, because roost shards each batch itself"
        )

    def _take(self, drawn: DrawnWindow, decision: WindowDecision) -> DrawnWindow:
        start = perf_counter()
        own, window = drawn.window, Window()
        assert isinstance(own, Window)
        if not decision.is_empty:
            window.extend(map(self._to_device, own))
            window.num_samples, window.total = own.num_samples, decision.num_samples
        self._timing.end_part(TO_DEVICE, start)
        return drawn._replace(window=window, all_samples=0 if decision.is_empty else decision.num_samples)

    def _windows(self) -> Generator[DrawnWindow, None, None]:
        """Yields this rank's shares of all windows from the progress on, endlessly, on the CPU."""
        progress, batches_per_step = self._progress, self._batches_per_step
        loader, ranks = self._loader, self._ranks
        window, num_batches, num_empty = Window(), 0, 0
        stand_in = functools.cache(functools.partial(_stand_in, loader))
        with closing(loader.epochs(progress.epoch, progress.batch)) as fetched:
            for batch in fetched:
                if not loader.has_indices:
                    self._note_whole_batch(batch)
                    batch = _rank_share(batch, ranks, loader.name)
                num_batches += 1
                value = batch.value
                if not batch.num_samples and not batch.is_padding:
                    num_empty += 1
                    value = stand_in()
                if value is not None:
                    window.append(value)
                    window.num_samples.append(batch.num_samples)
                if batch.ends_epoch or num_batches == batches_per_step:
                    num_samples = sum(window.num_samples)
                    yield DrawnWindow(
                        window, num_samples, num_batches, num_empty, batch.ends_epoch, num_samples
                    )
                    window, num_batches, num_empty = Window(), 0, 0


def _stand_in(loader: Batches) -> Any:
    """The value that a rank computes with weight zero where its share of a batch is empty: its share of the
    first batch that is not empty, so that a restarted run uses the same one. None if every batch is empty, or
    if the set has no indices and cannot be read again."""
    for number in range(len(loader) if loader.has_indices else 0):
        for batch in loader.redraw(0, number, 1) or ():
            if batch.num_samples:
                return batch.value
    return None


def _rank_share(batch: Batch, ranks: Ranks, name: str) -> Batch:
    """This rank's samples of a batch that every rank has drawn whole."""
    if not batch.num_samples:
        return batch
    world = min(ranks.world_size, batch.num_samples)
    is_left_over = ranks.rank >= world
    part = slice(1) if is_left_over else shard_slice(batch.num_samples, ranks.rank, world)
    try:
        value = batch_slices.slice_batch(batch.value, batch.num_samples, part)
    except batch_slices.IncompatibleBatches as error:
        raise ContractError(
            f"the batches of {name or 'the training set'} cannot be sharded over the ranks: not every value "
            "in them has one row for each sample",
            fix="give tensors, arrays or lists with one row for each sample, or a set with indices",
        ) from error
    return Batch(value, 0 if is_left_over else part.stop - part.start, batch.ends_epoch, is_left_over)
