"""Stop requests reach a session with paused processes or a wrong record."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.base.errors import Refused
from roost.base.system import process_identity
from roost.lab.executors.local_executor import LocalExecutor
from roost.lab.queue.task import RUNNING, STARTING, STOPPED, SUCCEEDED, Task
from roost.lab.sessions import session_control
from roost.package.package import PackageFolder
from roost.package.sessions import Session
from tests.lab.labs import Lab, record_of
from tests.messages import Messages
from tests.waiting import wait_for


@pytest.fixture
def local(lab: Lab) -> Iterator[LocalExecutor]:
    with lab.here():
        yield LocalExecutor()


def begun(lab: Lab, local: LocalExecutor, script: str) -> Task:
    task = msgspec.structs.replace(lab.task(script), attempt=1, state=STARTING)
    local.start(task, [])()
    return msgspec.structs.replace(task, state=RUNNING, session=newest(task).number)


def newest(task: Task) -> Session:
    return PackageFolder.open(task.package).sessions()[-1]


def change_record(task: Task, **changes: Any) -> None:
    path = Path(task.package) / "sessions" / "1.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def is_paused(pid: int) -> bool:
    found = process_identity.read_stat(pid)
    return found is not None and found.state == "T"


def test_a_guard_that_is_paused_after_the_end_is_resumed(lab: Lab, local: LocalExecutor) -> None:
    task = begun(lab, local, "until [ -e go ]; do sleep 0.02; done")
    guard = record_of(task)["guard_pid"]
    os.kill(guard, signal.SIGSTOP)
    wait_for(lambda: is_paused(guard))
    (lab.folder / "go").touch()
    wait_for(lambda: newest(task).state == "succeeded")
    assert local.poll(task).state == RUNNING
    local.request_stop(task, now=True)
    wait_for(lambda: local.poll(task).state == SUCCEEDED)


def test_paused_guards_and_supervisors_receive_the_request(lab: Lab, local: LocalExecutor) -> None:
    task = begun(lab, local, "exec sleep 600")
    record = record_of(task)
    for pid in (record["guard_pid"], record["pid"]):
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda pid=pid: is_paused(pid))
    local.request_stop(task, now=False)
    wait_for(lambda: local.poll(task).state == STOPPED)


@pytest.mark.parametrize(
    "wrong", [{"pid": 2**22 - 1}, {"pid": 2**80}, {"pid": None}, {"host": "x", "pid": 1}]
)
def test_a_record_with_a_wrong_process_does_not_keep_it_from_ending(
    wrong: dict[str, Any], lab: Lab, local: LocalExecutor
) -> None:
    task = begun(lab, local, "exec sleep 600")
    supervisor = record_of(task)["pid"]
    change_record(task, **wrong)
    session_control.request_stop(newest(task))
    wait_for(lambda: process_identity.read_stat(supervisor) is None)
    wait_for(lambda: local.poll(task).state == STOPPED)


def test_an_unreachable_session_is_reported(lab: Lab, local: LocalExecutor, messages: Messages) -> None:
    task = begun(lab, local, "exec sleep 600")
    record = record_of(task)
    change_record(task, pid=None, guard_pid=2**80)
    with pytest.raises(Refused, match=r"session 1 .*fuser -v .*/lock") as refused:
        session_control.request_stop(newest(task))
    messages.check(refused.value)
    change_record(task, **record)
    session_control.request_stop(newest(task), now=True)
    wait_for(lambda: local.poll(task).state == STOPPED)
    change_record(task, pid=None, guard_pid=None, state="running")
    session_control.request_stop(newest(task))  # no process holds the lock: it has ended
