"""`WorkerPool`: loader workers and their shared memory. A pool serves one iteration at a time and is reused
by later ones. Passing a batch takes a few microseconds."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from roost.base.errors import ContractError
from roost.train.data.batches import Interrupted
from roost.train.data.workers import worker_errors
from roost.train.data.workers.batch_codec import ByteArray, decode, to_bytes
from roost.train.data.workers.loader_worker import ANSWER, ERROR, TASK, VALUE
from roost.train.data.workers.shared_memory import Slot
from roost.train.data.workers.worker_handle import START_SECONDS, WorkerHandle
from roost.train.data.workers.worker_status import WorkerContext, WorkerStatusTable

if TYPE_CHECKING:
    from roost.train.profiling.worker_stacks import WorkerStacks

MAX_VIEWS = 3
"""Answers that may be in use as views of shared memory; further answers are copies."""
SMALL_BYTES = 1 << 20
"""Batches up to this size are fetched further ahead than ``prefetch`` says."""
_SMALL_PREFETCH = 8
"""Maximum tasks of a worker while no answer was larger than `SMALL_BYTES`."""
_SMALL_TASKS = 64
"""Maximum such tasks of all workers: each needs a slot, which is two open files."""
_START_ATTEMPTS = 3
_CLOSE_SECONDS = 1.0


_Answer = tuple[int, int, int, ByteArray, int, int]
"""An answer that a worker has sent: the number of the worker, the kind, the slot, its bytes, where in them
the skeleton begins and ends. No named tuple: making one takes a twentieth of the time of a small batch."""


class WorkerPool:
    """Loader workers that answer tasks in order through shared memory.

    ```
    answers of tasks a, b, c, … by two workers, each one task ahead:
        slots  [a → worker 0] [b → worker 1] [c → worker 0] [free] [free] [in use as a view]
    ```
    A task and its answer use the same slot. The answer is returned as views of the slot; when the last view
    is deleted, the slot is free again. So nothing is copied in this process, and the memory is reused and
    bounded: ``num_workers * prefetch + max_views`` slots in use, each as large as the largest answer so far;
    more only while answers are small, see `SMALL_BYTES`.

    Args:
        make: Called in each worker process; returns the function that answers tasks there.
        num_workers: Number of workers; task k goes to worker ``k % num_workers``.
        prefetch: Maximum tasks of each worker.
        timeout_seconds: A worker without progress for this time is considered hanging.
        pin_memory: Whether answers are copied to page-locked memory. A thread copies the next one while the
            caller computes with the last, if its worker has sent it by then.
        name: Display name of the set, for messages.
        max_views: Answers that may be in use as views; further answers are copies.
        stacks: Where the first worker writes its stacks; None: it is not watched.
    """

    def __init__(
        self,
        make: Callable[[WorkerContext], Callable[[Any], Any]],
        *,
        num_workers: int,
        prefetch: int = 2,
        timeout_seconds: float = 300.0,
        pin_memory: bool = False,
        name: str = "",
        max_views: int = MAX_VIEWS,
        stacks: WorkerStacks | None = None,
    ) -> None:
        self._make, self._num_workers, self._name, self._stacks = make, num_workers, name, stacks
        self._prefetch, self._max_views, self._timeout_seconds = prefetch, max_views, timeout_seconds
        self._num_tasks = num_workers * prefetch
        self._num_small_tasks = max(self._num_tasks, min(num_workers * _SMALL_PREFETCH, _SMALL_TASKS))
        self._largest = 0
        """Bytes of the largest answer so far."""
        self._pin_memory = pin_memory
        self._pinning: ThreadPoolExecutor | None = None
        self._pinned_ahead: tuple[_Answer, Future[Any]] | None = None
        """The next answer, and its copy in page-locked memory."""
        self._workers: list[WorkerHandle] = []
        self._slots: list[Slot] = []
        self._status: WorkerStatusTable | None = None
        self._free: list[int] = []
        """Free slots, the newest last: it is most likely in the CPU cache."""
        self._returned: deque[int] = deque()
        """Slots whose last view was deleted; any thread may append."""
        self._views: dict[int, weakref.ref[ByteArray]] = {}
        self._task_workers: deque[int] = deque()
        """The worker of each open task, in the order of the tasks."""
        self._next_worker = 0
        self.is_in_use = False
        """Whether a `map` is being iterated."""
        self._pid = 0
        """The process that started the workers."""
        self._at_exit: Callable[[], None] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of shared memory."""
        return sum(slot.num_bytes for slot in self._slots)

    def map(
        self, tasks: Iterable[Any], *, should_stop: Callable[[], bool] = lambda: False
    ) -> Generator[Any, None, None]:
        """Yields the answers to ``tasks`` in order. The workers stay for the next call if the iteration is
        completed.

        Args:
            tasks: Tasks for the workers.
            should_stop: Called each second while an answer is awaited.

        Raises:
            Interrupted: ``should_stop()`` returned True.
            Exception: An error of the worker; its traceback there is the ``__cause__``.
            WorkerDied: A worker died, or hangs.
            SharedMemoryFull: An answer does not fit into memory. The tasks after it are lost.
            ContractError: Another `map` is being iterated, or the pool was closed during this one.
        """
        if self.is_in_use:
            raise ContractError(
                "the batches of this worker pool are being drawn already", fix="close the other iterator"
            )
        self.is_in_use = True
        try:
            waiting = iter(tasks)
            if not self._workers:
                self._start()
            self._next_worker = 0
            while True:
                self._send_tasks(waiting)
                if not self._task_workers and self._pinned_ahead is None:
                    return
                yield self._answer(should_stop)
                if not self._workers:
                    raise ContractError("the loader was closed while its batches were drawn")
        finally:
            self.is_in_use = False
            self._drop_pinned_ahead()
            if self._task_workers or not all(worker.is_alive for worker in self._workers):
                self.close()

    # ---- tasks ------------------------------------------------------------------------------------------

    def _send_tasks(self, waiting: Iterator[Any]) -> None:
        """Sends tasks to the workers, many at a time if they are small, for fewer context switches."""
        self._reclaim_slots()
        max_tasks = self._num_small_tasks if 0 < self._largest <= SMALL_BYTES else self._num_tasks
        if len(self._task_workers) > max_tasks // 2:
            return
        messages = [b""] * self._num_workers
        for task in itertools.islice(waiting, min(max_tasks - len(self._task_workers), len(self._free))):
            data, number = to_bytes(task), self._free.pop()
            self._slots[number].memory(len(data))[: len(data)] = data
            self._task_workers.append(self._next_worker)
            messages[self._next_worker] += TASK.pack(number, len(data))
            self._next_worker = (self._next_worker + 1) % self._num_workers
        for worker, message in zip(self._workers, messages, strict=True):
            if message:
                worker.send(message)

    def _reclaim_slots(self) -> None:
        while self._returned:
            number = self._returned.popleft()
            del self._views[number]
            self._free.append(number)

    # ---- answers ----------------------------------------------------------------------------------------

    def _answer(self, should_stop: Callable[[], bool]) -> Any:
        if self._pin_memory:
            return self._pinned_answer(should_stop)
        worker, kind, slot, memory, begin, end = self._receive(should_stop)
        if kind == VALUE and len(self._views) < self._max_views:
            self._views[slot] = weakref.ref(memory, lambda _: self._returned.append(slot))
            return decode(memory, begin, end)
        memory = memory.copy()
        self._free.append(slot)
        return _copy((worker, kind, slot, memory, begin, end), pin=False)

    def _receive(self, should_stop: Callable[[], bool]) -> _Answer:
        """Waits for the answer that is next in the order of the tasks."""
        number = self._task_workers[0]
        kind, slot, begin, end = ANSWER.unpack(
            self._workers[number].receive(lambda: self._check_workers(should_stop))
        )
        self._task_workers.popleft()  # not earlier: if the wait is interrupted, the answer is still to come
        memory = self._slots[slot].bytes(end)
        self._largest = max(self._largest, end)
        self._reclaim_slots()
        return number, kind, slot, memory, begin, end

    def _pinned_answer(self, should_stop: Callable[[], bool]) -> Any:
        """Returns the next answer in page-locked memory, and begins to copy the one after it. Nothing is seen
        of that one, its error neither, before it is asked for."""
        if self._pinned_ahead is not None:
            (answer, copied), self._pinned_ahead = self._pinned_ahead, None
            copy = copied.result
        else:
            answer = self._receive(should_stop)
            copy = functools.partial(_copy, answer, pin=True)
        try:
            found = copy()
        finally:
            self._free.append(answer[2])
        if self._task_workers and self._workers[self._task_workers[0]].has_answer():
            following = self._receive(should_stop)
            self._pinning = self._pinning or ThreadPoolExecutor(1, thread_name_prefix="roost-pin-memory")
            self._pinned_ahead = following, self._pinning.submit(_copy, following, pin=True)
        return found

    def _drop_pinned_ahead(self) -> None:
        if self._pinned_ahead is not None:
            (answer, copied), self._pinned_ahead = self._pinned_ahead, None
            wait([copied])
            self._free.append(answer[2])

    def _check_workers(self, should_stop: Callable[[], bool]) -> None:
        """Raises if a stop is requested or any worker is dead, while the answer of one is awaited."""
        if should_stop():
            raise Interrupted
        for worker in self._workers:
            if not worker.is_alive:
                raise worker.death_error()

    # ---- processes --------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._pid = os.getpid()
        # Otherwise Python would wait at exit for workers that wait for tasks.
        self._at_exit = functools.partial(_close, weakref.ref(self))
        atexit.register(self._at_exit)
        try:
            for _ in range(self._num_small_tasks + self._max_views):
                self._slots.append(Slot())
            self._free.extend(range(len(self._slots)))
            self._status = WorkerStatusTable(self._num_workers)
            for number in range(self._num_workers):
                self._workers.append(self._create_worker(number))
            for number in range(self._num_workers):
                self._await_start(number)
        except BaseException:
            self.close()
            raise

    def _create_worker(self, number: int) -> WorkerHandle:
        assert self._status is not None
        return WorkerHandle(
            self._make,
            WorkerContext(number, self._num_workers, self._status, self._stacks if number == 0 else None),
            self._slots,
            [worker for other, worker in enumerate(self._workers) if other != number],
            timeout_seconds=self._timeout_seconds,
            name=self._name,
        )

    def _await_start(self, number: int) -> None:
        for _ in range(_START_ATTEMPTS):
            if self._workers[number].has_started():
                return
            self._workers[number].send_end()
            self._workers[number].join_or_kill(within_seconds=0)
            self._workers[number] = self._create_worker(number)
        raise worker_errors.worker_not_started(number, _START_ATTEMPTS * START_SECONDS)

    def close(self) -> None:
        """Ends the workers within a second. Answers that are in use stay valid."""
        if self._pid != os.getpid():
            return  # a copy in a forked process: the workers belong to the parent
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
        workers, self._workers = self._workers, []
        self._drop_pinned_ahead()
        if self._pinning is not None:
            self._pinning.shutdown()
            self._pinning = None
        if self._status is not None:
            self._status.request_end()
        for worker in workers:
            worker.send_end()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for worker in workers:
            worker.join_or_kill(deadline - time.monotonic())
        for slot in self._slots:
            slot.close()
        if self._status is not None:
            self._status.close()
        self._slots, self._status = [], None
        self._task_workers.clear()
        self._free.clear()
        self._views.clear()
        self._returned = deque()

    def __del__(self) -> None:
        if self._workers:
            self.close()


def _copy(answer: _Answer, *, pin: bool) -> Any:
    """Returns a copy of an answer.

    Raises:
        Exception: The answer is the error of a worker.
    """
    worker, kind, _, memory, begin, end = answer
    found = decode(memory, begin, end, pin=pin)
    if kind == ERROR:
        raise worker_errors.decode_exception(found, worker)
    return found


def _close(pool: weakref.ref[WorkerPool]) -> None:
    if (found := pool()) is not None:
        found.close()
