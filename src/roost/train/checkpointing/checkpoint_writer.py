"""Writing one checkpoint, by all ranks together, as fast as the training lets."""

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
"""Rest by work while nobody waits: hashing and writing take a core and a share of the memory's bandwidth."""
_SAVE_POINT = "the save of a checkpoint"
_INTERVAL_SHARE = 0.6
"""The part of the time between two saves in which one is written, so that the next need not wait for it."""


def rest_ratio(seconds: float, interval: float) -> float:
    """Rest by work, so that a checkpoint is written well before the next is due.

    Args:
        seconds: What the one before took to be written, without rests; 0: there was none.
        interval: Between the last two saves.
    """
    return (
        MAX_REST_RATIO
        if not seconds
        else max(0.0, min(MAX_REST_RATIO, _INTERVAL_SHARE * interval / seconds - 1.0))
    )


class TornCopy(Exception):
    """What was to be saved was changed while it was copied, so nothing was written."""


class WritePace:
    """How fast files are written: with rests, so that the training hardly notices, until somebody waits.

    Args:
        rest: By work.
    """

    def __init__(self, rest: float = MAX_REST_RATIO) -> None:
        self._rest = rest
        self._hurry = threading.Event()
        self.rested_seconds = 0.0
        """Seconds."""

    def hurry(self) -> None:
        """From here on at full speed."""
        self._hurry.set()

    def __call__(self, pieces: Iterator[memoryview[Any]]) -> Iterator[memoryview[Any]]:
        """Gives the pieces one by one; each is hashed and written before the next is asked for."""
        for piece in pieces:
            begun = perf_counter()
            yield piece
            if not self._hurry.is_set():
                rests = perf_counter()
                self._hurry.wait((rests - begun) * self._rest)
                self.rested_seconds += perf_counter() - rests


@dataclass(frozen=True)
class _Failure:
    """Why a rank could not do its part, as the others are told."""

    rank: int
    errno: int | None
    text: str
    kind: type[Exception]
    """What the others raise, where it is no error of the system."""

    @classmethod
    def from_error(cls, ranks: Ranks, error: Exception, *, otherwise: type[Exception] = CheckpointError) -> Self:
        """That of this rank."""
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
    """Writes a checkpoint: each rank its files, rank 0 the manifest. When this returns, on any rank, it
    stands; when it raises, nothing has changed, and it raises on all.

    Args:
        folder: Takes it.
        files: Those of this rank.
        describe: Gives its manifest, but for ranks and files, from its id.
        ranks: Who writes; all must call this.
        pace: Of the writing.
        torn: Whether the files of this rank cannot be written; then none is.
        before: Called first on rank 0.

    Raises:
        Torn: Those of a rank cannot be written.
        OSError: There is not enough space, an I/O error, …
        PeerLost: Another rank is gone.
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
    """What each rank does before its state is saved. Where the disk fails one of them, none begins to save:
    the others would write with that one's next state.

    Raises:
        OSError: There is not enough space, an I/O error, …; on every rank.
        RuntimeError: Another rank is gone.
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
    """What each rank reads. Where one fails, all do, by the same kind of error: they go on in the same way.

    Raises:
        Damaged: As on the first rank that failed.
        NotFound: Likewise.
        OSError: Likewise.
        PeerLost: That rank has failed by any other error, which it raises itself.
        RuntimeError: Another rank is gone.
    """
    found, own, failure = None, None, None
    try:
        found = action()
    except Exception as error:  # noqa: BLE001  - raised below, once the others know
        own, failure = error, _Failure.from_error(ranks, error, otherwise=PeerLost)
    first = next(filter(None, ranks.saving.gather(failure, "the reading of a checkpoint")), None)
    if first is None:
        return cast("T", found)
    if own is not None and first.rank == ranks.rank:
        raise own
    raise first.to_exception() from own


def end_together(ranks: Ranks) -> None:
    """Waits until every rank is here.

    Raises:
        PeerLost: Another rank is gone.
    """
    try:
        ranks.saving.barrier("the end")
    except RuntimeError as error:
        raise _peer_lost() from error


def _peer_lost() -> PeerLost:
    return PeerLost("another rank is gone while a checkpoint was written")


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
        place = channel.broadcast(staging, _SAVE_POINT)
        if isinstance(place, _Failure):
            raise place.to_exception()
        assert place is not None
        final, own = place
        every = channel.gather(
            _capture_failure(ranks, lambda: part_files.write(own, files, paced=pace)), _SAVE_POINT
        )
        for one in every:
            if isinstance(one, _Failure):
                raise one.to_exception()
        info = None
        if ranks.is_main:
            info = _capture_failure(ranks, lambda: _commit(final, own, every, describe))
        found = channel.broadcast(info, _SAVE_POINT)
        if isinstance(found, _Failure):
            raise found.to_exception()
        assert found is not None
        return found
    finally:
        if isinstance(staging, tuple) and staging[1].exists():
            durable.discard(staging[1])


def _capture_failure(ranks: Ranks, action: Callable[[], T]) -> T | _Failure:
    """What ``action`` gives, or for the others to hear why it fails; alone nobody needs to be told."""
    try:
        return action()
    except Exception as error:
        if not ranks.are_several:
            raise
        return _Failure.from_error(ranks, error)


def _make_staging(folder: Path, needed: int, before: Callable[[], None]) -> tuple[Path, Path]:
    """Where the checkpoint will stand, and where it is written."""
    before()
    durable.require_space(folder, needed)
    final = checkpoint.checkpoint_folder(folder, checkpoint.next_id(folder))
    return final, durable.make_staging_folder(final)


def _commit(final: Path, staging: Path, every: list[Any], describe: Callable[[int], Manifest]) -> Manifest:
    files = {name: entry for entries in every for name, entry in entries.items()}
    id = checkpoint.checkpoint_id(final)
    info = msgspec.structs.replace(describe(id), files=files, ranks=len(every))
    checkpoint.write_manifest(staging, info)
    durable.commit_folder(staging, final)
    return info
