"""Worker pools for tests, and functions for their workers."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from roost.base.system import process_identity
from roost.train.data.workers.worker_pool import WorkerPool
from roost.train.data.workers.worker_status import WorkerContext

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc, and the names of signals")
Work = Callable[[Any], Any]


def does(work: Work) -> Callable[[WorkerContext], Work]:
    """What a pool asks for, where nothing needs to know of the worker."""
    return lambda _: work


def square(task: int) -> torch.Tensor:
    return torch.full((4,), task * task)


@contextlib.contextmanager
def pools(
    work: Work | Callable[[WorkerContext], Work], num_workers: int = 2, **options: Any
) -> Iterator[WorkerPool]:
    """A pool that is closed at the end."""
    made = work if options.pop("takes_context", False) else does(work)
    found = WorkerPool(made, num_workers=num_workers, **options)
    try:
        yield found
    finally:
        found.close()


def pids() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def gone(pid: int) -> bool:
    stat = process_identity.read_stat(pid)
    return stat is None or stat.ended


def numbers(found: Iterator[torch.Tensor]) -> list[int]:
    return [int(one[0]) for one in found]


def dies(how: str) -> None:
    if how == "exit":
        sys.exit(3)
    if how == "os._exit":
        os._exit(4)
    if how == "interrupt":
        raise KeyboardInterrupt
    os.kill(os.getpid(), getattr(signal, how))
    signal.pause()


class OnPacking:
    """Dies when it is sent."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        if self.how == "MemoryError":
            raise MemoryError
        dies(self.how)
