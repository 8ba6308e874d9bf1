"""The main loop of a loader worker: takes tasks from a pipe and writes the answers into shared memory."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import struct
import sys
from collections.abc import Callable, Sequence
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import torch

from roost.base.system import prctl
from roost.train.data.workers import worker_errors
from roost.train.data.workers.batch_codec import EncodedBatch, from_bytes
from roost.train.data.workers.shared_memory import SharedMemoryFull, Slot
from roost.train.data.workers.worker_status import WorkerContext

START_METHOD = "fork" if sys.platform == "linux" else None
"""Start method of processes for data: fork, so that a set need not be picklable or read again."""
TASK = struct.Struct("2q")
"""Number of a slot, and size in bytes of the task in it."""
END = TASK.pack(-1, 0)
"""Ends the worker."""
ANSWER = struct.Struct("4q")
"""One of the kinds below, number of a slot, begin and end of the answer's skeleton in the slot."""
READY, VALUE, ERROR = range(3)
STACKS_SIGNAL = signal.SIGUSR2
_GRACE_SECONDS = 30


class WorkerPipes(NamedTuple):
    """File descriptors of a worker's ends of the pipes to the process that started it."""

    tasks: int
    answers: int
    stacks: int
    """Gets the stacks of all threads on `STACKS_SIGNAL`."""
    inherited: tuple[int, ...] = ()
    """The other ends of its own and other workers' pipes, which a fork has copied: while any copy is open,
    closing a pipe has no effect on its reader."""

    def __reduce__(self) -> Any:
        return _open_pipes, tuple(DupFd(fd) for fd in self[:3])


def _open_pipes(*fds: Any) -> WorkerPipes:
    return WorkerPipes(*(fd.detach() for fd in fds))


def run_worker(
    make: Callable[[WorkerContext], Callable[[Any], Any]],
    context: WorkerContext,
    pipes: WorkerPipes,
    slots: Sequence[Slot],
    parent: int,
) -> None:
    """Runs tasks until `END`: the main function of a worker process."""
    initialize_process(parent)
    for fd in pipes.inherited:
        os.close(fd)
    faulthandler.register(STACKS_SIGNAL, file=pipes.stacks, all_threads=True, chain=False)
    os.write(pipes.answers, ANSWER.pack(READY, 0, 0, 0))
    read = os.read if context.stacks is None else context.stacks.begin(os.read)
    work: Callable[[Any], Any] | None = None
    while message := read(pipes.tasks, TASK.size):
        if message == END or context.status.is_end_requested:
            return
        number, size = TASK.unpack(message)
        slot = slots[number]
        try:
            if work is None:
                work = make(context)
            kind, packed = VALUE, _encode_answer(work(from_bytes(slot.memory(size)[:size])))
            memory = slot.memory(packed.end)
        except Exception as error:  # noqa: BLE001  - raised in the process that awaits the answer
            kind, packed = ERROR, _encode_error(slot, error)
            memory = slot.memory(packed.end)
        context.begin_sample(-1)
        packed.write(memory)
        os.write(pipes.answers, ANSWER.pack(kind, number, packed.begin, packed.end))


def initialize_process(parent: int) -> None:
    """Prepares a child process of ``parent`` (a pid): its end with the parent, its signals and threads."""
    _die_with_parent(parent)
    # Garbage of the parent may hold tensors of a GPU, which a forked process cannot free.
    gc.freeze()
    # Signals are for the training process, which ends its workers; Ctrl-C reaches the whole process group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # Slurm and systemd send SIGTERM to all processes; a dead worker would fail a run that is saving.
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(_GRACE_SECONDS))
    # The threads of the parent's pools do not exist after a fork; waiting for them would never end.
    torch.set_num_threads(1)
    if "cv2" in sys.modules:
        sys.modules["cv2"].setNumThreads(0)


def _die_with_parent(parent: int) -> None:
    """Ends this process when ``parent`` is killed, because it holds a copy of the package's lock.

    The kernel watches the thread that forked, not the process: a loader must not be started in a thread that
    ends before its last batch. On other systems than Linux, a worker ends when it reads its next task.
    """
    if sys.platform == "linux":
        prctl.set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != parent:  # the parent was killed before the line above
            os._exit(1)


def _encode_answer(answer: Any) -> EncodedBatch:
    try:
        return EncodedBatch(answer)
    except Exception as error:
        error.add_note("while a batch was sent from a loader worker; with data.num_workers: 0 none is sent")
        raise


def _encode_error(slot: Slot, error: Exception) -> EncodedBatch:
    packed = EncodedBatch(worker_errors.encode_exception(error))
    try:
        slot.memory(packed.end)
    except SharedMemoryFull as full:
        return EncodedBatch(worker_errors.encode_exception(full))
    return packed
