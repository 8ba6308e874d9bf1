"""A session whose guard and supervisor were both killed leaves processes; the next session ends them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from roost.base.errors import Refused
from roost.base.system import process_identity
from roost.lab.sessions.abandoned_sessions import end_abandoned
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.lifecycle.run import RunRequest, run
from roost.package.package import PackageFolder
from tests.operations.packages import package, project
from tests.waiting import wait_for

DAEMON = """
import os, signal
def loose():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open("daemon", "w") as file: file.write(str(os.getpid()))
            while True: signal.pause()
        os._exit(0)
loose()
"""


def killed(folder: Path) -> tuple[PackageFolder, int]:
    """A run that has started a daemon, then lost guard and supervisor by SIGKILL; gives the daemon's pid."""
    config = project(folder, max_epochs="1000000", validate_every="1000")
    runner = folder / "Model" / "Runner.py"
    text = runner.read_text()
    at = text.index("import roost")
    runner.write_text(text[:at] + DAEMON + text[at:])
    started = run(RunRequest(config=config))
    assert started.process is not None and started.running is not None
    daemon = started.package / "daemon"
    pid = int(wait_for(lambda: daemon.exists() and daemon.read_text()))
    record = started.running.session().record or {}
    started.process.send_signal(signal.SIGSTOP)  # or it would end everything, in the instant between the two
    os.kill(record["pid"], signal.SIGKILL)
    started.process.kill()
    started.process.wait()
    made = PackageFolder.open(started.package)
    wait_for(lambda: made.state == "crashed")
    return made, pid


def lives(pid: int) -> bool:
    stat = process_identity.read_stat(pid)
    return stat is not None and not stat.ended


def test_the_next_session_ends_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, daemon = killed(tmp_path / "p")
    assert lives(daemon)
    monkeypatch.setattr("roost.package.session_folder._LOCK_WAIT_SECONDS", 0.1)
    with pytest.raises(Refused, match="roost continue"):
        made.lock()  # which the daemon still holds
    started = continue_(
        ContinueRequest(package=made.path, overrides=["~max_epochs", "+max_steps=3"], force=True)
    )
    assert not lives(daemon)
    assert started.process is not None and started.process.wait(100) == 0, made.output.read_text()


def test_also_when_another_session_came_in_between(tmp_path: Path) -> None:
    made, daemon = killed(tmp_path / "p")
    number = made.new_session({"kind": "python"})
    record = {"state": "stopped", "reason": "closed", "exit_code": 0, "error": None}
    (made.path / "sessions" / f"{number}.json").write_text(json.dumps(record))
    assert lives(daemon)
    end_abandoned(made)
    assert not lives(daemon)


@pytest.mark.parametrize(
    "record",
    [
        {"state": "running"},  # it runs: this very process
        {"state": "running", "start_ticks": 1, "guard_pid": os.getpid()},  # the guard will end everything
        {"state": "running", "start_ticks": 1, "boot_id": "before"},
        {"state": "running", "start_ticks": 1, "boot_id": "before", "host": "elsewhere"},
        {"state": "running", "start_ticks": 1, "boot_id": "", "host": "elsewhere"},
        {"state": "crashed"},
    ],
)
def test_processes_with_a_guard_are_left_alone(
    tmp_path: Path, record: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = package(tmp_path / "runs", **{"guard_pid": 2**22 + 1, **record})  # type: ignore[arg-type]
    monkeypatch.setattr(
        "roost.supervisor.processes.abandoned_processes.kill_abandoned", lambda *_: pytest.fail("swept")
    )
    end_abandoned(made)


def test_a_renamed_machine_is_the_same_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"state": "running", "start_ticks": 1, "host": "elsewhere", "guard_pid": 2**22 + 1}
    made = package(tmp_path / "runs", **given)
    swept = []
    monkeypatch.setattr(
        "roost.supervisor.processes.abandoned_processes.kill_abandoned", lambda *given: swept.append(given)
    )
    end_abandoned(made)
    assert len(swept) == 1


def test_a_starting_session_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = package(tmp_path / "runs", state="new")
    number = made.new_session({"token": "0" * 32})
    request = made.path / "sessions" / f"{number}.request.json"
    request.write_text(request.read_text().replace(f'"pid": {os.getpid()}', '"pid": 4194305'))
    assert made.state == "crashed"
    monkeypatch.setattr(
        "roost.supervisor.processes.abandoned_processes.kill_abandoned", lambda *_: pytest.fail("swept")
    )
    end_abandoned(made)
