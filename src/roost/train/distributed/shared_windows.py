"""The windows of several ranks: each draws its share of one, and all learn whether every one could."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Generator
from contextlib import closing
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.base.errors import ContractError
from roost.train.data import batch_sizes, batch_slices
from roost.train.data.batches import Batch, Batches, Interrupted
from roost.train.data.plans.rank_shards import shard_slice
from roost.train.distributed import rank_consistency
from roost.train.distributed.agreement import Agreement, WindowDecision
from roost.train.distributed.control_channel import Exchange
from roost.train.distributed.ranks import Ranks
from roost.train.failures import failed_step
from roost.train.step.loss import Window
from roost.train.step.timing import DATA, TO_DEVICE
from roost.train.step.windows import DrawnWindow, Windows

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class _PrefetchedWindow(NamedTuple):
    """A window that was drawn before it is its turn, and is still on the CPU."""

    drawn: DrawnWindow | None
    """None where drawing failed."""
    error: Exception | None
    said: Exchange
    data: dict[str, Any]
    """The state of whoever gives the batches, as it was before."""


class SharedWindows(Windows):
    """As `Windows`, for several ranks. A window is drawn before the step of the one before it is taken, so
    what the ranks tell each other of it is there when it is needed.

    Args:
        trainer: Whose.
        agreement: Of its ranks.
    """

    def __init__(self, trainer: Trainer, agreement: Agreement) -> None:
        super().__init__(trainer)
        self._agreement = agreement
        self._ahead: _PrefetchedWindow | None = None
        self._sizes = self._values = 0
        """Digests of what was drawn whole: of the sizes so far, and of the first batch."""

    def draw(self) -> DrawnWindow:
        """The next window, this rank's share of it; the same one for all.

        Raises:
            Interrupted: A rank was asked to stop.
            PeerLost: Another rank could not draw its share.
            ContractError: The ranks do not draw the same, or their optimizers move otherwise.
            Exception: As `Windows.draw`.
        """
        trainer = self._trainer
        ahead, self._ahead = self._ahead or self._fetched(), None
        verdict = self._agreement.hear(ahead.said)
        trainer.apply_verdict(verdict)
        if verdict.stops is not None:
            self._ahead = ahead  # it was not taken: the state is that before it
            raise Interrupted
        if verdict.differs != "no":
            self._tell_that_they_differ(verdict)
        if any(verdict.failed):
            words = failed_step.gather_first_error(trainer.ranks.control, ahead.error)
            raise ahead.error or failed_step.peer_error(
                verdict.failed, f"could not draw its batches: {words}"
            )
        if verdict.options_differ:
            rank_consistency.raise_options_differ(trainer)
        assert ahead.drawn is not None
        if trainer.progress.step + 1 < trainer.total_steps:
            self._ahead = self._fetched()
        if self._clock is not None:
            self._clock.begin()
        return self._moved(ahead.drawn, verdict)

    def close(self) -> None:
        super().close()
        self._ahead = None

    def state_of_data(self) -> dict[str, Any]:
        """The state of whoever gives the batches, as of the window that was taken last."""
        if self._ahead is not None:
            return self._ahead.data
        return self._trainer.loaders["train"].state_dict()

    def _fetched(self) -> _PrefetchedWindow:
        """Draws, and begins to tell the others of it."""
        begun = perf_counter()
        data = self._trainer.loaders["train"].state_dict()
        drawn, error = None, None
        try:
            if self._drawing is None:
                self._drawing = self._shares()
            drawn = next(self._drawing)
        except Interrupted:
            self._drawing = None  # this rank was asked to stop, and tells it below
        except Exception as raised:  # noqa: BLE001  - raised when it is this window's turn
            self._drawing, error = None, raised
        self._trainer.stepper.timing.spent[DATA] += perf_counter() - begun
        said = self._agreement.tell(
            step=self._trainer.progress.step + 1,
            failed=failed_step.failure_code(error),
            num_batches=len(drawn.window) if drawn is not None else 0,
            num_samples=drawn.num_samples if drawn is not None else 0,
            sizes=self._sizes if drawn is not None else 0,
            values=self._values if drawn is not None else 0,
            options=rank_consistency.optimizer_options_digest(self._trainer.stepper.optimizers.values()),
        )
        return _PrefetchedWindow(drawn, error, said, data)

    def _note_whole(self, batch: Batch) -> None:
        if not self._values:
            self._values = batch_sizes.digest(batch.value)
        self._sizes = zlib.crc32(b"%d %d" % (batch.num_samples, batch.ends_epoch), self._sizes) or 1

    def _tell_that_they_differ(self, verdict: WindowDecision) -> None:
        """What each rank draws whole must be the same.

        Raises:
            ContractError: They are of other sizes.
        """
        called = self._trainer.loaders["train"].name or "the training set"
        if verdict.differs == "sizes":
            raise ContractError(
                f"{called} gives each rank other batches",
                fix="let it give the same on every rank: roost draws what has no indices whole on each, and "
                "shares each batch out by itself",
            )
        self._trainer.note_inexact(
            f"{called} gives each rank other values: it draws from a generator that roost does not seed, or "
            "shares itself out by rank, and then samples are lost: roost shares each batch out by itself"
        )

    def _moved(self, drawn: DrawnWindow, verdict: WindowDecision) -> DrawnWindow:
        begun = perf_counter()
        own, window = drawn.window, Window()
        assert isinstance(own, Window)
        if not verdict.is_empty:
            window.extend(map(self._trainer.runner.to_device, own))
            window.num_samples, window.total = own.num_samples, verdict.num_samples
        self._trainer.stepper.timing.end_part(TO_DEVICE, begun)
        return drawn._replace(window=window, all_samples=0 if verdict.is_empty else verdict.num_samples)

    def _shares(self) -> Generator[DrawnWindow, None, None]:
        """This rank's shares of the windows from where the trainer is on, endlessly, on the CPU."""
        trainer = self._trainer
        progress, batches_per_step = trainer.progress, trainer.stepper.batches_per_step
        loader, ranks = trainer.loaders["train"], trainer.ranks
        window, num_batches, num_empty = Window(), 0, 0
        stand_in = functools.cache(functools.partial(_stand_in, loader))
        with closing(loader.epochs(progress.epoch, progress.batch)) as fetched:
            for batch in fetched:
                if not loader.has_indices:
                    self._note_whole(batch)
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
                    yield DrawnWindow(window, num_samples, num_batches, num_empty, batch.ends_epoch, num_samples)
                    window, num_batches, num_empty = Window(), 0, 0


def _stand_in(loader: Batches) -> Any:
    """What a rank computes, and counts as nothing, where its own share of a batch turns out to be empty: its
    share of the first batch that holds something, so that a restart finds the same. None where there is none,
    or what has no indices cannot go back for it."""
    for number in range(len(loader) if loader.has_indices else 0):
        for batch in loader.redraw(0, number, 1) or ():
            if batch.num_samples:
                return batch.value
    return None


def _rank_share(batch: Batch, ranks: Ranks, name: str) -> Batch:
    """A rank's samples of a batch that every rank has drawn whole."""
    if not batch.num_samples:
        return batch
    world = min(ranks.world, batch.num_samples)
    is_left_over = ranks.rank >= world
    part = slice(1) if is_left_over else shard_slice(batch.num_samples, ranks.rank, world)
    try:
        value = batch_slices.slice_batch(batch.value, batch.num_samples, part)
    except batch_slices.IncompatibleBatches as error:
        raise ContractError(
            f"the batches of {name or 'the training set'} cannot be shared among ranks: not everything in "
            "them has a row for each sample",
            fix="give tensors, arrays or lists with as many rows as samples, or a set with indices",
        ) from error
    return Batch(value, 0 if is_left_over else part.stop - part.start, batch.ends_epoch, is_left_over)
