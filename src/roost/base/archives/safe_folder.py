"""The folder into which an archive is unpacked: no entry leads out of it, and it cannot grow without end."""

# Not durable: what was unpacked can be unpacked again

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roost.base.errors import Refused
from roost.base.text.byte_sizes import format_bytes

LONGEST_LINK = 4096
_MOST_LEVELS = 256
"""The most folders that are nested: Python removes no more than its calls can be nested."""


@dataclass(frozen=True, kw_only=True)
class UnpackLimits:
    """How much an archive may unpack to."""

    max_bytes: int
    """The largest sum of the sizes of its files."""
    max_files: int
    """The largest number of its entries."""
    max_ratio: float | None = None
    """The largest ratio of unpacked bytes to bytes of the archive; None: any."""
    ratio_from_bytes: int = 2**30
    """The unpacked bytes from which on the ratio counts: small archives may be of zeros."""
    fix: str = "unpack it by hand, and look at it"
    """The fix for an archive that exceeds a limit."""


class UnsafeEntry(ValueError):
    """An entry leads out of the folder, or is something else than a file, a folder or a link."""


class SafeFolder:
    """An empty folder that takes the entries of one archive, from several threads.

    Entries have relative names. None of them passes through a link, and each link leads to something inside
    of the folder, which `check_links` verifies when all exist: links that are made later may change where
    earlier ones lead.

    Args:
        folder: The empty folder.
        limits: How much it may hold.
        archive: The archive, for messages.
        read_bytes: Returns how many bytes of the archive were read so far.
        report: Called with the number of bytes that were written, at each piece.
    """

    def __init__(
        self,
        folder: Path,
        limits: UnpackLimits,
        *,
        archive: str,
        read_bytes: Callable[[], int],
        report: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.num_files = self.num_bytes = 0
        self._num_entries = 0
        self._root, self._limits, self._archive = str(folder), limits, archive
        self._read_bytes, self._report = read_bytes, report
        self._folders = {""}
        self._links: set[str] = set()
        self._lock = threading.Lock()

    def require_fits(self, *, num_bytes: int, num_files: int = 0) -> None:
        """Checks what an archive declares before anything of it is written.

        Raises:
            Refused: It is too much.
        """
        limits = self._limits
        if num_bytes > limits.max_bytes:
            raise self._too_much(format_bytes(num_bytes), format_bytes(limits.max_bytes))
        if num_files > limits.max_files:
            raise self._too_much(f"{num_files:,} files", f"{limits.max_files:,}")
        if limits.max_ratio is None or num_bytes <= limits.ratio_from_bytes:
            return
        read = self._read_bytes()
        if num_bytes > limits.max_ratio * max(read, 1):
            times = f"{num_bytes / max(read, 1):,.0f} times its own size"
            raise self._too_much(times, f"{limits.max_ratio:g} times")

    def add_folder(self, name: str) -> None:
        """Makes a folder, unless it exists."""
        self._count_entry()
        self._make_folders(_parts(name))

    def add_file(self, name: str, pieces: Iterable[bytes | memoryview[Any]], *, mode: int = 0o644) -> None:
        """Writes a file; an earlier one of the name is replaced. Of its mode, the permissions to read and to
        execute stay, and the owner may write.

        Raises:
            UnsafeEntry: The name leads out of the folder.
            Refused: A limit is exceeded.
            OSError: The folder cannot be written.
        """
        self._count_entry(is_file=True)
        path, mode = self._place(name), mode & 0o755 | 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, mode)
        except FileExistsError:
            self._remove(path)
            fd = os.open(path, flags, mode)
        try:
            for piece in pieces:
                self._count_bytes(len(piece))
                view = memoryview(piece)
                while view:
                    view = view[os.write(fd, view) :]
        finally:
            os.close(fd)

    def add_link(self, name: str, target: str) -> None:
        """Makes a symbolic link with a relative target.

        Raises:
            UnsafeEntry: The name or the target leads out of the folder.
        """
        self._count_entry(is_file=True)
        if target.startswith("/") or not target or "\0" in target or len(target) > LONGEST_LINK:
            raise UnsafeEntry(f"{name!r} leads out of the folder")
        path = self._place(name)
        self._remove(path)
        Path(path).symlink_to(target)
        with self._lock:
            self._links.add(path)

    def add_hard_link(self, name: str, target: str) -> None:
        """Makes another name of a file that was added before.

        Raises:
            UnsafeEntry: The name or the target leads out of the folder, or the target is no file.
        """
        self._count_entry(is_file=True)
        path, source = self._place(name), self._place(target)
        if not stat.S_ISREG(os.lstat(source).st_mode):
            raise UnsafeEntry(f"{name!r} is a link to something that is no file")
        if path != source:
            self._remove(path)
            os.link(source, path, follow_symlinks=False)

    def check_links(self) -> None:
        """Checks where the links lead, when all entries were added.

        Raises:
            UnsafeEntry: One leads out of the folder.
        """
        root = os.path.realpath(self._root)
        for path in sorted(self._links):
            if not f"{os.path.realpath(path)}/".startswith(f"{root}/"):
                raise UnsafeEntry(f"{os.path.relpath(path, self._root)!r} leads out of the folder")

    def _place(self, name: str) -> str:
        parts = _parts(name)
        if not parts:
            raise UnsafeEntry(f"{name!r} is no name of a file")
        parent = self._make_folders(parts[:-1])
        return f"{self._root}/{parent}{parts[-1]}"

    def _make_folders(self, parts: list[str]) -> str:
        """Makes the folders of a name that are missing; returns it with a slash at its end."""
        whole = "".join(f"{part}/" for part in parts)
        if whole in self._folders:
            return whole
        name = ""
        for part in parts:
            name += f"{part}/"
            if name in self._folders:
                continue
            path = f"{self._root}/{name[:-1]}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(path)  # noqa: PTH102  - a Path costs more than the call, for each of a million
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise UnsafeEntry(f"{name!r} passes through something that is no folder")
            self._folders.add(name)
        return whole

    def _remove(self, path: str) -> None:
        """Removes an earlier file or link; a folder remains, and the entry in its place fails."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108  - as above
        with self._lock:
            self._links.discard(path)

    def _count_entry(self, *, is_file: bool = False) -> None:
        with self._lock:
            self._num_entries += 1
            self.num_files += is_file
        self.require_fits(num_bytes=0, num_files=self._num_entries)

    def _count_bytes(self, count: int) -> None:
        with self._lock:
            self.num_bytes += count
        self.require_fits(num_bytes=self.num_bytes, num_files=self._num_entries)
        self._report(count)

    def _too_much(self, found: str, most: str) -> Refused:
        return Refused(
            f"the archive has {found}, more than {most}", where=self._archive, fix=self._limits.fix
        )


def _parts(name: str) -> list[str]:
    """Returns the parts of the name of an entry."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise UnsafeEntry(f"{name!r} leads out of the folder")
    if len(parts) > _MOST_LEVELS:
        raise UnsafeEntry(f"{name[:40]!r}… has {len(parts):,} levels, more than {_MOST_LEVELS}")
    return parts
