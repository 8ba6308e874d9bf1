"""Restores a package from its remote copy, bit for bit: into a staging folder, which gets the name of the
package when every file in it was verified. A restore that is cut continues where it was."""

# Not durable: links, folders and the lengths of parts of files in a staging folder

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from roost.base import durable, safe_read
from roost.base.errors import Refused
from roost.package import package_name
from roost.package.remote import copy_index
from roost.package.remote.copy_index import CopiedFile, CopyIndex
from roost.package.remote.remote_copy import RemoteCopy
from roost.package.remote.store import ObjectMissing, for_each

_TRIES = 4
_SHOWN = 3
_PART = ".part-of-pull"


class RestoreProgress(NamedTuple):
    """How far a restore is."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Restored:
    """A package that was restored, or was there already."""

    path: Path
    index: CopyIndex
    was_there: bool
    """Whether the package existed, with the same files."""
    got_bytes: int


def restore(
    copy: RemoteCopy,
    root: Path,
    *,
    note: Callable[[RestoreProgress], None] = lambda progress: None,
) -> Restored:
    """Restores a package below ``root``, under its own name.

    Args:
        copy: The copy.
        root: The save root; created if it does not exist.
        note: Called with the progress.

    Raises:
        NotFound, BrokenIndex: There is no copy, or it is damaged.
        StoreError: The store does not answer, or gives wrong bytes. The next call continues.
        Refused: A package of the name exists that is not the same, or another process restores it.
        OSError: It cannot be written.
    """
    for _ in range(_TRIES):
        index = copy.require_index()
        package_name.checked_name(index.name, setting="the name in the remote copy")
        final = root / index.name
        if os.path.lexists(final):
            _require_same(final, index, copy.store.url.text)
            return Restored(final, index, True, 0)
        durable.make_folders(root)
        # One name for each run, so that the next call finds it.
        staging = root / f".{index.name}.tmp-{index.run[:12]}"
        durable.make_folder(staging, exist_ok=True)
        with _locked(staging, final):
            if os.path.lexists(final):  # another process has restored it just now
                with contextlib.suppress(OSError):
                    staging.rmdir()
                continue
            try:
                got = _Restore(copy, index, staging, note).run()
            except ObjectMissing:  # a newer index was written meanwhile, and old objects were deleted
                if copy.require_index().number == index.number:
                    raise
                continue
            durable.commit_folder(staging, final)
            return Restored(final, index, False, got)
    raise Refused(
        "the remote copy changes faster than it can be restored",
        where=copy.store.url.text,
        fix="end the session that uploads, then try again",
    )


@contextlib.contextmanager
def _locked(staging: Path, final: Path) -> Iterator[None]:
    fd = os.open(staging, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused("another process is restoring this package", where=final) from None
        yield
    finally:
        os.close(fd)


def _require_same(final: Path, index: CopyIndex, url: str) -> None:
    """Checks that an existing package has all files of the copy."""
    try:
        run = copy_index.run_id(bytes(safe_read.read(final / "request.json")))
    except OSError:
        run = ""
    if run != index.run:
        raise Refused(
            "another package has this name",
            where=final,
            fix=f"restore {url} elsewhere with --into, or rename that package",
        )
    different = [name for name, file in index.files.items() if not has_file(final / name, file)]
    if different:
        shown = ", ".join(different[:_SHOWN]) + (" …" if len(different) > _SHOWN else "")
        raise Refused(
            f"the package is there and differs from the copy in {len(different)} "
            f"{'file' if len(different) == 1 else 'files'} ({shown}); nothing is overwritten",
            where=final,
            fix="rename it and pull again, or give another folder with --into",
        )


def has_file(path: Path, file: CopiedFile) -> bool:
    """Whether a file has exactly the bytes of the copy."""
    try:
        found = path.lstat()
        return found.st_size == file.size and safe_read.sha256(path) == file.sha256
    except OSError:
        return False


class _Restore:
    """Fetches the files of one index into a staging folder that may have some of them already."""

    def __init__(
        self, copy: RemoteCopy, index: CopyIndex, staging: Path, note: Callable[[RestoreProgress], None]
    ) -> None:
        self._copy, self._index, self._staging, self._note = copy, index, staging, note
        self._done = self._got = 0
        self._lock = threading.Lock()

    def run(self) -> int:
        """Restores all; returns how many bytes were fetched."""
        self._remove_others()
        for folder in self._index.folders:
            durable.make_folders(self._staging / folder, below=self._staging)
        self._note(RestoreProgress(0, self._index.num_bytes))
        for name in self._index.files:
            durable.make_folders((self._staging / name).parent, below=self._staging)
        for_each(self._index.files.items(), self._file, num_parallel=self._copy.store.num_parallel)
        for name, target in self._index.links.items():
            path = self._staging / name
            durable.make_folders(path.parent, below=self._staging)
            path.symlink_to(target)
        return self._got

    def _file(self, item: tuple[str, CopiedFile]) -> None:
        name, file = item
        path = self._staging / name
        if not has_file(path, file):
            self._fetch(path, file)
        else:
            self._advance(file.size)
        path.chmod(file.mode & 0o777)
        with contextlib.suppress(OverflowError):  # no time that this system has
            os.utime(path, (file.mtime, file.mtime))

    def _remove_others(self) -> None:
        """Removes what an earlier restore, of another index, has left and this one does not have; and all
        links, which are made last: through one in the place of a file, that would be written elsewhere."""
        for folder, names, files in os.walk(self._staging, topdown=False):
            inner = os.path.relpath(folder, self._staging)
            prefix = "" if inner == "." else f"{inner}/"
            for name in files:
                known = prefix + name.removesuffix(_PART) if name.endswith(_PART) else prefix + name
                path = Path(folder, name)
                if known not in self._index.files or path.is_symlink():
                    path.unlink()
            for name in names:
                path = Path(folder, name)
                if path.is_symlink():
                    path.unlink()
                elif not any(path.iterdir()):
                    path.rmdir()

    def _fetch(self, path: Path, file: CopiedFile) -> None:
        """Fetches a file piece by piece into a part file, which keeps its good pieces when this is cut."""
        part = path.with_name(path.name + _PART)
        if file.size <= file.piece_bytes:
            durable.write(path, self._piece(*next(file.piece_sizes())) if file.pieces else b"")
            return
        start = _good_pieces(part, file)
        if part.exists():
            os.truncate(part, start * file.piece_bytes)
        self._advance(start * file.piece_bytes)
        fd = durable.open_append(part)
        try:
            for name, size in list(file.piece_sizes())[start:]:
                durable.append(fd, self._piece(name, size))
            durable.sync(fd)
        finally:
            os.close(fd)
        path.unlink(missing_ok=True)
        durable.rename(part, path)

    def _piece(self, name: str, size: int) -> bytes:
        data = self._copy.get_object(name, size)
        self._advance(size, got=size)
        return data

    def _advance(self, num_bytes: int, *, got: int = 0) -> None:
        with self._lock:
            self._got += got
            self._done += num_bytes
            self._note(RestoreProgress(self._done, self._index.num_bytes))


def _good_pieces(part: Path, file: CopiedFile) -> int:
    """Returns how many of the first pieces a part file has."""
    try:
        fd = safe_read.open_fd(part, follow_link=False)
    except OSError:
        return 0
    count = 0
    with open(fd, "rb", buffering=0) as opened:
        for name, size in file.piece_sizes():
            data = opened.read(size)
            if data is None or hashlib.sha256(data).hexdigest() != name:
                break
            count += 1
    return count
