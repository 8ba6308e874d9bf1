"""`WorkerHandle`: one loader worker, seen from the process that started it."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from roost.train.data.workers import loader_worker, worker_errors
from roost.train.data.workers.loader_worker import ANSWER, END, READY, START_METHOD
from roost.train.data.workers.shared_memory import Slot
from roost.train.data.workers.worker_status import WorkerContext

START_SECONDS = 30.0
_POLL_SECONDS = 1.0
_STACKS_QUIET_SECONDS = 0.1
"""The stacks are complete after so long without further output."""
_MAX_ANSWERS_PER_READ = 64


class WorkerHandle:
    """A loader worker: starts the process, sends tasks, receives answers, and ends the process.

    Args:
        make: See `WorkerPool`.
        context: Number and status table of the worker.
        slots: The shared memory of tasks and answers.
        others: The workers that run already.
        timeout_seconds: See `WorkerPool`.
        name: Display name of the set.
    """

    def __init__(
        self,
        make: Callable[[WorkerContext], Callable[[Any], Any]],
        context: WorkerContext,
        slots: Sequence[Slot],
        others: Sequence[WorkerHandle],
        *,
        timeout_seconds: float,
        name: str,
    ) -> None:
        self._context, self._timeout_seconds, self._name = context, timeout_seconds, name
        self._inbox: deque[bytes] = deque()
        """Answers that were read from the pipe and not yet returned."""
        # The kernel kills a worker when the thread that started it ends: `loader_worker.initialize_process`.
        self._starter = threading.current_thread()
        pipes = [os.pipe() for _ in range(3)]
        child_ends = pipes[0][0], pipes[1][1], pipes[2][1]
        self._tasks, self._answers, self._stacks = parent_ends = pipes[0][1], pipes[1][0], pipes[2][0]
        inherited = [*parent_ends]
        for other in others:
            inherited += (other._tasks, other._answers, other._stacks)
        worker_pipes = loader_worker.WorkerPipes(*child_ends, tuple(inherited))
        self._process: Any = multiprocessing.get_context(START_METHOD).Process(  # type: ignore[attr-defined]
            target=loader_worker.run_worker,
            args=(make, context, worker_pipes, slots, os.getpid()),
            name=f"roost-loader-{context.worker}",
            daemon=True,
        )
        try:
            with warnings.catch_warnings():
                # Python warns of forks with several threads; see `initialize_process` and `has_started`.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
        except BaseException:
            _close(parent_ends)
            raise
        finally:
            _close(child_ends)
        self._poller = select.poll()
        # Answers come first in the poll: those that a worker wrote before it died are valid.
        self._poller.register(self._answers, select.POLLIN)
        self._poller.register(self._process.sentinel, select.POLLIN)

    def has_started(self) -> bool:
        """Whether the process has reported within `START_SECONDS`.

        A process that is forked while other threads run may hang: if a thread held a lock at that moment, no
        thread releases it in the copy. A later fork usually succeeds.

        Raises:
            WorkerDied: The process has ended.
        """
        if not self._poller.poll(START_SECONDS * 1000):
            return False
        message = os.read(self._answers, ANSWER.size)
        if not message:
            raise self.death_error()
        assert ANSWER.unpack(message)[0] == READY
        return True

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return bool(self._process.is_alive())

    def send(self, message: bytes) -> None:
        """Sends encoded tasks."""
        with contextlib.suppress(BrokenPipeError):  # the worker is dead: reported where its answer is due
            os.write(self._tasks, message)

    def has_answer(self) -> bool:
        """Whether `receive` would return an answer at once."""
        found = self._poller.poll(0) if not self._inbox else ()
        return bool(self._inbox) or any(fd == self._answers and event & select.POLLIN for fd, event in found)

    def receive(self, check: Callable[[], None]) -> bytes:
        """Waits for the next answer, encoded.

        Args:
            check: Called each second while waiting; an error that it raises ends the wait.

        Raises:
            WorkerDied: The worker is dead, or hangs.
        """
        if not self._inbox:
            message = self._read(check)
            self._inbox.extend(
                message[offset : offset + ANSWER.size] for offset in range(0, len(message), ANSWER.size)
            )
        return self._inbox.popleft()

    def _read(self, check: Callable[[], None]) -> bytes:
        """Reads one or more whole answers: the kernel writes messages of this size atomically."""
        poll_seconds = min(_POLL_SECONDS, self._timeout_seconds)
        # Counts polls, not seconds: if all processes were suspended for an hour, it is one poll.
        count, polls, is_gone = -1, 0, False
        while True:
            for fd, _ in self._poller.poll(0 if is_gone else poll_seconds * 1000):
                if fd == self._answers and (message := os.read(fd, ANSWER.size * _MAX_ANSWERS_PER_READ)):
                    return message
                is_gone = True
            if is_gone:
                raise self.death_error()
            check()
            # Children of the worker may keep the pipe and the sentinel open after its end.
            is_gone = not self.is_alive
            new_count = self._context.status.progress_count(self._context.worker)
            if new_count != count:
                count, polls = new_count, 0
            elif polls * poll_seconds >= self._timeout_seconds:
                raise self._hang_error()
            polls += 1

    def death_error(self) -> worker_errors.WorkerDied:
        """Returns the error about the end of the process."""
        self._process.join()
        return worker_errors.worker_died(
            self._context.worker,
            self._process.pid,
            self._process.exitcode,
            self._sample_description(),
            has_starter=self._starter.is_alive(),
        )

    def _hang_error(self) -> worker_errors.WorkerDied:
        sample = self._sample_description()  # before the signal, which may wake the worker
        os.kill(self._process.pid, loader_worker.STACKS_SIGNAL)
        reader = select.poll()
        reader.register(self._stacks, select.POLLIN)
        text, seconds = b"", _POLL_SECONDS
        while reader.poll(seconds * 1000) and (more := os.read(self._stacks, 1 << 16)):
            text, seconds = text + more, _STACKS_QUIET_SECONDS
        stacks = text.decode(errors="replace")
        return worker_errors.worker_hangs(
            self._context.worker, self._process.pid, self._timeout_seconds, sample, stacks
        )

    def _sample_description(self) -> str:
        """The sample that the worker reads, for messages: ``sample 3 of the training set``."""
        sample = self._context.status.current_sample(self._context.worker)
        parts = [f"sample {sample}"] if sample is not None else []
        return " of ".join([*parts, *([self._name] if self._name else [])])

    def send_end(self) -> None:
        """Asks the worker to end. Closing its pipe alone has no effect: processes that were forked later, as
        those of another pool, have it open too."""
        self.send(END)
        os.close(self._tasks)

    def join_or_kill(self, within_seconds: float) -> None:
        """Waits for the end after `send_end`; kills the process after ``within_seconds``."""
        self._process.join(max(0.0, within_seconds))
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.join()
        with contextlib.suppress(ValueError):  # with SIGCHLD ignored, the end of a process is not reported
            self._process.close()
        _close((self._answers, self._stacks))


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
