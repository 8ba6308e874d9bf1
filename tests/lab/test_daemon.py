"""The daemon alone: it stays up whatever happens to it, and says so."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import threading
import time
from contextlib import suppress

import msgspec
import pytest

from roost.base.errors import Refused
from roost.lab import presence
from roost.lab.daemon import Daemon
from roost.lab.task import FAILED, KILL, RUNNING, STOP, STOPPED, SUCCEEDED, Need
from tests.lab.labs import Lab, record_of
from tests.waiting import wait_for

FOREVER = "exec sleep 600"


def test_it_starts_what_waits_and_writes_down_how_it_ended(lab: Lab) -> None:
    good, bad = lab.submit("exit 0", need=Need(cards=1)), lab.submit("exit 7")
    ended = lab.wait_for(good), lab.wait_for(bad)
    assert [(task.state, task.exit_code, task.attempt) for task in ended] == [
        (SUCCEEDED, 0, 1),
        (FAILED, 7, 1),
    ]


def test_a_second_one_is_refused_and_names_the_first(lab: Lab) -> None:
    first = lab.start()
    with pytest.raises(Refused, match=f"has a daemon already .pid {first.pid}."):
        Daemon(lab.state).run()
    assert first.lives


def test_ended_by_a_signal_it_leaves_what_runs_alone(lab: Lab) -> None:
    id = lab.submit(FOREVER)
    record = record_of(lab.wait_for(id, RUNNING))
    found = presence.about(lab.state)
    assert found is not None
    os.kill(found.pid, signal.SIGTERM)
    wait_for(lambda: not found.lives)
    os.kill(record["worker_pid"], 0)
    lab.start()
    assert lab.one(id).state == RUNNING and lab.one(id).session == 1


def test_a_queue_that_cannot_be_written_is_waited_for_and_told(lab: Lab) -> None:
    """F7: the table is away for a while, as a disk would be that is full."""
    about = lab.start()
    with sqlite3.connect(lab.state / "lab.db") as outside:
        outside.execute("ALTER TABLE task RENAME TO away")
    with lab.store() as store:
        store.wake()
    wait_for(lambda: "no such table" in lab.log())
    with sqlite3.connect(lab.state / "lab.db") as outside:
        outside.execute("ALTER TABLE away RENAME TO task")
    assert lab.wait_for(lab.submit("exit 0")).state == SUCCEEDED
    assert about.lives
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
    """F33: more tasks live at once than it may have descriptors to watch them by."""
    with lab.store() as store:
        store.set("rules", {"cores": 16})
    tasks = [lab.queue("until [ -e go ]; do sleep 0.05; done; exit 3") for _ in range(14)]
    about = lab.start()
    resource.prlimit(about.pid, resource.RLIMIT_NOFILE, (26, 26))
    try:
        with lab.store() as store:
            store.wake()
        wait_for(lambda: any(task.reason.startswith("machine:") for task in lab.tasks()))
        assert sum(task.state == RUNNING for task in lab.tasks()) > 3
    finally:
        (lab.folder / "go").touch()
    ended = lab.wait_for_all()
    assert [(task.state, task.exit_code) for task in ended] == [(FAILED, 3)] * len(tasks)
    assert about.lives


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
    ended = lab.wait_for(lab.submit(FOREVER, need=Need(time_limit=0.2)))
    assert (ended.state, ended.reason) == (STOPPED, "time limit")
