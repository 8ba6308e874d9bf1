"""Runs one operation in a forked child, so that the test cuts it at one system call: it makes
harmless calls first, until the next one is the one that strace meets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roost.base.errors import RoostError
from roost.devices.resource_request import TaskOptions
from roost.operations.lifecycle.continue_ import ContinueRequest
from roost.operations.lifecycle.fork import ForkRequest, fork
from roost.operations.lifecycle.new_project import new_project
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.queue import task_control
from roost.operations.queue.submit import submit_continue
from roost.serve.routes import runs, tasks
from tests.lab.labs import submit_command
from tests.operations.packages import package, project

LATER = str(time.time() + 36_000)
"""No task begins while it is looked at."""


def ids(found: Sequence[Any]) -> list[str]:
    return [one.id for one in found]


def new_command(name: str) -> list[str]:
    options = TaskOptions(gpus=0, begin=LATER)
    return ids(submit_command(["true"], options, name=name, folder=Path.cwd()).tasks)


def posted_command(name: str) -> list[str]:
    body = runs.SubmitCommand(
        command=("true",), folder=str(Path.cwd()), in_place=True, name=name, gpus=0, begin=LATER
    )
    return [one.task for one in runs._submit_command(body).queued]


def continued(name: str) -> list[str]:
    request = ContinueRequest(package=Path.cwd() / "runs" / name)
    return ids(submit_continue(request, TaskOptions(gpus=0, begin=LATER)).tasks)


def held(name: str) -> list[str]:
    return ids([one.task for one in task_control.change([name], held=True).changes])


def posted_hold(name: str) -> list[str]:
    return tasks._hold(tasks.TaskParameters(task=name)).tasks


def stopped(name: str) -> list[str]:
    return ids(task_control.request_stop(name))


def project_config() -> Path:
    return Path.cwd() / "project" / "config.yaml"


def new_run(name: str) -> list[str]:
    request = RunRequest(
        config=project_config(), name=name, description="cut", device="cpu", overrides=["save_root=../runs"]
    )
    return [run(request).package.name]


def forked(name: str) -> list[str]:
    request = ForkRequest(package=Path.cwd() / "runs" / "source", name=name, description="cut", device="cpu")
    return [fork(request).package.name]


def made_project(name: str) -> list[str]:
    return [new_project(Path.cwd() / name, template="clean").path.name]


OPERATIONS: dict[str, Callable[[str], list[str]]] = {
    "submit": new_command, "POST /commands": posted_command, "submit continue": continued, "hold": held,
    "POST /hold": posted_hold, "stop": stopped, "run": new_run, "fork": forked, "new": made_project,
}  # fmt: skip
"""By their name: each is called with the name of the task, and gives the ids that it reports."""


def prepare(operation: str, names: Sequence[str]) -> None:
    """Makes what the operation needs."""
    if operation in ("run", "fork"):
        if not project_config().exists():
            project(Path.cwd() / "project", threads="1")
            package(Path.cwd() / "runs", "source", state="stopped")
        return
    for name in names:
        if operation == "submit continue":
            package(
                Path.cwd() / "runs",
                name,
                state="stopped",
                rows=({"step": 10, "epoch": 1, "valid/loss": 1.0},),
            )
        elif operation in ("hold", "POST /hold", "stop"):
            new_command(name)


def harmless(call: str) -> Callable[[], object]:
    """Makes one system call of this name that changes nothing."""
    null, nowhere = os.open("/dev/null", os.O_RDWR), Path("/nowhere at all")
    root = os.open("/", os.O_RDONLY)
    return {
        "openat": lambda: os.close(os.open("/dev/null", os.O_RDONLY)),
        "write": lambda: os.write(null, b""),
        "pwrite64": lambda: os.pwrite(null, b"", 0),
        "fsync": lambda: os.fsync(null),
        "fdatasync": lambda: os.fdatasync(null),
        "ftruncate": lambda: os.ftruncate(null, 0),
        "rename": lambda: nowhere.rename(nowhere),
        "mkdir": lambda: Path("/").mkdir(),
        "link": lambda: os.link(nowhere, nowhere),
        "unlink": lambda: nowhere.unlink(),
        "unlinkat": lambda: os.remove("nowhere at all", dir_fd=root),
        "rmdir": lambda: nowhere.rmdir(),
    }[call]


def run_cut(operation: str, name: str, call: str, padding: int, told: socket.socket) -> None:
    make = harmless(call)
    for _ in range(padding):
        with contextlib.suppress(OSError):
            make()
    try:
        said = {"done": OPERATIONS[operation](name)}
    except (RoostError, OSError) as error:
        said = {"error": str(error)}
    told.send(json.dumps(said).encode())


def main(operation: str, call: str, at: int, names: Sequence[str]) -> None:
    found = []
    for number, name in enumerate(names, 1):
        listens, told = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        child = os.fork()
        if child == 0:
            try:
                run_cut(operation, name, call, at - number, told)
            finally:
                os._exit(0)
        told.close()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        listens.setblocking(False)
        said = {}
        with contextlib.suppress(BlockingIOError, ConnectionError):
            said = json.loads(listens.recv(1 << 16) or b"{}")
        listens.close()
        found.append({"name": name, "status": status, **said})
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    operation, call, at, *names = sys.argv[1:]
    if call == "prepare":
        prepare(operation, names)
    else:
        main(operation, call, int(at), names)
