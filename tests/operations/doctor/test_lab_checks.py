"""Daemon and server, what ended sessions have left, and runs that can continue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from roost.base.system import state_folder
from roost.base.system.worker_protocol import TOKEN_VARIABLE
from roost.lab.background import daemon_presence
from roost.operations.doctor.diagnosis import DoctorSubject
from roost.operations.doctor.lab_checks import (
    LabFacts,
    judge_abandoned,
    judge_interrupted,
    judge_lab,
    read_abandoned,
    read_interrupted,
    read_lab,
)
from roost.operations.listing.list_packages import list_packages
from tests.lab.labs import Lab
from tests.operations.doctor.lines import levels, only
from tests.operations.packages import package
from tests.operations.test_lab import OF_ANOTHER_VERSION
from tests.waiting import wait_for

FOREVER = "exec sleep 600"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, "sim:1x24GB")
    with own.here():
        yield own
    own.close()


@pytest.fixture
def subject(here: Lab) -> DoctorSubject:
    return DoctorSubject(save_root=here.folder / "runs", lab_folder=here.state)


def test_a_lab_from_its_first_task_to_a_killed_daemon(here: Lab, subject: DoctorSubject) -> None:
    only(judge_lab(read_lab(subject)), "ok", "no daemon runs")
    here.queue(FOREVER)
    only(judge_lab(read_lab(subject)), "warning", "1 task waits", "roost lab start")
    record = here.start()
    only(judge_lab(read_lab(subject)), "ok", f"daemon pid {record.pid}")
    here.kill_daemon()
    only(judge_lab(read_lab(subject)), "warning", "was killed", "roost lab start")


def test_a_daemon_of_another_version(here: Lab, subject: DoctorSubject) -> None:
    here.state.mkdir(mode=0o700, parents=True)
    other = subprocess.Popen([sys.executable, "-c", OF_ANOTHER_VERSION, str(here.state)])
    wait_for(lambda: daemon_presence.find_daemon(here.state))
    line = only(judge_lab(read_lab(subject)), "problem", "0.0.7", "roost lab restart")
    assert str(other.pid) in line.found
    other.terminate()
    other.wait(100)


def test_a_folder_that_others_can_read_and_one_on_a_network(here: Lab, subject: DoctorSubject) -> None:
    state_folder.prepare(here.state)
    here.state.chmod(0o755)
    only(judge_lab(read_lab(subject)), "problem", "755", f"chmod 700 {here.state}")
    here.state.chmod(0o700)
    facts = replace(LabFacts(folder=here.state), server_is_lost=True)
    only(judge_lab(facts), "warning", "the server was killed")


def test_processes_that_a_session_has_left(here: Lab, subject: DoctorSubject) -> None:
    made = package(here.folder / "runs", state="crashed")
    request = made.path / "sessions" / "1.request.json"
    request.write_text(json.dumps({**json.loads(request.read_text()), "token": "ab12" * 8}))
    list_packages(here.folder / "runs")  # from here on the folder is known
    only(judge_abandoned(read_abandoned(subject)), "ok")
    env = {**os.environ, TOKEN_VARIABLE: "ab12" * 8}
    left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], env=env)
    try:
        line = only(judge_abandoned(read_abandoned(subject)), "problem", str(made.path))
        assert f"kill {left.pid}" in line.fix
    finally:
        left.kill()
        left.wait()


def test_interrupted_runs(here: Lab, subject: DoctorSubject) -> None:
    only(judge_interrupted(read_interrupted(subject)), "ok")
    for number in range(5):
        package(here.folder / "runs", f"run-{number}", state="crashed")
    list_packages(here.folder / "runs")
    found = read_interrupted(subject)
    only(judge_interrupted(found), "warning", "5 runs", "2 more", "roost up")
    assert levels(judge_interrupted(found[:1])) == ["warning"]
