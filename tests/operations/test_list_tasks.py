"""The tasks of the queue, listed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.lab.store import Store
from roost.lab.task import FAILED, PENDING, RUNNING, SUCCEEDED, Need
from roost.operations.list_tasks import Sweep, TaskRow, folded, list_tasks, needs_daemon
from tests.lab.labs import Lab
from tests.lab.queued import card, task


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab


def end(store: Store, id: str, state: str, ended: float = 0.0) -> None:
    begun = store.start(store.task(id), [], None)
    store.move(begun, state, ended=ended or time.time())


def test_no_queue_is_made_to_look_at_it(lab: Lab) -> None:
    assert list_tasks() == [] and not lab.state.exists()


def test_what_waits_and_runs_and_has_ended_last(lab: Lab) -> None:
    tasks = [task() for _ in range(10)]
    with lab.store() as store:
        store.submit(tasks)
        for number, one in enumerate(tasks[:8]):
            end(store, one.id, SUCCEEDED, 1000.0 - number)  # the first one ends last
    rows = list_tasks()
    assert [row.id for row in rows] == [one.id for one in (*tasks[:5], *tasks[8:])]
    assert [row.state for row in rows] == [SUCCEEDED] * 5 + [PENDING] * 2
    assert len(list_tasks(all_of_them=True)) == 10


def test_only_some(lab: Lab) -> None:
    tasks = [task(user="ada"), task(user="bob"), task(user="bob")]
    with lab.store() as store:
        store.submit(tasks)
        end(store, tasks[2].id, FAILED)
    assert [row.id for row in list_tasks(user="bob")] == [tasks[1].id, tasks[2].id]
    assert [row.id for row in list_tasks(states=[FAILED])] == [tasks[2].id]
    assert [row.id for row in list_tasks(states=[PENDING], user="ada")] == [tasks[0].id]


def test_a_sweep_is_one_row_and_shown_whole(lab: Lab) -> None:
    before, *tasks = [task(name="first"), *(task(name=f"s{n}", array="7sweep") for n in range(9))]
    with lab.store() as store:
        store.submit([before, *tasks, task(name="last")])
        for one in tasks[:7]:
            end(store, one.id, SUCCEEDED)
        store.start(store.task(tasks[7].id), [], None)
    rows = list_tasks()
    assert len(rows) == 11
    first, sweep, last = folded(rows)
    assert isinstance(first, TaskRow) and isinstance(last, TaskRow) and isinstance(sweep, Sweep)
    assert sweep.counts == {"starting": 1, "pending": 1, "succeeded": 7} and sweep.short == "7sweep"


def test_of_a_sweep_that_has_ended_other_tasks_are_not_crowded_out(lab: Lab) -> None:
    alone, tasks = task(), [task(array="7sweep") for _ in range(9)]
    with lab.store() as store:
        store.submit([alone, *tasks])
        for one in (alone, *tasks):
            end(store, one.id, SUCCEEDED)
    assert [row.id for row in list_tasks()] == [one.id for one in (alone, *tasks)]


def test_what_it_has_and_for_how_long(lab: Lab) -> None:
    one = task(need=Need(cards=1, memory_mb=9000), submitted=100.0)
    with lab.store() as store:
        store.submit([one])
        (row,) = list_tasks()
        assert (row.cards, row.num_cards, row.memory_mb, row.seconds(130.0)) == ((), 1, 9000, 30.0)
        begun = store.start(store.task(one.id), [card()], 12_000)
        begun = store.move(begun, RUNNING, session=1, started=150.0)
        (row,) = list_tasks()
        assert (row.cards, row.memory_mb, row.seconds(160.0)) == (("GPU-0",), 12_000, 10.0)
        store.move(begun, SUCCEEDED, ended=170.0)
    (row,) = list_tasks()
    assert row.cards == () and row.seconds(900.0) == 20.0


def test_nobody_looks_after_what_waits(lab: Lab) -> None:
    one = task()
    with lab.store() as store:
        store.submit([one])
        assert needs_daemon(list_tasks())
        end(store, one.id, SUCCEEDED)
    assert not needs_daemon(list_tasks())
