from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import roost
from roost.supervisor.processes import cgroup
from tests.waiting import wait_for

SRC = str(Path(roost.__file__).parents[1])
# Joins, makes a group inside, and forks into both; one of the children is stopped.
BUSY = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
from roost.supervisor.processes import cgroup
group = sys.argv[1]
assert cgroup.join(group)
os.mkdir(group + "/inner")
for i in range(6):
    if os.fork() == 0:
        os.setsid()
        if i % 2: assert cgroup.join(group + "/inner")
        os.write(1, b"1")
        if i == 3: os.kill(os.getpid(), signal.SIGSTOP)
        while True: signal.pause()
while True: signal.pause()
"""
NUM_BUSY = 7


@pytest.fixture
def group() -> Iterator[str]:
    path = cgroup.create(secrets.token_hex(16))
    assert path is not None
    yield path
    cgroup.kill(path)
    cgroup.remove(path)


def busy(group: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-I", "-S", "-c", BUSY, group, SRC]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE)
    assert child.stdout is not None
    with child.stdout as pipe:
        pipe.read(NUM_BUSY - 1)
    return child


@pytest.mark.needs_cgroup
def test_all_that_is_inside_ends_and_the_groups_go(group: str) -> None:
    child = busy(group)
    assert child.pid in cgroup.pids(group)
    assert len(cgroup.pids(group)) == NUM_BUSY
    cgroup.remove(group)
    assert Path(group).exists(), "one that is not empty stays"
    cgroup.kill(group)
    assert cgroup.pids(group) == []
    assert child.wait(100) == -signal.SIGKILL
    cgroup.remove(group)
    assert not Path(group).exists()


@pytest.mark.needs_cgroup
def test_a_kernel_that_cannot_kill_a_group(group: str) -> None:
    child = busy(group)
    cgroup.freeze_and_kill(group, deadline=time.monotonic() + 10)
    assert cgroup.pids(group) == []
    assert child.wait(100) == -signal.SIGKILL


@pytest.mark.needs_cgroup
def test_a_name_is_taken_once(group: str) -> None:
    assert cgroup.create(group.rpartition("-")[2]) is None


def test_a_group_that_is_not_there() -> None:
    cgroup.kill("/nowhere/roost-0")
    cgroup.remove("/nowhere/roost-0")
    assert not cgroup.join("/nowhere/roost-0")
    assert cgroup.pids("/nowhere/roost-0") == []


@pytest.mark.needs_cgroup
def test_a_child_is_in_its_group_from_the_first(group: str) -> None:
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[2]); from roost.supervisor.processes import cgroup\n"
        "pid = cgroup.fork_into(sys.argv[1])\n"
        "if pid == 0: os.execv('/bin/cat', ['cat', '/proc/self/cgroup'])\n"
        "assert os.waitpid(pid, 0) == (pid, 0)"
    )
    argv = [sys.executable, "-I", "-S", "-c", code, group, SRC]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert group.rpartition("/")[2] in said


def test_a_child_goes_into_no_folder_that_is_no_group(tmp_path: Path) -> None:
    assert cgroup.fork_into(str(tmp_path)) is None
    assert cgroup.fork_into(str(tmp_path / "nowhere")) is None


def test_where_no_group_can_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for own in (None, str(tmp_path)):  # no cgroup v2; a folder that is not a group
        monkeypatch.setattr(cgroup, "_own_cgroup", lambda own=own: own)
        assert not cgroup.can_create()
        assert cgroup.create("0" * 32) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs_cgroup
@pytest.mark.parametrize(
    "wrong",
    ["", "/", "{mount}", "{mount}/system.slice", "{mount}/roost-", "{mount}/roost-xyz", "{mount}/roost-12",
     "/tmp/roost-{token}", "{mount}/../roost-{token}", "{mount}/a/../roost-{token}", "{token}"],
)  # fmt: skip
def test_a_path_from_a_file_is_not_believed(wrong: str, group: str) -> None:
    mount, token = str(Path(group).parent), "0" * 32
    assert cgroup.is_session_cgroup(group)
    assert not cgroup.is_session_cgroup(wrong.format(mount=mount, token=token))


def test_tokens() -> None:
    assert cgroup.is_token(secrets.token_hex(16))
    assert not any(map(cgroup.is_token, ["", "0" * 15, "0" * 65, "g" * 32, "A" * 32, "0" * 31 + "\n"]))


@pytest.mark.needs_cgroup
def test_its_own_place(group: str) -> None:
    """A group made from inside a group lies inside it: a run that starts runs owns them."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from roost.supervisor.processes import cgroup\n"
        "cgroup.join(sys.argv[1]); print(cgroup.create('0' * 32), end='')"
    )
    argv = [sys.executable, "-I", "-S", "-c", code, group, SRC]
    made = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert made == f"{group}/roost-{'0' * 32}"
    wait_for(lambda: not cgroup.pids(group))
    assert os.path.isdir(made)  # noqa: PTH112


def test_memory_is_limited_where_the_controller_is_there(tmp_path: Path) -> None:
    assert not cgroup.limit_memory(str(tmp_path), 2**20), "no file of the kernel"
    for name in ("memory.max", "memory.oom.group"):
        (tmp_path / name).touch()
    assert cgroup.limit_memory(str(tmp_path), 2**20)
    assert (tmp_path / "memory.max").read_text() == "1048576"
    assert (tmp_path / "memory.oom.group").read_text() == "1", "the session ends as a whole"


def test_what_killed_sessions_left_is_removed_by_the_next_that_ends(tmp_path: Path) -> None:
    """Folders act as groups here: only an empty one can be removed."""
    names = {name: f"roost-{secrets.token_hex(16)}" for name in ("own", "old", "busy", "new")}
    for name in [*names.values(), "roost-other", "user.slice"]:
        (tmp_path / name).mkdir()
    (tmp_path / names["busy"] / "cgroup.procs").write_text("1")
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1))
    os.utime(tmp_path / names["new"])
    cgroup.remove_abandoned(str(tmp_path / names["own"]))
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {names["busy"], names["new"], "roost-other", "user.slice"}
