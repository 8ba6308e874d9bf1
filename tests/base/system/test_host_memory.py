from __future__ import annotations

import sys
from pathlib import Path

import pytest

from roost.base.system.host_memory import available_bytes, total_bytes

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n"


def machine(folder: Path, *, version: int = 2, path: str = "/") -> tuple[Path, Path]:
    """What the kernel shows of a machine with 600 KiB left, and of a process in a group at ``path``."""
    meminfo = folder / "meminfo"
    meminfo.write_text(MEMINFO)
    kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
    (folder / "mountinfo").write_text(f"42 31 0:38 / {folder}/groups rw - {kind}\n")
    (folder / "cgroup").write_text(f"0::{path}\n" if version == 2 else f"4:memory:{path}\n")
    (folder / "groups").mkdir()
    return meminfo, folder


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"memory.{name}").write_text(f"{text}\n")


def left(found: tuple[Path, Path]) -> int | None:
    return available_bytes(meminfo=found[0], proc=found[1])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_this_machine() -> None:
    found = available_bytes()
    assert found is not None and found > 1 << 20


def test_without_groups(tmp_path: Path) -> None:
    found = machine(tmp_path)
    assert left(found) == 600 * 1024
    group(tmp_path / "groups", max="max", current=5)
    assert left(found) == 600 * 1024
    assert available_bytes(meminfo=tmp_path / "none", proc=tmp_path / "none") is None


@pytest.mark.parametrize(
    ("most", "used", "stat", "expected"),
    [
        (10_000, 4_000, "", 6_000),
        (10_000, 10_000, "", 0),
        (10_000, 10_500, "", 0),
        (10_000, 9_900, "anon 3000\nactive_file 2000\ninactive_file 4000\nslab_reclaimable 500", 6_600),
        (10_000, 4_000, "anon", 6_000),
        (10_000_000, 4_000, "", 600 * 1024),
    ],
)
def test_a_limit_of_version_2(tmp_path: Path, most: int, used: int, stat: str, expected: int) -> None:
    """The file cache fills every limit, and is freed as soon as a process needs the memory."""
    found = machine(tmp_path, path="/job")
    group(tmp_path / "groups" / "job", max=most, current=used, stat=stat)
    assert left(found) == expected


def test_a_limit_of_version_1(tmp_path: Path) -> None:
    found = machine(tmp_path, version=1, path="/job")
    folder = tmp_path / "groups" / "job"
    group(folder, limit_in_bytes=10_000, usage_in_bytes=9_000)
    assert left(found) == 1_000
    group(folder, stat="inactive_file 0\ntotal_inactive_file 3000\ntotal_active_file 500\nactive_file 1")
    assert left(found) == 4_500


def test_the_narrowest_of_the_groups_above_counts(tmp_path: Path) -> None:
    found = machine(tmp_path, path="/jobs/one")
    group(tmp_path / "groups" / "jobs" / "one", max=10_000, current=1_000)
    group(tmp_path / "groups" / "jobs", max=20_000, current=15_000)
    assert left(found) == 5_000


def test_all_of_it(tmp_path: Path) -> None:
    meminfo, proc = machine(tmp_path)
    assert total_bytes(meminfo=meminfo, proc=proc) == 1000 * 1024
    group(tmp_path / "groups", max=500 * 1024)
    assert total_bytes(meminfo=meminfo, proc=proc) == 500 * 1024
    group(tmp_path / "groups", max="max")
    assert total_bytes(meminfo=meminfo, proc=proc) == 1000 * 1024
    assert total_bytes(meminfo=tmp_path / "none", proc=tmp_path / "none") is None
