"""The folder of the lab: its path, checks, lock and errors."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.base.system import state_folder
from tests.messages import Messages
from tests.mounting import may_mount


@pytest.mark.parametrize(
    ("kind", "refused"),
    [("nfs4", True), ("cifs", True), ("fuse.sshfs", True), ("ext4", False), ("fuse.fuse-overlayfs", False)],
)
def test_a_network_file_system_is_refused(
    tmp_path: Path, kind: str, refused: bool, messages: Messages
) -> None:
    mount_table = tmp_path / "mountinfo"
    mount_table.write_text(f"22 1 254:0 / / rw - {kind} there rw\n")
    if not refused:
        state_folder.prepare(tmp_path / "lab", mount_table=mount_table)
        return
    with pytest.raises(Refused) as refused:
        state_folder.prepare(tmp_path / "lab", mount_table=mount_table)
    assert all(fact in str(refused.value) for fact in (f"({kind})", str(tmp_path / "lab"), "ROOST_STATE"))
    messages.check(refused.value)


def test_the_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    state_folder.prepare(tmp_path / "a" / "lab")
    state_folder.prepare(tmp_path / "a" / "lab")
    assert (tmp_path / "a" / "lab").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("rights", [0o755, 0o770, 0o500])
def test_other_rights_are_refused_with_the_command(tmp_path: Path, rights: int, messages: Messages) -> None:
    tmp_path.chmod(rights)
    with pytest.raises(Refused) as refused:
        state_folder.prepare(tmp_path)
    assert all(fact in str(refused.value) for fact in (f"{rights:o}", f"`chmod 700 {tmp_path}`"))
    messages.check(refused.value)
    tmp_path.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make another's folder")
def test_another_users_folder_is_refused(tmp_path: Path, messages: Messages) -> None:
    tmp_path.chmod(0o700)
    os.chown(tmp_path, 65534, -1)
    with pytest.raises(Refused, match="65534") as refused:
        state_folder.prepare(tmp_path)
    messages.check(refused.value)


def test_the_environment_tells_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    assert state_folder.lab_folder() == tmp_path / "lab"
    monkeypatch.setenv("ROOST_STATE", "")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_folder.lab_folder() == tmp_path / "roost" / "lab"
    monkeypatch.setenv("XDG_STATE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert state_folder.lab_folder() == tmp_path / ".local" / "state" / "roost" / "lab"


def test_alone_keeps_others_out_until_the_end(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom roost.base.system import state_folder\n"
        "folder = Path(sys.argv[1])\nprint('asks', flush=True)\n"
        "with state_folder.exclusive_lock(folder):\n    print((folder / 'x').exists())"
    )
    with state_folder.exclusive_lock(tmp_path):
        argv = [sys.executable, "-c", program, str(tmp_path)]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline() == "asks\n"
        (tmp_path / "x").touch()
    assert child.communicate()[0] == "True\n"


def test_a_folder_that_cannot_be_made_is_told_in_words(tmp_path: Path, messages: Messages) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Refused, match=r"Not a directory.*ROOST_STATE") as refused:
        state_folder.prepare(tmp_path / "file" / "state" / "lab")
    messages.check(refused.value)


@pytest.mark.parametrize(
    "number",
    [errno.ENOSPC, errno.EROFS],
)
def test_a_disk_that_takes_no_more(tmp_path: Path, number: int, messages: Messages) -> None:
    inside, outside = tmp_path / "lab" / "roots.jsonl", tmp_path / "package" / "request.json"
    said = os.strerror(number)
    with pytest.raises(Refused, match=said) as refused, state_folder.report_write_errors(tmp_path / "lab"):
        raise OSError(number, os.strerror(number), str(inside))
    assert str(inside) in str(refused.value)
    messages.check(str(refused.value).replace(str(inside), "<file>"))
    for other in (
        OSError(number, "x", str(outside)),
        OSError(number, "x"),
        FileNotFoundError(2, "x", inside),
    ):
        with pytest.raises(OSError, match="x"), state_folder.report_write_errors(tmp_path / "lab"):
            raise other


@pytest.mark.skipif(not may_mount(), reason="only root may mount a disk")
def test_a_state_on_a_read_only_disk(tmp_path: Path) -> None:
    """Both where there is a lab and where there is none; what is read is read."""
    code = (
        "from roost.base.system import state_folder; from roost.lab.queue import rebuild\n"
        "from roost.base.errors import Refused\n"
        "for _ in range(2):\n"
        "    try:\n        with rebuild.rebuild_lock(state_folder.lab_folder()): pass\n"
        "    except Refused as error: print(error)\n"
        "    import os; os.environ['ROOST_STATE'] += '/none'\n"
    )
    script = f"""
    mount -t tmpfs -o size=1m,mode=700 tmpfs {tmp_path} && mkdir -m 700 {tmp_path}/lab &&
    mount -o remount,ro {tmp_path} && exec {sys.executable} -c "{code}"
    """
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script],
        env={**os.environ, "ROOST_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 2, done.stdout + done.stderr
    assert all("Read-only file system" in line and str(tmp_path) in line for line in lines)
