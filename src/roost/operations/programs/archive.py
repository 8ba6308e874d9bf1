"""Unpacks untrusted archives: zip files and tar files, compressed or not."""

# Standard library only
# Not durable: what was unpacked can be unpacked again

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from roost.base.errors import NotFound, Refused
from roost.base.text.byte_sizes import format_bytes

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


def is_archive(path: Path) -> bool:
    """Whether a file is an archive by its name."""
    return path.name.lower().endswith(SUFFIXES)


def unpack(path: Path, folder: Path, *, max_bytes: int, max_files: int) -> Path:
    """Unpacks an archive into an empty folder: files, folders and links that stay inside of it, nothing else.

    Args:
        path: The archive.
        folder: The empty folder.
        max_bytes: The largest sum of the sizes of its files.
        max_files: The largest number of its entries.

    Returns:
        The folder of its content: ``folder``, or the single folder that the archive has.

    Raises:
        NotFound: The archive does not exist.
        Refused: It is no archive, is damaged, is too large, or has an entry that leads out of the folder.
        OSError: The folder cannot be written.
    """
    if not path.is_file():
        raise NotFound("there is no such archive", received=str(path), fix="correct the path")
    try:
        if path.name.lower().endswith(".zip"):
            _unpack_zip(path, folder, max_bytes, max_files)
        else:
            _unpack_tar(path, folder, max_bytes, max_files)
    except Refused:
        raise
    except Exception as error:  # each decoder of Python has errors of its own for damage, bz2 an OSError
        if isinstance(error, OSError) and error.errno is not None:  # of the disk
            raise
        fix = "unpack it by hand and look at it; or fetch it again"
        what = str(error).partition("\n")[0].rstrip(":")
        raise Refused(f"the archive cannot be unpacked: {what}", where=path, fix=fix) from error
    inside = list(folder.iterdir())
    return inside[0] if len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink() else folder


def _unpack_zip(path: Path, folder: Path, max_bytes: int, max_files: int) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        _require_size(path, (one.file_size for one in entries), max_bytes, max_files)
        for entry in entries:
            parts = entry.filename.replace("\\", "/").split("/")
            if ".." in parts or entry.filename.startswith("/"):
                raise ValueError(f"{entry.filename!r} leads out of the folder")
            written = Path(archive.extract(entry, folder))
            mode = entry.external_attr >> 16 & 0o777
            if mode and written.is_file():
                written.chmod(mode | 0o600)


def _unpack_tar(path: Path, folder: Path, max_bytes: int, max_files: int) -> None:
    with tarfile.open(path) as archive:
        entries = []
        size = 0
        for entry in archive:
            entries.append(entry)
            size += entry.size
            _require_size(path, [size], max_bytes, max_files, count=len(entries))
        for entry in entries:
            _extract(archive, entry, folder)
        if archive.fileobj is not None:  # to the end, where the decoders check their sums
            archive.fileobj.read(max_bytes)


def _extract(archive: tarfile.TarFile, entry: tarfile.TarInfo, folder: Path) -> None:
    """Extracts one entry of a tar file. Not all of Python 3.11 has its filter for that."""
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        raise ValueError(f"{entry.name!r} is a device or a pipe")
    place = folder / entry.name
    links = [place.parent / entry.linkname] if entry.issym() else []
    links += [folder / entry.linkname] if entry.islnk() else []
    root = folder.resolve()
    # Resolved as they are now: links that were extracted before may lead elsewhere than their names show.
    for path in (place.parent, *links):
        if entry.name.startswith("/") or not path.resolve().is_relative_to(root):
            raise ValueError(f"{entry.name!r} leads out of the folder")
    if ".." in place.parts[len(folder.parts) :] or place.is_symlink():
        raise ValueError(f"{entry.name!r} leads out of the folder")
    trusted: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}
    archive.extract(entry, folder, set_attrs=False, **trusted)
    if entry.isreg():
        place.chmod(entry.mode & 0o755 | 0o600)


def _require_size(
    path: Path, sizes: Iterable[int], max_bytes: int, max_files: int, *, count: int | None = None
) -> None:
    found = list(sizes)
    size, number = sum(found), len(found) if count is None else count
    if size <= max_bytes and number <= max_files:
        return
    what = f"{format_bytes(size)}" if size > max_bytes else f"{number:,} files"
    most = f"{format_bytes(max_bytes)}" if size > max_bytes else f"{max_files:,}"
    raise Refused(
        f"the archive has {what}, more than {most}",
        where=path,
        fix="unpack it by hand, and run the program in its folder",
    )
