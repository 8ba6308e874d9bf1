"""Uploads a package to its remote copy: one call of `Uploader.upload` brings the copy up to date.

::

    read the files      committed checkpoints first, then all others (`local_files`)
    plan                the objects that the store lacks (`upload_plan`)
    put the objects     each is read again and hashed
    put the index       from here on the copy has the new state
    flush               a mounted drive really uploads
    delete              objects to which no index refers any more
"""

from __future__ import annotations

import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from roost.base.errors import Refused
from roost.base.system import mounts
from roost.config.sections.checkpoint import BestSettings
from roost.config.sections.remote import RemoteSettings
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.checkpoints.retention import BestRule
from roost.package.package import PackageFolder
from roost.package.remote import copy_index, local_files, ownership, upload_plan
from roost.package.remote.copy_index import BrokenIndex, CopyIndex
from roost.package.remote.local_files import ChangedFile, FileReader, LocalFiles, Piece
from roost.package.remote.remote_copy import RemoteCopy
from roost.package.remote.store import ObjectDamaged, ObjectMissing, StoreError, clean_reason, for_each
from roost.package.remote.transfer_rate import TransferRate
from roost.package.remote.upload_plan import KeepCount, UploadPlan

_TRIES = 20
"""How often the files are read again because some have changed."""
_FLUSH_SECONDS = 3600.0


class UploadOptions(NamedTuple):
    """How to upload; the fields are those of the section ``remote``."""

    keep: KeepCount = 2
    verify_bytes: bool = True
    max_mb_per_second: float | None = None
    flush: str | None = None

    @classmethod
    def from_settings(cls, settings: RemoteSettings) -> Self:
        """Returns the options that the section ``remote`` has."""
        return cls(
            keep=settings.keep,
            verify_bytes=settings.verify == "bytes",
            max_mb_per_second=settings.max_mb_per_second,
            flush=settings.flush,
        )


class UploadProgress(NamedTuple):
    """How far an upload is."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class UploadResult:
    """The copy after an upload."""

    index: CopyIndex
    is_proven: bool
    """Whether the bytes certainly are in the store; not on a mounted drive without a flush."""
    put_bytes: int
    seconds: float
    left_out: list[str]
    """Files that are not in the copy, or only as they were before: a program writes them, or they cannot be
    read."""
    store_id: str | None
    """As returned by `RemoteCopy.require_store`."""
    is_complete: bool = True
    """False if only the newest of several new checkpoints was put: the next upload puts the others."""


@dataclass(frozen=True)
class CopyCheck:
    """The result of reading all objects of a copy."""

    num_bytes: int
    seconds: float
    bad: dict[str, str]
    """The bad files of the copy by name, and its bad indexes: ``lost`` or ``damaged``."""


class CopyTaken(Refused):
    """Another machine has taken the remote copy: this one must not write to it any more."""


class UploadStopped(Exception):
    """An upload was asked to stop before its end."""


class Uploader:
    """Brings the remote copy of one package up to date, again and again.

    Args:
        package: The package.
        copy: Its remote copy.
        options: How.
        store_id: The id of the store in which the copy was before (`RemoteCopy.require_store`).
        steal: As for `ownership.require_writable`.
        stop: When set, an upload ends as soon as it can.
    """

    def __init__(
        self,
        package: PackageFolder,
        copy: RemoteCopy,
        options: UploadOptions,
        *,
        store_id: str | None = None,
        steal: bool = False,
        stop: threading.Event | None = None,
    ) -> None:
        self._package, self._copy, self._options, self._steal = package, copy, options, steal
        self._store_id = store_id
        self._stop = stop or threading.Event()
        self._rate = TransferRate(options.max_mb_per_second, self._stop)
        self._reader = FileReader(package.path, piece_bytes=self._rate.piece_bytes(local_files.PIECE_BYTES))
        self._before: CopyIndex | None = None
        self._earlier: list[CopyIndex] = []
        self._present: dict[str, int] | None = None
        """The objects that the store certainly has; None: not known yet."""
        self._unsure: dict[str, int] = {}
        """Objects that the store lists, and to which no index refers: an upload was cut."""
        self._number = 0
        self._broken: list[int] = []
        """The numbers of indexes that cannot be used."""
        self._attempt: CopyIndex | None = None
        """The index whose put failed: the store may have it all the same."""
        self._has_lost = False
        """Whether the store has lost something to which its newest index refers."""
        self._rest_of: int | None = None
        """The id of the newest checkpoint of the copy, if others before it are still to be put."""
        self._is_proven: bool | None = None
        """Whether the newest index certainly is in the store; None: it is not known yet."""
        self.pending_bytes = 0
        """What the present upload has still to send."""

    @property
    def newest(self) -> CopyIndex | None:
        """The newest index, as far as it is known."""
        return self._before

    def connect(self) -> None:
        """Reads what the copy has, at the first call.

        Raises:
            StoreError, BrokenIndex: The store does not answer, is another one, or its indexes are damaged.
            Refused: The copy would be in the package; or see `ownership.require_writable`.
        """
        if self._present is not None:
            return
        self._copy.require_outside(self._package.path)
        numbers, kept = self._copy.index_numbers(), self._copy.kept_indexes()
        self._require_store(has_copy=bool(numbers))
        newest = kept[0] if kept else None
        ownership.require_writable(
            self._package.path, newest, url=self._copy.store.url.text, steal=self._steal
        )
        if newest is not None:
            self._before = _without_sessions(
                newest, ownership.foreign_sessions(self._package.path, newest) if self._steal else ()
            )
        self._earlier, self._number = kept, max(numbers, default=0)
        self._broken = sorted({*numbers} - {index.number for index in kept})
        listed = self._copy.objects()
        needed = {name: size for index in kept for name, size in index.objects().items()}
        self._present = {name: size for name, size in needed.items() if listed.get(name) == size}
        self._unsure = {name: size for name, size in listed.items() if name not in self._present}

    def check(self, *, note: Callable[[UploadProgress], None] = lambda progress: None) -> CopyCheck:
        """Reads all objects of the newest index again. The next `upload` puts what is bad again, if the
        package has it; else it is no part of the copy any more.

        Raises:
            As `connect`.
        """
        began = time.monotonic()
        self.connect()
        assert self._present is not None
        files = self._before.files if self._before is not None else {}
        objects = self._before.objects() if self._before is not None else {}
        bad = dict[str, str]()

        def read(name: str, size: int) -> None:
            try:
                self._copy.get_object(name, size)
            except ObjectMissing:
                bad[name] = "lost"
            except ObjectDamaged:
                bad[name] = "damaged"

        self._on_each(objects, read, note)
        for name in bad:
            self._present.pop(name, None)
        self._has_lost |= bool(self._broken)
        found = {path: bad[piece] for path, file in files.items() for piece in file.pieces if piece in bad}
        found |= {copy_index.index_name(number): "damaged" for number in self._broken}
        return CopyCheck(sum(objects.values()), time.monotonic() - began, found)

    def upload(
        self,
        *,
        is_live: bool,
        newest_first: bool = False,
        note: Callable[[UploadProgress], None] = lambda progress: None,
    ) -> UploadResult:
        """Brings the copy up to date.

        Args:
            is_live: Whether a session of the package may be running.
            newest_first: Whether to put only the newest of several new checkpoints, and the others by the
                next call: to a slow store the copy gets further.
            note: Called with the progress.

        Raises:
            StoreError, BrokenIndex: The store failed. What was put so far needs not be put again.
            CopyTaken, Refused: This package must not write to the copy (any more).
            NotFound: The package does not exist any more.
            UploadStopped: ``stop`` was set.
        """
        began = time.monotonic()
        self.connect()
        assert self._present is not None
        numbers = self._require_still_own()
        self._require_store(has_copy=bool(numbers))
        self._forget_lost(numbers)
        unstable: set[str] = set()
        for _ in range(_TRIES):
            with ExitStack() as opened:
                manifests = self._reader.manifests()
                all_kept = self._kept(manifests)
                now = self._newest_first(manifests, is_live=is_live) if newest_first else manifests
                kept = self._kept(now)
                local = self._read(kept, unstable, opened, is_live=is_live)
                plan = self._plan(local)
                try:
                    self._put(plan.puts, note)
                except ChangedFile as error:
                    unstable.add(error.path)
                    continue
            break
        else:
            changed = ", ".join(sorted(unstable)[:3])
            raise StoreError(f"files of the package change faster than they can be read: {changed}, …")
        index = self._index(local, plan, is_live=is_live)
        if self._has_lost or self._is_news(index):
            self._put_index(index)
        else:
            index = self._before or index
        if self._is_proven is None:
            self._is_proven = self._flush()
        self._delete_unneeded()
        is_complete = kept == all_kept or self._rest_of is not None
        self._rest_of = None if is_complete else max(kept)
        seconds = time.monotonic() - began
        return UploadResult(
            index, self._is_proven, plan.num_bytes, seconds, local.left_out, self._store_id, is_complete
        )

    def _require_store(self, *, has_copy: bool) -> None:
        self._store_id = self._copy.require_store(self._store_id, has_copy=has_copy)

    def _forget_lost(self, numbers: list[int]) -> None:
        """Forgets what the store has lost of the copy since it was put, so that it is put again, and is not
        called durable if the package does not have it either."""
        before = self._before
        if before is None or self._present is None:
            return
        listed = self._copy.objects()
        self._present = {name: size for name, size in self._present.items() if listed.get(name) == size}
        lost = before.objects().keys() - self._present
        if lost:
            files = {name: file for name, file in before.files.items() if lost.isdisjoint(file.pieces)}
            gone = before.files.keys() - files
            checkpoints = [
                one
                for one in before.checkpoints
                if not any(name.startswith(_folder_prefix(one)) for name in gone)
            ]
            self._before = msgspec.structs.replace(before, files=files, checkpoints=checkpoints)
        self._has_lost |= bool(lost) or before.number not in numbers

    def _newest_first(self, manifests: Sequence[Manifest], *, is_live: bool) -> list[Manifest]:
        """Returns the checkpoints that count for this upload: the newest and those that the copy has; or
        those up to the newest of the copy, after an upload of that one alone."""
        newest = max((one.id for one in manifests), default=None)
        if self._rest_of is not None and (is_live or self._rest_of == newest):
            return [one for one in manifests if one.id <= self._rest_of]
        self._rest_of = None
        copied = {one.id for one in self._copied}
        return [one for one in manifests if one.id == newest or one.id in copied]

    def _read(
        self, kept: Collection[int], unstable: set[str], opened: ExitStack, *, is_live: bool
    ) -> LocalFiles:
        local = self._reader.read(
            kept,
            copied=self._before.files if self._before is not None else {},
            opened=opened,
            is_live=is_live,
        )
        for name in unstable:
            if local.files.pop(name, None) is not None:
                local.left_out.append(name)
        return local

    def _plan(self, local: LocalFiles) -> UploadPlan:
        kept = self._kept(local.checkpoints)
        return upload_plan.plan(local, self._before, present=self._present or (), kept=kept)

    @property
    def _copied(self) -> list[Manifest]:
        return self._before.checkpoints if self._before is not None else []

    def _kept(self, local: Sequence[Manifest]) -> set[int]:
        best = best_rules(self._package)
        return upload_plan.kept_checkpoints(local, self._copied, keep=self._options.keep, best=best)

    def _require_still_own(self) -> list[int]:
        """Returns the numbers of the indexes; refuses if another process has written one since the last
        upload."""
        numbers = self._copy.index_numbers()
        if numbers and numbers[0] > self._number and not self._is_attempt(numbers[0]):
            url, by = self._copy.store.url.text, ""
            if (index := self._copy.newest_index()) is not None:
                ownership.require_same_run(self._package.path, index, url=url)
                is_own = ownership.is_own(index.owner)
                where = "another package on this machine" if is_own else index.owner.host
                by = f" by {where} (user {index.owner.user}, session {index.owner.session})"
            raise CopyTaken(
                f"the remote copy was taken over{by}: nothing more is uploaded from here",
                where=url,
                fix="continue the run there, or take the copy back with `roost push --steal`",
            )
        return numbers

    def _is_attempt(self, number: int) -> bool:
        """Whether the newest index is what the put that failed has left: all of it, or a part, which the next
        put replaces."""
        if self._attempt is None or self._attempt.number != number:
            return False
        try:
            found = self._copy.read_index(number)
        except BrokenIndex:
            return True
        if found.owner != self._attempt.owner:
            return False
        self._note_index(found)
        return True

    # ---- objects ------------------------------------------------------------------------------------------

    def _put(self, puts: Sequence[Piece], note: Callable[[UploadProgress], None]) -> None:
        pieces = {piece.sha256: piece for piece in puts}
        self._on_each(
            {name: piece.size for name, piece in pieces.items()},
            lambda name, size: self._put_one(pieces[name]),
            note,
        )

    def _on_each(
        self,
        objects: Mapping[str, int],
        act: Callable[[str, int], None],
        note: Callable[[UploadProgress], None],
    ) -> None:
        """Calls ``act`` with each object and its size, a few at the same time."""
        total = self.pending_bytes = sum(objects.values())
        lock = threading.Lock()
        note(UploadProgress(0, total))

        def on_one(item: tuple[str, int]) -> None:
            name, size = item
            self._check_stop()
            act(name, size)
            with lock:
                self.pending_bytes -= size
                note(UploadProgress(total - self.pending_bytes, total))

        for_each(objects.items(), on_one, num_parallel=self._copy.store.num_parallel)

    def _put_one(self, piece: Piece) -> None:
        """Makes sure that the store has a piece, with the right bytes."""
        assert self._present is not None
        data = self._reader.piece_bytes(piece)
        if self._unsure.pop(piece.sha256, None) == piece.size and self._is_there(piece):
            self._present[piece.sha256] = piece.size
            return
        self._rate.wait_for(piece.size)
        self._copy.put_object(piece.sha256, data)
        del data
        if self._options.verify_bytes:
            self._copy.get_object(piece.sha256, piece.size)
        self._present[piece.sha256] = piece.size

    def _is_there(self, piece: Piece) -> bool:
        """Whether the store has all bytes of a piece that it lists, from an upload that was cut."""
        try:
            self._copy.get_object(piece.sha256, piece.size)
        except StoreError:
            return False
        return True

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise UploadStopped

    # ---- the index ----------------------------------------------------------------------------------------

    def _index(self, local: LocalFiles, plan: UploadPlan, *, is_live: bool) -> CopyIndex:
        return CopyIndex(
            number=self._number + 1,
            run=copy_index.run_id((self._package.path / "request.json").read_bytes()),
            name=self._package.path.name,
            kind=str(self._package.request.get("kind", "train")),
            owner=ownership.own_owner(self._package.path),
            ended=not is_live,
            taken=local.taken,
            step=plan.step,
            files=plan.files,
            links=local.links,
            folders=local.folders,
            checkpoints=plan.checkpoints,
        )

    def _is_news(self, index: CopyIndex) -> bool:
        """Whether an index says more than the one before."""
        before = self._before
        if before is None or not ownership.is_own(before.owner):
            return True
        same = msgspec.structs.replace(index, number=before.number, owner=before.owner, taken=before.taken)
        return same != before

    def _put_index(self, index: CopyIndex) -> None:
        if not self._options.verify_bytes:
            self._check_sizes(index)
        self._check_stop()
        self._require_still_own()
        self._attempt = index
        self._copy.put_index(index)
        self._require_store(has_copy=False)  # a drive may have been unmounted since the objects were put
        self._has_lost = False
        self._note_index(index)

    def _note_index(self, index: CopyIndex) -> None:
        """Notes the newest index, which this process has put."""
        self._earlier = [index, *self._earlier][:2]
        self._before, self._number = index, index.number
        self._attempt = self._is_proven = None

    def _check_sizes(self, index: CopyIndex) -> None:
        """Compares the sizes of all objects with what the store lists (``verify: size``)."""
        listed = self._copy.objects()
        for name, size in index.objects().items():
            if listed.get(name) != size:
                (self._present or {}).pop(name, None)
                raise StoreError(
                    f"{self._copy.store.url.text}: the object {name[:12]}… has "
                    f"{listed.get(name, 'no')} bytes instead of {size}"
                )

    def _flush(self) -> bool:
        """Makes a mounted drive upload; returns whether the bytes certainly are in the store.

        Raises:
            StoreError: The command failed.
        """
        url = self._copy.store.url
        if self._options.flush is None:
            return url.scheme != "file" or not mounts.is_drive(mounts.file_system_type(Path(url.rest)))
        try:
            subprocess.run(
                shlex.split(self._options.flush),
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_FLUSH_SECONDS,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise StoreError(f"remote.flush failed: {clean_reason(error)}") from error
        return True

    def _delete_unneeded(self) -> None:
        assert self._present is not None
        listed = {**self._unsure, **self._present}
        unneeded = upload_plan.unneeded_objects(listed, self._earlier)
        self._copy.delete_objects(unneeded, check=self._check_stop)
        for name in unneeded:
            self._present.pop(name, None)
            self._unsure.pop(name, None)


def _without_sessions(index: CopyIndex, foreign: Collection[int]) -> CopyIndex:
    """Returns what the package may keep of a copy that has sessions which it lacks: the checkpoints of all
    other sessions."""
    if not foreign:
        return index
    checkpoints = [one for one in index.checkpoints if one.session not in foreign]
    folders = tuple(_folder_prefix(one) for one in checkpoints)
    files = {name: file for name, file in index.files.items() if name.startswith(folders)}
    return msgspec.structs.replace(index, checkpoints=checkpoints, files=files)


def _folder_prefix(manifest: Manifest) -> str:
    """Returns the beginning of the names of a checkpoint's files in an index."""
    return f"{checkpoint.checkpoint_folder(Path('Checkpoints'), manifest.id).as_posix()}/"


def best_rules(package: PackageFolder) -> list[BestRule]:
    """Returns the tracks of best checkpoints of a run; none if its settings have none."""
    section = package.settings.get("checkpoint")
    found = section.get("best") if isinstance(section, dict) else None
    try:
        best = msgspec.convert(found or [], list[BestSettings])
    except msgspec.ValidationError:
        return []
    return [BestRule(monitor=one.monitor, mode=one.mode, top_k=one.top_k) for one in best]
