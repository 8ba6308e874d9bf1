"""Worker processes and the memory they share with this one: a batch costs a few microseconds to hand over."""

from __future__ import annotations

import atexit
import functools
import itertools
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

from roost.base.errors import ContractError
from roost.train.data.batches import Interrupted
from roost.train.data.workers import worker_errors
from roost.train.data.workers.batch_codec import ByteArray, decode, to_bytes
from roost.train.data.workers.loader_worker import ANSWER, ERROR, TASK, VALUE
from roost.train.data.workers.shared_memory import Slot
from roost.train.data.workers.worker_handle import START_SECONDS, WorkerHandle
from roost.train.data.workers.worker_status import WorkerContext, WorkerStatusTable

MAX_VIEWS = 3
"""Answers that may be held outside as views; of any more, copies are given."""
_SMALL_BYTES = 1 << 20
_SMALL_PREFETCH = 8
"""Tasks that a worker has at most as long as no answer was larger than `_SMALL_BYTES`."""
_SMALL_TASKS = 64
"""That all workers have together by that: each takes a slot, which is two open files."""
_START_ATTEMPTS = 3
_CLOSE_SECONDS = 1.0


class WorkerPool:
    """Worker processes that answer tasks, in order, through shared memory.

    ```
    answers of tasks a, b, c, … by two workers, each one task ahead:
        slots  [a → worker 0] [b → worker 1] [c → worker 0] [free] [free] [lent out as a view]
    ```
    A task and its answer take turns in one slot. The answer is given out as views of the slot; when the last
    of them is gone, the slot is free again. So nothing is copied here, the memory is kept, and it is bounded:
    at most ``num_workers * prefetch + held`` slots, each as large as the largest answer so far.

    Args:
        make: Called in each worker process, after the fork: gives what answers tasks there.
        num_workers: Of them; task k goes to worker ``k % num_workers``.
        prefetch: Tasks that each worker has at most.
        timeout_seconds: A worker that gets nowhere for so long is taken to hang.
        pin_memory: Answers are copied to page-locked memory.
        name: Of what is read, in words, for messages.
        held: Answers that may be held outside as views; of any more, copies are given.
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
        held: int = MAX_VIEWS,
    ) -> None:
        self._make, self._num_workers, self._name = make, num_workers, name
        self._prefetch, self._max_views, self._timeout_seconds = prefetch, held, timeout_seconds
        self._num_tasks = num_workers * prefetch
        self._num_small_tasks = max(self._num_tasks, min(num_workers * _SMALL_PREFETCH, _SMALL_TASKS))
        self._largest = 0
        """Bytes of the largest answer so far."""
        self._pin_memory = pin_memory
        self._workers: list[WorkerHandle] = []
        self._slots: list[Slot] = []
        self._status: WorkerStatusTable | None = None
        self._free: list[int] = []
        """The newest last: it is the one most likely in the processor's cache."""
        self._returned: deque[int] = deque()
        """Slots whose last view has gone; whichever thread that happens in may append."""
        self._lent: dict[int, weakref.ref[ByteArray]] = {}
        self._asked: deque[int] = deque()
        """The workers that have tasks, in the order of these."""
        self._next_worker = 0
        self.is_in_use = False
        """Whether a `map` is open."""
        self._pid = 0
        """Of the process that started the workers."""
        self._at_exit: Callable[[], None] | None = None

    @property
    def num_bytes(self) -> int:
        """Of shared memory."""
        return sum(slot.num_bytes for slot in self._slots)

    def map(
        self, tasks: Iterable[Any], *, should_stop: Callable[[], bool] = lambda: False
    ) -> Generator[Any, None, None]:
        """The answers to ``tasks``, in their order. The workers stay for the next time unless it is left
        early.

        Args:
            tasks: In their order.
            should_stop: Asked each second while an answer is waited for.

        Raises:
            Interrupted: ``stop()`` said so.
            Exception: What the worker raised; its traceback there is the cause.
            WorkerDied: A worker died, or gets nowhere.
            NoRoom: An answer does not fit into memory. The tasks after it are lost.
            ContractError: Another `map` is open, or it was closed in the middle of this one.
        """
        if self.is_in_use:
            raise ContractError(
                "the batches of a pool are being drawn already", fix="close the other iterator"
            )
        self.is_in_use = True
        try:
            waiting = iter(tasks)
            if not self._workers:
                self._start()
            self._next_worker = 0
            while True:
                self._send_tasks(waiting)
                if not self._asked:
                    return
                yield self._answer(should_stop)
                if not self._workers:
                    raise ContractError("the loader was closed while its batches were drawn")
        finally:
            self.is_in_use = False
            if self._asked or not all(worker.is_alive for worker in self._workers):
                self.close()

    # ---- tasks ------------------------------------------------------------------------------------------

    def _send_tasks(self, waiting: Iterator[Any]) -> None:
        """Gives out tasks, many at a time where they are small: fewer then cost a switch of processes."""
        self._reclaim_slots()
        most = self._num_small_tasks if 0 < self._largest <= _SMALL_BYTES else self._num_tasks
        if len(self._asked) > most // 2:
            return
        messages = [b""] * self._num_workers
        for task in itertools.islice(waiting, min(most - len(self._asked), len(self._free))):
            data, number = to_bytes(task), self._free.pop()
            self._slots[number].memory(len(data))[: len(data)] = data
            self._asked.append(self._next_worker)
            messages[self._next_worker] += TASK.pack(number, len(data))
            self._next_worker = (self._next_worker + 1) % self._num_workers
        for worker, message in zip(self._workers, messages, strict=True):
            if message:
                worker.give(message)

    def _reclaim_slots(self) -> None:
        while self._returned:
            number = self._returned.popleft()
            del self._lent[number]
            self._free.append(number)

    # ---- answers ----------------------------------------------------------------------------------------

    def _answer(self, should_stop: Callable[[], bool]) -> Any:
        number = self._asked[0]
        kind, slot, begin, end = ANSWER.unpack(self._workers[number].answer(lambda: self._look(should_stop)))
        self._asked.popleft()  # not before: when this is interrupted, an answer is still to come
        memory = self._slots[slot].bytes(end)
        self._largest = max(self._largest, end)
        self._reclaim_slots()
        if kind == VALUE and not self._pin_memory and len(self._lent) < self._max_views:
            self._lent[slot] = weakref.ref(memory, lambda _: self._returned.append(slot))
            return decode(memory, begin, end)
        answer = decode(memory if self._pin_memory else memory.copy(), begin, end, pin=self._pin_memory)
        self._free.append(slot)
        if kind == ERROR:
            raise worker_errors.decode_exception(answer, number)
        return answer

    def _look(self, should_stop: Callable[[], bool]) -> None:
        """What else may be the matter while one worker takes its time."""
        if should_stop():
            raise Interrupted
        for worker in self._workers:
            if not worker.is_alive:
                raise worker.dead()

    # ---- processes --------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._pid = os.getpid()
        # Without it Python would wait at its end for workers that wait for tasks.
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
            WorkerContext(number, self._num_workers, self._status),
            self._slots,
            [worker for other, worker in enumerate(self._workers) if other != number],
            timeout_seconds=self._timeout_seconds,
            name=self._name,
        )

    def _await_start(self, number: int) -> None:
        for _ in range(_START_ATTEMPTS):
            if self._workers[number].has_started():
                return
            self._workers[number].dismiss()
            self._workers[number].end(within_seconds=0)
            self._workers[number] = self._create_worker(number)
        raise worker_errors.worker_not_started(number, _START_ATTEMPTS * START_SECONDS)

    def close(self) -> None:
        """Ends the workers, within a second. Answers that are still held stay good."""
        if self._pid != os.getpid():
            return  # a copy in a forked process: the workers are not its own
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
        workers, self._workers = self._workers, []
        if self._status is not None:
            self._status.request_end()
        for worker in workers:
            worker.dismiss()
        deadline = time.monotonic() + _CLOSE_SECONDS
        for worker in workers:
            worker.end(deadline - time.monotonic())
        for slot in self._slots:
            slot.close()
        if self._status is not None:
            self._status.close()
        self._slots, self._status = [], None
        self._asked.clear()
        self._free.clear()
        self._lent.clear()
        self._returned = deque()

    def __del__(self) -> None:
        if self._workers:
            self.close()


def _close(pool: weakref.ref[WorkerPool]) -> None:
    if (found := pool()) is not None:
        found.close()
