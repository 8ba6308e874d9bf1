"""Windows: the micro-batches of each step, drawn from the loader and moved to the device."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from time import perf_counter, thread_time
from typing import Any, NamedTuple

from roost.train.data.batches import Batches
from roost.train.progress import Progress
from roost.train.step.loss import Window
from roost.train.step.stepper import Stepper
from roost.train.step.timing import DATA, TO_DEVICE


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
    """Draws the windows of a run, from the position of its progress on.

    Args:
        loader: The training set.
        to_device: Moves a micro-batch to the device (`Runner.to_device`).
        stepper: Takes the steps; drawing counts into its timing.
        progress: The position of the run; the caller advances it by each drawn window.
    """

    def __init__(
        self, loader: Batches, to_device: Callable[[Any], Any], stepper: Stepper, progress: Progress
    ) -> None:
        self._loader, self._to_device, self._progress = loader, to_device, progress
        self._batches_per_step, self._timing = stepper.batches_per_step, stepper.timing
        self._clock = stepper.timing.device
        self._drawing: Generator[DrawnWindow, None, None] | None = None

    def draw(self) -> DrawnWindow:
        """Returns the next window. After an error, the next call starts again from the progress.

        Raises:
            Exception: Any error of the set, its collate or `Runner.to_device`.
        """
        if self._drawing is None:
            self._drawing = self._windows()
        if self._clock is not None:
            self._clock.begin()
        try:
            return next(self._drawing)
        except BaseException:
            self._drawing = None
            raise

    def state_of_data(self) -> dict[str, Any]:
        """Returns the state of the train loader after the last drawn window."""
        return self._loader.state_dict()

    def placeholder(self) -> DrawnWindow:
        """Returns an empty window in place of the next one, which could not be drawn and is skipped."""
        left = len(self._loader) - self._progress.batch
        num_batches = min(left, self._batches_per_step)
        return DrawnWindow([], 0, num_batches, 0, num_batches == left, 0)

    def close(self) -> None:
        """Ends the loader's processes; the next `draw` starts again."""
        if self._drawing is not None:
            self._drawing.close()
            self._drawing = None

    def _windows(self) -> Generator[DrawnWindow, None, None]:
        """Yields windows on the device, without end, from the progress on; an epoch's last may be short."""
        batches_per_step, move = self._batches_per_step, self._to_device
        timing, spent, clock = self._timing, self._timing.spent, self._clock
        window, num_batches = Window(), 0
        cpu_start: float | None = None
        fetch_start = perf_counter()
        with closing(self._loader.epochs(self._progress.epoch, self._progress.batch)) as fetched:
            for value, num_samples, last, _ in fetched:
                fetched_at = perf_counter()
                if timing.data_cpu is not None and cpu_start is not None:
                    timing.data_cpu += thread_time() - cpu_start
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
                    cpu_start = None if timing.data_cpu is None else thread_time()
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
                cpu_start = None if timing.data_cpu is None else thread_time()


def _single(moved: Any, num_samples: int, last: bool) -> DrawnWindow:
    """Returns a window of one micro-batch."""
    if not num_samples:
        return DrawnWindow([], 0, 1, 1, last, 0)
    return DrawnWindow([moved], num_samples, 1, 0, last, num_samples)
