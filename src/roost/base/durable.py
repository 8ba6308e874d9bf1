"""The only place in roost that writes files that must survive (standard library only).

Every file is written beside its final name, synced, renamed, and its folder synced: after a crash or a
power cut a reader finds the old file or the new one, never a torn one. A failed fsync is never tried
again, because the kernel may already have dropped the dirty pages (PostgreSQL's "fsyncgate"): the file
is discarded and the error raised.
"""

# Standard library only

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Fault = Callable[[str, str], None]

fault: Fault | None = None
"""Called with (operation, path) before each system call that changes the disk. Tests raise or kill here;
operations are open, write, fsync, rename, mkdir, unlink."""


_SPARE_BYTES = 64 * 2**10
"""For the names of files, and what the file system notes of them."""


def _call_fault(operation: str, path: str | os.PathLike[str]) -> None:
    if fault is not None:
        fault(operation, os.fspath(path))


def staging_name(final: Path) -> Path:
    """A fresh name beside ``final`` that readers ignore: ``.<name>.tmp-<random>``."""
    return final.with_name(f".{final.name}.tmp-{os.urandom(6).hex()}")


def is_staging(name: str) -> bool:
    """Whether a file or folder of this name is the litter of a write that never finished."""
    final, mark, token = name.rpartition(".tmp-")
    return bool(mark) and final.startswith(".") and len(token) == 12 and not token.strip("0123456789abcdef")


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
            error.filename = os.fspath(path)  # "No space left on device" alone does not say which
            raise


class FileDigest:
    """Size in bytes and sha256 of a file, taken while it was written."""

    __slots__ = ("sha256", "size")

    def __init__(self, size: int, sha256: str) -> None:
        self.size, self.sha256 = size, sha256


def write_new(path: Path, chunks: Iterable[bytes | memoryview[Any]], *, mode: int = 0o644) -> FileDigest:
    """Writes a file that does not exist yet and syncs it; its folder is the caller's to sync.

    For files inside a staging folder, which `commit_folder` publishes together.

    Raises:
        OSError: Any failure; the file is removed.
    """
    import hashlib  # with it comes OpenSSL, 4 MB: a supervisor, which lives for days, only calls `write`

    digest, size = hashlib.sha256(), 0

    def measured() -> Iterator[bytes | memoryview[Any]]:
        nonlocal size
        for chunk in chunks:
            yield chunk
            digest.update(chunk)
            size += memoryview(chunk).nbytes

    _write_synced(path, measured(), mode)
    return FileDigest(size, digest.hexdigest())


def _write_synced(path: Path, chunks: Iterable[bytes | memoryview[Any]], mode: int) -> None:
    with NewFile(path, mode=mode) as file:
        for chunk in chunks:
            file.write(chunk)


class NewFile:
    """A file that does not exist yet, written piece by piece inside of ``with``: synced when the block ends,
    removed when an error ends it. Its folder is the caller's to sync.

    Raises:
        OSError: Any failure.
    """

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        self._path = path
        _call_fault("open", path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)

    def write(self, data: bytes | memoryview[Any]) -> int:
        """Adds to its end; gives the number of bytes."""
        _write_all(self._fd, data, self._path)
        return memoryview(data).nbytes

    def put(self, data: bytes, *, at: int) -> None:
        """Replaces bytes that were written already."""
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


def write(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replaces ``path`` by ``data`` in one durable step.

    Args:
        path: The file.
        data: All of it.
        mode: Its rights.

    Raises:
        OSError: Any failure. Whatever stood at ``path`` still stands, unless it was the last one: then the
            new data stands, and a power cut may still bring the old back.
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
    """Replaces ``path`` by ``data`` for whoever looks from now on; a power cut may still take it back, or
    empty it. Whoever is to hold on to it calls `sync_file`, and `write` for another file of its folder.

    Raises:
        OSError: Any failure. Whatever stood at ``path`` still stands.
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


def sync_file(path: Path) -> None:
    """Makes what stands in a file durable; its name is the folder's to sync."""
    _call_fault("fsync", path)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def overwrite(path: Path, data: bytes) -> None:
    """Writes into a small file in place: the last resort on a full disk, where its blocks are all there is.
    Only for what a reader can do without; a crash in the middle tears it.

    Raises:
        OSError: Not even that is possible.
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
        FileExistsError: It exists and ``exist_ok`` is not given.
    """
    try:
        _call_fault("mkdir", path)
        path.mkdir(mode)
    except FileExistsError:
        if not exist_ok:
            raise
    fsync_folder(path.parent)


def make_folders(path: Path, *, below: Path | None = None) -> None:
    """Makes a folder with all those above it that are missing.

    Args:
        path: The folder.
        below: This one is never made: what somebody has removed, as the package of a run, stays away.

    Raises:
        FileNotFoundError: ``below`` is not there.
    """
    above = below.absolute() if below is not None else None
    for folder in reversed([path.absolute(), *path.absolute().parents]):
        if not folder.is_dir() and (above is None or above in folder.parents):
            make_folder(folder, exist_ok=True)


def require_space(folder: Path, size: int) -> None:
    """Makes sure that so many bytes fit on the disk of ``folder``, as far as it can tell (a quota cannot).

    Raises:
        OSError: They do not; says both numbers.
    """
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    if found.f_blocks and free < size + _SPARE_BYTES:  # some network file systems count no blocks
        needed = f"{size:,} bytes are to be written and {_SPARE_BYTES:,} kept"
        said = f"No space left on device: {needed}, and {free:,} are free"
        raise OSError(errno.ENOSPC, said, os.fspath(folder))


def make_staging_folder(final: Path) -> Path:
    """A new, empty folder beside ``final``, for `commit_folder`."""
    staging = staging_name(final)
    _call_fault("mkdir", staging)
    staging.mkdir()
    return staging


def commit_folder(staging: Path, final: Path) -> None:
    """Publishes a staging folder, whose files were written by `write_new`, by one rename.

    Raises:
        FileExistsError: ``final`` exists; nothing is ever overwritten.
        OSError: Any other failure; ``final`` does not stand.
    """
    fsync_folder(staging)
    if os.path.lexists(final):
        raise FileExistsError(errno.EEXIST, "it exists and is never overwritten", str(final))
    _call_fault("rename", final)
    staging.rename(final)
    try:
        fsync_folder(final.parent)
    except BaseException:
        with contextlib.suppress(OSError):  # taken back: who is told that it failed must not find it later
            _call_fault("rename", staging)
            final.rename(staging)
        raise


def rename(path: Path, to: Path) -> None:
    """Renames within one folder, durably. The caller makes sure that ``to`` is free."""
    _call_fault("rename", to)
    path.rename(to)
    fsync_folder(to.parent)


def remove_folder(path: Path) -> None:
    """Removes a folder with all it holds: renamed to a staging name first, so no reader sees half of it,
    not even after a power cut.

    Raises:
        OSError: It could not be renamed, and stands; or the new name could not be made durable.
    """
    doomed = staging_name(path)
    _call_fault("rename", path)
    path.rename(doomed)
    fsync_folder(path.parent)
    discard(doomed)


def discard(staging: Path) -> None:
    """Removes a staging file or folder; what cannot be removed is left for `sweep`."""
    with contextlib.suppress(OSError):
        _call_fault("unlink", staging)
        if staging.is_dir() and not staging.is_symlink():
            import shutil

            shutil.rmtree(staging, ignore_errors=True)
        else:
            staging.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Removes the litter of writes that never finished. Only the holder of the package's lock may call it."""
    for entry in folder.iterdir():
        if is_staging(entry.name):
            discard(entry)


def open_append(path: Path) -> int:
    """Opens a file for `append`, makes it if need be, its name durable; gives the descriptor."""
    _call_fault("open", path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fsync_folder(path.parent)
    except BaseException:
        os.close(fd)
        raise
    return fd


def append(fd: int, data: bytes) -> None:
    """Appends one record in one write. It survives the death of the process at once, and a power cut
    after `sync`.

    Raises:
        OSError: Also when only a part could be written (disk full); readers pass over a torn last line.
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
