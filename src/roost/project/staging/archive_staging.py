"""Stages one archive: finds it, reads it once, verifies it, unpacks it, and publishes the folder.

A tar file is unpacked while it is read. A zip file has its index at its end: one on a local disk is read for
its digest and unpacked where it is, another one is copied to the staging folder first. In each case nothing
is published before the digest of all bytes is known and right.
"""

# Not durable: what is staged can be staged again

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import msgspec

from roost.base import durable
from roost.base.archives import unpacking
from roost.base.archives.safe_folder import SafeFolder, UnpackLimits
from roost.base.errors import Refused, RoostError
from roost.base.system import mounts
from roost.base.system.process_identity import boot_id
from roost.base.text.byte_sizes import format_bytes
from roost.config.sections.staging import StagedArchiveSettings
from roost.package.results.staged_archives import STAGE_KEY
from roost.project.staging import archive_source, staging_folder
from roost.project.staging.archive_source import ArchiveSource
from roost.project.staging.staging_cache import StagedEntry, StagingCache, count_paths
from roost.project.transfer_progress import TransferProgress

_PIECE_BYTES = 1 << 20
_PROGRESS_SECONDS = 5.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BY_HAND = "unpack it by hand, and look at it"
GIGABYTE = 10**9


class StagedArchive(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that is unpacked on this machine."""

    archive: str
    """Where it was read, without credentials."""
    sha256: str
    folder: str
    num_files: int
    num_bytes: int


def find_unstaged(
    asked: StagedArchiveSettings,
    *,
    project: Path,
    sha256: str | None,
    setting: str,
    where: object | None = None,
) -> ArchiveSource | None:
    """Returns where an archive is that must be read to be staged; None if it is staged already. It is not
    read, and no server is asked.

    Args:
        asked: Its settings.
        project: The folder to which its path is relative.
        sha256: The digest that it had in the first session of the package; None: it is not known.
        setting: The key of its settings, for messages.
        where: Where that was set.

    Raises:
        NotFound: There is no such file.
        ConfigError: It is a folder, or a URL for which no library is installed.
        RoostError: The disk cannot be read.
    """
    cache = StagingCache(staging_folder.staging_folder(asked.to))
    expected = (asked.sha256 or sha256 or "").lower()
    if expected and cache.has(expected):
        return None
    source = archive_source.find(asked.archive, project=project, setting=setting, where=where)
    if not expected and (known := cache.known_digest(source.identity)) is not None and cache.has(known):
        return None
    source.require_library()
    return source


def stage(
    asked: StagedArchiveSettings,
    *,
    project: Path,
    package: Path | None = None,
    sha256: str | None = None,
    setting: str = STAGE_KEY,
    where: object | None = None,
) -> StagedArchive:
    """Returns an archive unpacked on this machine; it is not removed until this process ends.

    Of several processes that call this at once, one unpacks, and the others wait. A process that is killed
    leaves nothing that is taken as a whole.

    Args:
        asked: Its settings.
        project: The folder to which its path is relative.
        package: The package of the run; the staging folder must not be in it.
        sha256: The digest that it had in the first session of the package; None: it is not known.
        setting: The key of its settings, for messages.
        where: Where that was set.

    Raises:
        NotFound: There is no such archive.
        Refused: Its digest is another one; or it is damaged, encrypted, too large, or not safe to unpack.
        ConfigError: The archive is a folder or its URL has an unknown scheme, or the staging folder is inside
            the package.
        RoostError: It cannot be read, or there is no space.
        OSError: The staging folder cannot be written.
    """
    root = staging_folder.staging_folder(asked.to)
    staging_folder.prepare(
        root, package, setting=f"{setting}.to" if asked.to is not None else None, where=where
    )  # fmt: skip
    cache, expected = StagingCache(root), (asked.sha256 or sha256 or "").lower() or None
    if expected is not None and (entry := cache.hold(expected)) is not None:
        return _staged(cache, entry)
    source = archive_source.find(asked.archive, project=project, setting=setting, where=where)
    expected = expected or cache.known_digest(source.identity)
    name = expected or f"source-{hashlib.sha256(source.location.encode()).hexdigest()[:32]}"
    with cache.making(name, source.name):
        expected = expected or cache.known_digest(source.identity)
        entry = cache.hold(expected) if expected is not None else None
        while entry is None:
            entry = _Staging(cache, source, asked, expected, name=name, is_first=sha256 is None).run()
    return _staged(cache, entry)


def _staged(cache: StagingCache, entry: StagedEntry) -> StagedArchive:
    return StagedArchive(
        archive=entry.archive,
        sha256=entry.sha256,
        folder=str(cache.files(entry.sha256)),
        num_files=entry.num_files,
        num_bytes=entry.num_bytes,
    )


class _Staging:
    """The staging of one archive that is not staged yet.

    Args:
        cache: The folder of the staged archives.
        source: The archive.
        asked: Its settings.
        expected: The digest that it must have; None: any.
        name: The name of its lock, and of the folder that is unpacked.
        is_first: Whether no earlier session has recorded its digest.
    """

    def __init__(
        self,
        cache: StagingCache,
        source: ArchiveSource,
        asked: StagedArchiveSettings,
        expected: str | None,
        *,
        name: str,
        is_first: bool,
    ) -> None:
        self._cache, self._source, self._asked, self._expected = cache, source, asked, expected
        self._name, self._is_first = name, is_first
        self._limits = UnpackLimits(
            max_bytes=int(asked.max_gb * GIGABYTE),
            max_files=asked.max_files,
            max_ratio=asked.max_ratio,
            fix=_BY_HAND if source.is_of_option else _raise_limits(source.setting),
        )

    def run(self) -> StagedEntry | None:
        """Stages the archive; a second time if the disk was full and something could be removed. None if
        another process has removed the entry meanwhile.

        Raises:
            RoostError, OSError: As `stage`.
        """
        self._make_room()
        try:
            return self._once()
        except OSError as error:
            if error.errno not in _FULL:
                raise self._not_written(error) from error
        removed = self._cache.make_room(free_bytes=sys.maxsize)
        try:
            if removed:
                _print(f"the disk is full: {_removed_line(removed)}")
                return self._once()
        except OSError as error:
            if error.errno not in _FULL:
                raise self._not_written(error) from error
        raise self._no_space()

    def _once(self) -> StagedEntry | None:
        source, began = self._source, time.monotonic()
        _print(f"{source.name}: staging {source.shown} to {self._cache.folder}")
        staging = self._cache.make_staging_folder(self._name)
        try:
            files = staging / "files"
            files.mkdir()
            with source.open() as (size, stream):
                reader = _HashingReader(stream, size, source.name)
                with closing(reader):
                    made, digest = self._unpack(reader, staging, files)
            self._require_unchanged()
            entry = StagedEntry(
                sha256=digest,
                archive=source.shown,
                archive_bytes=reader.num_bytes,
                num_files=made.num_files,
                num_bytes=made.num_bytes,
                boot=boot_id(),
                made=time.time(),
                num_paths=count_paths(files),
            )
            self._cache.publish(staging, entry)
        finally:
            durable.discard(staging)
        self._cache.note_digest(source.identity, digest)
        held = self._cache.hold(digest)
        self._report(entry, time.monotonic() - began)
        keep = self._asked.keep_gb
        if keep is not None and (removed := self._cache.make_room(keep_bytes=keep * GIGABYTE)):
            _print(f"more than keep_gb: {_removed_line(removed)}")
        return held

    # ---- reading -----------------------------------------------------------------------------------------

    def _unpack(self, reader: _HashingReader, staging: Path, files: Path) -> tuple[SafeFolder, str]:
        stream = io.BufferedReader(reader, _PIECE_BYTES)
        kind = unpacking.format_of(stream.peek(unpacking.HEAD_BYTES))
        if kind == "zip":
            return self._unpack_zip(reader, stream, staging, files)
        try:
            made = unpacking.unpack_stream(
                stream, files, self._limits, kind=kind, archive=self._source.shown
            )  # fmt: skip
        except Refused as error:
            if self._expected is None:
                raise
            _read_rest(stream)  # damage is best explained by the digest
            self._require_digest(reader, because=error)
            raise
        _read_rest(stream)
        return made, self._require_digest(reader)

    def _unpack_zip(
        self, reader: _HashingReader, stream: IO[bytes], staging: Path, files: Path
    ) -> tuple[SafeFolder, str]:
        path, copy = self._source.path, staging / "archive.zip"
        if path is None or mounts.is_remote(mounts.file_system_type(path)):
            with copy.open("wb") as file:
                shutil.copyfileobj(stream, file, _PIECE_BYTES)
            path = copy
        else:
            _read_rest(stream)
        digest = self._require_digest(reader)
        reader.end_progress()
        with closing(
            TransferProgress(f"{self._source.name}: unpacked", None, every_seconds=_PROGRESS_SECONDS)
        ) as progress:
            try:
                made = unpacking.unpack(path, files, self._limits, report=progress.add)
            except Refused as error:
                raise Refused(error.message, where=self._source.shown, fix=error.fix) from error
        copy.unlink(missing_ok=True)
        return made, digest

    def _require_digest(self, reader: _HashingReader, *, because: Refused | None = None) -> str:
        digest = reader.sha256.hexdigest()
        if self._expected is None or digest == self._expected:
            return digest
        source = self._source
        what = f"the archive has the sha256 {digest}, not {self._expected}"
        given = "the digits after #sha256=" if source.is_of_option else f"{source.setting}.sha256"
        fix = f"fetch it again, or correct {given}"
        if because is not None:
            what = f"{what}; {because.message}"
        if self._asked.sha256 is None:
            what = (
                f"the archive has changed since it was first staged: its sha256 is {digest}, "
                f"and was {self._expected}"
            )
            fix = f"put the earlier one back; or continue with {source.setting}.sha256={digest} --force"
            if source.is_of_option:
                fix = "put the earlier one back; or start a new run"
        raise Refused(what, setting=source.setting, received=source.shown, where=source.where, fix=fix)

    def _require_unchanged(self) -> None:
        source = self._source
        if source.path is None:
            return
        now = archive_source.find(
            str(source.path), project=Path(), setting=source.setting, where=source.where
        )
        if now.identity != source.identity:
            fix = "start it again when the archive is complete"
            raise source.error("it has changed while it was read", fix=fix)

    # ---- space -------------------------------------------------------------------------------------------

    def _make_room(self) -> None:
        """Removes what is not used until as much is free as the archive takes at least."""
        size = self._source.size or 0
        removed = self._cache.make_room(free_bytes=size)
        if removed:
            _print(f"to make room: {_removed_line(removed)}")
        if shutil.disk_usage(self._cache.folder).free < size:
            raise self._no_space()

    def _no_space(self) -> RoostError:
        size = f"{format_bytes(self._source.size)}, and more when unpacked" if self._source.size else "more"
        free = format_bytes(shutil.disk_usage(self._cache.folder).free)
        return RoostError(
            f"there is no space for the staged archive: it takes {size}, and {free} are free",
            setting=self._source.setting,
            where=self._cache.folder,
            fix=f"free space there, or {staging_folder.ANOTHER_FOLDER}",
        )

    def _not_written(self, error: OSError) -> RoostError:
        if error.filename is not None and str(error.filename) == str(self._source.path):
            return self._source.error(
                error.strerror or str(error), fix="look at the disk and your permissions"
            )
        what = f"the archive cannot be staged: {error.strerror or error}"
        return RoostError(
            what,
            setting=self._source.setting,
            where=error.filename or self._source.shown,
            fix=f"look at both disks; {staging_folder.ANOTHER_FOLDER}",
        )

    def _report(self, entry: StagedEntry, seconds: float) -> None:
        speed = entry.archive_bytes / max(seconds, 1e-3)
        files = f"{entry.num_files:,} file{'s' * (entry.num_files != 1)}"
        _print(
            f"{self._source.name}: staged in {seconds:.1f} s, {format_bytes(speed)}/s: "
            f"{files}, {format_bytes(entry.num_bytes)} in {self._cache.files(entry.sha256)}"
        )
        if self._asked.sha256 is None and self._is_first:
            no_digest = "" if self._source.is_of_option else f"no {self._source.setting}.sha256 is set; "
            _print(f"{self._source.name}: {no_digest}its sha256 is {entry.sha256}")


class _HashingReader(io.RawIOBase):
    """The bytes of an archive, hashed and counted as they are read."""

    def __init__(self, stream: IO[bytes], size: int | None, name: str) -> None:
        self._stream, self.num_bytes, self.sha256 = stream, 0, hashlib.sha256()
        self._progress: TransferProgress | None = TransferProgress(
            name, size, every_seconds=_PROGRESS_SECONDS
        )

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        piece = self._stream.read(len(buffer))
        count = len(piece)
        buffer[:count] = piece
        self.sha256.update(piece)
        self.num_bytes += count
        if self._progress is not None:
            self._progress.add(count)
        return count

    def end_progress(self) -> None:
        """Prints the final progress, once."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None

    def close(self) -> None:
        """Ends the progress; the stream stays open."""
        self.end_progress()
        super().close()


def _read_rest(stream: IO[bytes]) -> None:
    while stream.read(_PIECE_BYTES):
        pass


def _raise_limits(setting: str) -> str:
    return f"raise max_gb, max_files or max_ratio in {setting} if the archive is what you expect"


def _removed_line(removed: list[StagedEntry]) -> str:
    size = format_bytes(sum(one.num_bytes for one in removed))
    names = ", ".join(os.path.basename(one.archive) for one in removed)  # noqa: PTH119  - may be a URL
    return f"removed {names} ({size}), unused for the longest time"


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
