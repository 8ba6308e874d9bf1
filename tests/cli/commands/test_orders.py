"""`roost stop`, `kill`, `hold`, `release` and `priority` of tasks, through the real program."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab.queue.task import PENDING, RUNNING, STOP
from tests.cli.programs import roost
from tests.lab.labs import Lab
from tests.messages import Messages


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab
    lab.close()


def test_each_change_is_made_and_reported(lab: Lab, messages: Messages) -> None:
    blocker, task = (lab.queue("exec sleep 1000") for _ in range(2))
    with lab.store() as store:
        store.change(blocker.id, held=True)  # before the first order starts the daemon
        store.change(task.id, held=True)
    for order, said in (
        (["hold", task.id, Path(blocker.package).name], f"{task.name}: pending, priority 0"),
        (["priority", task.id[:20], "-5"], f"{task.name}: pending, priority -5"),
        (["priority", task.id, blocker.id, "3"], f"{task.name}: pending, priority 3"),
        (["stop", Path(task.package).name], f"{task.name}: stopped"),
    ):
        done = roost(*order)
        assert done.returncode == 0 and done.stderr.startswith(said) and not done.stdout
        assert ("daemon" in done.stderr) == (order[0] == "hold"), "none ran before the first"
    assert roost("release", blocker.package).returncode == 0
    said = roost("release", blocker.package).stderr.splitlines()[-1]
    assert said.startswith(f"{blocker.name}: ")
    messages.check(said.removeprefix(f"{blocker.name}: "))
    lab.wait_for(blocker.id, RUNNING)
    killed = roost("kill", blocker.id).stderr.splitlines()
    assert killed[0].startswith(f"{blocker.name}: session 1: ") and "roost continue" in killed[1]
    for order in (["hold"], ["stop"], ["kill"]):
        over = roost(*order, blocker.id)
        assert over.returncode == 5 and "stopped" in over.stderr
        assert len(over.stderr.splitlines()) == 1


def test_what_is_wrong_is_said_in_one_line_and_nothing_is_changed(lab: Lab) -> None:
    task, other = lab.queue("true"), lab.queue("true")
    for order, code in (
        (["stop", "nothing"], 3),
        (["kill", task.id, "nothing"], 3),
        (["hold", task.id[:6]], 2),
        (["stop", task.id[:6]], 2),
        (["release", "a/b"], 3),
        (["priority", task.id, "1e9"], 2),
        (["priority", "10", task.id], 2),
        (["priority", task.id, other.id], 2),
        (["priority", "10"], 2),
        (["priority"], 2),
        (["priority", task.id, "9999999999999999999999"], 2),
        (["hold"], 2),
    ):
        said = roost(*order)
        assert said.returncode == code and "Traceback" not in said.stderr, order
    assert [(one.state, one.priority, one.held) for one in lab.tasks()] == [(PENDING, 0, False)] * 2
    candidates = roost("stop", task.id[:6]).stderr
    assert task.id in candidates and other.id in candidates


def test_logs_takes_a_task(lab: Lab) -> None:
    id = lab.submit("echo said")
    lab.wait_for(id)
    assert roost("logs", id).stdout == "said\n"
    waits = lab.queue("true", begin=time.time() + 3600)
    silent = roost("logs", waits.id)
    assert (silent.returncode, silent.stdout) == (0, "") and silent.stderr.count("\n") == 1
    assert roost("logs", id, "-n", "0").stderr == ""


def test_logs_that_follow_exit_as_the_task(lab: Lab) -> None:
    for script, code in (("exit 3", 3), ("true", 0), ("kill -9 $$", 1)):
        id = lab.submit(f"echo said; {script}")
        said = roost("logs", id, "-f")
        assert (said.stdout.splitlines()[0], said.returncode) == ("said", code), said
        assert roost("logs", id, "-f").returncode == code, "also after the end"
        assert roost("logs", id).returncode == 0
    stopped = lab.queue("true", begin=time.time() + 3600)
    lab.ask(stopped.id, STOP)
    assert roost("logs", stopped.id, "-f").returncode == 75, "it never ran"


def test_the_priority_comes_last(lab: Lab, messages: Messages) -> None:
    said = roost("priority", "10", "mine").stderr
    assert "roost priority TASK... 10" in said
    messages.check(said)
