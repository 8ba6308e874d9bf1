"""What is written down of the tasks that live, by one who may have come long after their start."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from roost.lab.attempts import Attempts
from roost.lab.executors.local import Local
from roost.lab.store import Store
from roost.lab.task import EVICT, FAILED, KILL, PENDING, RUNNING, STARTING, STOP, STOPPED, STOPPING, Task
from tests.lab.labs import Lab, kill_watchers, record_of
from tests.waiting import wait_for

FOREVER = "exec sleep 600"


@pytest.fixture
def store(lab: Lab) -> Iterator[Store]:
    with lab.here(), lab.store() as store:
        yield store


@pytest.fixture
def local() -> Local:
    return Local()


@pytest.fixture
def attempts(store: Store, local: Local) -> Iterator[Attempts]:
    with closing(Attempts(store, local)) as attempts:
        yield attempts


def begun(lab: Lab, store: Store, local: Local, script: str = FOREVER, *, retries: int = 0) -> Task:
    """Started by a daemon that was killed before it could write that down."""
    task = store.start(lab.queue(script, retries=retries), (), None)
    local.start(task, ())
    return task


def settled(store: Store, attempts: Attempts, task: Task, *states: str) -> Task:
    """The task once it is in one of these states, looked at again and again."""

    def look() -> bool:
        attempts.settle()
        return store.task(task.id).state in states

    wait_for(look)
    return store.task(task.id)


def test_what_runs_is_adopted_and_watched(lab: Lab, store: Store, local: Local, attempts: Attempts) -> None:
    task = begun(lab, store, local)
    assert not attempts.are_watched
    attempts.settle()
    found = store.task(task.id)
    assert (found.state, found.session) == (RUNNING, 1) and found.started == record_of(found)["started"]
    assert list(attempts.fds.values()) == [task.id] and attempts.are_watched
    store.ask(task.id, KILL)
    assert settled(store, attempts, task, STOPPED).attempt == 1
    assert attempts.fds == {}


def test_what_never_began_waits_again(lab: Lab, store: Store, attempts: Attempts) -> None:
    task = store.start(lab.queue(FOREVER), (), None)
    assert attempts.settle()
    assert store.task(task.id).state == PENDING


def test_what_never_began_and_was_to_stop_is_stopped(lab: Lab, store: Store, attempts: Attempts) -> None:
    task = store.start(lab.queue(FOREVER), (), None)
    store.ask(task.id, STOP)
    attempts.settle()
    assert store.task(task.id).state == STOPPED


def test_a_failed_one_is_tried_as_often_as_was_said(
    lab: Lab, store: Store, local: Local, attempts: Attempts
) -> None:
    task = begun(lab, store, local, "exit 4", retries=1)
    again = settled(store, attempts, task, PENDING)
    assert again.retries == 0 and again.reason.startswith("attempt 1 failed") and again.exit_code is None
    second = store.start(again, (), None)
    local.start(second, ())
    ended = settled(store, attempts, second, FAILED)
    assert (ended.exit_code, ended.attempt, ended.session) == (4, 2, 2)


def test_an_accident_costs_no_retry(lab: Lab, store: Store, local: Local, attempts: Attempts) -> None:
    task = settled(store, attempts, begun(lab, store, local), RUNNING)
    kill_watchers(task)
    again = settled(store, attempts, task, PENDING)
    assert "gone" in again.reason and again.cards == ()


def test_an_evicted_one_waits_again_unless_somebody_wants_it_stopped(
    lab: Lab, store: Store, local: Local, attempts: Attempts
) -> None:
    evicted, stopped = begun(lab, store, local), begun(lab, store, local)
    attempts.settle()
    for task in (evicted, stopped):
        store.ask(task.id, EVICT)
    store.ask(stopped.id, STOP)
    assert settled(store, attempts, evicted, PENDING).reason == "it made room for others"
    assert settled(store, attempts, stopped, STOPPED).cards == ()


def test_asked_to_stop_it_is_stopping_until_it_has_ended(
    lab: Lab, store: Store, local: Local, attempts: Attempts
) -> None:
    task = begun(lab, store, local, "trap '' TERM; echo > deaf; sleep 600")
    wait_for(lambda: (lab.folder / "deaf").exists())
    attempts.settle()
    store.ask(task.id, STOP)
    attempts.settle()
    assert store.task(task.id).state == STOPPING
    store.ask(task.id, KILL)
    assert settled(store, attempts, task, STOPPED).stop_asked == ""


def test_a_killed_guard_leaves_something_else_to_watch(
    lab: Lab, store: Store, local: Local, attempts: Attempts
) -> None:
    """Else its descriptor would wake the daemon for ever."""
    task = settled(store, attempts, begun(lab, store, local), RUNNING)
    os.kill(record_of(task)["guard_pid"], signal.SIGKILL)
    assert select.select(list(attempts.fds), [], [], 10)[0]
    attempts.settle(attempts.fds.values())
    assert len(attempts.fds) == 1 and not select.select(list(attempts.fds), [], [], 0)[0]
    store.ask(task.id, KILL)
    settled(store, attempts, task, STOPPED)


def test_one_that_cannot_be_seen_is_told_once_and_holds_up_no_other(
    lab: Lab, store: Store, local: Local, attempts: Attempts
) -> None:
    torn = settled(store, attempts, begun(lab, store, local), RUNNING)
    folder = lab.folder / "runs" / torn.name / "sessions"
    folder.rename(folder.with_name("away"))
    other = begun(lab, store, local, "exit 2")
    settled(store, attempts, other, FAILED)
    assert [event.kind for event in store.events(task=torn.id)].count("trouble") == 1
    assert store.task(torn.id).state == RUNNING
    folder.with_name("away").rename(folder)
    store.ask(torn.id, KILL)
    settled(store, attempts, torn, STOPPED)


def test_started_and_asked_to_stop_at_the_same_time(
    lab: Lab, store: Store, local: Local, attempts: Attempts
) -> None:
    task = begun(lab, store, local)
    store.ask(task.id, STOP)
    attempts.note_started(task, 1)
    assert store.task(task.id).state == STARTING
    assert settled(store, attempts, task, STOPPED).session == 1
