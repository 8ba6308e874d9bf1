"""The limit: one process copies a tensor into slots of shared memory, with one byte on a pipe each way."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
from collections.abc import Iterator

import numpy as np
import torch

NUM_SLOTS = 4


@contextlib.contextmanager
def ring(ready: torch.Tensor) -> Iterator[Iterator[torch.Tensor]]:
    """Gives endless batches, each a view of its slot; the slot is reused once the next batch is requested."""
    memory = mmap.mmap(-1, NUM_SLOTS * ready.nbytes)
    slots = list(torch.frombuffer(memory, dtype=ready.dtype).view(NUM_SLOTS, *ready.shape).unbind())
    full_read, full_write = os.pipe()
    free_read, free_write = os.pipe()
    filled = [slot.numpy() for slot in slots]
    source = ready.numpy()
    producer = os.fork()
    if not producer:
        with contextlib.suppress(BaseException):
            while True:
                slot = os.read(free_read, 1)
                np.copyto(filled[slot[0]], source)
                os.write(full_write, slot)
        os._exit(0)
    try:
        os.write(free_write, bytes(range(NUM_SLOTS)))
        yield _batches(slots, full_read, free_write)
    finally:
        os.kill(producer, signal.SIGKILL)
        os.waitpid(producer, 0)
        for end in (full_read, full_write, free_read, free_write):
            os.close(end)


def _batches(slots: list[torch.Tensor], full_read: int, free_write: int) -> Iterator[torch.Tensor]:
    while True:
        slot = os.read(full_read, 1)
        yield slots[slot[0]]
        os.write(free_write, slot)
