"""Functions with which all ranks together prepare, write, commit and read a checkpoint.

`WritePace` limits the speed so that training is not slowed down; the thread that writes is in `pending_save`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Self, TypeVar, cast

import msgspec

from roost.base import durable
from roost.base.errors import CheckpointError, Damaged, NotFound, PeerLost
from roost.package.checkpoints import checkpoint, part_files
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.part_files import PartFile
from roost.train.distributed.ranks import Ranks

T = TypeVar("T")
MAX_REST_RATIO = 4.0
"""Maximum seconds of rest per second of work: hashing and writing use a core and memory bandwidth, which
training needs, too."""
_SAVE_POINT = "the save of a checkpoint"
_INTERVAL_SHARE = 0.6
"""The part of the time between two saves in which one is written, so that the next one need not wait."""


def rest_ratio(seconds: float, interval: float) -> float:
    """Returns the seconds of rest per second of work with which a checkpoint is written well before the next
    one is due.

    Args:
        seconds: Time that the previous checkpoint took, without rests; 0 if there was none.
        interval: Seconds between the last two saves.
    """
    return (
        MAX_REST_RATIO
        if not seconds
        else max(0.0, min(MAX_REST_RATIO, _INTERVAL_SHARE * interval / seconds - 1.0))
    )


class TornCopy(Exception):
    """Raised when the state was changed while it was copied; nothing is written."""


class WritePace:
    """Paces the writing of files with rests, so that training hardly slows down, until `hurry` is called.

    Args:
        rest: Seconds of rest per second of work.
    """

    def __init__(self, rest: float = MAX_REST_RATIO) -> None:
        self._rest = rest
        self._hurry = threading.Event()
        self.rested_seconds = 0.0

    def hurry(self) -> None:
        """Writes at full speed from now on."""
        self._hurry.set()

    def __call__(self, pieces: Iterator[memoryview[Any]]) -> Iterator[memoryview[Any]]:
        """Yields the pieces one by one; each is hashed and written before the next one is requested."""
        for piece in pieces:
            start = perf_counter()
            yield piece
            if not self._hurry.is_set():
                rests = perf_counter()
                self._hurry.wait((rests - start) * self._rest)
                self.rested_seconds += perf_counter() - rests


@dataclass(frozen=True)
class _Failure:
    """The failure of one rank, in a form that can be sent to the others."""

    rank: int
    errno: int | None
    text: str
    kind: type[Exception]
    """The error that the other ranks raise, if it is not an OSError."""

    @classmethod
    def from_error(
        cls, ranks: Ranks, error: Exception, *, otherwise: type[Exception] = CheckpointError
    ) -> Self:
        """The failure of this rank."""
        if isinstance(error, OSError):
            where = f": {error.filename!r}" if error.filename else ""
            return cls(ranks.rank, error.errno, f"{error.strerror}{where}", OSError)
        kind = next((kind for kind in (Damaged, NotFound) if isinstance(error, kind)), otherwise)
        return cls(ranks.rank, None, str(error) or type(error).__name__, kind)

    def to_exception(self) -> Exception:
        text = f"rank {self.rank}: {self.text}"
        return OSError(self.errno, text) if self.errno is not None else self.kind(text)


def write(
    folder: Path,
    files: list[PartFile],
    describe: Callable[[int], Manifest],
    *,
    ranks: Ranks,
    pace: WritePace,
    torn: bool = False,
    before: Callable[[], None] = lambda: None,
) -> Manifest:
    """Writes a checkpoint: each rank its files, rank 0 the manifest. When it returns on any rank, the
    checkpoint is committed. After a `TornCopy` or an error of writing nothing is committed, on any rank;
    after `PeerLost` the checkpoint may be committed.

    Args:
        folder: The folder of the checkpoints.
        files: The files of this rank.
        describe: Returns the manifest for an id, without ranks and files.
        ranks: The ranks that write; all of them must call this.
        pace: The pace of the writing.
        torn: Whether the copy of this rank is torn; then no rank writes.
        before: Called first on rank 0.

    Raises:
        TornCopy: The copy of a rank is torn.
        OSError: The disk is full, an I/O error, …
        PeerLost: Another rank has ended.
    """
    try:
        sizes = ranks.saving.gather(None if torn else part_files.size_bytes(files), _SAVE_POINT)
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            raise TornCopy("the state was changed while it was copied")
        prepare = functools.partial(_make_staging, folder, sum(known), before)
        return _write(prepare, files, describe, ranks, pace)
    except RuntimeError as error:
        if ranks.are_several:
            raise _peer_lost() from error
        raise


def prepare_together(ranks: Ranks, action: Callable[[], None]) -> None:
    """Runs an action on every rank before their state is saved. If the disk fails on one rank, no rank begins
    the save: otherwise the others would combine their state with that rank's next one.

    Raises:
        OSError: The disk is full, an I/O error, …; raised on every rank.
        RuntimeError: Another rank has ended.
    """
    failure = None
    try:
        action()
    except OSError as error:
        if not ranks.are_several:
            raise
        failure = _Failure.from_error(ranks, error)
    for one in ranks.control.gather(failure, _SAVE_POINT):
        if one is not None:
            raise one.to_exception()


def read_together(ranks: Ranks, action: Callable[[], T]) -> T:
    """Runs a read on every rank. If it fails on one rank, all raise the same kind of error, so all continue
    in the same way.

    Raises:
        Damaged, NotFound, OSError: The first rank that failed raised this error.
        PeerLost: That rank failed with any other error, which it raises itself.
        RuntimeError: Another rank has ended.
    """
    found, own, failure = None, None, None
    try:
        found = action()
    except Exception as error:  # noqa: BLE001  - raised below, after the other ranks are informed
        own, failure = error, _Failure.from_error(ranks, error, otherwise=PeerLost)
    first = next(filter(None, ranks.saving.gather(failure, "the reading of a checkpoint")), None)
    if first is None:
        return cast("T", found)
    if own is not None and first.rank == ranks.rank:
        raise own
    raise first.to_exception() from own


def end_together(ranks: Ranks) -> None:
    """Waits until every rank has reached this point.

    Raises:
        PeerLost: Another rank has ended.
    """
    try:
        ranks.saving.barrier("the end")
    except RuntimeError as error:
        raise _peer_lost() from error


def _peer_lost() -> PeerLost:
    return PeerLost("another rank ended while a checkpoint was written")


def _write(
    prepare: Callable[[], tuple[Path, Path]],
    files: list[PartFile],
    describe: Callable[[int], Manifest],
    ranks: Ranks,
    pace: WritePace,
) -> Manifest:
    channel, staging = ranks.saving, None
    try:
        if ranks.is_main:
            staging = _capture_failure(ranks, prepare)
        folders = channel.broadcast(staging, _SAVE_POINT)
        if isinstance(folders, _Failure):
            raise folders.to_exception()
        assert folders is not None
        final, staging_folder = folders
        every = channel.gather(
            _capture_failure(ranks, lambda: part_files.write(staging_folder, files, paced=pace)), _SAVE_POINT
        )
        for one in every:
            if isinstance(one, _Failure):
                raise one.to_exception()
        manifest = None
        if ranks.is_main:
            manifest = _capture_failure(ranks, lambda: _commit(final, staging_folder, every, describe))
        found = channel.broadcast(manifest, _SAVE_POINT)
        if isinstance(found, _Failure):
            raise found.to_exception()
        assert found is not None
        return found
    finally:
        if isinstance(staging, tuple) and staging[1].exists():
            durable.discard(staging[1])


def _capture_failure(ranks: Ranks, action: Callable[[], T]) -> T | _Failure:
    """Returns the result of ``action``, or its failure to be sent to the other ranks. With a single rank the
    error is raised."""
    try:
        return action()
    except Exception as error:
        if not ranks.are_several:
            raise
        return _Failure.from_error(ranks, error)


def _make_staging(folder: Path, needed: int, before: Callable[[], None]) -> tuple[Path, Path]:
    """Returns the folder of the checkpoint and the staging folder in which it is written."""
    before()
    durable.require_space(folder, needed)
    final = checkpoint.checkpoint_folder(folder, checkpoint.next_id(folder))
    return final, durable.make_staging_folder(final)


def _commit(final: Path, staging: Path, every: list[Any], describe: Callable[[int], Manifest]) -> Manifest:
    files = {name: entry for entries in every for name, entry in entries.items()}
    id = checkpoint.checkpoint_id(final)
    manifest = msgspec.structs.replace(describe(id), files=files, ranks=len(every))
    checkpoint.write_manifest(staging, manifest)
    durable.commit_folder(staging, final)
    return manifest
