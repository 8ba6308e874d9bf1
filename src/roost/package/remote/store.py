"""A store: a place of objects that can only be put, got, listed and deleted.

Objects are never changed. A put that is cut may leave a part of an object under its name: the uploader
reads each object that it has put before anything refers to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from roost.base.errors import NotFound, RoostError
from roost.config.values.store_url import StoreUrl

T = TypeVar("T")

MAX_GET_BYTES = 2**30
"""More than an object or an index has: a damaged store must not fill the memory."""
_MAX_REASON = 200
_MAX_NAME = len("objects/") + 12
_SECRET = re.compile(
    r"(?i)(AKIA[0-9A-Z]{12,}|ASIA[0-9A-Z]{12,}|(?:sig|signature|token|secret|password|key)=[^&\s]+|//[^/@\s]+@)"
)


class StoreError(RoostError):
    """A store did not do what was asked of it: it refused, did not answer, is full, or gave wrong bytes."""


class ObjectMissing(StoreError):
    """A store has no object of this name."""


class ObjectDamaged(StoreError):
    """A store gives other bytes of an object than were put."""


class Store(Protocol):
    """Objects below one URL. Names are relative to it, with ``/`` between their parts."""

    @property
    def url(self) -> StoreUrl:
        """The place."""

    @property
    def num_parallel(self) -> int:
        """How many objects may be put or got at the same time."""

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Writes an object. Raises StoreError."""

    def get(self, name: str) -> bytes:
        """Returns an object. Raises ObjectMissing, StoreError."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Returns the objects directly in a folder by name, with their sizes; empty without such a folder.
        Raises StoreError."""

    def folders(self) -> list[str]:
        """Returns the names of the folders. Raises StoreError."""

    def delete(self, name: str) -> None:
        """Deletes an object; does nothing if there is none. Raises StoreError."""


def for_each(items: Iterable[T], work: Callable[[T], object], *, num_parallel: int) -> None:
    """Does some work for each item, a few at the same time. At the first failure no more are begun, and it is
    raised."""
    from concurrent.futures import ThreadPoolExecutor  # 7 ms, not to be spent at each start

    with ThreadPoolExecutor(num_parallel) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            for future in futures:
                future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def short_name(name: str) -> str:
    """Returns the name of an object for a message: the first digits of its digest are enough."""
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}…"


def clean_reason(error: BaseException) -> str:
    """Returns what an error says, as one line without anything that looks like a credential."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, OSError) and error.filename is not None:
        reason = f"{reason}: {error.filename}"
    line = " ".join(_SECRET.sub("***", reason).split()).partition(" RequestId:")[0]  # of Azure: XML follows
    return line[:_MAX_REASON] or type(error).__name__


def missing_library(scheme: str, library: str, extra: str) -> NotFound:
    """Returns the error for a scheme whose library is not installed."""
    return NotFound(
        f"stores of {scheme}:// need the library {library}, which is not installed",
        fix=f"pip install 'roost[{extra}]'",
    )
