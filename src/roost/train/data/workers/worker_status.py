"""Where each worker process leaves word of what it is doing, for when it dies or hangs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from roost.train.data.workers.shared_memory import Slot

_FIELDS = 2
_NO_SAMPLE = -1


class WorkerContext(NamedTuple):
    """What a worker process is told of itself."""

    worker: int
    num_workers: int
    status: WorkerStatusTable

    def begin_sample(self, index: int) -> None:
        """Leaves word of the sample that is about to be read."""
        self.status.record_sample(self.worker, index)


class WorkerStatusTable:
    """For each worker how many samples and batches it has begun, and which sample it is at; and whether the
    workers are to end.

    Args:
        num_workers: Of them.
    """

    def __init__(self, num_workers: int) -> None:
        self._slot = Slot()
        self._num_workers = num_workers
        self._open()
        self._rows[:, 1] = _NO_SAMPLE

    def _open(self) -> None:
        size = (self._num_workers + 1) * _FIELDS * 8
        self._rows = self._slot.bytes(size).view(np.int64).reshape(self._num_workers + 1, _FIELDS)

    def record_sample(self, worker: int, index: int) -> None:
        """The worker begins to read this sample, or has read all of a batch (-1)."""
        row = self._rows[worker]
        row[0] += 1
        row[1] = index

    def progress_count(self, worker: int) -> int:
        """Grows whenever the worker gets further."""
        return int(self._rows[worker, 0])

    def current_sample(self, worker: int) -> int | None:
        """That it is at; None when that is not known."""
        index = int(self._rows[worker, 1])
        return None if index == _NO_SAMPLE else index

    def end(self) -> None:
        """No worker takes a task up any more."""
        self._rows[-1, 0] = 1

    @property
    def is_end_requested(self) -> bool:
        """Whether `end` was called, in whatever process."""
        return bool(self._rows[-1, 0])

    def close(self) -> None:
        """Lets go of the memory."""
        self._slot.close()

    def __getstate__(self) -> dict[str, object]:
        return {"_slot": self._slot, "_num_workers": self._num_workers}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._open()
