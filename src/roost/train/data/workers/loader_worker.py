"""The life of a worker process: it takes tasks, and puts the answers into shared memory."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import torch

from roost.train.data.workers import worker_errors
from roost.train.data.workers.batch_codec import EncodedBatch, from_bytes
from roost.train.data.workers.shared_memory import SharedMemoryFull, Slot
from roost.train.data.workers.worker_status import WorkerContext

TASK = struct.Struct("2q")
"""A slot, and the bytes of the task in it."""
END = TASK.pack(-1, 0)
"""There are no more tasks."""
ANSWER = struct.Struct("4q")
"""One of the kinds below, a slot, and where in it the skeleton of the answer begins and ends."""
READY, VALUE, ERROR = range(3)
STACKS_SIGNAL = signal.SIGUSR2
_GRACE_SECONDS = 30
_PR_SET_PDEATHSIG = 1  # prctl(2)


class WorkerPipes(NamedTuple):
    """A worker's ends of what connects it with the process that started it: descriptors."""

    tasks: int
    answers: int
    stacks: int
    """Takes its stacks on `STACKS_SIGNAL`."""
    inherited: tuple[int, ...] = ()
    """The other ends, its own and those of other workers, where it was forked: as long as it has them open,
    nobody hears that they were closed."""

    def __reduce__(self) -> Any:
        return _open_pipes, tuple(DupFd(fd) for fd in self[:3])


def _open_pipes(*fds: Any) -> WorkerPipes:
    return WorkerPipes(*(fd.detach() for fd in fds))


def run_worker(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    context: WorkerContext,
    ends: WorkerPipes,
    slots: Sequence[Slot],
    parent: int,
) -> None:
    """Does tasks until there are no more; the whole life of a process."""
    initialize_process(parent)
    for fd in ends.inherited:
        os.close(fd)
    faulthandler.register(STACKS_SIGNAL, file=ends.stacks, all_threads=True, chain=False)
    os.write(ends.answers, ANSWER.pack(READY, 0, 0, 0))
    work: Callable[[Any], Any] | None = None
    while message := os.read(ends.tasks, TASK.size):
        if message == END or context.status.is_end_requested:
            return
        number, size = TASK.unpack(message)
        slot = slots[number]
        try:
            if work is None:
                work = make(post)
            kind, packed = VALUE, _encode_answer(work(from_bytes(slot.memory(size)[:size])))
            memory = slot.memory(packed.end)
        except Exception as error:  # noqa: BLE001  - raised where the answer is waited for
            kind, packed = ERROR, _encode_error(slot, error)
            memory = slot.memory(packed.end)
        context.begin_sample(-1)
        packed.write(memory)
        os.write(ends.answers, ANSWER.pack(kind, number, packed.begin, packed.end))


def initialize_process(parent: int) -> None:
    """What every process must do first that works for another one, which has the pid ``parent``."""
    _die_with_parent(parent)
    # Signals are for the training process; it ends its workers itself. Ctrl-C reaches the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # Slurm and systemd send SIGTERM to everybody; a worker that died of it would fail the run that is saving.
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(_GRACE_SECONDS))
    # The threads of the parent's pools do not exist here; whoever waited for them would wait for ever.
    torch.set_num_threads(1)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)


def _die_with_parent(parent: int) -> None:
    """Ends this process when ``parent`` is killed: it holds a copy of the package's lock.

    The kernel goes by the thread that forked, not by the process: a loader must not be begun in a thread
    that ends before its last batch. Elsewhere than on Linux a worker ends when it asks for its next task.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it was killed before the line above
            os._exit(1)


def _encode_answer(answer: Any) -> EncodedBatch:
    try:
        return EncodedBatch(answer)
    except Exception as error:
        error.add_note("while a batch was sent from a worker process; data.num_workers: 0 sends none")
        raise


def _encode_error(slot: Slot, error: Exception) -> EncodedBatch:
    packed = EncodedBatch(worker_errors.encode_exception(error))
    try:
        slot.memory(packed.end)
    except SharedMemoryFull as no_room:
        return EncodedBatch(worker_errors.encode_exception(no_room))
    return packed
