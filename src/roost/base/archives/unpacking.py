"""Unpacks untrusted archives: zip files, and tar files as they are or compressed by gzip, bzip2, xz or zstd.

The format is that of the first bytes, whatever the name says. A tar file is read from a stream, once; a zip
file has its index at the end and must be a file.
"""

# Not durable: what was unpacked can be unpacked again

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import importlib
import io
import lzma
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, Self, cast

from roost.base.archives.safe_folder import LONGEST_LINK, SafeFolder, UnpackLimits, UnsafeEntry
from roost.base.errors import NotFound, Refused, RoostError

SUFFIXES = (
    ".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".tzst",
)  # fmt: skip
ArchiveFormat = Literal["zip", "tar", "gz", "bz2", "xz", "zst"]
HEAD_BYTES = 6
"""As many first bytes as `format_of` needs."""
_HEADS: dict[bytes, ArchiveFormat] = {
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",  # without entries
    b"\x1f\x8b": "gz",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zst",
}
_PIECE_BYTES = 1 << 18
_MAX_HEADER_BYTES = 1 << 26
"""The most bytes of a tar file without an entry: tarfile keeps the whole header of an entry in memory."""
_ZIP_THREADS = 4
_ENCRYPTED = 1
_FAULTS_OF_ARCHIVE = (
    errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENOENT,
    errno.EILSEQ,
)  # fmt: skip
"""Errors of the system that come from the names in an archive, and not from the disk."""
_PLAIN_WORDS = {
    "File is not a zip file": "its end, with the index of a zip file, is missing",
    "Compressed file ended before the end-of-stream marker was reached": "it ends too early",
    "unexpected end of data": "it ends too early",
    **dict.fromkeys(["invalid header", "truncated header", "bad checksum"], "it is neither zip nor tar"),
}
"""What errors of Python's decoders say, for people."""


def is_archive(path: Path) -> bool:
    """Whether a file is an archive by its name."""
    return path.name.lower().endswith(SUFFIXES)


def format_of(head: bytes) -> ArchiveFormat:
    """Returns the format of an archive with these first bytes; what is nothing else is read as a tar file."""
    return next((kind for begin, kind in _HEADS.items() if head.startswith(begin)), "tar")


def unpack(
    path: Path, folder: Path, limits: UnpackLimits, *, report: Callable[[int], None] = lambda count: None
) -> SafeFolder:
    """Unpacks an archive into an empty folder: files, folders, and links that stay inside of it.

    Args:
        path: The archive.
        folder: The empty folder.
        limits: How much it may unpack to.
        report: Called with the number of unpacked bytes, at each piece.

    Raises:
        NotFound: The archive does not exist.
        Refused: It is no archive, is encrypted, damaged or too large, or has an entry that leads out of the
            folder.
        RoostError: It needs a library that is missing.
        OSError: The archive cannot be read, or the folder cannot be written.
    """
    if not path.is_file():
        raise NotFound("there is no such archive", received=str(path), fix="correct the path")
    with path.open("rb") as file:
        kind = format_of(file.read(HEAD_BYTES))
        file.seek(0)
        if kind != "zip":
            return unpack_stream(file, folder, limits, kind=kind, archive=str(path), report=report)
        made = SafeFolder(
            folder,
            limits,
            archive=str(path),
            read_bytes=lambda: os.fstat(file.fileno()).st_size,
            report=report,
        )
        _explained(lambda: _unpack_zip(file, made, str(path)), str(path))
        return made


def unpack_stream(
    stream: IO[bytes],
    folder: Path,
    limits: UnpackLimits,
    *,
    kind: ArchiveFormat,
    archive: str,
    report: Callable[[int], None] = lambda count: None,
) -> SafeFolder:
    """Unpacks a tar file that is read once, from its begin to its end, into an empty folder.

    Args:
        stream: The bytes of the archive.
        folder: The empty folder.
        limits: How much it may unpack to.
        kind: Its format, not zip.
        archive: The archive, for messages.
        report: Called with the number of unpacked bytes, at each piece.

    Raises:
        Refused, RoostError, OSError: As `unpack`.
    """
    counted = _CountedReader(stream)
    made = SafeFolder(folder, limits, archive=archive, read_bytes=lambda: counted.num_bytes, report=report)
    _explained(lambda: _unpack_tar(counted, kind, made, limits), archive)
    return made


def _explained(work: Callable[[], None], archive: str) -> None:
    """Calls ``work``; what it raises because of the archive becomes `Refused`."""
    try:
        work()
    except RoostError:
        raise
    except Exception as error:  # each decoder of Python has errors of its own for damage, bz2 an OSError
        if isinstance(error, OSError) and error.errno not in (None, *_FAULTS_OF_ARCHIVE):  # of the disk
            raise
        what = str(error.strerror if isinstance(error, OSError) and error.strerror else error)
        what = what.partition("\n")[0].rstrip(":") or "it ends too early"
        what = _PLAIN_WORDS.get(what, what)
        fix = "unpack it by hand and look at it; or fetch it again"
        if isinstance(error, UnsafeEntry):
            fix = "unpack it by hand and look at it; pack it again from inside of its folder"
        raise Refused(f"the archive cannot be unpacked: {what}", where=archive, fix=fix) from error


# --- zip ---------------------------------------------------------------------------------------------------


def _unpack_zip(file: IO[bytes], made: SafeFolder, archive: str) -> None:
    with zipfile.ZipFile(file) as opened:
        # By name: of several entries with one name the last one counts, whichever thread comes to it first.
        entries = {one.filename.replace("\\", "/"): one for one in opened.infolist()}
        size = sum(one.file_size for one in entries.values())
        made.require_fits(num_bytes=size, num_files=len(opened.infolist()))
        for entry in entries.values():
            _require_readable(entry, archive)
        files, links = {}, {}
        for name, entry in entries.items():
            if name.endswith("/"):
                made.add_folder(name)
            elif stat.S_ISLNK(entry.external_attr >> 16):
                links[name] = entry
            else:
                files[name] = entry
        _unpack_files(opened, files, made)
        for name, entry in links.items():
            if entry.file_size > LONGEST_LINK:  # before it is read into memory
                raise UnsafeEntry(f"{name!r} is a link with a target of {entry.file_size:,} bytes")
            made.add_link(name, os.fsdecode(opened.read(entry)))
        made.check_links()


def _require_readable(entry: zipfile.ZipInfo, archive: str) -> None:
    if entry.flag_bits & _ENCRYPTED:
        fix = "unpack it with its password, and pack it again without one"
        raise Refused("the archive is encrypted", where=archive, fix=fix)
    if entry.compress_type not in (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
        zipfile.ZIP_BZIP2,
        zipfile.ZIP_LZMA,
    ):
        what = f"the archive has a compression that Python cannot read (method {entry.compress_type})"
        raise Refused(what, where=archive, fix="unpack it by hand, and pack it again with `zip -r`")


def _unpack_files(opened: zipfile.ZipFile, files: dict[str, zipfile.ZipInfo], made: SafeFolder) -> None:
    """Writes the files by several threads: decompressing, writing and making a file all release the
    interpreter."""
    from concurrent.futures import ThreadPoolExecutor  # not needed where a command is only queued

    remaining = iter(list(files.items()))  # whose next() is atomic
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for name, entry in remaining:
                if failures:
                    return
                mode = entry.external_attr >> 16 & 0o777
                with opened.open(entry) as content:
                    made.add_file(name, _pieces(content), mode=mode or 0o644)
        except BaseException as error:
            failures.append(error)
            raise

    with ThreadPoolExecutor(min(_ZIP_THREADS, os.cpu_count() or 1)) as pool:
        workers = [pool.submit(work) for _ in range(_ZIP_THREADS)]
        try:
            for worker in workers:
                worker.result()
        except BaseException as error:
            failures.append(error)  # a signal, too, ends the threads
            raise


def _pieces(content: IO[bytes]) -> Iterator[bytes]:
    while piece := content.read(_PIECE_BYTES):
        yield piece


# --- tar ---------------------------------------------------------------------------------------------------


class _CountedReader(io.RawIOBase):
    """Counts the bytes that are read of a stream."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.num_bytes = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        piece = self._stream.read(len(buffer))
        buffer[: len(piece)] = piece
        self.num_bytes += len(piece)
        return len(piece)

    def read(self, size: int = -1, /) -> bytes:
        piece = self._stream.read(size)
        self.num_bytes += len(piece)
        return piece


class _TarBytes(io.RawIOBase):
    """The decompressed bytes of a tar file: bounds the header of an entry, and keeps the last bytes."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._without_entry, self._tail = stream, 0, b""

    def read(self, size: int = -1, /) -> bytes:
        piece: bytes = self._stream.read(size)
        self._without_entry += len(piece)
        if self._without_entry > _MAX_HEADER_BYTES:
            raise UnsafeEntry("the header of an entry has no end")
        if piece:
            self._tail = piece[-tarfile.BLOCKSIZE :]
        return piece

    def note_entry(self) -> None:
        """Notes that what was read so far was of an entry."""
        self._without_entry = 0

    def read_to_end(self, made: SafeFolder) -> None:
        """Reads what follows the last entry: there the decoders check their sums.

        Raises:
            EOFError: The archive does not end with the zeros that end every tar file.
            Refused: It is too much.
        """
        num_bytes = made.num_bytes
        while piece := self.read(_PIECE_BYTES):
            num_bytes += len(piece)
            made.require_fits(num_bytes=num_bytes)
            self.note_entry()
        if self._tail.strip(b"\0"):
            raise EOFError("it ends too early")


class _LaterHeader(tarfile.TarInfo):
    """The header of an entry after the first one. At a damaged one tarfile ends as at the end of the archive,
    without an error."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if len(buf) == tarfile.BLOCKSIZE and any(buf):  # neither cut nor the zeros of the end
                raise tarfile.ReadError("the header of an entry is damaged") from error
            raise


def _unpack_tar(stream: _CountedReader, kind: ArchiveFormat, made: SafeFolder, limits: UnpackLimits) -> None:
    with _decompressed(stream, kind) as decompressed:
        content = _TarBytes(decompressed)
        with tarfile.open(fileobj=content, mode="r|") as archive:
            archive.tarinfo = _LaterHeader
            for entry in archive:
                content.note_entry()
                _add_entry(archive, entry, made, content)
                cast(Any, archive).members.clear()  # else a million entries stay in memory
            if cast(Any, archive).fileobj.tell() <= archive.offset:  # no block of zeros after the last entry
                raise EOFError("it ends too early")
        content.read_to_end(made)
    made.check_links()


def _decompressed(stream: Any, kind: ArchiveFormat) -> Any:
    if kind == "gz":
        return gzip.GzipFile(fileobj=stream)
    if kind == "bz2":
        return bz2.BZ2File(stream)
    if kind == "xz":
        return lzma.LZMAFile(stream)
    if kind == "zst":
        return _zstd().ZstdFile(stream)
    return io.BufferedReader(stream, _PIECE_BYTES)


def _zstd() -> Any:
    """Returns the module of zstd: Python's own, or the same for versions before 3.14."""
    for name in ("compression.zstd", "backports.zstd"):
        with contextlib.suppress(ImportError):
            return importlib.import_module(name)
    what = "an archive compressed by zstd needs Python 3.14, or a library that is not installed"
    raise RoostError(what, fix="pip install backports.zstd, or pip install 'roost[stage]'")


def _add_entry(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, made: SafeFolder, content: _TarBytes
) -> None:
    if entry.isdir():
        made.add_folder(entry.name)
    elif entry.issym():
        made.add_link(entry.name, entry.linkname)
    elif entry.islnk():
        made.add_hard_link(entry.name, entry.linkname)
    elif entry.isreg():
        file = archive.extractfile(entry)
        assert file is not None
        with file:
            made.add_file(entry.name, _tar_pieces(file, content), mode=entry.mode)
    else:
        raise UnsafeEntry(f"{entry.name!r} is a device or a pipe")


def _tar_pieces(file: IO[bytes], content: _TarBytes) -> Iterator[bytes]:
    for piece in _pieces(file):
        content.note_entry()
        yield piece
