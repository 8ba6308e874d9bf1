from __future__ import annotations

from pathlib import Path

from roost.base.system import cgroup_membership


def proc(folder: Path, mounts: list[str], lines: list[str]) -> Path:
    """A process's folder as the kernel shows it."""
    tmpfs = "31 23 0:28 / /sys rw - tmpfs tmpfs rw,mode=755"
    (folder / "mountinfo").write_text("\n".join([tmpfs, *mounts]) + "\n")
    (folder / "cgroup").write_text("\n".join(lines) + "\n")
    return folder


def test_the_group_and_those_above_of_both_versions(tmp_path: Path) -> None:
    mounts = [
        "33 31 0:29 / /groups/memory rw shared:1 - cgroup cgroup rw,memory",
        "34 31 0:30 / /groups/cpu rw - cgroup cgroup rw,cpu,cpuacct",
        "42 31 0:38 / /groups/unified rw - cgroup2 cgroup2 rw",
    ]
    found = proc(tmp_path, mounts, ["4:memory:/jobs/one", "3:cpu,cpuacct:/job", "0::/"])
    assert list(map(str, cgroup_membership.group_folders("memory", proc=found))) == [
        "/groups/memory/jobs/one", "/groups/memory/jobs", "/groups/memory", "/groups/unified",
    ]  # fmt: skip
    assert list(map(str, cgroup_membership.group_folders("cpuacct", proc=found))) == [
        "/groups/cpu/job", "/groups/cpu", "/groups/unified"
    ]  # fmt: skip


def test_in_a_container_no_further_than_can_be_seen(tmp_path: Path) -> None:
    mounts = ["42 31 0:38 /jobs/one /groups rw - cgroup2 cgroup2 rw"]
    for path, expected in {
        "/jobs/one": ["/groups"],
        "/jobs/one/a": ["/groups/a", "/groups"],
        "/": ["/groups"],
        "/../elsewhere": ["/groups"],
    }.items():
        found = proc(tmp_path, mounts, [f"0::{path}"])
        assert list(map(str, cgroup_membership.group_folders("cpu", proc=found))) == expected


def test_none_elsewhere(tmp_path: Path) -> None:
    assert list(cgroup_membership.group_folders("cpu", proc=tmp_path)) == []
