"""Windows: the micro-batches of each step, drawn from the loader and moved to the device."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from roost.train.step.loss import Window
from roost.train.step.timing import DATA, TO_DEVICE

if TYPE_CHECKING:
    from roost.train.trainer import Trainer


class DrawnWindow(NamedTuple):
    """The micro-batches of a step, with their counts."""

    window: list[Any]
    """The non-empty micro-batches, on the device; empty if all batches of the step are empty."""
    num_samples: int
    num_batches: int
    """Empty batches included."""
    num_empty: int
    last: bool
    """Whether the window ends an epoch."""
    all_samples: int
    """Samples of all ranks."""


class Windows:
    """Draws the windows of a trainer, from the position of its progress on."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._drawing: Generator[DrawnWindow, None, None] | None = None
        self._clock = trainer.stepper.timing.device

    def draw(self) -> DrawnWindow:
        """Returns the next window. After an error, the next call starts again from the trainer's progress.

        Raises:
            Exception: Any error of the set, its collate or `Runner.to_device`.
        """
        if self._drawing is None:
            self._drawing = _draw_windows(self._trainer)
        if self._clock is not None:
            self._clock.begin()
        try:
            return next(self._drawing)
        except BaseException:
            self._drawing = None
            raise

    def state_of_data(self) -> dict[str, Any]:
        """Returns the state of the train loader after the last drawn window."""
        return self._trainer.loaders["train"].state_dict()

    def close(self) -> None:
        """Ends the loader's processes; the next `draw` starts again."""
        if self._drawing is not None:
            self._drawing.close()
            self._drawing = None


def _draw_windows(trainer: Trainer) -> Generator[DrawnWindow, None, None]:
    """Yields windows on the device, without end, from the trainer's progress; an epoch's last may be
    short."""
    progress, batches_per_step = trainer.progress, trainer.stepper.batches_per_step
    move, window, num_batches = trainer.runner.to_device, Window(), 0
    spent, clock = trainer.stepper.timing.spent, trainer.stepper.timing.device
    fetch_start = perf_counter()
    with closing(trainer.loaders["train"].epochs(progress.epoch, progress.batch)) as fetched:
        for value, num_samples, last, _ in fetched:
            fetched_at = perf_counter()
            if clock is not None:
                clock.record(DATA)
            moved = move(value) if num_samples else None
            moved_at = perf_counter()
            spent[DATA] += fetched_at - fetch_start
            spent[TO_DEVICE] += moved_at - fetched_at
            if clock is not None:
                clock.record(TO_DEVICE)
            if batches_per_step == 1:
                yield _single(moved, num_samples, last)
                fetch_start = perf_counter()
                continue
            num_batches += 1
            if num_samples:
                window.append(moved)
                window.num_samples.append(num_samples)
            if last or num_batches == batches_per_step:
                num_empty = num_batches - len(window)
                num_samples = sum(window.num_samples)
                yield DrawnWindow(window, num_samples, num_batches, num_empty, last, num_samples)
                window, num_batches = Window(), 0
            fetch_start = perf_counter()


def _single(moved: Any, num_samples: int, last: bool) -> DrawnWindow:
    """Returns a window of one micro-batch."""
    if not num_samples:
        return DrawnWindow([], 0, 1, 1, last, 0)
    return DrawnWindow([moved], num_samples, 1, 0, last, num_samples)


def placeholder_window(trainer: Trainer) -> DrawnWindow:
    """Returns an empty window in place of one that could not be drawn and is skipped."""
    left = len(trainer.loaders["train"]) - trainer.progress.batch
    num_batches = min(left, trainer.stepper.batches_per_step)
    return DrawnWindow([], 0, num_batches, 0, num_batches == left, 0)
