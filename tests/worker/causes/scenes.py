"""Errors as they are really raised, and packages in which they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from roost.base.exception_record import ExceptionRecord, record_exception
from roost.train.data.workers.worker_pool import WorkerPool
from roost.worker.causes import cause_table
from roost.worker.causes.cause import Cause, FailureContext


def of(function: Callable[[], object]) -> ExceptionRecord:
    """What a function raises."""
    with pytest.raises(BaseException) as found:
        function()
    return record_exception(found.value)


class Breaks(Dataset[Any]):
    """Does something in a loader worker."""

    def __init__(self, does: Callable[[], object]) -> None:
        self.does = does

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> object:
        return self.does()


def in_a_worker(does: Callable[[], object]) -> ExceptionRecord:
    """What torch raises when that fails in a loader worker."""
    fetching: Any = iter(DataLoader(Breaks(does), num_workers=1, multiprocessing_context="fork", timeout=60))
    try:
        return of(lambda: list(fetching))
    finally:
        fetching._shutdown_workers()  # the traceback would keep the process alive


def in_a_worker_of_ours(does: Callable[[], object]) -> ExceptionRecord:
    """What roost raises when that fails in a loader worker."""
    ring = WorkerPool(lambda post: lambda task: does(), num_workers=1)
    try:
        return of(lambda: list(ring.map([0])))
    finally:
        ring.close()


def known(found: ExceptionRecord | BaseException, package: Path | None = None) -> Cause:
    """What the table says to an error that it must know, by one row alone."""
    error = found if isinstance(found, ExceptionRecord) else record_exception(found)
    scene = FailureContext(package)
    (cause,) = (one for row in cause_table.CAUSES if (one := row(error, scene)))
    assert "\n" not in cause.description + cause.fix and cause.fix
    return cause


def texts(cause: Cause) -> str:
    """Both texts of a cause, for the snapshot."""
    return f"{cause.description}\n{cause.fix}"


def unknown(found: ExceptionRecord | BaseException, package: Path | None = None) -> bool:
    """Whether the table rightly says nothing."""
    return (
        cause_table.find(
            found if isinstance(found, ExceptionRecord) else record_exception(found), FailureContext(package)
        )
        is None
    )
