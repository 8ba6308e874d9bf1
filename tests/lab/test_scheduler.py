"""One pass over a queue, with real starts."""

from __future__ import annotations

import errno
import getpass
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from roost.base.errors import Refused, RoostError
from roost.devices import providers
from roost.devices.card import Card
from roost.lab.attempts import Attempts
from roost.lab.executors.local import Local
from roost.lab.scheduler import Scheduler
from roost.lab.store import Store
from roost.lab.task import FAILED, LIVE, PENDING, RUNNING, STARTING, STOP, STOPPED, STOPPING, Need, Task
from roost.package.package import Package
from tests.lab.labs import Lab
from tests.waiting import wait_for


class Failing(Local):
    """Cannot start anything, for a reason of the test's."""

    def __init__(self, fail: Callable[[Task], None]) -> None:
        super().__init__()
        self.fail, self.asked = fail, 0

    def start(self, task: Task, cards: Sequence[Card]) -> int:
        self.asked += 1
        self.fail(task)
        return super().start(task, cards)


@pytest.fixture
def store(lab: Lab) -> Iterator[Store]:
    with lab.here(), lab.store() as store:
        yield store


@contextmanager
def scheduling(
    store: Store, executor: Local | None = None, ask: Callable[[], list[Card]] = providers.look
) -> Iterator[Scheduler]:
    executor = executor or Local()
    with closing(Attempts(store, executor)) as attempts:
        yield Scheduler(store, executor, attempts, ask, user=getpass.getuser())

        def are_over() -> bool:
            attempts.settle()
            return all(task.state not in LIVE for task in store.tasks())

        wait_for(are_over)


def states(store: Store) -> list[tuple[str, int]]:
    return [(task.state, task.attempt) for task in store.tasks()]


def test_nobody_waits(store: Store) -> None:
    with scheduling(store) as scheduler:
        assert scheduler.run() is None


def test_it_starts_what_has_room_and_explains_the_rest(lab: Lab, store: Store) -> None:
    for _ in range(3):
        lab.queue("exit 0", need=Need(cards=2))
    with scheduling(store) as scheduler:
        assert scheduler.run() == 5.0
        first, second, third = store.tasks()
        assert first.session == second.session == 1 and not set(first.cards) & set(second.cards)
        assert third.state == PENDING and third.reason.startswith("cards:")


def test_a_start_that_is_refused_is_no_attempt_and_keeps_its_reason(lab: Lab, store: Store) -> None:
    task = lab.queue("exit 0")
    lock_fd = Package.open(task.package).lock()
    with scheduling(store) as scheduler:
        for _ in range(2):
            assert scheduler.run() == 5.0
            assert states(store) == [(PENDING, 0)]
            assert store.task(task.id).reason.startswith("taken: somebody writes to its package")
        os.close(lock_fd)
        scheduler.run()
        assert states(store) == [(RUNNING, 1)]


def test_what_the_machine_lacks_is_waited_for(lab: Lab, store: Store) -> None:
    def fail(_: Task) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    store.set("rules", {"cores": 4})
    for _ in range(2):
        lab.queue("exit 0")
    executor = Failing(fail)
    with scheduling(store, executor) as scheduler:
        scheduler.run()
    assert states(store) == [(PENDING, 0)] * 2
    assert all("Too many open files" in task.reason for task in store.tasks())
    assert executor.asked == 1


@pytest.mark.parametrize("error", [RoostError("no such program"), KeyError("a defect")], ids=type)
def test_one_that_cannot_be_started_has_failed_and_holds_up_no_other(
    lab: Lab, store: Store, error: Exception, capfd: pytest.CaptureFixture[str]
) -> None:
    bad, good = lab.queue("exit 0"), lab.queue("exit 0")

    def fail(task: Task) -> None:
        if task.id == bad.id:
            raise error

    with scheduling(store, Failing(fail)) as scheduler:
        scheduler.run()
        scheduler.run()
        assert store.task(good.id).session == 1
    assert store.task(bad.id).state == FAILED
    assert store.task(bad.id).reason.startswith("it could not be started: ")
    assert ("Traceback" in capfd.readouterr().err) is isinstance(error, KeyError)


def test_asked_to_stop_while_it_cannot_start_it_is_stopped(lab: Lab, store: Store) -> None:
    def fail(task: Task) -> None:
        store.ask(task.id, STOP)
        raise Refused("taken")

    task = lab.queue("exit 0")
    with scheduling(store, Failing(fail)) as scheduler:
        scheduler.run()
        assert store.task(task.id).state == STARTING
    assert store.task(task.id).state == STOPPED


def test_tasks_of_the_cpu_do_not_wait_for_a_driver(lab: Lab, store: Store) -> None:
    def ask() -> list[Card]:
        raise Refused("the driver does not tell")

    lab.queue("exit 0", need=Need(cards=1))
    lab.queue("exit 0")
    with scheduling(store, ask=ask) as scheduler:
        assert scheduler.run() == 5.0
        waiting, started = store.tasks()
        assert (waiting.state, waiting.reason) == (PENDING, "cards: the driver does not tell")
        assert started.session == 1


def test_it_looks_again_when_a_task_may_begin(lab: Lab, store: Store) -> None:
    lab.queue("exit 0", begin=time.time() + 30)
    with scheduling(store) as scheduler:
        seconds = scheduler.run()
    assert seconds is not None and 20 < seconds <= 30


def test_an_opportunistic_one_is_asked_at_once_to_make_room(lab: Lab, store: Store) -> None:
    evicted = lab.queue("exec sleep 600", need=Need(cards=4, opportunistic=True))
    with scheduling(store) as scheduler:
        scheduler.run()
        lab.queue("exit 0", need=Need(cards=1))
        scheduler.run()
        assert store.task(evicted.id).state == STOPPING
