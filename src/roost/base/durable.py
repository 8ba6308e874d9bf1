"""Durable writes: the only module of roost that writes files that must survive (standard library only).

Every file is written under a temporary name in the same folder, synced, renamed, and its folder synced: after
a crash or a power cut a reader finds the old file or the new one, never a torn one. A failed fsync is never
repeated, because the kernel may already have dropped the dirty pages (PostgreSQL's "fsyncgate"): the file
is discarded and the error raised.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Fault = Callable[[str, str], None]

fault: Fault | None = None
"""Called with (operation, path) before each system call that changes the disk; tests raise or kill here. The
operations are open, write, fsync, rename, mkdir and unlink."""


_ABANDONED_SECONDS = 600.0
"""A write of one file that has added nothing for this long was killed."""
_SPARE_BYTES = 64 * 2**10
"""Kept free for names of files and other metadata of the file system."""


def _call_fault(operation: str, path: str | os.PathLike[str]) -> None:
    if fault is not None:
        fault(operation, os.fspath(path))


def staging_name(final: Path) -> Path:
    """Returns a new name in the folder of ``final`` that readers ignore: ``.<name>.tmp-<random>``."""
    return final.with_name(f".{final.name}.tmp-{os.urandom(6).hex()}")


def is_staging(name: str) -> bool:
    """Whether a file or folder of this name was left by a write that never finished."""
    final, separator, token = name.rpartition(".tmp-")
    return (
        bool(separator) and final.startswith(".") and len(token) == 12 and not token.strip("0123456789abcdef")
    )


def fsync_folder(path: Path) -> None:
    """Makes the names in a folder durable."""
    _call_fault("fsync", path)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes | memoryview[Any], path: Path) -> None:
    view = memoryview(data).cast("B")
    while view:
        _call_fault("write", path)
        try:
            view = view[os.write(fd, view) :]
        except OSError as error:
            error.filename = os.fspath(path)  # "No space left on device" alone does not name the file
            raise


class FileDigest:
    """Size in bytes and SHA-256 of a file, computed while it was written."""

    __slots__ = ("sha256", "size")

    def __init__(self, size: int, sha256: str) -> None:
        self.size, self.sha256 = size, sha256


def write_new(path: Path, chunks: Iterable[bytes | memoryview[Any]], *, mode: int = 0o644) -> FileDigest:
    """Writes a file that does not exist yet and syncs it; the caller syncs its folder.

    For files inside a staging folder, which `commit_folder` publishes together.

    Raises:
        OSError: Any failure; the file is removed.
    """
    import hashlib  # imports OpenSSL, 4 MB; a supervisor, which lives for days, calls only `write`

    digest, size = hashlib.sha256(), 0

    def hashed_chunks() -> Iterator[bytes | memoryview[Any]]:
        nonlocal size
        for chunk in chunks:
            yield chunk
            digest.update(chunk)
            size += memoryview(chunk).nbytes

    _write_synced(path, hashed_chunks(), mode)
    return FileDigest(size, digest.hexdigest())


def _write_synced(path: Path, chunks: Iterable[bytes | memoryview[Any]], mode: int) -> None:
    with NewFile(path, mode=mode) as file:
        for chunk in chunks:
            file.write(chunk)


class NewFile:
    """A file that does not exist yet, written piece by piece inside ``with``: synced when the block ends,
    removed when an error ends it. The caller syncs its folder.

    Raises:
        OSError: Any failure.
    """

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        self._path = path
        _call_fault("open", path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    def write(self, data: bytes | memoryview[Any]) -> int:
        """Appends ``data`` and returns its number of bytes."""
        _write_all(self._fd, data, self._path)
        return memoryview(data).nbytes

    def overwrite_at(self, data: bytes, *, at: int) -> None:
        """Replaces bytes that were already written, from offset ``at``."""
        _call_fault("write", self._path)
        while data:
            written = os.pwrite(self._fd, data, at)
            data, at = data[written:], at + written

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                _call_fault("fsync", self._path)
                os.fsync(self._fd)
        except BaseException:
            discard(self._path)
            raise
        finally:
            os.close(self._fd)
        if error is not None:
            discard(self._path)


def write(path: Path, data: bytes | memoryview[Any], *, mode: int = 0o644) -> None:
    """Replaces ``path`` by ``data`` in one durable step.

    Raises:
        OSError: Any failure. The old file is unchanged, unless syncing the folder failed: then ``path`` has
            the new data, and a power cut may still bring the old data back.
    """
    staging = staging_name(path)
    _write_synced(staging, [data], mode)
    try:
        _call_fault("rename", path)
        staging.rename(path)
    except BaseException:
        discard(staging)
        raise
    fsync_folder(path.parent)


def write_unsynced(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replaces ``path`` by ``data`` atomically for all readers, without fsync: a power cut may still undo the
    change or leave an empty file. To make it durable, call `sync_file`, and `write` for another file of its
    folder.

    Raises:
        OSError: Any failure; the old file is unchanged.
    """
    staging = staging_name(path)
    _call_fault("open", path)
    fd = os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        _write_all(fd, data, staging)
        _call_fault("rename", path)
        staging.rename(path)
    except BaseException:
        discard(staging)
        raise
    finally:
        os.close(fd)


_LINK_ERRORS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""The errors of file systems without hard links, such as those of mounted drives."""


def create_unsynced(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """As `write_unsynced`, for a file that must not exist yet: of several machines that create it at the same
    moment one succeeds. On a file system without hard links two may succeed; the later content is kept.

    Raises:
        FileExistsError: ``path`` exists.
        OSError: Any other failure; ``path`` does not exist.
    """
    staging = staging_name(path)
    write_unsynced(staging, data, mode=mode)
    try:
        _call_fault("rename", path)
        try:
            os.link(staging, path)
        except OSError as error:
            if error.errno not in _LINK_ERRORS:
                raise
            if os.path.lexists(path):
                raise FileExistsError(errno.EEXIST, "it exists already", str(path)) from None
            staging.rename(path)
    finally:
        discard(staging)


def file_system_time(folder: Path) -> float:
    """Returns the present time by the clock that stamps the files of a folder, in Unix seconds: of a network
    disk that of its server.

    Raises:
        OSError: No file can be made in the folder.
    """
    probe = staging_name(folder / "time")
    write_unsynced(probe, b"")
    try:
        return probe.stat().st_mtime
    finally:
        discard(probe)


def sync_file(path: Path) -> None:
    """Makes the content of a file durable; its name becomes durable when its folder is synced."""
    _call_fault("fsync", path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def overwrite(path: Path, data: bytes) -> None:
    """Writes into a small file in place: the last resort on a full disk, where only the blocks of the old
    file can be used. Only for data that a reader can do without: a crash in the middle tears the file.

    Raises:
        OSError: The file cannot be written in place either.
    """
    _call_fault("open", path)
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        _write_all(fd, data, path)
        os.ftruncate(fd, len(data))
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path, *, exist_ok: bool = False, mode: int = 0o777) -> None:
    """Makes one folder and syncs its parent.

    Raises:
        FileExistsError: The folder exists and ``exist_ok`` is False.
    """
    try:
        _call_fault("mkdir", path)
        path.mkdir(mode)
    except FileExistsError:
        if not exist_ok:
            raise
    fsync_folder(path.parent)


def make_folders(path: Path, *, below: Path | None = None) -> None:
    """Makes a folder and all of its parents that are missing.

    Args:
        path: The folder.
        below: Parents up to and including this folder are never made, so that a folder which the user has
            removed, such as the package of a run, does not come back.

    Raises:
        FileNotFoundError: ``below`` does not exist.
    """
    above = below.absolute() if below is not None else None
    for folder in reversed([path.absolute(), *path.absolute().parents]):
        if not folder.is_dir() and (above is None or above in folder.parents):
            make_folder(folder, exist_ok=True)


def require_space(folder: Path, size: int) -> None:
    """Checks that ``size`` bytes fit on the disk of ``folder``. A quota is not seen.

    Raises:
        OSError: They do not fit; the text has both numbers.
    """
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < size + _SPARE_BYTES:  # some network file systems count no blocks
        needed = f"{size:,} bytes are to be written and {_SPARE_BYTES:,} kept"
        message = f"No space left on device: {needed}, and {free:,} are free"
        raise OSError(errno.ENOSPC, message, os.fspath(folder))


def make_staging_folder(final: Path) -> Path:
    """Makes a new, empty folder in the parent of ``final``, for `commit_folder`."""
    staging = staging_name(final)
    _call_fault("mkdir", staging)
    staging.mkdir()
    return staging


def commit_folder(staging: Path, final: Path) -> None:
    """Publishes a staging folder, whose files were written by `write_new`, by one rename.

    Raises:
        FileExistsError: ``final`` exists; nothing is ever overwritten.
        OSError: Any other failure; ``final`` does not exist.
    """
    fsync_folder(staging)
    if os.path.lexists(final):
        raise FileExistsError(errno.EEXIST, "it exists and is never overwritten", str(final))
    _call_fault("rename", final)
    staging.rename(final)
    try:
        fsync_folder(final.parent)
    except BaseException:
        with contextlib.suppress(OSError):  # undone: after an error the caller must not find the folder later
            _call_fault("rename", staging)
            final.rename(staging)
        raise


def rename(path: Path, to: Path) -> None:
    """Renames durably within one folder. The caller makes sure that ``to`` does not exist."""
    _call_fault("rename", to)
    path.rename(to)
    fsync_folder(to.parent)


def move(path: Path, to: Path) -> None:
    """Moves a file or folder into another folder of the same file system, by one durable rename. The caller
    makes sure that ``to`` does not exist, or is an empty folder that it has made itself."""
    _call_fault("rename", to)
    path.rename(to)
    fsync_folder(to.parent)
    fsync_folder(path.parent)


def remove_file(path: Path) -> None:
    """Removes a file durably; does nothing if there is none."""
    _call_fault("unlink", path)
    path.unlink(missing_ok=True)
    fsync_folder(path.parent)


def remove_empty_folder(path: Path) -> None:
    """Removes a folder.

    Raises:
        OSError: It is not empty, or cannot be removed.
    """
    _call_fault("unlink", path)
    path.rmdir()


def remove_folder(path: Path) -> None:
    """Removes a folder and everything in it. The folder is renamed to a staging name first, so that no reader
    sees half of it, not even after a power cut.

    Raises:
        OSError: The folder could not be renamed, and is unchanged; or the new name could not be made durable.
    """
    doomed = staging_name(path)
    _call_fault("rename", path)
    path.rename(doomed)
    fsync_folder(path.parent)
    discard(doomed)


def discard(staging: Path) -> None:
    """Removes a staging file or folder. If that fails, `sweep` removes it later."""
    with contextlib.suppress(OSError, RecursionError):  # folders nested more deeply than calls may be
        _call_fault("unlink", staging)
        if staging.is_dir() and not staging.is_symlink():
            import shutil

            shutil.rmtree(staging, ignore_errors=True)
        else:
            staging.unlink(missing_ok=True)


def discard_abandoned(final: Path) -> None:
    """Removes what writes of ``final`` that were killed have left in its folder, which need not be a
    package's: only staging names of this file, too old to belong to a write that lasts."""
    with contextlib.suppress(OSError):  # a folder that cannot be read
        for entry in final.parent.iterdir():
            is_ours = entry.name.startswith(f".{final.name}.tmp-") and is_staging(entry.name)
            if is_ours and time.time() - entry.lstat().st_mtime > _ABANDONED_SECONDS:
                discard(entry)


def sweep(folder: Path) -> None:
    """Removes what unfinished writes left in a folder. Only the holder of the package's lock may call
    this."""
    for entry in folder.iterdir():
        if is_staging(entry.name):
            discard(entry)


def open_append(path: Path) -> int:
    """Opens a file for `append` and returns the descriptor; a new file's name is made durable."""
    _call_fault("open", path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fsync_folder(path.parent)
    except BaseException:
        os.close(fd)
        raise
    return fd


def append(fd: int, data: bytes) -> None:
    """Appends one record in one write. The record survives the end of the process at once, and a power cut
    after `sync`.

    Raises:
        OSError: The record could not be written, or only a part of it (disk full); readers ignore a torn last
            line.
    """
    if fault is not None:
        fault("write", f"fd:{fd}")
    written = os.write(fd, data)
    if written != len(data):
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes could be appended")


def sync(fd: int) -> None:
    """Makes everything appended so far durable."""
    if fault is not None:
        fault("fsync", f"fd:{fd}")
    os.fsync(fd)
