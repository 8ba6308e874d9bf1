"""Space, speed and abilities of a disk: each outcome, and a real one."""

from __future__ import annotations

import errno
import fcntl
from dataclasses import replace
from pathlib import Path

import pytest

from roost.base import durable
from roost.operations.doctor import disk_checks
from roost.operations.doctor.diagnosis import DoctorSubject
from roost.operations.doctor.disk_checks import DiskFacts, judge_disks, measure_disk, read_disks
from tests.operations.doctor.lines import levels, only

GB = 1 << 30
DISK = DiskFacts(
    uses=["save_root"],
    path=Path("/data"),
    kind="ext4",
    size=500 * GB,
    free=200 * GB,
    num_files=10**6,
    free_files=10**6,
    commit_seconds=0.001,
    write_mb_s=500.0,
    read_seconds=0.0002,
)


def test_each_outcome() -> None:
    only(judge_disks([DISK]), "ok", "200.0 GB of 500.0 GB", "1.0 ms a durable write")
    only(judge_disks([replace(DISK, free=GB // 2)]), "problem", "roost prune")
    only(judge_disks([replace(DISK, free=5 * GB)]), "warning")
    only(judge_disks([replace(DISK, free_files=20_000)]), "warning", "inodes")
    only(judge_disks([replace(DISK, free_files=3)]), "problem", "inodes")
    only(judge_disks([replace(DISK, num_files=0, free_files=0)]), "ok")
    only(judge_disks([replace(DISK, write_error="Read-only file system")]), "problem", "Read-only")
    only(judge_disks([replace(DISK, kind="nfs4")]), "warning", "nfs4", "save_root")
    only(judge_disks([replace(DISK, kind="nfs4", uses=["state"])]), "problem", "SQLite", "ROOST_STATE")
    only(judge_disks([replace(DISK, failures=["flock fails"])]), "problem", "flock fails")
    only(judge_disks([replace(DISK, commit_seconds=0.4)]), "warning", "400 ms")
    only(judge_disks([replace(DISK, write_mb_s=8.0)]), "warning", "8.0 MB/s")
    only(judge_disks([replace(DISK, read_seconds=0.05)]), "warning", "50 ms")
    only(judge_disks([replace(DISK, commit_seconds=None)]), "ok")


def test_a_real_disk_is_measured_once_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_checks, "_PROBE_SECONDS", 0.01)
    subject = DoctorSubject(save_root=tmp_path / "no" / "runs", lab_folder=tmp_path / "lab")
    found = read_disks(subject)
    assert found[0].uses[:2] == ["save_root", "state"] and found[0].path == tmp_path
    assert found[0].commit_seconds and found[0].write_mb_s and found[0].read_seconds
    assert not found[0].failures and not found[0].write_error
    assert len(levels(judge_disks(found))) >= 1
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_or_cannot_be_written_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(operation: str, path: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(durable, "fault", fails)
    assert measure_disk(tmp_path, ["state"]).write_error == "Read-only file system"

    def is_full(operation: str, path: str) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(durable, "fault", is_full)
    assert measure_disk(tmp_path, ["state"]).write_error == "No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_checks, "_PROBE_SECONDS", 0.0)
    monkeypatch.setattr(fcntl, "flock", lambda fd, how: None)
    assert measure_disk(tmp_path, ["state"]).failures == ("flock lets two processes have one lock",)

    def unsupported(fd: int, how: int) -> None:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    assert measure_disk(tmp_path, ["state"]).failures == ("flock fails (Operation not supported)",)


def test_the_folder_that_will_hold_a_missing_one() -> None:
    assert disk_checks.nearest_existing(Path("/dev/shm/no/such/folder")) == Path("/dev/shm")
