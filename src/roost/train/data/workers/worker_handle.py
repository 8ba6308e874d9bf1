"""One worker process as it is seen from the process that started it."""

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
from roost.train.data.workers.loader_worker import ANSWER, END, READY
from roost.train.data.workers.probe_process import START_METHOD
from roost.train.data.workers.shared_memory import Slot
from roost.train.data.workers.worker_status import WorkerContext

START_SECONDS = 30.0
_POLL_SECONDS = 1.0
_STACKS_QUIET_SECONDS = 0.1
"""Without another line of stacks, after which they are complete."""
_MAX_ANSWERS_PER_READ = 64
"""That are read at a time."""


class WorkerHandle:
    """A worker process: is started here, given tasks, asked for answers, and ended.

    Args:
        make: See `Ring`.
        post: What the worker is told of itself.
        slots: Where tasks and answers are.
        others: The workers that run already.
        timeout_seconds: See `Ring`; so is ``name``.
        name: Of what is read.
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
        self._context, self._timeout_seconds, self._name = post, timeout_seconds, name
        self._inbox: deque[bytes] = deque()
        """Answers that were read and not yet asked for."""
        # The kernel kills a worker when the thread that started it ends, see `worker.begin`.
        self._starter = threading.current_thread()
        pipes = [os.pipe() for _ in range(3)]
        theirs = pipes[0][0], pipes[1][1], pipes[2][1]
        self._tasks, self._answers, self._stacks = ours = pipes[0][1], pipes[1][0], pipes[2][0]
        inherited = [*ours]
        for other in others:
            inherited += (other._tasks, other._answers, other._stacks)
        ends = loader_worker.WorkerPipes(*theirs, tuple(inherited))
        self._process: Any = multiprocessing.get_context(START_METHOD).Process(  # type: ignore[attr-defined]
            target=loader_worker.run_worker,
            args=(make, post, ends, slots, os.getpid()),
            name=f"roost-loader-{context.worker}",
            daemon=True,
        )
        try:
            with warnings.catch_warnings():
                # Python warns of forks beside threads; see `worker.begin` and `has_started`.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
        except BaseException:
            _close(ours)
            raise
        finally:
            _close(theirs)
        self._poller = select.poll()
        # The first one first: what a worker wrote before it died is still good.
        self._poller.register(self._answers, select.POLLIN)
        self._poller.register(self._process.sentinel, select.POLLIN)

    def has_started(self) -> bool:
        """Whether it has come to life within `START_SECONDS`.

        A process that is forked beside threads may hang: another thread held a lock at that moment, which
        nobody will ever release in the copy. Another moment is a better one.

        Raises:
            WorkerDied: It has not, and is gone.
        """
        if not self._poller.poll(START_SECONDS * 1000):
            return False
        message = os.read(self._answers, ANSWER.size)
        if not message:
            raise self.dead()
        assert ANSWER.unpack(message)[0] == READY
        return True

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return bool(self._process.is_alive())

    def give(self, message: bytes) -> None:
        """Tasks, packed."""
        with contextlib.suppress(BrokenPipeError):  # it is dead: told where its answer is due
            os.write(self._tasks, message)

    def answer(self, look: Callable[[], None]) -> bytes:
        """Its next one, packed.

        Args:
            look: Called each second while it is waited for; what that raises ends the waiting.

        Raises:
            WorkerDied: It is gone, or gets nowhere.
        """
        if not self._inbox:
            message = self._read(look)
            self._inbox.extend(message[at : at + ANSWER.size] for at in range(0, len(message), ANSWER.size))
        return self._inbox.popleft()

    def _read(self, look: Callable[[], None]) -> bytes:
        """One answer or more: messages this small are written whole or not at all."""
        look_seconds = min(_POLL_SECONDS, self._timeout_seconds)
        # Looks are counted, not seconds: when a person has stopped all processes for an hour, it is one look.
        begun, looks, is_gone = -1, 0, False
        while True:
            for fd, _ in self._poller.poll(0 if is_gone else look_seconds * 1000):
                if fd == self._answers and (message := os.read(fd, ANSWER.size * _MAX_ANSWERS_PER_READ)):
                    return message
                is_gone = True
            if is_gone:
                raise self.dead()
            look()
            # Its own children, if it has any, may keep open what would tell of its end.
            is_gone = not self.is_alive
            now_begun = self._context.status.progress_count(self._context.worker)
            if now_begun != begun:
                begun, looks = now_begun, 0
            elif looks * look_seconds >= self._timeout_seconds:
                raise self._silent()
            looks += 1

    def dead(self) -> worker_errors.WorkerDied:
        """The error about its end."""
        self._process.join()
        return worker_errors.worker_died(
            self._context.worker,
            self._process.pid,
            self._process.exitcode,
            self._place(),
            has_starter=self._starter.is_alive(),
        )

    def _silent(self) -> worker_errors.WorkerDied:
        place = self._place()  # first: the signal may wake it
        os.kill(self._process.pid, loader_worker.STACKS_SIGNAL)
        reader = select.poll()
        reader.register(self._stacks, select.POLLIN)
        text, seconds = b"", _POLL_SECONDS
        while reader.poll(seconds * 1000) and (more := os.read(self._stacks, 1 << 16)):
            text, seconds = text + more, _STACKS_QUIET_SECONDS
        stacks = text.decode(errors="replace")
        return worker_errors.worker_hangs(
            self._context.worker, self._process.pid, self._timeout_seconds, place, stacks
        )

    def _place(self) -> str:
        """What it was at, in words."""
        sample = self._context.status.current_sample(self._context.worker)
        words = [f"sample {sample}"] if sample is not None else []
        return " of ".join([*words, *([self._name] if self._name else [])])

    def dismiss(self) -> None:
        """Tells it that there is nothing more to do. Closing its pipe alone would not: processes that were
        forked after it, those of another pool, have it open too."""
        self.give(END)
        os.close(self._tasks)

    def end(self, within_seconds: float) -> None:
        """Waits for its end, after `dismiss`, and kills it then."""
        self._process.join(max(0.0, within_seconds))
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
            self._process.join()
        with contextlib.suppress(ValueError):  # who ignores SIGCHLD never hears that a process has ended
            self._process.close()
        _close((self._answers, self._stacks))


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
