"""Real daemons, each test with a state folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roost import __version__
from roost.base.errors import NotFound, Refused, RoostError
from roost.lab import presence
from roost.lab.daemon import Daemon
from roost.lab.task import RUNNING, SUCCEEDED
from roost.operations import lab
from tests.devices.leasing import at_once
from tests.lab.labs import Lab
from tests.waiting import wait_for

FOREVER = "exec sleep 600"
OF_ANOTHER_VERSION = (
    "import sys, roost\nroost.__version__ = '0.0.7'\nfrom roost.lab.daemon import main\nsys.exit(main())"
)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, "sim:2x24GB")
    with own.here():
        yield own
    own.close()


def test_one_that_runs_is_not_started_again(here: Lab) -> None:
    first = lab.ensure()
    assert lab.ensure() == lab.start() == first and first.lives
    assert lab.stop() == first and not first.lives
    assert lab.stop() is None


def test_of_twenty_started_at_once_exactly_one_lives(here: Lab) -> None:
    """F19. Forked, so that none of them is ahead by its imports."""
    here.state.mkdir(mode=0o700, parents=True)
    pids = {_fork_daemon(here.state) for _ in range(20)}
    codes: dict[int, int] = {}

    def all_but_one_have_ended() -> bool:
        for pid in pids - codes.keys():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        return len(codes) >= 19

    wait_for(all_but_one_have_ended, 30.0)
    (left,) = pids - codes.keys()
    found = presence.about(here.state)
    assert found is not None and found.pid == left
    assert set(codes.values()) == {Refused.exit_code}
    said = [(here.folder / f"{pid}.txt").read_text() for pid in codes]
    assert all(f"this lab has a daemon already (pid {left})" in one for one in said)
    os.kill(left, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(left, 0)[1]) == 0


def _fork_daemon(folder: Path) -> int:
    """Its error lands in a file of its pid."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        Daemon(folder).run()
        code = 0
    except Refused as error:
        Path(f"{os.getpid()}.txt").write_text(str(error))
        code = error.exit_code
    finally:
        os._exit(code)


def test_all_who_start_one_at_once_have_the_same(here: Lab) -> None:
    assert at_once(8, lambda _: (here.folder / "pids").open("a").write(f"{lab.start().pid}\n")) == [0] * 8
    assert len({pid for (pid,) in here.lines("pids")}) == 1 and len(here.lines("pids")) == 8


def test_one_of_another_version_is_told_once_and_can_be_stopped(here: Lab) -> None:
    here.state.mkdir(mode=0o700, parents=True)
    other = subprocess.Popen([sys.executable, "-c", OF_ANOTHER_VERSION, str(here.state)])
    wait_for(lambda: presence.about(here.state))
    task = here.queue(FOREVER)
    with pytest.raises(Refused) as caught:
        lab.ensure()
    assert str(caught.value) == (
        f"the lab's daemon (pid {other.pid}) is of roost 0.0.7, and this is {__version__}. "
        "To mend it: `roost lab stop` and `roost lab start`: what runs goes on"
    )
    found = lab.status().daemon
    assert found is not None and found.version == "0.0.7"
    stopper = subprocess.Popen([sys.executable, "-c", "from roost.operations import lab; lab.stop()"])
    assert (other.wait(20), stopper.wait(20)) == (0, 0)
    lab.ensure()
    here.wait_for(task.id, RUNNING)


@pytest.mark.parametrize("rights", [0o755, 0o500])
def test_a_folder_with_other_rights_is_refused_and_left(here: Lab, rights: int) -> None:
    here.queue(FOREVER)
    here.state.chmod(rights)
    calls: list[Callable[[], Any]] = [lab.opened, lab.start, lab.ensure, lab.status, lab.rebuild]
    for call in calls:
        with pytest.raises(Refused, match=rf"has the rights {rights:o}, and needs 700.*chmod 700"):
            call()
    assert lab.stop() is None
    here.state.chmod(0o700)
    assert lab.status().tasks == {"pending": 1}


def test_a_daemon_that_cannot_start_says_why(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_DEVICES", "nonsense")
    with pytest.raises(RoostError, match=r"did not start: ROOST_DEVICES: nobody provides.*daemon\.log"):
        lab.start()
    assert lab.status().daemon is None


def test_how_it_stands(here: Lab) -> None:
    assert lab.status() == lab.Status(None, {}, str(here.state))
    assert not here.state.exists()
    ids = [here.submit("exit 0"), here.submit(FOREVER)]
    here.wait_for(ids[0], SUCCEEDED)
    here.wait_for(ids[1], RUNNING)
    here.queue(FOREVER)
    found = lab.status()
    assert found.daemon is not None and found.daemon.version == __version__
    assert list(found.tasks.items()) == [("pending", 1), ("running", 1), ("succeeded", 1)]


def test_a_queue_is_made_anew_while_its_tasks_run(here: Lab) -> None:
    ended, runs = here.submit("exit 0"), here.submit(FOREVER)
    here.wait_for(ended, SUCCEEDED)
    here.wait_for(runs, RUNNING)
    with pytest.raises(Refused, match=r"daemon \(pid \d+\) works with the queue.*roost lab stop"):
        lab.rebuild()
    lab.stop()
    (here.state / "lab.db").write_bytes(b"\0" * 4096)
    with pytest.raises(Refused, match=r"the lab's queue is damaged.*roost lab rebuild"):
        lab.status()
    found = lab.rebuild()
    assert found.aside is not None and found.aside.read_bytes() == b"\0" * 4096
    assert sum(found.tasks.values()) == 2 and found.tasks["succeeded"] == 1
    assert presence.about(here.state) is not None  # for what has not ended
    assert here.wait_for(runs, RUNNING).attempt == 1


def test_a_queue_of_ended_tasks_needs_no_daemon(here: Lab) -> None:
    here.wait_for(here.submit("exit 0"), SUCCEEDED)
    lab.stop()
    (here.state / "lab.db").unlink()
    assert lab.rebuild() == lab.Rebuilt({"succeeded": 1}, None)
    assert lab.status().daemon is None


def test_no_daemon_comes_up_while_the_queue_is_made_anew(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_TOLD_SECONDS", 0.0)
    with lab.opened():
        fd = presence.lock(here.state)
    for call in (lambda: presence.take(here.state, now=0.0), lab.rebuild):
        with pytest.raises(Refused, match="this lab has a daemon already"):
            call()
    os.close(fd)


def test_a_folder_that_is_not_there_has_no_packages(here: Lab) -> None:
    with pytest.raises(NotFound, match="there is no such folder; received '/no/such'"):
        lab.rebuild([Path("/no/such")])
    assert not here.state.exists()


def test_packages_that_the_queue_has_never_heard_of(here: Lab, tmp_path: Path) -> None:
    here.wait_for(here.submit("exit 0"), SUCCEEDED)
    lab.stop()
    here.state.rename(tmp_path / "gone")
    assert lab.rebuild().tasks == {}
    assert lab.rebuild([here.folder]).tasks == {"succeeded": 1}


def test_one_that_was_killed_is_not_there_any_more(here: Lab) -> None:
    first = lab.start()
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: not first.lives)
    assert lab.status().daemon is None
    assert lab.ensure().pid != first.pid
