"""Every system call that writes, of every operation that changes the queue or makes a package or a project,
is refused once, and killed once: what the operation has said is true afterwards."""

from __future__ import annotations

import filecmp
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from roost.base import safe_read
from roost.lab.queue import task_file
from roost.lab.queue.task import PENDING, STOPPED, Task
from roost.lab.sessions import session_control
from roost.operations.lifecycle import new_project
from roost.package.package import PackageFolder
from tests.lab.labs import Lab
from tests.waiting import wait_for

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="the lab needs Linux"),
              pytest.mark.needs_program("strace")]  # fmt: skip

ROOT = Path(__file__).parents[2]
OPERATIONS = ("submit", "POST /commands", "submit continue", "hold", "POST /hold", "stop")
NEW = ("run", "fork", "new")
"""Operations that make a package with its first session, or a project."""
CALLS = ("openat", "write", "pwrite64", "fsync", "fdatasync", "ftruncate", "rename", "mkdir", "link",
         "unlink", "unlinkat", "rmdir")  # fmt: skip
OTHER_CALLS = ("creat", "pwritev", "writev", "copy_file_range", "sendfile", "renameat", "renameat2", "linkat",
               "symlink", "symlinkat", "mkdirat", "fallocate")  # fmt: skip
"""Other ways to change a disk, which these operations do not use."""
ACTIONS = {"EIO": "error=EIO", "ENOSPC": "error=ENOSPC", "SIGKILL": "signal=SIGKILL"}
NUMBERS = itertools.count()
AT = 1000
"""Which call of its process is cut; an operation makes fewer of each kind."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose daemon runs."""
    lab = Lab(tmp_path_factory.mktemp("cuts"))
    with lab.here():
        lab.start()
        yield lab
    lab.close()


def program(lab: Lab, *arguments: object, under: Sequence[str] = ()) -> Any:
    """Runs `operation_cuts` in the folder of the lab; gives what it prints."""
    command = [*under, sys.executable, "-m", "tests.system.operation_cuts", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=lab.folder, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout or "null")


def count(lab: Lab, operation: str) -> Counter[str]:
    """How often an operation makes each call."""
    name, log = f"counted-{operation.replace('/', '-')}-{next(NUMBERS)}", lab.folder / "log"
    program(lab, operation, "prepare", 0, name)
    names = ",".join(f"?{call}" for call in (*CALLS, *OTHER_CALLS, "execve"))
    strace = ["strace", *followed(operation), "-o", str(log), "-e", f"trace={names}", "-e", "signal=none"]
    (found,) = program(lab, operation, "rmdir", 1, name, under=strace)
    assert found["done"], found
    if operation in NEW:
        judge_new(lab, operation, found)
    lines = [
        line.split(maxsplit=1)
        for line in log.read_text().splitlines()
        if " execve(" not in line and "<..." not in line
    ]
    ((child, _),) = Counter(pid for pid, _ in lines if pid != lines[0][0]).most_common(1)
    found_calls = Counter(call.partition("(")[0] for pid, call in lines if pid == child)
    assert max(found_calls.values()) < AT
    return found_calls


def task_of(lab: Lab, name: str) -> Task | None:
    found = [task for task in lab.tasks() if Path(task.package).name == name]
    assert len(found) <= 1, found
    return found[0] if found else None


def judge(lab: Lab, operation: str, found: dict[str, Any]) -> None:
    """Compares what was said with what is true."""
    name, task = found["name"], task_of(lab, found["name"])
    is_new = operation not in ("hold", "POST /hold", "stop")
    made = task is not None and task.state == PENDING
    if operation in ("hold", "POST /hold"):
        made = task is not None and task.held
    elif operation == "stop":
        made = task is not None and task.state == STOPPED
    if "done" in found:
        assert made and task is not None and found["done"] == [task.id], (found, task)
    elif "error" in found:
        assert not made or "is stored" in found["error"], (found, task)
    else:
        assert found["status"] == -9, found
    if task is not None:
        assert task_file.exists(task), (found, "a task is never without its package")
    elif is_new and operation != "submit continue" and "error" in found:
        assert not (lab.folder / "runs" / name).exists(), (found, "what is not queued is not left behind")


def judge_new(lab: Lab, operation: str, found: dict[str, Any]) -> None:
    """Compares what was said with what is true, of a new package and its session, or of a new project."""
    path = lab.folder / found["name"] if operation == "new" else lab.folder / "runs" / found["name"]
    if "error" in found:
        assert not os.path.lexists(path), (found, "what was refused is not left behind")
    if operation == "new":
        if "done" in found:
            compared = filecmp.dircmp(Path(new_project.__file__).parents[2] / "templates" / "clean", path)
            assert not (compared.left_only or compared.diff_files), found
        return
    sessions = PackageFolder(path).sessions() if (path / "sessions").is_dir() else []
    if "done" in found:
        assert sessions and sessions[0].record is not None, (found, sessions)
    for session in sessions:
        session_control.request_stop(session, now=True)
    wait_for(lambda: safe_read.is_locked(path / "lock") is not True)
    if sessions:  # also of a killed operation
        assert PackageFolder.open(path).sessions()[0].state != "running", found


def followed(operation: str) -> list[str]:
    """Returns the options of strace: with the children of the operation, but not their programs."""
    return ["-f", "-qq", *(["-b", "execve"] if operation in NEW else [])]


def cut(lab: Lab, operation: str, call: str, action: str, *, first: int, last: int) -> None:
    """Cuts the operation at each of these calls of a kind, each time with a task of its own."""
    short = operation.replace("/", "-").replace(" ", "-")
    names = [f"{short}-{call}-{action}-{number}" for number in range(first, last + 1)]
    program(lab, operation, "prepare", 0, *names)
    # Faster where only this call stops the process; but a signal is not delivered at such a stop.
    quick = [] if action == "SIGKILL" or operation in NEW else ["--seccomp-bpf"]
    inject = f"inject={call}:{ACTIONS[action]}:when={AT}"
    log = str(lab.folder / "log")
    strace = ["strace", *followed(operation), *quick, "-o", log, "-e", f"trace={call},execve", "-e", inject]
    for found in program(lab, operation, call, AT - first + 1, *names, under=strace):
        (judge_new if operation in NEW else judge)(lab, operation, found)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("operation", ["submit", "hold", "run", "new"])
def test_some_system_calls_of_an_operation(lab: Lab, operation: str) -> None:
    counted = count(lab, operation)
    assert not any(counted[call] for call in OTHER_CALLS), counted
    for action, call in (("EIO", "fsync"), ("ENOSPC", "pwrite64"), ("SIGKILL", "rename")):
        if counted[call]:
            cut(lab, operation, call, action, first=counted[call], last=counted[call])


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("operation", [*OPERATIONS, *NEW])
def test_every_system_call_of_an_operation(lab: Lab, operation: str, action: str) -> None:
    counted = count(lab, operation)
    assert not any(counted[call] for call in OTHER_CALLS), counted
    for call in CALLS:
        if counted[call]:
            cut(lab, operation, call, action, first=1, last=counted[call])
    print(f"{operation}: {counted.total()} calls, {action} at each: {dict(counted)}")
