"""The progress of each loader worker in shared memory, for the errors about a dead or hanging worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from roost.train.data.workers.shared_memory import Slot

if TYPE_CHECKING:
    from roost.train.profiling.worker_stacks import WorkerStacks

_FIELDS = 2
_NO_SAMPLE = -1


class WorkerContext(NamedTuple):
    """The number of a loader worker, and the table into which it writes its progress."""

    worker: int
    num_workers: int
    status: WorkerStatusTable
    stacks: WorkerStacks | None = None
    """Where this worker writes its stacks."""

    def begin_sample(self, index: int) -> None:
        """Records the sample that the worker begins to read; -1: it has read all of a batch."""
        self.status.record_sample(self.worker, index)


class WorkerStatusTable:
    """For each worker, a progress counter and the sample that it reads; and whether the workers must end.

    Args:
        num_workers: Number of workers.
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
        """Records that a worker begins to read a sample, or has read all of a batch (-1)."""
        row = self._rows[worker]
        row[0] += 1
        row[1] = index

    def progress_count(self, worker: int) -> int:
        """Returns a counter that grows with each sample and batch of the worker."""
        return int(self._rows[worker, 0])

    def current_sample(self, worker: int) -> int | None:
        """Returns the index of the sample that the worker reads; None if it reads none."""
        index = int(self._rows[worker, 1])
        return None if index == _NO_SAMPLE else index

    def request_end(self) -> None:
        """Makes all workers end before their next task."""
        self._rows[-1, 0] = 1

    @property
    def is_end_requested(self) -> bool:
        """Whether `request_end` was called in any process."""
        return bool(self._rows[-1, 0])

    def close(self) -> None:
        """Closes the shared memory in this process."""
        self._slot.close()

    def __getstate__(self) -> dict[str, object]:
        return {"_slot": self._slot, "_num_workers": self._num_workers}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._open()
