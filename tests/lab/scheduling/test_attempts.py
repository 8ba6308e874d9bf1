"""What is written down of the tasks that live, by one who may have come long after their start."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from roost.base.errors import RoostError
from roost.devices.resource_request import ResourceRequest
from roost.lab.executors.executor import AttemptStatus
from roost.lab.executors.local_executor import LocalExecutor
from roost.lab.memory.memory_prediction import OutOfMemory
from roost.lab.memory.memory_use import MemoryUse
from roost.lab.queue import task_file
from roost.lab.queue.history import MemoryPeak
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import (
    EVICT,
    FAILED,
    KILL,
    PENDING,
    RUNNING,
    STARTING,
    STOP,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    Task,
)
from roost.lab.scheduling.attempts import Attempts
from tests.lab import queued
from tests.lab.labs import Lab, kill_watchers, record_of
from tests.messages import Messages
from tests.waiting import wait_for

FOREVER = "exec sleep 600"


@pytest.fixture
def store(lab: Lab) -> Iterator[QueueStore]:
    with lab.here(), lab.store() as store:
        yield store


@pytest.fixture
def local() -> LocalExecutor:
    return LocalExecutor()


@pytest.fixture
def attempts(store: QueueStore, local: LocalExecutor) -> Iterator[Attempts]:
    with closing(Attempts(store, local, queued.alike)) as attempts:
        yield attempts


def begun(
    lab: Lab, store: QueueStore, local: LocalExecutor, script: str = FOREVER, *, retries: int = 0
) -> Task:
    """Started by a daemon that was killed before it could write that down."""
    task = store.start(lab.queue(script, retries=retries), (), None)
    local.start(task, ())()
    return task


def settled(store: QueueStore, attempts: Attempts, task: Task, *states: str) -> Task:
    """The task once it is in one of these states, looked at again and again."""

    def look() -> bool:
        attempts.refresh()
        return store.task(task.id).state in states

    wait_for(look)
    return store.task(task.id)


def test_what_runs_is_adopted_and_watched(
    lab: Lab, store: QueueStore, local: LocalExecutor, attempts: Attempts
) -> None:
    task = begun(lab, store, local)
    attempts.refresh()
    found = store.task(task.id)
    assert (found.state, found.session) == (RUNNING, 1) and found.started == record_of(found)["started"]
    assert list(attempts.fds.values()) == [task.id] and attempts.all_watched
    store.request_stop(task.id, KILL)
    assert settled(store, attempts, task, STOPPED).attempt == 1
    assert attempts.fds == {}


def test_what_never_began_waits_again(lab: Lab, store: QueueStore, attempts: Attempts) -> None:
    task = store.start(lab.queue(FOREVER), (), None)
    assert attempts.refresh()
    assert store.task(task.id).state == PENDING


def test_what_never_began_and_was_to_stop_is_stopped(lab: Lab, store: QueueStore, attempts: Attempts) -> None:
    task = store.start(lab.queue(FOREVER), (), None)
    store.request_stop(task.id, STOP)
    attempts.refresh()
    assert store.task(task.id).state == STOPPED


def test_a_failed_one_is_tried_as_often_as_was_said(
    lab: Lab, store: QueueStore, local: LocalExecutor, attempts: Attempts
) -> None:
    task = begun(lab, store, local, "exit 4", retries=1)
    again = settled(store, attempts, task, PENDING)
    assert again.retries == 0 and "attempt 1" in again.reason and again.exit_code is None
    second = store.start(again, (), None)
    local.start(second, ())()
    ended = settled(store, attempts, second, FAILED)
    assert (ended.exit_code, ended.attempt, ended.session) == (4, 2, 2)


def test_an_accident_costs_no_retry(
    lab: Lab, store: QueueStore, local: LocalExecutor, attempts: Attempts
) -> None:
    task = settled(store, attempts, begun(lab, store, local), RUNNING)
    kill_watchers(task)
    again = settled(store, attempts, task, PENDING)
    assert "attempt 1" in again.reason and again.cards == ()


def test_an_evicted_one_waits_again_unless_somebody_wants_it_stopped(
    lab: Lab, store: QueueStore, local: LocalExecutor, attempts: Attempts, messages: Messages
) -> None:
    evicted, stopped = begun(lab, store, local), begun(lab, store, local)
    attempts.refresh()
    for task in (evicted, stopped):
        store.request_stop(task.id, EVICT)
    store.request_stop(stopped.id, STOP)
    messages.check(settled(store, attempts, evicted, PENDING).reason)
    assert settled(store, attempts, stopped, STOPPED).cards == ()


def test_asked_to_stop_it_is_stopping_until_it_has_ended(
    lab: Lab, store: QueueStore, local: LocalExecutor, attempts: Attempts
) -> None:
    task = begun(lab, store, local, "trap '' TERM; echo > deaf; sleep 600")
    wait_for(lambda: (lab.folder / "deaf").exists())
    attempts.refresh()
    store.request_stop(task.id, STOP)
    attempts.refresh()
    assert store.task(task.id).state == STOPPING
    store.request_stop(task.id, KILL)
    assert settled(store, attempts, task, STOPPED).stop_asked == ""


def test_a_killed_guard_leaves_something_else_to_watch(
    lab: Lab, store: QueueStore, local: LocalExecutor, attempts: Attempts
) -> None:
    """Else its descriptor would wake the daemon for ever."""
    task = settled(store, attempts, begun(lab, store, local), RUNNING)
    os.kill(record_of(task)["guard_pid"], signal.SIGKILL)
    assert select.select(list(attempts.fds), [], [], 10)[0]
    attempts.refresh(attempts.fds.values())
    assert len(attempts.fds) == 1 and not select.select(list(attempts.fds), [], [], 0)[0]
    store.request_stop(task.id, KILL)
    settled(store, attempts, task, STOPPED)


def test_one_that_ended_before_it_could_be_watched_is_looked_at_once_more(store: QueueStore) -> None:
    class Quick(LocalExecutor):
        def __init__(self) -> None:
            super().__init__()
            self.sees = [
                AttemptStatus(RUNNING, 1, started=1.0),
                AttemptStatus(SUCCEEDED, 1, started=1.0, ended=2.0, exit_code=0),
            ]

        def poll(self, task: Task) -> AttemptStatus:
            return self.sees.pop(0)

        def watch(self, task: Task) -> int | None:
            return None

    store.submit([asked := queued.task()])
    started = store.start(store.task(asked.id), (), None)
    with closing(Attempts(store, Quick(), queued.alike)) as attempts:
        assert attempts.refresh_tasks([started])
    assert store.task(asked.id).state == SUCCEEDED


def test_one_that_cannot_be_seen_is_told_once_and_holds_up_no_other(
    lab: Lab, store: QueueStore, local: LocalExecutor, attempts: Attempts
) -> None:
    torn = settled(store, attempts, begun(lab, store, local), RUNNING)
    folder = Path(torn.package) / "sessions"
    folder.rename(folder.with_name("away"))
    other = begun(lab, store, local, "exit 2")
    settled(store, attempts, other, FAILED)
    assert [event.kind for event in store.events(task=torn.id)].count("trouble") == 1
    assert store.task(torn.id).state == RUNNING
    folder.with_name("away").rename(folder)
    store.request_stop(torn.id, KILL)
    settled(store, attempts, torn, STOPPED)


def test_started_and_asked_to_stop_at_the_same_time(
    lab: Lab, store: QueueStore, local: LocalExecutor, attempts: Attempts
) -> None:
    task = begun(lab, store, local)
    store.request_stop(task.id, STOP)
    attempts.refresh_tasks([task])
    assert store.task(task.id).state == STARTING
    assert settled(store, attempts, task, STOPPED).session == 1


def test_one_that_cannot_be_asked_is_asked_again(lab: Lab, store: QueueStore, messages: Messages) -> None:
    class Deaf(LocalExecutor):
        hears = False

        def request_stop(self, task: Task, *, now: bool) -> None:
            if not self.hears:
                raise RoostError("it is not yours")
            super().request_stop(task, now=now)

    deaf = Deaf()
    with closing(Attempts(store, deaf, queued.alike)) as attempts:
        task = settled(store, attempts, begun(lab, store, deaf), RUNNING)
        store.request_stop(task.id, KILL)
        for _ in range(2):
            attempts.refresh()
        told = [event.text for event in store.events(task=task.id) if event.kind == "trouble"]
        (reason,) = told
        assert reason.endswith(": it is not yours")
        messages.check(reason)
        deaf.hears = True
        settled(store, attempts, task, STOPPED)


class Told(LocalExecutor):
    """Sees what a test says."""

    def __init__(self, seen: AttemptStatus) -> None:
        self.seen = seen

    def poll(self, task: Task) -> AttemptStatus:
        return self.seen


def test_what_an_attempt_took_is_remembered_as_it_is_settled(store: QueueStore, messages: Messages) -> None:
    took = MemoryUse(5_000.0, 400.0, "H100", True)
    for number, profile in enumerate(["p", "p", ""]):
        task = queued.task(id=f"{number}", profile=profile, scale=8.0, need=ResourceRequest(cards=2))
        store.submit([task])
        store.start(task, (), None)
        seen = AttemptStatus(SUCCEEDED, 1, ended=9.0, memory=took._replace(is_representative=number == 0))
        with closing(Attempts(store, Told(seen), queued.alike)) as attempts:
            assert attempts.refresh()
    assert store.peaks() == [MemoryPeak("p", 8.0, 5_000.0, 400.0, 2, "H100", 9.0)]
    event = store.events(task="0")[-1]
    assert event.kind == "measured" and "4.9 GB" in event.text and "400 MB" in event.text
    messages.check(event.text)


def test_after_it_ran_out_of_memory_it_needs_more_and_a_new_queue_knows_that(
    store: QueueStore, lab: Lab
) -> None:
    failed = OutOfMemory(8_000, 24_000, 24_000, 7_900.0)
    task = store.start(lab.queue(FOREVER, need=ResourceRequest(cards=1, memory_mb=8_000)), (), None)
    seen = AttemptStatus(FAILED, 1, memory=MemoryUse(7_500.0, 400.0, "H100", False, failed))
    with closing(Attempts(store, Told(seen), queued.alike)) as attempts:
        assert attempts.refresh()
    again = store.task(task.id)
    assert (again.state, again.need.least_mb, again.need.ran_out) == (PENDING, 12_000, 1)
    assert [one.task.need for one in task_file.read_all(Path(task.package))] == [again.need]


def test_one_whose_end_cannot_be_written_is_told_once_and_holds_up_no_other(store: QueueStore) -> None:
    class Odd(LocalExecutor):
        def poll(self, task: Task) -> AttemptStatus:
            return AttemptStatus(FAILED, 1, exit_code=2**80 if task.id == "1" else 5)

    tasks = [queued.task(id=f"{number}") for number in range(3)]
    store.submit(tasks)
    for task in tasks:
        store.start(task, (), None)
    with closing(Attempts(store, Odd(), queued.alike)) as attempts:
        assert attempts.refresh()
        attempts.refresh()
    assert [task.state for task in store.tasks()] == [FAILED, STARTING, FAILED]
    assert [event.kind for event in store.events(task="1")].count("trouble") == 1


def test_what_has_ended_and_cannot_be_seen_wakes_nobody_for_ever(
    lab: Lab, store: QueueStore, local: LocalExecutor, attempts: Attempts
) -> None:
    task = settled(store, attempts, begun(lab, store, local, "until [ -e go ]; do sleep 0.01; done"), RUNNING)
    folder = Path(task.package) / "sessions"
    folder.rename(folder.with_name("away"))
    (lab.folder / "go").touch()
    assert select.select(list(attempts.fds), [], [], 10)[0]
    attempts.refresh(list(attempts.fds.values()))
    assert attempts.fds == {} and not attempts.all_watched
    folder.with_name("away").rename(folder)
    settled(store, attempts, task, PENDING)  # how it ended could not be written down: an accident
