"""Every system call of a checkpoint save, killed and refused once: a newest checkpoint loads every time."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

SAVER = Path(__file__).with_name("saver.py")
ACTIONS = {"SIGKILL": "signal=SIGKILL", "ENOSPC": "error=ENOSPC", "EIO": "error=EIO"}
CALLS = {
    "open": ["open", "openat", "openat2", "creat"],
    "write": ["write", "pwrite64", "writev", "pwritev", "copy_file_range", "sendfile", "ftruncate"],
    "sync": ["fsync", "fdatasync", "sync_file_range", "msync"],
    "rename": ["rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat"],
    "mkdir": ["mkdir", "mkdirat"],
    "remove": ["unlink", "unlinkat", "rmdir"],
}
"""All by which a save could change the disk; those that it does use are found out by counting."""

AT = 500
"""Which call of its process a fault meets: later than all that the start of the interpreter makes."""


def saver(*arguments: str | Path, under: list[str] | None = None) -> Any:
    command = [*(under or []), sys.executable, str(SAVER), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saver") / "base"
    saver("base", folder)
    return folder


def copies(base: Path, into: Path, count: int) -> list[Path]:
    folders = [into / str(number) for number in range(1, count + 1)]
    for folder in folders:
        shutil.copytree(base, folder, copy_function=os.link)  # a write in place would show in all of them
    return folders


@pytest.fixture(scope="module")
def counted(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Counter[str]:
    """How often one session makes each call; its process is a child, so that no start is counted."""
    folder = tmp_path_factory.mktemp("counted")
    (target,) = copies(base, folder, 1)
    names = ",".join(f"?{name}" for names in CALLS.values() for name in names)
    strace = ["strace", "-f", "-qq", "-o", str(folder / "log"), "-e", f"trace={names}", "-e", "signal=none"]
    assert saver("pad", "rmdir", "1", target, under=strace) == [0]
    lines = [line.split(maxsplit=1) for line in (folder / "log").read_text().splitlines()]
    child = next(pid for pid, call in reversed(lines) if str(target) in call)
    assert child != lines[0][0]
    return Counter(call.partition("(")[0] for pid, call in lines if pid == child)


def judge(base: Path, folders: list[Path], codes: list[int], action: str) -> None:
    """What must hold in every folder, whatever happened in it."""
    (before,) = saver("check", *copies(base, folders[0].parent / "before", 1))
    assert before["good"] == [0, 1] and before["next"] == 2
    found = saver("check", *folders)
    for folder, code, after in zip(folders, codes, found, strict=True):
        where = f"{action} at {folder.name}: {after}"
        assert code == (-9 if action == "SIGKILL" else 0), where
        assert after["litter"] == [], where
        assert after["good"] == after["ids"], where  # no half of one under its own name
        assert after["good"] and after["good"][-1] >= 1, where
        assert 1 in after["good"] or after["good"][-1] > 2, where  # an old one goes when two newer stand
        if 0 not in after["good"]:
            assert after["good"][-1] >= 2, where
        for id in {"0", "1"} & after["digests"].keys():
            assert after["digests"][id] == before["digests"][id], where
        assert after["next"] == max(after["good"]) + 1, where
        if action != "SIGKILL":  # the session continued to its next save, and that one is committed
            assert after["good"][-1] >= 2, where


@pytest.mark.needs_program("strace")
def test_a_save_makes_these_system_calls_and_no_other(counted: Counter[str]) -> None:
    """The list that the faults are made for: a new way to write to the disk fails this test."""
    used = {kind: [name for name in names if counted[name]] for kind, names in CALLS.items()}
    assert used == {
        "open": ["openat"], "write": ["write"], "sync": ["fsync"], "rename": ["rename"], "mkdir": ["mkdir"],
        "remove": ["unlinkat", "rmdir"],
    }  # fmt: skip
    assert counted["fsync"] >= 9 and counted["write"] >= 8 and counted["rename"] == 2


@pytest.mark.needs_program("strace")
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("call", ["openat", "write", "fsync", "rename", "mkdir", "unlinkat", "rmdir"])
def test_every_system_call_of_a_save(
    base: Path, counted: Counter[str], tmp_path: Path, call: str, action: str
) -> None:
    folders = copies(base, tmp_path, counted[call])
    inject = f"inject={call}:{ACTIONS[action]}:when={AT}"
    # Faster where only this call stops the process; but a signal is not delivered at such a stop.
    quick = [] if action == "SIGKILL" else ["--seccomp-bpf"]
    strace = ["strace", "-f", *quick, "-qq", "-o", str(tmp_path / "log"), "-e", f"trace={call}", "-e", inject]
    codes = saver("pad", call, str(AT), *folders, under=strace)
    if action != "SIGKILL":
        assert (tmp_path / "log").read_text().count("(INJECTED)") == len(folders)
    judge(base, folders, codes, action)


@pytest.mark.parametrize("action", ACTIONS)
def test_every_operation_of_a_save_by_the_hook(base: Path, tmp_path: Path, action: str) -> None:
    """The same where strace is missing or may not trace."""
    folders = copies(base, tmp_path, 40)
    codes = saver("hook", action, *folders)
    total = codes.index(3)
    assert total > 25 and set(codes[total:]) == {3}
    judge(base, folders[:total], codes[:total], action)
