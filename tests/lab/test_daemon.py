"""The daemon alone: it stays up whatever happens to it, and says so."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from roost.base.errors import Refused
from roost.base.system import process_identity
from roost.devices.resource_request import ResourceRequest
from roost.lab.background import daemon_presence
from roost.lab.daemon import Daemon
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import CRASHED, FAILED, KILL, RUNNING, STOP, STOPPED, SUCCEEDED
from roost.operations import lab as operations
from roost.supervisor.processes.process_tree import descendants
from tests import processes
from tests.lab.labs import Lab, kill_watchdog, record_of
from tests.messages import Messages
from tests.waiting import wait_for

FOREVER = "exec sleep 600"


def test_it_starts_what_waits_and_writes_down_how_it_ended(lab: Lab) -> None:
    good, bad = lab.submit("exit 0", need=ResourceRequest(cards=1)), lab.submit("exit 7")
    ended = lab.wait_for(good), lab.wait_for(bad)
    assert [(task.state, task.exit_code, task.attempt) for task in ended] == [
        (SUCCEEDED, 0, 1),
        (FAILED, 7, 1),
    ]


def test_a_second_one_is_refused_and_names_the_first(lab: Lab) -> None:
    first = lab.start()
    with pytest.raises(Refused, match=rf"\b{first.pid}\b"):
        Daemon(lab.state).run()
    assert first.is_alive


def test_no_queue_is_made_anew_while_it_opens_its_own(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    """Else it would work with the old one and take it for the new one."""

    def opened(folder: Path) -> NoReturn:
        with pytest.raises(Refused) as refused:
            daemon_presence.lock(folder)
        messages.check(refused.value)
        raise Refused("that was all")

    monkeypatch.setattr(daemon_presence, "_RECORD_SECONDS", 0.0)
    monkeypatch.setattr(QueueStore, "open", opened)
    with pytest.raises(Refused, match="that was all"):
        Daemon(lab.state).run()


def test_ended_by_a_signal_it_leaves_what_runs_alone(lab: Lab) -> None:
    id = lab.submit(FOREVER)
    record = record_of(lab.wait_for(id, RUNNING))
    found = daemon_presence.find_daemon(lab.state)
    assert found is not None
    os.kill(found.pid, signal.SIGTERM)
    wait_for(lambda: not found.is_alive)
    os.kill(record["worker_pid"], 0)
    lab.start()
    assert lab.one(id).state == RUNNING and lab.one(id).session == 1


def test_a_queue_that_cannot_be_written_is_waited_for_and_told(lab: Lab) -> None:
    """F7: the table is away for a while, as a disk would be that is full."""
    about = lab.start()
    with sqlite3.connect(lab.state / "lab.db") as outside:
        outside.execute("ALTER TABLE task RENAME TO away")
    with lab.store() as store:
        store.wake_daemon()
    wait_for(lambda: "no such table" in lab.log())
    with sqlite3.connect(lab.state / "lab.db") as outside:
        outside.execute("ALTER TABLE away RENAME TO task")
    assert lab.wait_for(lab.submit("exit 0")).state == SUCCEEDED
    assert about.is_alive
    assert lab.log().count("no such table") == 1, "told once"


def test_a_queue_that_is_locked_is_waited_for(lab: Lab) -> None:
    id = lab.submit("until [ -e go ]; do sleep 0.01; done; exit 6")
    task = lab.wait_for(id, RUNNING)
    outside = sqlite3.connect(lab.state / "lab.db", isolation_level=None)
    outside.execute("BEGIN IMMEDIATE")
    (lab.folder / "go").touch()
    wait_for(lambda: record_of(task)["state"] == FAILED)
    assert lab.one(id).state == RUNNING
    outside.execute("ROLLBACK")
    outside.close()
    assert lab.wait_for(id).exit_code == 6


def test_with_few_descriptors_all_tasks_end_as_they_did(lab: Lab) -> None:
    """F33: more tasks live at once than it may have descriptors to watch them by, and to start them with."""
    with lab.store() as store:
        store.set_setting("rules", {"cores": 16})
    script = "until [ -e go ]; do sleep 0.05; done; exit 3"
    tasks = [lab.queue(script) for _ in range(8)]
    about = lab.start()

    def open_fds() -> list[str]:
        found = []
        for path in Path(f"/proc/{about.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                found.append(str(path.readlink()))
        return found

    try:
        wait_for(lambda: all(task.state == RUNNING for task in lab.tasks()))
        wait_for(
            lambda: sum("pidfd" in target for target in open_fds()) == 9
        )  # all, and its watchdog, are watched
        most = len(open_fds()) + 2
        resource.prlimit(about.pid, resource.RLIMIT_NOFILE, (most, most))
        tasks += [lab.queue(script) for _ in range(6)]
        with lab.store() as store:
            store.wake_daemon()
        wait_for(lambda: any(task.reason.startswith("machine:") for task in lab.tasks()))
        assert sum(task.state == RUNNING for task in lab.tasks()) == 8
    finally:
        (lab.folder / "go").touch()
    ended = lab.wait_for_all()
    assert [(task.state, task.exit_code) for task in ended] == [(FAILED, 3)] * len(tasks)
    assert about.is_alive


def test_one_whose_supervisor_alone_is_killed_is_started_again(lab: Lab) -> None:
    lab.start()
    id = lab.submit("echo begun >> begun; [ -e go ] && exit 0; exec sleep 600")
    running = lab.wait_for(id, RUNNING)
    wait_for(lambda: lab.lines("begun"))
    (lab.folder / "go").touch()
    os.kill(record_of(running)["pid"], signal.SIGKILL)
    ended = lab.wait_for(id)
    assert (ended.state, ended.attempt, len(lab.lines("begun"))) == (SUCCEEDED, 2, 2)
    once = lab.submit("exec sleep 600", need=ResourceRequest(no_restart=True))
    os.kill(record_of(lab.wait_for(once, RUNNING))["pid"], signal.SIGKILL)
    ended = lab.wait_for(once)
    assert (ended.state, ended.attempt) == (CRASHED, 1) and "--no-restart" in ended.reason


@pytest.mark.parametrize("how", [STOP, KILL])
def test_a_stop_at_any_moment_ends_it_once(lab: Lab, how: str) -> None:
    """F27: before, while and after it starts, twice, and from two sides."""
    lab.start()
    ids = [lab.submit("echo begun >> begun; exec sleep 600") for _ in range(6)]

    def stop_all() -> None:
        for id in reversed(ids):
            with suppress(Refused):  # the other one was quicker
                lab.ask(id, how)

    others = [threading.Thread(target=stop_all) for _ in range(2)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    states = {task.state for task in lab.wait_for_all()}
    assert states <= {STOPPED, FAILED} and STOPPED in states
    assert all(task.cards == () and task.stop_asked == "" for task in lab.tasks())


def test_a_task_of_tomorrows_clock_runs_today(lab: Lab) -> None:
    """F17: the clock was put back by a day after it was submitted."""
    task = lab.task("exit 0")
    late = msgspec.structs.replace(task, submitted=time.time() + 86400)
    with lab.store() as store:
        store.submit([late])
    lab.start()
    ended = lab.wait_for(task.id)
    assert ended.state == SUCCEEDED
    assert record_of(ended)["seconds"] >= 0


def test_a_time_limit_ends_a_task(lab: Lab) -> None:
    ended = lab.wait_for(lab.submit(FOREVER, need=ResourceRequest(time_limit=0.2)))
    assert (ended.state, ended.reason) == (STOPPED, "time limit")


def test_whose_folder_is_gone_it_starts_nothing_more_and_ends(lab: Lab) -> None:
    """Else what a new daemon starts would run twice."""
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "roost.lab.daemon", str(lab.state), str(writing)]
    with (
        lab.here(),
        (lab.folder / "log").open("wb") as log,
        open(reading, "rb") as ready,
        subprocess.Popen(command, stdout=log, stderr=log, pass_fds=[writing]) as daemon,
    ):
        os.close(writing)
        assert ready.readline(), "one that has not begun to listen refuses to"
        lab.submit("echo ran >> ran", begin=time.time() + 0.5)
        lab.state.rename(lab.folder / "gone")
        assert daemon.wait(100) == 0
    said = (lab.folder / "log").read_text()
    assert "queue" in said
    assert not lab.lines("ran") and not lab.state.exists()


def test_one_whose_watchdog_is_killed_continues_under_a_new_one(lab: Lab) -> None:
    before = lab.start()
    running = lab.submit(FOREVER)
    lab.wait_for(running, RUNNING)
    os.kill(before.pid, signal.SIGSTOP)  # so that it sees both at once
    kill_watchdog(before)
    pending = lab.submit("exit 0")
    os.kill(before.pid, signal.SIGCONT)
    assert lab.wait_for(pending).state == SUCCEEDED
    now = daemon_presence.find_daemon(lab.state)
    assert now is not None and process_identity.read_stat(now.pid).parent_pid == before.pid  # type: ignore[union-attr]
    assert "its watchdog was killed" in lab.log()
    killed = lab.kill_daemon_alone()
    wait_for(lambda: daemon_presence.find_daemon(lab.state) not in (None, killed))
    assert lab.one(running).state == RUNNING
    with lab.here():
        assert operations.stop() is not None
    assert processes.is_gone(before.pid)


def test_a_template_that_ends_leaves_no_zombie(lab: Lab) -> None:
    pid = lab.start().pid
    lab.wait_for(lab.submit("exit 0"))
    wait_for(lambda: templates_of(pid))
    (template,) = templates_of(pid)
    os.kill(template, signal.SIGKILL)
    wait_for(lambda: process_identity.read_stat(template) is None)


def templates_of(daemon: int) -> list[int]:
    """Returns the template processes of a daemon."""
    titles = {one: Path(f"/proc/{one}/cmdline").read_bytes() for one in descendants(daemon)}
    return [one for one, title in titles.items() if title.startswith(b"roost: template")]
