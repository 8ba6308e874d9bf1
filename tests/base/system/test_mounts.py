"""The type of a path's file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.system import mounts

MOUNTS = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /home rw shared:9 - nfs4 server:/home rw,vers=4.2
31 22 0:27 / /home/with\040space rw - xfs /dev/vdb rw
32 22 0:28 / /mnt/ssh rw - fuse.sshfs me@there:/ rw
34 22 0:30 / /twice rw - nfs old:/ rw
35 34 0:31 / /twice rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib", "ext4"), ("/home/ada/.local/state", "nfs4"), ("/homestead", "ext4"),
        ("/home/with space/lab", "xfs"), ("/mnt/ssh/x", "fuse.sshfs"), ("/twice/x", "tmpfs"),
    ],
)  # fmt: skip
def test_the_file_system_is_that_of_the_nearest_and_latest_mount(
    tmp_path: Path, path: str, kind: str
) -> None:
    mount_table = tmp_path / "mountinfo"
    mount_table.write_text(MOUNTS.lstrip())
    assert mounts.file_system_type(Path(path), mount_table=mount_table) == kind


def test_where_the_kernel_does_not_tell_nothing_is_known(tmp_path: Path) -> None:
    assert mounts.file_system_type(tmp_path, mount_table=tmp_path / "none") == ""
    assert mounts.file_system_type(tmp_path), "here it does"


@pytest.mark.parametrize(
    ("kind", "is_remote", "is_this_machines"),
    [
        ("nfs4", True, False), ("cifs", True, False), ("fuse.sshfs", True, False), ("virtiofs", False, False),
        ("ext4", False, True), ("tmpfs", False, True), ("fuse.fuse-overlayfs", False, True),
        ("", False, False),
    ],
)  # fmt: skip
def test_who_sees_it(kind: str, is_remote: bool, is_this_machines: bool) -> None:
    assert mounts.is_remote(kind) is is_remote
    assert mounts.is_local_only(kind) is is_this_machines
