"""Asking a running session to save and end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, Refused, RoostError
from roost.base.system import process_identity
from roost.lab.sessions.abandoned_sessions import end_abandoned
from roost.lab.sessions.session_control import request_stop
from roost.operations.lifecycle.attach import attach
from roost.operations.lifecycle.run import RunRequest, run
from roost.operations.lifecycle.stop import StopPending, StopResult, stop
from roost.operations.sessions.session_request import StartedSession
from roost.package import live_progress
from roost.package.package import PackageFolder
from tests.messages import Messages
from tests.operations.packages import package, project
from tests.waiting import wait_for


@contextmanager
def running(tmp_path: Path) -> Iterator[StartedSession]:
    """A real run that would train for days, in its training."""
    started = run(RunRequest(config=project(tmp_path / "p", max_epochs="1000000", validate_every="1000")))
    assert started.process is not None
    try:
        wait_for(lambda: (seen := live_progress.read(started.package / "progress")) and seen.step > 3)
        yield started
    finally:
        started.process.send_signal(signal.SIGQUIT)
        started.process.wait()


def test_saves_and_ends(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        *waiting, ended = stop(started.package)
        assert waiting and all(isinstance(event, StopPending) for event in waiting)
        assert isinstance(ended, StopResult) and ended.was_running and ended.state == "stopped"
        assert started.process is not None and started.process.wait(100) == 75
        made = PackageFolder.open(started.package)
        assert ended.step == made.store().lineage()[-1].step > 3


def test_ends_at_once(tmp_path: Path) -> None:
    with running(tmp_path) as started:
        *_, ended = stop(started.package, now=True)
        assert isinstance(ended, StopResult) and ended.state == "stopped"
        assert started.process is not None and started.process.wait(100) == 130


@pytest.mark.parametrize("state", ["new", "succeeded", "failed", "crashed"])
def test_what_does_not_run(tmp_path: Path, state: str) -> None:
    (ended,) = stop(package(tmp_path / "runs", state=state).path)
    assert isinstance(ended, StopResult) and ended.state == state and not ended.was_running


def test_a_process_that_only_has_the_pid_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]) as other:
        made = package(tmp_path / "runs", state="running", pid=other.pid, start_ticks=1)
        (ended,) = stop(made.path)
        assert isinstance(ended, StopResult) and ended.state == "crashed"
        assert other.poll() is None
        other.kill()


@contextmanager
def run_by_a_process(made: PackageFolder) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the package's lock, as its record says."""
    lock_fd = made.lock()
    with subprocess.Popen(["sleep", "1000"], pass_fds=[lock_fd]) as process:
        os.close(lock_fd)
        file = made.path / "sessions" / "1.json"
        ticks = process_identity.start_ticks(process.pid)
        record = {**json.loads(file.read_bytes()), "state": "running", "pid": process.pid}
        file.write_text(json.dumps({**record, "start_ticks": ticks}))
        yield process
        process.kill()


def test_a_process_of_the_session_gets_the_signal(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    with run_by_a_process(made) as process:
        *_, ended = stop(made.path)
        assert isinstance(ended, StopResult) and ended.was_running and ended.state == "crashed"
        assert process.wait(100) == -signal.SIGTERM


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_process_that_is_only_named_by_a_package_of_a_stranger_is_left_alone(
    tmp_path: Path, is_locked: bool, messages: Messages
) -> None:
    with subprocess.Popen(["sleep", "1000"]) as other:
        ticks = process_identity.start_ticks(other.pid)
        made = package(tmp_path / "runs", pid=other.pid, start_ticks=ticks, guard_pid=other.pid)
        file = made.path / "sessions" / "1.json"
        file.write_text(json.dumps({**json.loads(file.read_bytes()), "state": "running"}))
        lock_fd = made.lock() if is_locked else None
        if lock_fd is not None:
            with pytest.raises(Refused) as refused:
                list(stop(made.path))
            messages.check(refused.value)
            os.close(lock_fd)
        (ended,) = stop(made.path)
        assert isinstance(ended, StopResult) and (ended.state, ended.was_running) == ("crashed", False)
        with pytest.raises(Refused, match="crashed"):
            attach(made.path)
        assert other.poll() is None
        other.kill()


@pytest.mark.parametrize("fields", [
    {"pid": 1}, {"pid": 0}, {"pid": -1}, {"pid": -(2**40)}, {"pid": 2**31}, {"pid": 2**80}, {"pid": "1"},
    {"pid": [1]}, {"pid": True}, {"pid": 1, "start_ticks": -1}, {"pid": 1, "boot_id": "another boot"},
    {"pid": 1, "boot_id": ""},
])  # fmt: skip
def test_a_process_that_a_record_makes_up_is_neither_believed_nor_signalled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    """By every reader of a session's processes; pid 1 lives, and this user may signal it."""
    made = package(tmp_path / "runs")
    file = made.path / "sessions" / "1.json"
    forged = {
        "state": "running",
        "start_ticks": None,
        **fields,
        "guard_pid": fields["pid"],
        "worker_pid": fields["pid"],
    }
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **forged}))
    sent: list[object] = []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda *given: sent.append(given))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *given: sent.append(given))
    with suppress(RoostError):  # a record with other types is refused as damaged
        (ended,) = stop(made.path)
        assert isinstance(ended, StopResult) and not ended.was_running
    with pytest.raises(RoostError):
        attach(made.path)
    assert made.state != "running"
    for session in made.sessions():
        assert session.supervisor_pid is None and not session.guard_is_alive
        request_stop(session, now=True)
    end_abandoned(made)
    os.close(made.lock())
    assert [given for given in sent if given[-1] != 0] == []  # type: ignore[index]


def test_a_copy_of_a_package_that_runs_does_not_stop_the_original(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    with run_by_a_process(made) as process:
        shutil.copytree(made.path, tmp_path / "runs" / "copy", symlinks=True)
        copy = PackageFolder.open(tmp_path / "runs" / "copy")
        (ended,) = stop(copy.path)
        assert isinstance(ended, StopResult) and not ended.was_running
        end_abandoned(copy)  # as `continue` does
        assert (made.state, copy.state, process.poll()) == ("running", "crashed", None)


def test_another_machine(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="running", host="elsewhere", boot_id="its own")
    lock_fd = made.lock()
    with pytest.raises(Refused, match="elsewhere"):
        list(stop(made.path))
    os.close(lock_fd)


def test_no_package(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        list(stop(tmp_path))
