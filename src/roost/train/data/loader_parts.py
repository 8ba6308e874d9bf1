"""The parts of a loader of the user that decide on its batches: its set, its samplers, its generators, its
workers."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import connection
from typing import Any

import torch
from torch.utils.data import DataLoader

from roost.train.data.workers import loader_worker

_END_SECONDS = 2.0
"""How long the end of a process may be noticed later than that of its sockets."""


def parts(loader: Any) -> list[Any]:
    """Returns the loader, and its set and samplers if it has them."""
    own = [getattr(loader, name, None) for name in ("dataset", "sampler", "batch_sampler")]
    found = [loader, *own, getattr(own[-1], "sampler", None)]
    return list({id(part): part for part in found if part is not None}.values())


def generators(loader: Any) -> list[torch.Generator]:
    """Returns the generators that the loader and its parts were given."""
    found = [getattr(part, "generator", None) for part in parts(loader)]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def disable_persistent_workers(loader: Any, display_name: str) -> None:
    """Makes each pass start its own workers, and prints that. Persistent workers keep drawing from their
    position, and the first pass of a process begins differently from the others: no pass could be restored.
    """
    if not getattr(loader, "persistent_workers", False):
        return
    print(
        f"{display_name}: persistent_workers is ignored, each pass starts its own workers: "
        "persistent ones could not be restored to a position",
        flush=True,
    )
    object.__setattr__(loader, "persistent_workers", False)  # torch forbids a plain assignment


def start_pass(loader: Any) -> Iterator[Any]:
    """Returns an iterator of the loader. Workers that a DataLoader starts for it die with this process, and
    ignore its signals."""
    with _linked_worker_processes(loader):
        return iter(loader)


def shut_down(loader: Any, iterator: Any) -> None:
    """Ends the workers of a DataLoader's iterator now, not at garbage collection."""
    if hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
        if loader._iterator is iterator:
            loader._iterator = None  # else the loader would use them again


def note_killed_worker(error: Exception, iterator: Any) -> None:
    """Adds to the error of a broken connection that a worker process of a DataLoader was killed, if one was.
    torch fetches tensors from a socket of the worker, which may break before torch has noticed the end of
    that process. If it has noticed the end, its own error, caused by that of the connection, has no signal.
    """
    workers = getattr(iterator, "_workers", None)
    broken = error.__cause__ if isinstance(error, RuntimeError) else error
    if not workers or not isinstance(broken, ConnectionError | EOFError):
        return
    ended = connection.wait([worker.sentinel for worker in workers], timeout=_END_SECONDS)
    for worker in workers:
        if worker.sentinel in ended:
            worker.join(_END_SECONDS)  # its files are closed a moment before its exit code is known
        if (code := worker.exitcode) is not None and code < 0:
            name = signal.Signals(-code).name
            error.add_note(f"worker process {worker.pid} of the loader was killed by {name}")


def link_worker_processes(loader: Any) -> None:
    """Makes the workers of a DataLoader that the project iterates die with this process, and ignore its
    signals."""
    if _forks_workers(loader):
        loader.worker_init_fn = functools.partial(_initialize_worker, os.getpid(), loader.worker_init_fn)


@contextmanager
def _linked_worker_processes(loader: Any) -> Iterator[None]:
    if not _forks_workers(loader):
        yield
        return
    own = loader.worker_init_fn
    loader.worker_init_fn = functools.partial(_initialize_worker, os.getpid(), own)
    try:
        yield
    finally:
        loader.worker_init_fn = own


def _forks_workers(loader: Any) -> bool:
    if not isinstance(loader, DataLoader) or not loader.num_workers:
        return False
    context: Any = loader.multiprocessing_context
    set_before = context.get_start_method() if context else multiprocessing.get_start_method(allow_none=True)
    return (set_before or multiprocessing.get_all_start_methods()[0]) == "fork"


def _initialize_worker(parent: int, own: Callable[[int], None] | None, number: int) -> None:
    loader_worker.initialize_process(parent)
    if own is not None:
        own(number)
