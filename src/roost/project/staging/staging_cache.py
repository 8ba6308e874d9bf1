"""The folder of the staged archives of one user on one machine.

::

    <sha256>/              an entry: an unpacked archive, complete, as a rename has made it
        files/             what was in the archive
        entry.json         how it was made
    <sha256>.lock          locked shared by each process that uses the entry, exclusively to remove it;
                           its time is that of the last use
    <name>.making          locked by the process that unpacks: the others wait for it
    sources.json           the digests of archives that were read before, by file and time of change
"""

# Not durable: what is staged can be staged again

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from roost.base import durable
from roost.base.system.process_identity import boot_id

FILES = "files"
_ENTRY = "entry.json"
_SOURCES = "sources.json"
_LOCK, _MAKING = ".lock", ".making"
_POLL_SECONDS = 0.1
_SAY_SECONDS = 60.0
"""A process that waits says so this often: one without output counts as stalled."""
_MAX_SOURCES = 1000

_held: dict[Path, int] = {}
"""The locks of the entries that this process uses, until it ends: a data set may open files at any time."""


class StagedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An unpacked archive, as its ``entry.json`` describes it."""

    sha256: str
    archive: str
    """Where it was read, without credentials."""
    archive_bytes: int
    num_files: int
    num_bytes: int
    boot: str
    """The boot of the machine: files of an earlier one may not have reached the disk before a power cut."""
    made: float
    num_paths: int = 0
    """Files and links on the disk: fewer than ``num_files`` if the archive has a name twice; 0 in an entry of
    an older version."""
    last_used: float = 0.0
    in_use: bool = False


class StagingCache:
    """The staged archives in one folder.

    Args:
        folder: The folder; without it the cache is empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def files(self, sha256: str) -> Path:
        """Returns the folder with the content of an entry."""
        return self.folder / sha256 / FILES

    # ---- use ---------------------------------------------------------------------------------------------

    def hold(self, sha256: str) -> StagedEntry | None:
        """Returns a complete entry, which is not removed until this process ends; None if there is none.

        Its files are counted: programs that clean folders of temporary files remove old ones one by one.
        """
        path = self.folder / sha256
        if path in _held:
            return self._read(sha256)
        if self._read(sha256) is None:
            return None
        fd = _lock(path.with_name(sha256 + _LOCK), fcntl.LOCK_SH)
        assert fd is not None
        entry = self._read(sha256)
        if entry is not None and count_paths(path / FILES) < entry.num_paths:
            _print(f"{entry.archive}: files are missing in {path / FILES}; it is staged again")
            (path / _ENTRY).unlink(missing_ok=True)
            entry = None
        if entry is None:  # removed meanwhile, or no longer complete
            os.close(fd)
            return None
        os.utime(fd)
        _held[path] = fd
        return entry

    def has(self, sha256: str) -> bool:
        """Whether there is a complete entry. Another process may remove it at any time."""
        return self._read(sha256) is not None

    def _read(self, sha256: str) -> StagedEntry | None:
        try:
            entry = msgspec.json.decode((self.folder / sha256 / _ENTRY).read_bytes(), type=StagedEntry)
        except (OSError, msgspec.MsgspecError):
            return None
        return entry if entry.boot == boot_id() else None

    # ---- making ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def making(self, name: str, what: str) -> Iterator[None]:
        """Makes the entry of this name in the block, alone: another process that wants to make it waits, and
        says so.

        Args:
            name: The digest, or another name where it is not known yet.
            what: What is waited for.
        """
        path = self.folder / (name + _MAKING)
        fd = _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if fd is None:
            _print(f"{what}: another process is staging it; waiting for that")
            said = time.monotonic()
            while (fd := _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
                time.sleep(_POLL_SECONDS)
                if time.monotonic() - said > _SAY_SECONDS:
                    said = time.monotonic()
                    _print(f"{what}: still waiting for the process that is staging it")
        try:
            self._clear(name)
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(fd)

    def make_staging_folder(self, name: str) -> Path:
        """Makes an empty folder for what is to be published; within `making`."""
        return durable.make_staging_folder(self.folder / name)

    def publish(self, staging: Path, entry: StagedEntry) -> None:
        """Makes a folder of `make_staging_folder` the entry of its digest, by one rename, unless there is
        one."""
        final = self.folder / entry.sha256
        if self._read(entry.sha256) is not None:
            return
        if os.path.lexists(final):  # of an earlier boot
            durable.remove_folder(final)
        durable.write_new(staging / _ENTRY, [msgspec.json.encode(entry)])
        with contextlib.suppress(FileExistsError):  # another archive file with the same bytes
            durable.commit_folder(staging, final)

    def _clear(self, name: str) -> None:
        """Removes what killed processes have left: of this name, and of others that no process makes now."""
        for found in list(self.folder.iterdir()):
            if not durable.is_staging(found.name):
                continue
            other = found.name[1:].rpartition(".tmp-")[0]
            if other == name:
                durable.discard(found)
            elif (fd := _lock(self.folder / (other + _MAKING), fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
                durable.discard(found)
                with contextlib.suppress(OSError):
                    (self.folder / (other + _MAKING)).unlink()
                os.close(fd)

    # ---- digests of archives that were read ---------------------------------------------------------------

    def known_digest(self, identity: str | None) -> str | None:
        """Returns the digest of an archive file that was read before and has not changed since."""
        return self._sources().get(identity) if identity is not None else None

    def note_digest(self, identity: str | None, sha256: str) -> None:
        """Keeps the digest of an archive file."""
        if identity is None:
            return
        known = [*self._sources().items(), (identity, sha256)]
        with contextlib.suppress(OSError):
            data = msgspec.json.encode(dict(known[-_MAX_SOURCES:]))
            durable.write_unsynced(self.folder / _SOURCES, data)

    def _sources(self) -> dict[str, str]:
        try:
            return msgspec.json.decode((self.folder / _SOURCES).read_bytes(), type=dict[str, str])
        except (OSError, msgspec.MsgspecError):
            return {}

    # ---- removal -----------------------------------------------------------------------------------------

    def entries(self) -> list[StagedEntry]:
        """Returns the entries, the least recently used first; those of an earlier boot, too."""
        found = []
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            try:
                entry = msgspec.json.decode((path / _ENTRY).read_bytes(), type=StagedEntry)
                used = path.with_name(path.name + _LOCK).stat().st_mtime
            except (OSError, msgspec.MsgspecError):
                continue
            in_use = self._is_in_use(path.name)
            found.append(msgspec.structs.replace(entry, last_used=used, in_use=in_use))
        return sorted(found, key=lambda one: (one.last_used, one.sha256))

    def _is_in_use(self, sha256: str) -> bool:
        fd = _lock(self.folder / (sha256 + _LOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if fd is not None:
            os.close(fd)
        return fd is None

    def remove(self, sha256: str) -> bool:
        """Removes an entry, unless a process uses it; whether it is removed."""
        path = self.folder / sha256
        lock = path.with_name(sha256 + _LOCK)
        fd = _lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if fd is None:
            return False
        try:
            durable.remove_folder(path)
            lock.unlink(missing_ok=True)
        except OSError as error:
            _print(f"{path}: cannot be removed: {error.strerror or error}")
            return False
        finally:
            os.close(fd)
        return True

    def make_room(self, *, free_bytes: int = 0, keep_bytes: float | None = None) -> list[StagedEntry]:
        """Removes entries that no process uses, the least recently used first, as long as that is needed.

        Args:
            free_bytes: The bytes that must be free on the disk.
            keep_bytes: The largest sum of the entries; None: any.

        Returns:
            What was removed.
        """
        entries, removed = self.entries(), []
        total = sum(one.num_bytes for one in entries)
        for entry in entries:
            is_too_large = keep_bytes is not None and total > keep_bytes
            if not is_too_large and shutil.disk_usage(self.folder).free >= free_bytes:
                break
            if not entry.in_use and self.remove(entry.sha256):
                total -= entry.num_bytes
                removed.append(entry)
        return removed


def count_paths(folder: Path) -> int:
    """Returns the number of files and links below a folder, without those that link to folders."""
    return sum(len(names) for _, _, names in os.walk(folder))


def _lock(path: Path, operation: int) -> int | None:
    """Returns a descriptor that holds the lock of a file; None if another process holds it, and ``operation``
    does not wait."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, operation)
            if os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except FileNotFoundError:  # its holder has removed the file: this lock protects nothing
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
