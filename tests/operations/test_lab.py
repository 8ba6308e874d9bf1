"""Real daemons, each test with a state folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from roost import __version__
from roost.base.errors import NotFound, Refused, RoostError
from roost.devices.resource_request import TaskOptions
from roost.lab.background import daemon_presence
from roost.lab.daemon import Daemon
from roost.lab.queue import rebuild as rebuilding
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import RUNNING, SUCCEEDED
from roost.operations import lab, resolve
from roost.operations.devices import devices
from roost.operations.queue import task_control
from roost.operations.queue.list_tasks import list_tasks
from roost.operations.queue.why import waits_for_lost_daemon, why
from roost.operations.reading.logs import logs
from roost.serve import server_control
from roost.supervisor.forkserver import template_client
from tests import processes
from tests.devices.leasing import at_once
from tests.lab.labs import Lab, submit_command
from tests.messages import Messages
from tests.waiting import wait_for

FOREVER = "exec sleep 600"
OF_ANOTHER_VERSION = (
    "import sys, roost\nroost.__version__ = '0.0.7'\nfrom roost.lab.daemon import main\nsys.exit(main())"
)

KILLED = """import os, pathlib, signal, sys
died = pathlib.Path(__file__).with_name("died")
if "roost.lab.daemon" in sys.orig_argv and not (os.environ.get("ONCE") and died.exists()):
    with died.open("a") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, "sim:2x24GB")
    with own.here():
        yield own
    own.close()


def test_one_that_runs_is_not_started_again(here: Lab) -> None:
    first = lab.ensure_daemon()
    assert lab.ensure_daemon() == lab.start() == first and first.is_alive
    assert lab.stop() == first and not first.is_alive
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

    wait_for(all_but_one_have_ended)
    (left,) = pids - codes.keys()
    found = daemon_presence.find_daemon(here.state)
    assert found is not None and found.pid == left
    assert set(codes.values()) == {Refused.exit_code}
    said = [(here.folder / f"{pid}.txt").read_text() for pid in codes]
    assert all(f"pid {left}" in one for one in said)
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


def test_one_of_another_version_is_told_once_and_can_be_stopped(here: Lab, messages: Messages) -> None:
    here.state.mkdir(mode=0o700, parents=True)
    other = subprocess.Popen([sys.executable, "-c", OF_ANOTHER_VERSION, str(here.state)])
    wait_for(lambda: daemon_presence.find_daemon(here.state))
    task = here.queue(FOREVER)
    with pytest.raises(Refused) as caught:
        lab.ensure_daemon()
    assert all(fact in caught.value.detail for fact in (f"pid {other.pid}", "0.0.7", __version__))
    assert "`roost lab restart`" in str(caught.value.fix)
    messages.check(str(caught.value).replace(__version__, "<version>"))
    found = lab.status().daemon
    assert found is not None and found.version == "0.0.7"
    stopper = subprocess.Popen([sys.executable, "-c", "from roost.operations import lab; lab.stop()"])
    assert (other.wait(100), stopper.wait(100)) == (0, 0)
    lab.ensure_daemon()
    here.wait_for(task.id, RUNNING)


@pytest.mark.parametrize("rights", [0o755, 0o500])
def test_a_folder_with_other_rights_is_refused_and_left(here: Lab, rights: int, messages: Messages) -> None:
    here.queue(FOREVER)
    here.state.chmod(rights)
    calls: list[Callable[[], Any]] = [lab.open_queue, lab.start, lab.ensure_daemon, lab.status, lab.rebuild]
    for call in calls:
        with pytest.raises(Refused) as refused:
            call()
        assert refused.value.where == here.state and f"{rights:o}" in refused.value.detail
        assert f"chmod 700 {here.state}" in str(refused.value.fix)
    messages.check(refused.value)
    assert lab.stop() is None
    here.state.chmod(0o700)
    assert lab.status().tasks == {"pending": 1}


def test_a_daemon_that_cannot_start_says_why(
    here: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_DEVICES", "nonsense")
    with pytest.raises(RoostError) as caught:
        lab.start()
    assert "ROOST_DEVICES: " in caught.value.detail and "'nonsense'" in caught.value.detail
    assert caught.value.where == here.state / "daemon.log" and "nvml" in str(caught.value.fix)
    assert str(caught.value).count("nvml") == 1
    messages.check(caught.value)
    assert lab.status().daemon is None


def test_how_it_stands(here: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lab.status() == lab.LabStatus(None, {}, 0, str(here.state))
    assert not here.state.exists()
    ids = [here.submit("exit 0"), here.submit(FOREVER)]
    here.wait_for(ids[0], SUCCEEDED)
    here.wait_for(ids[1], RUNNING)
    here.queue(FOREVER)
    monkeypatch.setenv(template_client.FOLDER_VARIABLE, str(here.folder))
    with socket.socket(socket.AF_UNIX) as template:
        template.bind(str(here.folder / "template"))
        found = lab.status()
    assert found.warm == 1
    assert found.daemon is not None and found.daemon.version == __version__
    assert list(found.tasks.items()) == [("pending", 1), ("running", 1), ("succeeded", 1)]


def test_a_queue_is_made_anew_while_its_tasks_run(here: Lab, messages: Messages) -> None:
    ended, runs = here.submit("exit 0"), here.submit(FOREVER)
    here.wait_for(ended, SUCCEEDED)
    here.wait_for(runs, RUNNING)
    with pytest.raises(Refused, match=r"pid \d+") as refused:
        lab.rebuild()
    assert "roost lab stop" in str(refused.value)
    messages.check(refused.value)
    lab.stop()
    (here.state / "lab.db").write_bytes(b"\0" * 4096)
    with pytest.raises(Refused) as refused:
        lab.status()
    assert "roost lab rebuild" in str(refused.value)
    assert refused.value.where == here.state / "lab.db"
    messages.check(refused.value)
    found = lab.rebuild()
    assert found.old_queue is not None and found.old_queue.read_bytes() == b"\0" * 4096
    assert sum(found.tasks.values()) == 2 and found.tasks["succeeded"] == 1
    assert daemon_presence.find_daemon(here.state) is not None  # for what has not ended
    assert here.wait_for(runs, RUNNING).attempt == 1


def test_a_queue_that_is_gone_under_its_daemon_is_told_before_anything_is_made(
    here: Lab, messages: Messages
) -> None:
    here.wait_for(here.submit("exit 0"), SUCCEEDED)
    (here.state / "lab.db").unlink()
    queue = here.state / "lab.db"
    for call in (lab.ensure_daemon, lab.status):
        with pytest.raises(Refused, match=r"pid \d+") as refused:
            call()
        assert refused.value.where == queue and "`roost lab rebuild`" in str(refused.value.fix)
    messages.check(refused.value)
    with pytest.raises(Refused) as refused:
        submit_command(["true"], TaskOptions(gpus=0), name="late")
    assert refused.value.where == queue and "`roost lab rebuild`" in str(refused.value.fix)
    messages.check(refused.value)
    assert not (here.folder / "runs" / "late").exists() and not (here.state / "lab.db").exists()
    lab.stop()
    calls: list[Callable[[], Any]] = [
        lab.ensure_daemon,
        lab.status,
        list_tasks,
        lambda: resolve.find_tasks("late"),
    ]
    for call in calls:
        with pytest.raises(Refused) as refused:
            call()
        assert str(refused.value.where) == str(queue) and "`roost lab rebuild`" in str(refused.value.fix)
    assert lab.rebuild().tasks == {"succeeded": 1}


def test_a_submit_that_was_killed_before_it_queued_leaves_nothing_that_runs(
    here: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    pid = os.fork()
    if not pid:
        monkeypatch.setattr(QueueStore, "submit", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        submit_command(["sh", "-c", "echo ran >> ran"], TaskOptions(gpus=0), name="cut")
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    lab.stop()
    found = lab.rebuild()
    assert found.tasks == {} and len(found.notes) == 1
    assert str(here.folder / "runs" / "cut") in found.notes[0]
    messages.check(re.sub(r"task-\w+", "task-<id>", found.notes[0]))


def test_a_daemon_that_was_killed_as_it_started_is_started_again(
    here: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    (here.folder / "sitecustomize.py").write_text(KILLED)
    monkeypatch.setenv("PYTHONPATH", f"{here.folder}:{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(RoostError) as refused:
        lab.start()
    assert "SIGKILL" in str(refused.value)
    assert refused.value.where == here.state / "daemon.log"
    messages.check(refused.value)
    assert (here.folder / "died").read_text() == "xx"
    (here.folder / "died").unlink()
    monkeypatch.setenv("ONCE", "1")
    assert lab.start().is_alive
    assert (here.folder / "died").read_text() == "x"


def test_a_queue_of_ended_tasks_needs_no_daemon(here: Lab) -> None:
    here.wait_for(here.submit("exit 0"), SUCCEEDED)
    lab.stop()
    (here.state / "lab.db").unlink()
    assert lab.rebuild() == lab.RebuildResult({"succeeded": 1}, None)
    assert lab.status().daemon is None


def test_no_daemon_comes_up_while_the_queue_is_made_anew(
    here: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(daemon_presence, "_RECORD_SECONDS", 0.0)
    with lab.open_queue():
        fd = daemon_presence.lock(here.state)
    for call in (Daemon(here.state).run, lab.rebuild):
        with pytest.raises(Refused) as refused:
            call()
        assert "roost lab status" in str(refused.value)
        assert refused.value.where == here.state
        messages.check(refused.value)
    os.close(fd)


def test_what_is_submitted_while_the_queue_is_made_anew_waits_for_that(
    here: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = here.submit("exit 0")
    here.wait_for(first, SUCCEEDED)
    lab.stop()
    submitted: list[str] = []
    late = [
        threading.Thread(
            target=lambda: submitted.append(submit_command(["true"], TaskOptions(gpus=0)).tasks[0].id)
        ),
        threading.Thread(target=lambda: devices.drain("0")),
        threading.Thread(target=lab.start),
    ]
    whole = rebuilding.rebuild

    def slowly(folder: Path, more: Sequence[Path] = (), **other: Any) -> rebuilding.RebuiltQueue:
        for thread in late:
            thread.start()
        made = whole(folder, more, **other)
        assert [thread.is_alive() for thread in late] == [True] * 3
        return made

    monkeypatch.setattr(rebuilding, "rebuild", slowly)
    assert lab.rebuild().tasks == {"succeeded": 1}
    for thread in late:
        thread.join(100)
    assert here.wait_for(submitted[0]).state == SUCCEEDED
    assert [card.drained for card in devices.show().cards] == [True, False]
    assert len(here.tasks()) == 2


def test_a_folder_that_is_not_there_has_no_packages(here: Lab, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        lab.rebuild([Path("/no/such")])
    assert "'/no/such'" in str(refused.value)
    messages.check(refused.value)
    assert not here.state.exists()


def test_packages_that_the_queue_has_never_heard_of(here: Lab, tmp_path: Path) -> None:
    here.wait_for(here.submit("exit 0"), SUCCEEDED)
    lab.stop()
    here.state.rename(tmp_path / "gone")
    assert lab.rebuild().tasks == {}
    assert lab.rebuild([here.folder]).tasks == {"succeeded": 1}


def test_a_project_of_two_labs_is_not_run_twice(here: Lab, tmp_path: Path, messages: Messages) -> None:
    other = Lab(tmp_path / "other")
    with other.here():
        submit_command(["true"], TaskOptions(begin=str(time.time() + 600)), folder=here.folder)
        lab.stop()
    here.state.parent.mkdir()
    found = lab.rebuild([here.folder])
    assert found.tasks == {} and str(other.state) in found.notes[0]
    for given in (other.state, other.state.parent):
        with pytest.raises(Refused) as refused:
            lab.rebuild([here.folder], lost=given)
        assert refused.value.setting == "--take-over"
        assert all(fact in str(refused.value) for fact in (str(given), f"ROOST_STATE={other.state.parent} "))
        messages.check(refused.value)
    shutil.rmtree(other.state)
    assert lab.rebuild([here.folder], lost=other.state.parent).tasks == {"pending": 1}


def test_one_that_was_killed_is_not_there_any_more(here: Lab) -> None:
    first = lab.start()
    here.kill_daemon()
    assert lab.status().daemon is None
    assert lab.ensure_daemon().pid != first.pid


def test_a_daemon_that_is_killed_is_there_again(here: Lab) -> None:
    lab.start()
    running, waiting = here.submit("sleep 0.5"), here.submit("sleep 0.6")
    killed = here.kill_daemon_alone()
    again = wait_for(lambda: daemon_presence.find_daemon(here.state))
    assert again.pid != killed.pid
    assert here.wait_for(running).state == here.wait_for(waiting).state == SUCCEEDED
    assert "SIGKILL" in here.log()
    lab.stop()
    wait_for(lambda: not processes.marked(str(here.folder)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_every_look_at_the_lab_of_another_user_says_whose_it_is(here: Lab) -> None:
    """Each by the real program's entry, in a child that has become another user."""
    here.start()
    for path in (here.folder, *here.folder.parents):
        if path.stat().st_mode & 0o055 != 0o055:  # pytest's own folders, which other users cannot enter
            path.chmod(0o755)
    looks: Sequence[Callable[[], object]] = (
        lab.stop, lab.status, lambda: lab.log(1), server_control.status, server_control.stop, list_tasks,
        lambda: why("abcd"), lambda: waits_for_lost_daemon("abcd"), lambda: list(logs("abcd")),
        lambda: next(task_control.stop_all(["abcd"])), lambda: task_control.change(["abcd"], held=True),
    )  # fmt: skip

    def look(number: int) -> None:
        os.setgid(65534)
        os.setuid(65534)
        with pytest.raises(Refused, match="the lab of the user with the id 0"):
            looks[number]()

    assert at_once(len(looks), look) == [0] * len(looks)
    assert here.start().is_alive
