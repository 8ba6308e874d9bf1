"""Reads the files of a package for its remote copy: only whole ones, and of those that are being written the
whole lines.

The order makes the copy consistent while a session writes: first the committed checkpoints, then all the
rest. The rows up to the step of a checkpoint are durable before it commits, so they are in the records that
are read later. The files of a checkpoint are opened at once, and so can be read even if the run's own
retention removes them meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import math
import os
import re
import signal
import stat
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec

from roost.base import durable, safe_read
from roost.base.errors import Damaged, NotFound, RoostError
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.owner import owner_file
from roost.package.remote import remote_status
from roost.package.remote.copy_index import CopiedFile

PIECE_BYTES = 16 * 2**20
"""Several pieces are in memory at once; larger ones gain nothing in a store."""
GROWING_PIECE_BYTES = 2**20
"""Of a file that grows, the last piece is uploaded again and again."""
_LINES = re.compile(r"(?:.*/)?(?:_output[^/]*\.txt|[^/]+\.(?:jsonl|log|csv))")
_GROWING = re.compile(r"(?:.*/)?[^/]*tfevents[^/]*")
"""Event files of TensorBoard have no lines; their readers pass over a torn end."""
_SHARED = ("progress", "lock")
"""Files that are open for writing all the time: two records of which one is valid; an empty file."""
_READ_BYTES = 2**20
_SMALL_BYTES = 2**14
"""The bytes of a file up to this size are kept until they are uploaded."""
_CHECKPOINTS = "Checkpoints"


class Piece(NamedTuple):
    """A piece of a file of the package."""

    sha256: str
    path: str
    at: int
    size: int
    fd: int | None = None
    """An open descriptor of the file, which may have been removed."""
    data: bytes | None = None
    """The bytes, of a small file, which may be replaced at any time."""


class LocalFiles(NamedTuple):
    """The files of a package as they were read at one moment."""

    taken: float
    files: dict[str, CopiedFile]
    pieces: dict[str, Piece]
    """Where the bytes of each object are."""
    links: dict[str, str]
    folders: list[str]
    checkpoints: list[Manifest]
    """The checkpoints among the files, without their lists of files."""
    left_out: list[str]
    """Files that a program was writing, or that could not be read; relative to the package."""


class _Known(NamedTuple):
    """A file as it was hashed. ``grown`` is the running digest of the whole pieces of a growing file."""

    stamp: tuple[int, int, int, int]
    file: CopiedFile
    grown: hashlib._Hash | None = None


class FileReader:
    """Reads and hashes the files of a package, again and again, each byte as rarely as possible.

    Args:
        package: The package's folder.
        piece_bytes: The size of the pieces of files that do not grow.
    """

    def __init__(self, package: Path, *, piece_bytes: int = PIECE_BYTES) -> None:
        self._package, self._piece_bytes = package, piece_bytes
        self._known: dict[str, _Known] = {}
        if threading.current_thread() is threading.main_thread():
            ignore_broken_leases()

    def manifests(self) -> list[Manifest]:
        """Returns the committed checkpoints of this moment, by ascending id."""
        try:
            return checkpoint.read_manifests(self._package / _CHECKPOINTS)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(
        self,
        checkpoints: Collection[int],
        *,
        copied: dict[str, CopiedFile],
        opened: ExitStack,
        is_live: bool,
    ) -> LocalFiles:
        """Reads the files of the checkpoints with these ids, then all others.

        Args:
            checkpoints: The ids, of `manifests`.
            copied: The files of the copy: those of a checkpoint whose manifest is the same are not read
                again.
            opened: Closes the descriptors of the files of checkpoints.
            is_live: Whether a session may be writing. If not, files that grow are read from their start to
                their end: the output may have been shortened in its middle.

        Raises:
            NotFound: The package does not exist any more.
        """
        found = LocalFiles(time.time(), {}, {}, {}, [], [], [])
        if not is_live:
            self._known = {name: one for name, one in self._known.items() if one.grown is None}
        for id in sorted(checkpoints, reverse=True):
            with contextlib.suppress(Damaged, NotFound, FileNotFoundError):  # it was removed meanwhile
                self._read_checkpoint(id, found, copied, opened)
        for name in self._walk("", found):
            try:
                self._read_file(name, found, is_live)
            except FileNotFoundError:
                continue
            except OSError:
                found.left_out.append(name)
        if not (self._package / "request.json").is_file():
            raise NotFound("the package does not exist any more", where=self._package)
        self._known = {name: one for name, one in self._known.items() if name in found.files}
        return found

    def _walk(self, folder: str, found: LocalFiles) -> Iterator[str]:
        """Yields the files, without those of checkpoints; notes links and empty folders."""
        try:
            entries = sorted(os.scandir(self._package / folder), key=lambda entry: entry.name)
        except OSError:
            if folder:
                found.left_out.append(folder)
            return
        num_seen = 0
        for entry in entries:
            name = f"{folder}/{entry.name}" if folder else entry.name
            if _is_skipped(name):
                continue
            num_seen += 1
            if not _is_text(name):
                found.left_out.append(name.encode(errors="surrogateescape").decode(errors="backslashreplace"))
            elif entry.is_symlink():
                with contextlib.suppress(OSError):
                    found.links[name] = os.readlink(entry.path)  # noqa: PTH115
            elif entry.is_dir(follow_symlinks=False):
                if not _is_checkpoint(name, entry.path):
                    yield from self._walk(name, found)
            elif entry.is_file(follow_symlinks=False):
                yield name
        if folder and not num_seen:
            found.folders.append(folder)

    def _read_checkpoint(
        self, id: int, found: LocalFiles, copied: dict[str, CopiedFile], opened: ExitStack
    ) -> None:
        folder = checkpoint.checkpoint_folder(Path(_CHECKPOINTS), id).as_posix()
        manifest = checkpoint.read_manifest(self._package / folder)
        names = [f"{folder}/{name}" for name in ("MANIFEST.json", *manifest.files)]
        own: dict[str, CopiedFile] = {}
        pieces: dict[str, Piece] = {}
        before = copied.get(names[0])
        if before is not None and before.sha256 == checkpoint.manifest_digest(self._package / folder):
            own = {name: copied[name] for name in names if name in copied}
        if len(own) != len(names):
            fds = {name: safe_read.open_fd(self._package / name, follow_link=False) for name in names}
            for fd in fds.values():
                opened.callback(os.close, fd)
            for name, fd in fds.items():
                own[name] = self._hashed(name, fd, os.fstat(fd).st_size, self._piece_bytes)
                pieces |= _pieces(name, own[name], fd)
            for name, entry in manifest.files.items():
                if own[f"{folder}/{name}"].sha256 != entry.get("sha256"):
                    raise Damaged(f"{folder}: {name} has other bytes than were written")
        found.files.update(own)
        found.pieces.update(pieces)
        found.checkpoints.append(without_files(manifest))

    def _read_file(self, name: str, found: LocalFiles, is_live: bool) -> None:
        path = self._package / name
        fd = safe_read.open_fd(path, follow_link=False)
        data: bytes | None = None
        file: CopiedFile | None
        try:
            if _LINES.fullmatch(name) or _GROWING.fullmatch(name):
                file = self._grown(name, fd, is_live)
            else:
                file = self._whole(name, fd)
                if file is not None and file.size <= _SMALL_BYTES:
                    data = _pread_all(fd, file.size, 0)
        finally:
            os.close(fd)
        if file is None:
            found.left_out.append(name)
            return
        found.files[name] = file
        pieces = _pieces(name, file, None)
        if data is not None:
            pieces = {key: one._replace(data=data) for key, one in pieces.items()}
        found.pieces.update(pieces)

    def _whole(self, name: str, fd: int) -> CopiedFile | None:
        """Returns a file that no process writes; None for another one."""
        before = os.fstat(fd)
        stamp, known = _stamp(before), self._known.get(name)
        if known is not None and known.stamp == stamp:
            return known.file
        if name not in _SHARED and is_being_written(fd):
            return None
        file = self._hashed(name, fd, before.st_size, self._piece_bytes)
        if name in _SHARED:
            return file
        if _stamp(os.fstat(fd)) != stamp or is_being_written(fd):
            return None
        self._known[name] = _Known(stamp, file)
        return file

    def _grown(self, name: str, fd: int, is_live: bool) -> CopiedFile:
        """Returns a file that grows; one of lines that is being written up to its last whole line."""
        has_whole_lines = is_live and _LINES.fullmatch(name) is not None and is_being_written(fd)
        before = os.fstat(fd)
        stamp, size, known = _stamp(before), before.st_size, self._known.get(name)
        if known is not None and known.stamp == stamp and (has_whole_lines or known.file.size == size):
            return known.file
        if has_whole_lines:
            size = _end_of_lines(fd, size)
        whole, pieces = hashlib.sha256(), list[str]()
        if known is not None and known.grown is not None and _has_grown(known, stamp, size, fd):
            whole = known.grown.copy()
            pieces = known.file.pieces[: known.file.size // GROWING_PIECE_BYTES]
        digest = whole
        for at in range(len(pieces) * GROWING_PIECE_BYTES, size, GROWING_PIECE_BYTES):
            data = _pread_all(fd, min(GROWING_PIECE_BYTES, size - at), at)
            pieces.append(hashlib.sha256(data).hexdigest())
            if len(data) < GROWING_PIECE_BYTES:
                size, digest = at + len(data), whole.copy()
                digest.update(data)
                break
            whole.update(data)
        file = _copied(before, size, digest.hexdigest(), GROWING_PIECE_BYTES, pieces)
        self._known[name] = _Known(stamp, file, whole)
        return file

    def _hashed(self, name: str, fd: int, size: int, piece_bytes: int) -> CopiedFile:
        """The file behind a descriptor, read once. Raises OSError if it is shorter than that."""
        digest, pieces, at = hashlib.sha256(), list[str](), 0
        while at < size:
            piece, end = hashlib.sha256(), min(size, at + piece_bytes)
            while at < end:
                data = os.pread(fd, min(_READ_BYTES, end - at), at)
                if not data:
                    raise OSError(errno.EIO, "became shorter while it was read", name)
                at += len(data)
                piece.update(data)
                if size > piece_bytes:
                    digest.update(data)
            pieces.append(piece.hexdigest())
        sha256 = pieces[0] if len(pieces) == 1 else digest.hexdigest()
        return _copied(os.fstat(fd), size, sha256, piece_bytes, pieces)

    def piece_bytes(self, piece: Piece) -> bytes:
        """Returns the bytes of a piece.

        Raises:
            ChangedFile: The file has other bytes by now.
        """
        if piece.data is not None and hashlib.sha256(piece.data).hexdigest() == piece.sha256:
            return piece.data
        try:
            fd = piece.fd if piece.fd is not None else safe_read.open_fd(self._package / piece.path)
            try:
                data = _pread_all(fd, piece.size, piece.at)
            finally:
                if piece.fd is None:
                    os.close(fd)
        except OSError as error:
            raise ChangedFile(piece.path) from error
        if hashlib.sha256(data).hexdigest() != piece.sha256:
            raise ChangedFile(piece.path)
        return data


class ChangedFile(RoostError):
    """A file of the package has changed or was removed since it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} has changed while it was copied")
        self.path = path


def without_files(manifest: Manifest) -> Manifest:
    """Returns a manifest as an index has it."""
    metrics = {name: value for name, value in manifest.metrics.items() if math.isfinite(value)}
    return msgspec.structs.replace(manifest, files={}, metrics=metrics, nonfinite={})


def ignore_broken_leases() -> None:
    """Ignores the signal that a program causes which opens a file just while `is_being_written` looks. To be
    called in the main thread, by a process that reads files in another one."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)


def is_being_written(fd: int) -> bool:
    """Whether a process of this machine has the file open for writing. False where the file system cannot
    say."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _is_skipped(name: str) -> bool:
    folder, _, last = name.rpartition("/")
    is_damaged = folder == _CHECKPOINTS and ".ckpt.corrupt" in last
    is_of_machine = name in (remote_status.NAME, owner_file.NAME)
    return durable.is_staging(last) or is_of_machine or is_damaged


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:  # a name that is no UTF-8, which an index cannot hold
        return False
    return True


def _is_checkpoint(name: str, path: str) -> bool:
    """Whether a folder is a checkpoint of roost, committed or damaged; a program may have such names, too."""
    folder, _, last = name.rpartition("/")
    return (
        folder == _CHECKPOINTS
        and last.startswith(checkpoint.PREFIX)
        and last.endswith(".ckpt")
        and os.path.lexists(f"{path}/MANIFEST.json")
    )


def _stamp(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _has_grown(known: _Known, stamp: tuple[int, int, int, int], size: int, fd: int) -> bool:
    """Whether a file is the known one with more at its end. A program may also write all of it again: then
    the first whole piece or the last differs."""
    if known.stamp[:2] != stamp[:2] or known.file.size > size:
        return False
    pieces = known.file.pieces[: known.file.size // GROWING_PIECE_BYTES]
    for number in {0, len(pieces) - 1} if pieces else ():
        data = _pread_all(fd, GROWING_PIECE_BYTES, number * GROWING_PIECE_BYTES)
        if hashlib.sha256(data).hexdigest() != pieces[number]:
            return False
    return True


def _copied(found: os.stat_result, size: int, sha256: str, piece_bytes: int, pieces: list[str]) -> CopiedFile:
    return CopiedFile(
        size=size,
        sha256=sha256,
        mode=stat.S_IMODE(found.st_mode),
        mtime=found.st_mtime_ns / 1e9,
        piece_bytes=piece_bytes,
        pieces=pieces,
    )


def _pieces(path: str, file: CopiedFile, fd: int | None) -> dict[str, Piece]:
    found, at = {}, 0
    for name, size in file.piece_sizes():
        found[name] = Piece(name, path, at, size, fd)
        at += size
    return found


def _pread_all(fd: int, size: int, at: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        data = os.pread(fd, size, at)
        if not data:
            break
        parts.append(data)
        size, at = size - len(data), at + len(data)
    return b"".join(parts) if len(parts) != 1 else parts[0]


def _end_of_lines(fd: int, size: int) -> int:
    """Returns where the last whole line ends; ``size`` of a file without lines near its end."""
    for count in (1 << 12, 1 << 16, 1 << 20):
        start = max(0, size - count)
        end = _pread_all(fd, size - start, start).rfind(b"\n")
        if end >= 0:
            return start + end + 1
        if start == 0:
            return 0
    return size
