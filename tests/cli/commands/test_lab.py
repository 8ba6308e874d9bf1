from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost import __version__
from tests.cli.programs import roost
from tests.lab.labs import Lab
from tests.messages import Messages


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, "sim:2x24GB")
    with own.here():
        yield own
    own.close()


def test_the_daemon_from_start_to_stop(here: Lab, messages: Messages) -> None:
    none = roost("lab", "status")
    assert (none.returncode, roost("lab", "status", "--json").returncode) == (3, 3)
    daemon, *others = none.stdout.splitlines()
    assert daemon.startswith("daemon  none") and "`roost lab start`" in daemon
    assert others == ["tasks   none", f"folder  {here.state}"]
    messages.check(daemon)
    task = here.queue("exec sleep 600")
    started = roost("lab", "start")
    assert started.returncode == 0
    here.wait_for(task.id, "running")
    running = roost("lab", "status", "--json")
    assert running.returncode == 0
    found = json.loads(running.stdout)
    pid = found["daemon"]["pid"]
    assert f"pid {pid}" in started.stderr and started.stderr.count("\n") == 1
    messages.check(started.stderr)
    daemon, tasks, *_ = roost("lab", "status").stdout.splitlines()
    assert (
        re.match(rf"daemon  pid {pid}, roost {__version__}, \w+ 20", daemon) and tasks == "tasks   1 running"
    )
    refused = roost("lab", "rebuild")
    assert refused.returncode == 5 and "`roost lab stop`" in refused.stderr
    restarted = roost("lab", "restart")
    other = json.loads(roost("lab", "status", "--json").stdout)["daemon"]["pid"]
    assert f"pid {other}" in restarted.stderr and other != pid
    stopped = roost("lab", "stop").stderr
    assert f"pid {other}" in stopped and stopped.count("\n") == 1
    messages.check(stopped)
    again = roost("lab", "stop")
    assert again.returncode == 0 and "pid" not in again.stderr
    messages.check(again.stderr)


def test_the_last_lines_of_the_log(here: Lab, messages: Messages) -> None:
    nothing = roost("lab", "log")
    assert (nothing.returncode, nothing.stdout) == (0, "") and nothing.stderr.count("\n") == 1
    messages.check(nothing.stderr)
    here.state.mkdir(parents=True, mode=0o700)
    (here.state / "daemon.log").write_text("one\ntwo\x1b[2J\nthree\n")
    assert roost("lab", "log", "-n", "2").stdout.splitlines() == ["two\\x1b[2J", "three"]


def test_a_rebuild_shows_the_tasks_found(here: Lab) -> None:
    here.wait_for(here.submit("exit 0"))
    assert roost("lab", "stop").returncode == 0
    done = roost("lab", "rebuild")
    first, second = done.stdout.splitlines()
    assert first == "tasks   1 succeeded" and second.startswith(f"before  {here.state}/lab.db.before-")


@pytest.mark.parametrize("arguments", [("destroy",), ("rebuild", "/no/such")])
def test_nonsense_is_refused(here: Lab, arguments: tuple[str, ...]) -> None:
    done = roost("lab", *arguments)
    assert done.returncode in (2, 3) and not done.stdout
