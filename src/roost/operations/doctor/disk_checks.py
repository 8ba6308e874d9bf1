"""Checks of the disks of save_root, of the lab's state and of temporary files."""

# Not durable: probes of a file system, in a folder that is removed

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from roost.base import durable
from roost.base.system import mounts
from roost.base.text.byte_sizes import format_memory
from roost.base.text.word_list import join_names
from roost.operations.doctor.diagnosis import Diagnosis, DoctorSubject, ok, problem, warning

_MB = 1 << 20
_FULL_BYTES, _LOW_BYTES = 1 << 30, 10 << 30
_LOW_SHARE = 0.05
_PROBE_SECONDS = 0.3
"""For how long each speed is measured."""
_PROBE_BYTES, _SMALL_BYTES, _SMALL_FILES = 4 * _MB, 64 << 10, 32
_SLOW_COMMIT_SECONDS, _SLOW_MB_S, _SLOW_READ_SECONDS = 0.1, 30.0, 0.02


def nearest_existing(path: Path) -> Path:
    """Returns a folder, or the nearest one above it that exists."""
    return next(one for one in (path, *path.parents) if one.is_dir())


@dataclass(frozen=True, kw_only=True)
class DiskFacts:
    """A disk, as measured."""

    uses: Sequence[str]
    """What is on it: save_root, state, temporary files."""
    path: Path
    kind: str = ""
    """The kernel's name of its file system."""
    size: int = 0
    free: int = 0
    num_files: int = 0
    """The files that it can hold; 0: any number."""
    free_files: int = 0
    write_error: str = ""
    commit_seconds: float | None = None
    """The time of a small durable write; None: not measured."""
    write_mb_s: float | None = None
    read_seconds: float | None = None
    """The time of reading a small file that is not in memory."""
    failures: Sequence[str] = ()
    """What the file system does not do as POSIX says: flock, rename, mmap."""


def read_disks(subject: DoctorSubject) -> list[DiskFacts]:
    """Measures each disk once, for about a second."""
    places = {
        "save_root": nearest_existing(subject.save_root),
        "state": nearest_existing(subject.lab_folder),
        "temporary files": Path(tempfile.gettempdir()),
    }
    disks: dict[int, list[str]] = {}
    for use, path in places.items():
        disks.setdefault(path.stat().st_dev, []).append(use)
    return [measure_disk(places[uses[0]], uses) for uses in disks.values()]


def measure_disk(path: Path, uses: Sequence[str]) -> DiskFacts:
    """Measures the disk of a folder, in a folder that is removed."""
    disk = os.statvfs(path)
    known = {
        "uses": uses,
        "path": path,
        "kind": mounts.file_system_type(path),
        "size": disk.f_blocks * disk.f_frsize,
        "free": disk.f_bavail * disk.f_frsize,
        "num_files": disk.f_files,
        "free_files": disk.f_favail,
    }
    measured: dict[str, object] = {}
    try:
        staging = durable.make_staging_folder(path / "doctor")
    except OSError as error:
        return DiskFacts(**known, write_error=error.strerror or str(error))  # type: ignore[arg-type]
    try:
        durable.require_space(staging, 2 * _PROBE_BYTES)
        measured = {
            "failures": tuple(_failures(staging)),
            "commit_seconds": _mean_seconds(lambda n: durable.write(staging / "small", b"1" * 4096)),
            "write_mb_s": _write_speed(staging),
            "read_seconds": _read_seconds(staging),
        }
    except OSError as error:
        measured = {"write_error": error.strerror or str(error)}
    finally:
        durable.discard(staging)
    return DiskFacts(**known, **measured)  # type: ignore[arg-type]


def _mean_seconds(act: Callable[[int], object]) -> float:
    began, count = time.monotonic(), 0
    while (spent := time.monotonic() - began) < _PROBE_SECONDS or not count:
        act(count)
        count += 1
    return spent / count


def _write_speed(folder: Path) -> float:
    """Returns MB a second of durable writes."""
    piece = os.urandom(_PROBE_BYTES)  # which no file system compresses
    return _PROBE_BYTES / _MB / _mean_seconds(lambda n: durable.write(folder / "large", piece))


def _read_seconds(folder: Path) -> float:
    piece = os.urandom(_SMALL_BYTES)
    for number in range(_SMALL_FILES):
        durable.write_unsynced(folder / f"{number}", piece)
    return _mean_seconds(lambda n: _read_uncached(folder / str(n % _SMALL_FILES)))


def _read_uncached(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):
            os.fdatasync(fd)  # only pages that are on the disk leave the memory
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.read(fd, _SMALL_BYTES)
    finally:
        os.close(fd)


def _failures(folder: Path) -> Iterator[str]:
    """Yields what does not work in a folder."""
    path = folder / "probe"
    first = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    second = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield from _lock_failures(first, second)
        os.ftruncate(first, mmap.PAGESIZE)
        try:
            mmap.mmap(first, mmap.PAGESIZE).close()
        except OSError as error:
            yield f"mmap fails ({error.strerror})"
        other = folder / "other"
        other.touch()
        try:
            other.rename(path)
            durable.fsync_folder(folder)
        except OSError as error:
            yield f"a file cannot be replaced by a rename ({error.strerror})"
    finally:
        os.close(first)
        os.close(second)


def _lock_failures(first: int, second: int) -> Iterator[str]:
    try:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        yield f"flock fails ({error.strerror})"
        return
    try:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return
    yield "flock lets two processes have one lock"


def judge_disks(found: Sequence[DiskFacts]) -> Iterator[Diagnosis]:
    """Whether the disks have space, are fast enough, and do what roost relies on."""
    for disk in found:
        name = f"{join_names(list(disk.uses))} ({disk.path})"
        lines = [*_judge_space(disk, name), *_judge_file_system(disk, name), *_judge_speed(disk, name)]
        yield from lines or [ok(f"{name}: {_space(disk)}{_speed(disk)}")]


def _space(disk: DiskFacts) -> str:
    return f"{_memory(disk.free)} of {_memory(disk.size)} free"


def _speed(disk: DiskFacts) -> str:
    if disk.commit_seconds is None or disk.write_mb_s is None or disk.read_seconds is None:
        return ""
    times = (
        f"{1000 * disk.commit_seconds:.1f} ms a durable write, {1000 * disk.read_seconds:.1f} ms a small read"
    )
    return f"; {times}, {disk.write_mb_s:,.0f} MB/s"


def _judge_space(disk: DiskFacts, name: str) -> Iterator[Diagnosis]:
    free = "`roost du`, `roost prune`, `roost gc`; or another save_root"
    if disk.size and disk.free < _FULL_BYTES:
        yield problem(f"{name}: {_space(disk)}: checkpoints fail once it is full", free)
    elif disk.size and disk.free < min(_LOW_BYTES, _LOW_SHARE * disk.size):
        yield warning(f"{name}: {_space(disk)}", free)
    if disk.num_files and disk.free_files < disk.num_files * _LOW_SHARE:
        make = problem if disk.free_files < 1000 else warning
        yield make(
            f"{name}: {disk.free_files:,} more files fit (inodes: df -i), however much space is free",
            "remove small files, or put them into archives",
        )


def _judge_file_system(disk: DiskFacts, name: str) -> Iterator[Diagnosis]:
    if disk.write_error:
        yield problem(
            f"{name}: it cannot be written: {disk.write_error}", "choose another folder, or free space"
        )
    has_state = "state" in disk.uses
    move = "set ROOST_STATE to a folder of a local disk" if has_state else "set save_root to a local disk"
    if mounts.is_remote(disk.kind):
        if has_state:
            text = f"{name}: a network file system ({disk.kind}), where the queue (SQLite) can be damaged"
            yield problem(text, move)
        else:
            text = f"{name}: a network file system ({disk.kind}): slower, and other machines may write there"
            yield warning(text, f"{move}, and copy packages at the end")
    for failure in disk.failures:
        yield problem(f"{name}: {failure}, on which locks and durable writes rely", move)


def _judge_speed(disk: DiskFacts, name: str) -> Iterator[Diagnosis]:
    if disk.commit_seconds is not None and disk.commit_seconds > _SLOW_COMMIT_SECONDS:
        text = f"{name}: {1000 * disk.commit_seconds:.0f} ms for a durable write of 4 KB"
        yield warning(text, "save less often (checkpoint.every), or use a faster disk")
    if disk.write_mb_s is not None and disk.write_mb_s < _SLOW_MB_S:
        text = f"{name}: {disk.write_mb_s:.1f} MB/s are written"
        yield warning(text, "save less often (checkpoint.every), or use a faster disk")
    if disk.read_seconds is not None and disk.read_seconds > _SLOW_READ_SECONDS:
        text = f"{name}: {1000 * disk.read_seconds:.0f} ms for a small file: data of many files comes slowly"
        yield warning(text, "keep the data in few large files, or copy it to a local disk first")


def _memory(count: int) -> str:
    return format_memory(count / _MB)
