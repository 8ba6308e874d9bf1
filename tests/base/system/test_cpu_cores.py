from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.base.system import cpu_cores

VERSION_1 = "33 31 0:29 / {}/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
VERSION_2 = "42 31 0:38 {} {} rw,relatime - cgroup2 cgroup2 rw\n"


@pytest.fixture(autouse=True)
def _sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)), raising=False)


def proc(folder: Path, mounts: str, groups: str) -> Path:
    """A process's folder as the kernel shows it."""
    (folder / "mountinfo").write_text("31 23 0:28 / /sys rw - tmpfs tmpfs rw,mode=755\n" + mounts)
    (folder / "cgroup").write_text(groups)
    return folder


def quota(folder: Path, text: str) -> None:
    """The format of cgroup version 2."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(text + "\n")


def test_this_machine() -> None:
    assert 1 <= cpu_cores.usable_cores() <= 16


def test_affinity_without_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpu_cores.usable_cores(proc=tmp_path) == 16
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert cpu_cores.usable_cores(proc=tmp_path) == 2


@pytest.mark.parametrize(
    ("text", "number"), [("max 100000", 16), ("250000 100000", 2), ("50000 100000", 1), ("", 16)]
)
def test_a_quota_of_version_2(tmp_path: Path, text: str, number: int) -> None:
    quota(tmp_path / "groups", text)
    mounts = VERSION_2.format("/", tmp_path / "groups")
    assert cpu_cores.usable_cores(proc=proc(tmp_path, mounts, "0::/\n")) == number


def test_the_narrowest_of_the_groups_above_counts(tmp_path: Path) -> None:
    root = tmp_path / "groups"
    quota(root / "jobs", "400000 100000")
    quota(root / "jobs" / "one", "max 100000")
    mounts = VERSION_2.format("/", root)
    assert cpu_cores.usable_cores(proc=proc(tmp_path, mounts, "0::/jobs/one\n")) == 4
    # In a container the mount shows the group's own folder, and the path may name it or not.
    (root / "cpu.max").write_text("300000 100000\n")
    for path in ("/jobs/one", "/", "/../elsewhere"):
        mounts = VERSION_2.format("/jobs/one", root)
        assert cpu_cores.usable_cores(proc=proc(tmp_path, mounts, f"0::{path}\n")) == 3


@pytest.mark.parametrize(("text", "number"), [("-1", 16), ("600000", 6)])
def test_a_quota_of_version_1(tmp_path: Path, text: str, number: int) -> None:
    folder = tmp_path / "cpu" / "job"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text(text)
    (folder / "cpu.cfs_period_us").write_text("100000")
    mounts = VERSION_1.format(tmp_path) + VERSION_2.format("/", tmp_path / "unified")
    groups = "4:memory:/x\n3:cpu,cpuacct:/job\n0::/\n"
    assert cpu_cores.usable_cores(proc=proc(tmp_path, mounts, groups)) == number


def bound(folder: Path, pid: int, cores: str, *, memory: bool = True) -> None:
    """A process as /proc shows it."""
    (folder / str(pid)).mkdir()
    resident = "VmRSS:\t  12 kB\n" if memory else ""
    (folder / str(pid) / "status").write_text(f"Name:\tx\n{resident}Cpus_allowed_list:\t{cores}\n")


def test_cores_that_processes_are_bound_to(tmp_path: Path) -> None:
    for pid, cores in enumerate(["0-15", "0-31", "2-4,9", "2-4,9", "5,40", "40"], 1):
        bound(tmp_path, pid, cores)
    bound(tmp_path, 50, "7", memory=False)  # a thread of the kernel
    (tmp_path / "60").mkdir()
    (tmp_path / "60" / "status").write_text("it has just ended")
    assert cpu_cores.bound_cores(processes=tmp_path) == {frozenset({2, 3, 4, 9}), frozenset({5})}


def test_the_cores_with_the_fewest_holders_are_chosen() -> None:
    assert cpu_cores.choose_cores(2, taken=[]) == (0, 1)
    assert cpu_cores.choose_cores(2, taken=[(0, 1), {2}]) == (3, 4)
    assert cpu_cores.choose_cores(15, taken=[(0, 1), (0,)]) == tuple(range(1, 16)), "the least taken"
    assert cpu_cores.choose_cores(16, taken=[]) == cpu_cores.choose_cores(99, taken=[]) == (), "all"


def test_a_system_without_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity")
    assert cpu_cores.choose_cores(1, taken=[]) == () and cpu_cores.bound_cores() == set()
