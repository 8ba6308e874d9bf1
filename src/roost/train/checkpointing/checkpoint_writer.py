"""Writes a checkpoint: in a thread while training continues, and all ranks together.

The thread of `PendingSave` calls `write` at a pace (`WritePace`) that hardly slows training down. Each rank
writes its files; rank 0 commits. `prepare_together` comes before, `read_together` is for loading.
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
from roost.train.checkpointing.staging import Staging
from roost.train.distributed.ranks import Ranks

T = TypeVar("T")
MAX_REST_RATIO = 4.0
"""Maximum seconds of rest per second of work: hashing and writing use a core and memory bandwidth, which
training needs, too."""
_POLL_SECONDS = 1.0
FAILURE_WAIT_SECONDS = 5.0
"""How long a rank that fails waits for a checkpoint that it writes together with other ranks."""
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


class PendingSave:
    """The save that `Checkpoints.save` started. A thread writes it; the interpreter waits for this thread
    before it exits.

    Args:
        staging: Holds the copy, or makes the rest of it during training.
        write: Writes the copy at a pace, unless it is torn; returns the folder of the checkpoint.
        asynchronous: Whether a separate thread writes.
        prints_error: Whether the thread prints an error if `wait` is not called.
        rest: The rest ratio of `WritePace`.
    """

    def __init__(
        self,
        staging: Staging,
        write: Callable[[WritePace, bool], Path],
        *,
        asynchronous: bool,
        prints_error: bool,
        rest: float = MAX_REST_RATIO,
    ) -> None:
        self._staging, self._write, self._prints_error = staging, write, prints_error
        self._pace, self._owner = WritePace(rest), threading.current_thread()
        self._is_copied, self._is_checked, self._done = (threading.Event() for _ in range(3))
        self._path: Path | None = None
        self._error: BaseException | None = None
        self._is_torn = False
        self.is_reported = False
        """Whether its error was printed already."""
        if staging.is_short or not asynchronous:
            staging.copy_deferred()
            self._is_copied.set()
        if asynchronous:
            threading.Thread(target=self._run, name="roost-checkpoint").start()
        else:
            self._pace.hurry()
            self.wait_until_copied()
            self._try_write()
            self._done.set()
            if self._error is not None:
                raise self._error

    # ---- for the thread that trains ---------------------------------------------------------------------

    @property
    def is_copied(self) -> bool:
        """Whether the state may change: it is copied, and `wait_until_copied` was called."""
        return self._is_checked.is_set()

    @property
    def is_done(self) -> bool:
        """Whether the checkpoint is committed or has failed."""
        return self._done.is_set()

    def wait_until_copied(self) -> None:
        """Waits until the state is copied and may change. On a GPU it does not block: later kernels are
        ordered after the copies."""
        self._is_copied.wait()
        if self._is_checked.is_set():
            return
        self._staging.order_after_copies()
        self._is_torn = self._staging.has_changed()
        self._is_checked.set()

    def wait(self) -> Path:
        """Waits until the checkpoint is committed and returns its folder.

        Raises:
            OSError: It could not be written (disk full, …); older checkpoints are intact.
            TornCopy: A deferred tensor was changed before `wait_until_copied` was called.
            PeerLost: Another rank has ended.
        """
        self._prints_error = False
        self._pace.hurry()
        self.wait_until_copied()
        self._done.wait()
        if self._error is not None:
            raise self._error
        assert self._path is not None
        return self._path

    def hurry(self) -> None:
        """Writes the rest at full speed; may be called from any thread."""
        self._pace.hurry()

    def wait_until_done(self, seconds: float | None = None) -> bool:
        """Waits until the save is committed or has failed, at most ``seconds``; returns `is_done`."""
        self._pace.hurry()
        self.wait_until_copied()
        return self._done.wait(seconds)

    # ---- the thread that writes -------------------------------------------------------------------------

    def _run(self) -> None:
        if not self._is_copied.is_set():
            self._staging.copy_deferred()
            self._is_copied.set()
        while not self._is_checked.wait(_POLL_SECONDS):
            if not self._owner.is_alive():  # it ended without the check, so it may have changed the state
                self._is_torn = True
                break
        self._try_write()
        error = self._error
        if error is not None and self._prints_error and not isinstance(error, TornCopy | PeerLost):
            self.is_reported = True
            print(f"checkpoint not written: {error}; older ones are intact", flush=True)
        self._done.set()

    def _try_write(self) -> None:
        try:
            self._staging.wait()
            self._path = self._write(self._pace, self._is_torn)
        except BaseException as error:  # noqa: BLE001  - raised by `wait`, or printed by the thread
            self._error = error


# ---- all ranks together ----------------------------------------------------------------------------------


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


def prepare_together(ranks: Ranks, action: Callable[[], T]) -> T:
    """Runs an action on every rank before their state is saved; returns its result. If the disk fails on one
    rank, no rank begins the save: otherwise the others would combine their state with that rank's next one.

    Raises:
        OSError: The disk is full, an I/O error, …; raised on every rank.
        RuntimeError: Another rank has ended.
    """
    found, failure = None, None
    try:
        found = action()
    except OSError as error:
        if not ranks.are_several:
            raise
        failure = _Failure.from_error(ranks, error)
    for one in ranks.control.gather(failure, _SAVE_POINT):
        if one is not None:
            raise one.to_exception()
    return cast("T", found)


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
        return _write_and_commit(prepare, files, describe, ranks, pace)
    except RuntimeError as error:
        if ranks.are_several:
            raise _peer_lost() from error
        raise


def _write_and_commit(
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


def end_together(ranks: Ranks) -> None:
    """Waits until every rank has reached this point.

    Raises:
        PeerLost: Another rank has ended.
    """
    try:
        ranks.saving.barrier("the end")
    except RuntimeError as error:
        raise _peer_lost() from error


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


def _capture_failure(ranks: Ranks, action: Callable[[], T]) -> T | _Failure:
    """Returns the result of ``action``, or its failure to be sent to the other ranks. With a single rank the
    error is raised."""
    try:
        return action()
    except Exception as error:
        if not ranks.are_several:
            raise
        return _Failure.from_error(ranks, error)


def _peer_lost() -> PeerLost:
    return PeerLost("another rank ended while a checkpoint was written")
