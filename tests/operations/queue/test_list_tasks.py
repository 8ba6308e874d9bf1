"""The tasks of the queue, listed."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roost.devices import inventory
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue import database
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import CRASHED, ENDED, FAILED, PENDING, RUNNING, SUCCEEDED, Task
from roost.operations.queue import list_tasks as listing
from roost.operations.queue.list_tasks import (
    REMOVED_NOTE,
    card_numbers,
    count_hidden,
    group_sweeps,
    list_tasks,
    task_row,
    wait_without_daemon,
)
from roost.operations.queue.why import why
from roost.operations.task_results import Sweep, TaskRow
from roost.package import live_progress
from tests.lab.labs import Lab
from tests.lab.queued import card, task
from tests.messages import Messages


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab


def end(store: QueueStore, id: str, state: str, ended: float = 0.0) -> None:
    begun = store.start(store.task(id), [], None)
    store.transition(begun, state, ended=ended or time.time())


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
    assert len(list_tasks(all_tasks=True)) == 10


def test_only_some(lab: Lab) -> None:
    tasks = [task(user="ada"), task(user="bob"), task(user="bob")]
    with lab.store() as store:
        store.submit(tasks)
        end(store, tasks[2].id, FAILED)
    assert [row.id for row in list_tasks(user="bob")] == [tasks[1].id, tasks[2].id]
    assert [row.id for row in list_tasks(states=[FAILED])] == [tasks[2].id]
    assert [row.id for row in list_tasks(states=[PENDING], user="ada")] == [tasks[0].id]


def test_a_sweep_is_one_row_and_shown_whole(lab: Lab) -> None:
    before, *tasks = [task(name="first"), *(task(name=f"s{n}", sweep="7sweep") for n in range(9))]
    with lab.store() as store:
        store.submit([before, *tasks, task(name="last")])
        for one in tasks[:7]:
            end(store, one.id, SUCCEEDED)
        store.start(store.task(tasks[7].id), [], None)
    rows = list_tasks()
    assert len(rows) == 11
    first, sweep, last = group_sweeps(rows)
    assert isinstance(first, TaskRow) and isinstance(last, TaskRow) and isinstance(sweep, Sweep)
    assert sweep.counts == {"starting": 1, "pending": 1, "succeeded": 7} and sweep.short == "7sweep"
    assert group_sweeps(rows[:2]) == rows[:2], "a row for a single one would hide it"


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (("grid_lr-1e-3_seed-0", "grid_lr-1e-4_seed-0"), "grid_lr"),
        (("my_run_batch_size-8", "my_run_batch_size-16"), "my_run_batch_size"),
        (("seed-0", "seed-1"), "seed"),
        (("a_optimizer-adam_w", "a_optimizer-adam_x"), "a_optimizer-adam"),
    ],
)
def test_what_a_sweep_is_called(lab: Lab, names: tuple[str, ...], name: str) -> None:
    with lab.store() as store:
        store.submit([task(name=one, sweep="7sweep") for one in names])
    (sweep,) = group_sweeps(list_tasks())
    assert isinstance(sweep, Sweep) and sweep.name == name


def test_a_sweep_is_called_as_it_was_asked(lab: Lab) -> None:
    with lab.store() as store:
        store.submit([task(name=f"grid_lr-{lr}", sweep="7sweep", sweep_name="grid") for lr in (1, 2)])
    (sweep,) = group_sweeps(list_tasks())
    assert isinstance(sweep, Sweep) and sweep.name == "grid" and sweep.tasks[1].sweep_name == "grid"


def test_a_sweep_that_is_held_back_names_the_way_out_for_all(lab: Lab, messages: Messages) -> None:
    tasks = [task(sweep="7sweep", reason="cards: none") for _ in range(3)]
    with lab.store() as store:
        store.submit(tasks)

        def reason(*held: int) -> str:
            for at, one in enumerate(tasks):
                store.change(one.id, held=at in held)
            (sweep,) = group_sweeps(list_tasks())
            assert isinstance(sweep, Sweep)
            return sweep.reason

        all_held, some_held = reason(0, 1, 2), reason(1, 2)
        assert all_held.startswith("held: ") and "cards: none" not in all_held
        assert some_held.startswith("held: 2 ") and some_held.endswith("; cards: none")
        for text in (all_held, some_held):
            assert "(roost release 7sweep)" in text
            messages.check(text)
        assert reason() == "cards: none"


def test_of_a_sweep_that_has_ended_other_tasks_are_not_crowded_out(lab: Lab) -> None:
    alone, tasks = task(), [task(sweep="7sweep") for _ in range(9)]
    with lab.store() as store:
        store.submit([alone, *tasks])
        for one in (alone, *tasks):
            end(store, one.id, SUCCEEDED)
    assert [row.id for row in list_tasks()] == [one.id for one in (alone, *tasks)]


def test_what_it_has_and_for_how_long(lab: Lab) -> None:
    one = task(need=ResourceRequest(cards=1, memory_mb=9000), submitted=100.0)
    with lab.store() as store:
        store.submit([one])
        (row,) = list_tasks()
        assert (row.cards, row.num_cards, row.memory_mb, row.seconds(130.0)) == ((), 1, 9000, 30.0)
        begun = store.start(store.task(one.id), [card()], 12_000)
        begun = store.transition(begun, RUNNING, session=1, started=150.0)
        (row,) = list_tasks()
        assert (row.cards, row.memory_mb, row.seconds(160.0)) == (("GPU-0",), 12_000, 10.0)
        store.transition(begun, SUCCEEDED, ended=170.0)
    (row,) = list_tasks()
    assert row.cards == () and row.seconds(900.0) == 20.0


def test_pending_tasks_without_a_daemon(lab: Lab) -> None:
    one = task()
    with lab.store() as store:
        store.submit([one])
        assert wait_without_daemon(list_tasks())
        end(store, one.id, SUCCEEDED)
    assert not wait_without_daemon(list_tasks())


def test_of_those_that_wait_the_first_ones_and_whole_sweeps(lab: Lab) -> None:
    first, *sweep = [task(), *(task(sweep="7sweep") for _ in range(4))]
    runs, *others = [task(), *(task(user="bob") for _ in range(3))]
    with lab.store() as store:
        store.submit([first, *sweep, runs, *others])
        store.start(store.task(runs.id), [], None)
    assert [row.id for row in list_tasks(max_pending=2)] == [one.id for one in (first, *sweep, runs)]
    assert [row.id for row in list_tasks(max_pending=2, user="bob")] == [one.id for one in others[:2]]
    assert len(list_tasks(max_pending=2, all_tasks=True)) == 9
    assert (count_hidden([]), count_hidden([], "bob"), count_hidden([], "nobody")) == ((8, 0), (3, 0), (0, 0))
    assert count_hidden(list_tasks(max_pending=2)) == (3, 0)


def test_how_many_more_have_ended(lab: Lab) -> None:
    tasks = [task() for _ in range(7)]
    with lab.store() as store:
        store.submit(tasks)
        for one in tasks:
            end(store, one.id, SUCCEEDED)
    assert count_hidden(list_tasks()) == (0, 2)


def test_of_a_sweep_it_is_known_how_many_tasks_it_has(lab: Lab) -> None:
    tasks = [task(name=f"s{n}", sweep="7sweep") for n in range(5)]
    with lab.store() as store:
        store.submit(tasks)
        for one in tasks[:2]:
            end(store, one.id, SUCCEEDED)
    (sweep,) = group_sweeps(list_tasks(states=[SUCCEEDED]))
    assert isinstance(sweep, Sweep) and (len(sweep.tasks), sweep.total) == (2, 5)


def test_that_the_package_was_removed_is_said_once(lab: Lab) -> None:
    one = task(name="one")
    reason = f"{REMOVED_NOTE}, and with it the record of its end"
    with lab.store() as store:
        store.submit([one])
        running = store.transition(store.start(one, [], None), RUNNING, session=1)
        store.transition(running, FAILED, reason=reason)
    (row,) = list_tasks(all_tasks=True)
    assert row.reason == reason
    assert why("one")[0].why.count(REMOVED_NOTE) == 1


def test_a_sweep_of_which_nothing_waits_says_why_one_did_not_succeed(lab: Lab) -> None:
    tasks = [task(name=f"s{n}", sweep="7sweep") for n in range(3)]
    with lab.store() as store:
        store.submit(tasks)
        end(store, tasks[0].id, SUCCEEDED)
        running = store.transition(store.start(store.task(tasks[1].id), [], None), RUNNING, session=1)
        store.transition(running, CRASHED, reason="killed by SIGKILL")
        store.start(store.task(tasks[2].id), [], None)
    (sweep,) = group_sweeps(list_tasks())
    assert (
        isinstance(sweep, Sweep) and sweep.reason == "s1 crashed: killed by SIGKILL; its package was removed"
    )


def test_a_reason_names_tasks_as_their_users_do(lab: Lab) -> None:
    first = task(name="first", package="/nowhere/first")
    waits = task(after=(first.id,), reason=f"dependency: waits until {first.id} has succeeded (pending)")
    with lab.store() as store:
        store.submit([first, waits])
    assert list_tasks()[1].reason == "dependency: waits until first has succeeded (pending)"


def test_a_reason_has_no_more_of_an_id_than_needed(lab: Lab) -> None:
    first = task(name="python train.py")
    waits = task(after=(first.id,), reason=f"dependency: waits until {first.id} has succeeded (pending)")
    with lab.store() as store:
        store.submit([first, waits])
        short = store.unique_prefixes([first.id])[first.id]
    assert list_tasks()[1].reason == f"dependency: waits until {short} has succeeded (pending)"
    assert len(short) < len(first.id)


def test_where_a_training_is(lab: Lab, tmp_path: Path) -> None:
    runs, limited, waits = (
        task(package=str(tmp_path / name), need=need)
        for name, need in (
            ("a", ResourceRequest()),
            ("b", ResourceRequest(time_limit=1000.0)),
            ("c", ResourceRequest()),
        )
    )
    for one in (runs, limited, waits):
        Path(one.package).mkdir()
        board = live_progress.ProgressFile(Path(one.package) / "progress")
        board.publish(30, 1, 0, 1, 120, 30, 0, 900.0, 1.0, 0.25)
    with lab.store() as store:
        store.submit([runs, limited, waits])
        for one in (runs, limited):
            store.transition(store.start(store.task(one.id), [], None), RUNNING, started=time.time() - 900)
    found = list_tasks()
    assert [(row.step, row.total_steps) for row in found] == [(30, 120), (30, 120), (None, None)]
    assert found[0].left == 2700.0 and 90 < (found[1].left or 0) <= 100 and found[2].left is None
    with lab.store() as store:  # another attempt, without progress yet
        store.update(store.task(runs.id), started=time.time() + 60)
    assert list_tasks()[0].step is None


def test_the_time_of_a_sweep_is_that_of_all_of_it() -> None:
    def row(submitted: float, started: float | None, ended: float | None) -> TaskRow:
        return task_row(task(submitted=submitted, started=started, ended=ended), short="", reason="")

    tasks = (row(10.0, 50.0, 60.0), row(12.0, None, None))
    assert Sweep(id="s", short="s", tasks=tasks, total=2).seconds(100.0) == 90.0
    assert Sweep(id="s", short="s", tasks=tasks[:1], total=2).seconds(100.0) == 50.0


def test_cards_have_the_numbers_of_roost_devices(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    there, gone = card(2), card(9)
    one = task(need=ResourceRequest(cards=2))
    with lab.store() as store:
        store.submit([one])
        assert card_numbers(list_tasks()) == {}
        known = [known.id for known in inventory.read_cards()]
        store.start(store.task(one.id), [replace(there, id=known[2]), gone], None)
    rows = list_tasks()
    assert card_numbers(rows) == {known[2]: 2}
    monkeypatch.setenv("ROOST_DEVICES", "nobody")
    assert card_numbers(rows) == {}


def test_many_sweeps_are_asked_for_together_and_found_by_an_index(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_SWEEPS_PER_QUERY", 10)
    with lab.store() as store:
        store.submit([task(sweep=f"7s{number % 25:02}") for number in range(50)])
    asked: list[dict[str, Any]] = []
    real = QueueStore.tasks

    def tasks(self: QueueStore, **given: Any) -> list[Task]:
        asked.append(given)
        return real(self, **given)

    monkeypatch.setattr(QueueStore, "tasks", tasks)
    assert len(list_tasks(max_pending=25)) == 50
    assert [len(given["sweeps"]) for given in asked if "sweeps" in given] == [10, 10, 5]
    asked.clear()
    assert len(list_tasks()) == 50
    assert [given["states"] for given in asked if "sweeps" in given] == [ENDED] * 3, "the others are there"
    queue = sqlite3.connect(lab.state / database.FILE_NAME)
    plan = "EXPLAIN QUERY PLAN SELECT seq FROM task WHERE sweep IN (?, ?) AND user = ?"
    (row,) = queue.execute(plan, ("7s00", "7s01", "ada")).fetchall()
    queue.close()
    assert "task_sweep" in row[-1]
