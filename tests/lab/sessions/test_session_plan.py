from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import RoostError
from roost.devices import inventory, lease
from roost.devices.lease import LeaseHolder
from roost.lab.sessions.session_plan import SessionPlan, add_session
from roost.package.package import PackageFolder
from roost.supervisor import guard_start
from tests.lab.labs import Lab

SHOW = "import json, os, sys; json.dump([dict(os.environ), os.getcwd(), sys.argv[1:]], open('shown', 'w'))"


def begin(folder: Path, plan: SessionPlan, **given: object) -> PackageFolder:
    """Starts a session in a package of its own, and waits for its end."""
    package = PackageFolder.create(folder / "runs", name="one", values={}, request={"kind": "command"})
    lock_fd = package.lock()
    try:
        spec = add_session(package, plan, is_queued=False, **given)  # type: ignore[arg-type]
        begun = guard_start.start_session(spec, lock_fd=lock_fd)
    finally:
        os.close(lock_fd)
    begun.process.wait(100)
    return package


def command(code: str, **env: str) -> SessionPlan:
    argv = [sys.executable, "-I", "-S", "-c", code, "own"]
    return SessionPlan(request={"kind": "command"}, argv=argv, is_command=True, env={**os.environ, **env})


def test_a_command_sees_its_cards_and_its_leases_alone(lab: Lab) -> None:
    with lab.here():
        cards = inventory.read_cards()[:2]
        held = lease.take(cards, 1_000, LeaseHolder.this_process("t", ""))
        with closing(held):
            package = begin(
                lab.folder,
                command(SHOW, ROOST_LEASE="of another", CUDA_VISIBLE_DEVICES="7"),
                cards=[card.id for card in cards],
                leases=held,
                deadline=12345.6,
            )
    env, cwd, argv = json.loads((package.path / "shown").read_text())
    assert env["CUDA_VISIBLE_DEVICES"] == ",".join(card.id for card in cards)
    assert env["ROOST_LEASE"] != "of another" and env["ROOST_DEADLINE"] == "12345.600"
    assert (cwd, argv) == (str(package.path), ["own"]), "and gets no further arguments"
    found = package.sessions()[0]
    assert found.state == "succeeded"


def test_without_cards_the_environment_decides(lab: Lab) -> None:
    package = begin(lab.folder, command(SHOW, CUDA_VISIBLE_DEVICES="7", ROOST_LEASE="of another"))
    env, _, _ = json.loads((package.path / "shown").read_text())
    assert env["CUDA_VISIBLE_DEVICES"] == "7" and "ROOST_LEASE" not in env


def test_own_variables_override_the_callers_environment(lab: Lab) -> None:
    plan = msgspec.structs.replace(
        command(SHOW, MINE="1", PYTHONHASHSEED="9"), own_env={"PYTHONHASHSEED": "7"}
    )
    package = begin(lab.folder, plan)
    env, _, _ = json.loads((package.path / "shown").read_text())
    assert (env["MINE"], env["PYTHONHASHSEED"]) == ("1", "7")


def test_a_program_that_is_not_there_leaves_a_free_package(lab: Lab) -> None:
    plan = SessionPlan(request={}, argv=["/nowhere/program"], is_command=True, env={}, cwd="/nowhere")
    try:
        package = begin(lab.folder, plan)
        assert package.sessions()[0].state == "failed"
    except RoostError as error:
        assert "session 1 " in str(error)
    os.close(PackageFolder.open(lab.folder / "runs" / "one").lock())


@pytest.mark.parametrize("is_command", [True, False])
def test_a_worker_gets_its_package_and_session(lab: Lab, is_command: bool) -> None:
    argv = [sys.executable, "-I", "-S", "-c", SHOW]
    plan = SessionPlan(request={}, argv=argv, is_command=is_command, env=dict(os.environ))
    package = begin(lab.folder, plan)
    _, _, arguments = json.loads((package.path / "shown").read_text())
    assert arguments == ([] if is_command else [str(package.path), "1"])


@pytest.mark.parametrize(
    ("env", "terminal", "is_noticed"),
    [({}, "", True), ({"ROOST_REPORT_FD": "5"}, "", False), ({}, "/dev/pts/7", False)],
)
def test_nested_and_debugged_runs_send_no_notice(
    tmp_path: Path, env: dict[str, str], terminal: str, is_noticed: bool
) -> None:
    package = PackageFolder.create(tmp_path, values={}, request={})
    plan = msgspec.structs.replace(command(SHOW), env=env, request={"kind": "command", "terminal": terminal})
    assert add_session(package, plan, is_queued=False).is_noticed == is_noticed
    of_task = add_session(package, plan, is_queued=True)
    assert not of_task.is_noticed, "the lab sends notices of its own tasks"
