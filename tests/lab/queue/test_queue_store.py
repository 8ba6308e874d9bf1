"""The queue, used by one process and by many at once."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.base.errors import NotFound, Refused
from roost.base.system import state_folder
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue import task_file, task_rows, wakeup
from roost.lab.queue.queue_store import ConcurrentChange, QueueStore
from roost.lab.queue.task import (
    EVICT,
    FAILED,
    KILL,
    LIVE,
    PENDING,
    RUNNING,
    STARTING,
    STOP,
    STOPPED,
    STOPPING,
    SUCCEEDED,
    Task,
    new_id,
)
from tests.lab.concurrent_processes import together
from tests.lab.queued import PLAN, SECRET, TOLD, card, package, stands_in, task
from tests.messages import Messages


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with QueueStore.open(tmp_path / "lab") as store:
        yield store


def queued(store: QueueStore, **given: Any) -> Task:
    (new,) = store.submit([task(**given)])
    return new


def running(store: QueueStore, *numbers: int, mb: int | None = None, **given: Any) -> Task:
    begun = store.start(queued(store, **given), [card(number) for number in numbers], mb)
    return store.transition(begun, RUNNING, session=1, started=5.0)


# --- reading


def test_submitted_tasks_are_in_the_queue_after_reopening(store: QueueStore) -> None:
    need = ResourceRequest(cards=2, memory_mb=8000, time_limit=60.0)
    given = [task(need=need, priority=3, sweep="s", begin=9.0), task(held=True, profile="p", scale=2.0)]
    given.append(task(after=(given[0].id,)))
    given = store.submit(given)
    assert [(one.seq, one.label) for one in given] == [(1, "T_1"), (2, "T_2"), (3, "T_3")]
    with QueueStore.open(store.folder) as other:
        assert [other.task(one.id) for one in given] == given
        assert other.tasks() == [msgspec.structs.replace(one, plan={}) for one in given]


def test_the_usual_folder_is_opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path))
    with QueueStore.open() as store:
        assert store.folder == state_folder.lab_folder() == tmp_path / "lab"


def test_tasks_are_chosen(store: QueueStore) -> None:
    ids = [queued(store, user="ada" if n % 2 else "bob", sweep="s" if n < 3 else None).id for n in range(6)]
    store.request_stop(ids[1], STOP)

    def of(**chosen: Any) -> list[int]:
        return [ids.index(task.id) for task in store.tasks(**chosen)]

    assert of() == [0, 1, 2, 3, 4, 5]
    assert of(user="ada") == [1, 3, 5]
    assert of(states=[PENDING], user="ada") == [3, 5]
    assert of(states=[]) == []
    assert of(sweeps=["s"]) == [0, 1, 2] and of(sweeps=["s", "none"]) == [0, 1, 2]
    assert of(newest=2) == [4, 5]
    assert of(newest=9, states=[PENDING], user="bob") == [0, 2, 4]


def test_states_of_many_tasks(store: QueueStore) -> None:
    given = [task() for _ in range(1200)]
    store.submit(given)
    asked = [one.id for one in given]
    assert store.states([*asked, "none"]) == dict.fromkeys(asked, PENDING)
    assert store.states([]) == {}


def test_an_unknown_id_is_reported(store: QueueStore) -> None:
    for asked in (store.task, store.change, lambda id: store.request_stop(id, STOP)):
        with pytest.raises(NotFound, match="'x'") as refused:
            asked("x")
        assert "roost tasks" in str(refused.value)


def test_it_wakes_the_daemon(store: QueueStore) -> None:
    store.wake_daemon()
    with wakeup.listen(store.folder) as bell:
        store.wake_daemon()
        assert wakeup.drain(bell)


# --- submitting


def test_all_or_none(store: QueueStore) -> None:
    queued(store, id="old")
    for last in (task(id="old"), task(id="b", after=("none",)), task(id="c", after=("c",))):
        with pytest.raises((Refused, NotFound)):
            store.submit([task(id="a"), last])
    assert [one.id for one in store.tasks()] == ["old"]


def test_after_one_that_failed_nothing_is_queued(store: QueueStore) -> None:
    failed = running(store)
    store.transition(failed, FAILED)
    with pytest.raises(Refused, match=failed.id):
        store.submit([task(after=(failed.id,))])


# --- one attempt


def test_a_life(store: QueueStore) -> None:
    new = queued(store, reason="waits for memory")
    begun = store.start(new, [card(1), card(0)], 8000)
    assert (begun.state, begun.attempt, begun.cards, begun.reserved_mb) == (
        STARTING,
        1,
        ("GPU-1", "GPU-0"),
        8000,
    )
    assert begun.plan == PLAN
    assert begun.reason == ""
    run = store.transition(begun, RUNNING, session=1, started=5.0)
    assert store.task(new.id) == run
    run = store.update(run, started=6.0)
    ended = store.transition(store.transition(run, STOPPING), SUCCEEDED, ended=7.0, exit_code=0)
    assert store.task(new.id) == ended
    assert (ended.cards, ended.reserved_mb, ended.started, ended.version) == ((), None, 6.0, 5)
    kinds = [(event.kind, event.text) for event in store.events(task=new.id)]
    starting = (STARTING, "GPU 1, GPU 0; attempt 1")
    assert kinds == [
        (PENDING, ""),
        starting,
        (RUNNING, ""),
        ("changed", "started"),
        (STOPPING, ""),
        (SUCCEEDED, ""),
    ]


def test_the_start_event_names_the_cores(store: QueueStore) -> None:
    of_two = queued(store, need=ResourceRequest(cores=2))
    store.start(of_two, [], None)
    assert store.events(task=of_two.id)[-1].text == "2 cores; attempt 1"


def test_another_attempt_starts_with_cleared_fields(store: QueueStore) -> None:
    run = store.request_stop(running(store, 0).id, EVICT)
    waits = store.transition(run, PENDING, reason="made room")
    assert (waits.started, waits.cards, waits.stop_asked, waits.session) == (None, (), "", 1)
    begun = store.start(waits, [card(0)], None)
    assert (begun.attempt, begun.session, begun.reserved_mb) == (2, None, None)


def test_one_that_was_listed_keeps_its_plan(store: QueueStore, tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    queued(store, package=str(folder))
    store.start(store.tasks()[0], [], None)
    store.transition(store.tasks()[0], PENDING)
    assert store.task(store.tasks()[0].id).plan == PLAN
    assert task_file.read_all(folder)[0].task.plan == TOLD


@pytest.mark.parametrize(
    ("state", "to"),
    [(PENDING, STARTING), (PENDING, RUNNING), (PENDING, SUCCEEDED), (STARTING, STOPPING), (RUNNING, STARTING),
     (RUNNING, RUNNING), (STOPPING, RUNNING), (SUCCEEDED, PENDING), (FAILED, SUCCEEDED), (STOPPED, STOPPED)],
)  # fmt: skip
def test_other_transitions_are_refused(store: QueueStore, state: str, to: str) -> None:
    with pytest.raises(ValueError, match=rf"{state} .* {to}\b"):
        store.transition(task(state=state), to)


def test_a_task_with_a_stop_request_does_not_become_pending(store: QueueStore) -> None:
    for how in (STOP, KILL):
        run = store.request_stop(running(store).id, how)
        with pytest.raises(ValueError, match=rf"{how}\b.* pending\b"):
            store.transition(run, PENDING)


def test_a_change_of_a_stale_task_fails(store: QueueStore) -> None:
    new = queued(store)
    store.change(new.id, priority=1)
    with pytest.raises(ConcurrentChange):
        store.start(new, [card()], None)
    run = store.transition(store.start(store.task(new.id), [card()], None), RUNNING)
    store.request_stop(run.id, STOP)
    for lost in (lambda: store.transition(run, PENDING), lambda: store.update(run, started=1.0)):
        with pytest.raises(ConcurrentChange):
            lost()
    assert store.task(run.id).cards == ("GPU-0",)
    assert store.task(run.id).stop_asked == STOP


def test_a_card_in_use_is_not_assigned(store: QueueStore, messages: Messages) -> None:
    run = running(store, 0, 1)
    new = queued(store)
    with pytest.raises(ConcurrentChange, match="GPU-1") as refused:
        store.start(new, [card(2), card(1)], 5)
    messages.check(refused.value)
    assert store.task(new.id) == new
    shared = running(store, 2, mb=20_000)
    with pytest.raises(ConcurrentChange) as refused:
        store.start(new, [card(2)], 4000, spare_mb=512)
    assert all(fact in str(refused.value) for fact in ("GPU-2", "3488 MB", "4000"))
    messages.check(refused.value)
    with pytest.raises(ConcurrentChange, match=r"GPU-2 .*\b1\b") as refused:
        store.start(new, [card(2)], 1, most_per_card=1)
    messages.check(refused.value)
    store.transition(run, SUCCEEDED)
    store.transition(shared, PENDING)
    assert store.start(new, [card(2), card(1)], None).cards == ("GPU-2", "GPU-1")


# --- what people ask


def test_a_pending_task_is_stopped_at_once(store: QueueStore, messages: Messages) -> None:
    for how in (STOP, KILL):
        stopped = store.request_stop(queued(store).id, how)
        assert (stopped.state, stopped.stop_asked) == (STOPPED, "")
        messages.check(stopped.reason)
        assert stopped.ended
    waits = queued(store)
    assert store.request_stop(waits.id, EVICT) == waits
    again = store.transition(running(store), PENDING)
    messages.check(store.request_stop(again.id, STOP).reason)


def test_a_stop_request_is_kept_and_only_replaced_by_a_stronger_one(
    store: QueueStore, messages: Messages
) -> None:
    run = running(store)
    asked = [store.request_stop(run.id, how).stop_asked for how in (EVICT, STOP, EVICT, KILL, STOP)]
    assert asked == [EVICT, STOP, STOP, KILL, KILL]
    texts = [event.text for event in store.events(task=run.id) if event.kind == "asked"]
    for text in texts:
        messages.check(text)
    with QueueStore.open(store.folder) as other:
        (found,) = other.tasks(states=LIVE)
        assert (found.stop_asked, found.state) == (KILL, RUNNING)
    assert store.transition(found, STOPPED).stop_asked == ""


def test_an_ended_task_is_neither_stopped_nor_changed(store: QueueStore) -> None:
    ended = store.transition(running(store), SUCCEEDED)
    for asked in (lambda: store.request_stop(ended.id, STOP), lambda: store.change(ended.id, held=True)):
        with pytest.raises(Refused, match=ended.id) as refused:
            asked()
        assert all(fact in str(refused.value) for fact in ("succeeded", "roost why"))
    assert store.task(ended.id) == ended


def test_hold_release_and_priority(store: QueueStore) -> None:
    new = queued(store)
    assert store.change(new.id, held=True).held
    changed = store.change(new.id, priority=-4)
    assert (changed.held, changed.priority) == (True, -4)
    assert not store.change(new.id, held=False).held
    assert store.events(task=new.id)[-2].text == "priority -4"


def test_wait_reasons_conflict_with_no_other_change(store: QueueStore) -> None:
    new, run = queued(store), running(store)
    store.set_wait_reasons({new.id: "memory: the most free is 3 GB \udcff", run.id: "no"})
    assert store.task(new.id).reason == "memory: the most free is 3 GB ?"
    assert store.task(run.id) == run
    assert store.start(new, [], None).reason == ""


def test_no_byte_of_an_ended_tasks_environment_remains(store: QueueStore) -> None:
    column = task_rows.compress_json(SECRET["env"])
    first, second = queued(store, plan=SECRET), queued(store, plan=SECRET)
    queued(store)
    store.transition(store.start(first, [], None), SUCCEEDED)
    assert store.task(second.id).plan == SECRET and store.task(first.id).plan == TOLD
    assert stands_in(store.folder, column)
    store.request_stop(second.id, STOP)
    assert store.task(second.id).plan == TOLD
    assert not stands_in(store.folder, column)


def test_during_a_read_the_environment_is_removed_by_a_later_change(store: QueueStore) -> None:
    column = task_rows.compress_json(SECRET["env"])
    new = queued(store, plan=SECRET)
    with QueueStore.open(store.folder) as other, other._read_transaction() as connection:
        connection.execute("SELECT count(*) FROM task").fetchone()
        store.request_stop(new.id, STOP)
        assert store.task(new.id).state == STOPPED and stands_in(store.folder, column)
    store.add_event("later", "")
    assert not stands_in(store.folder, column)


# --- the file of a task in its package


def test_the_task_file_follows_pending_and_ended_states(store: QueueStore, tmp_path: Path) -> None:
    folder = package(tmp_path / "p")

    def stored() -> Task:
        (found,) = task_file.read_all(folder)
        return found.task

    def without_environment(task: Task) -> Task:
        return msgspec.structs.replace(task, plan=TOLD, seq=0)

    new = queued(store, package=str(folder))
    assert without_environment(store.change(new.id, priority=2)) == stored()
    begun = store.start(store.task(new.id), [card()], 5)
    store.change(new.id, priority=3)
    assert stored().priority == 2, "while it is live the session file counts"
    waits = store.transition(store.task(begun.id), PENDING)
    assert stored() == without_environment(waits)
    store.request_stop(new.id, STOP)
    assert (stored().state, stored().plan) == (STOPPED, {})


def _killed(*given: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("is_together", [False, True])
def test_a_kill_leaves_queue_and_task_file_consistent(
    store: QueueStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_together: bool
) -> None:
    new = queued(store, package=str(package(tmp_path / "p")))
    run = running(store, package=str(package(tmp_path / "r")))
    calls: list[Callable[[], Task]] = [
        lambda: store.request_stop(new.id, STOP),
        lambda: store.change(new.id, held=True),
        lambda: store.transition(run, FAILED),
    ]
    monkeypatch.setattr(task_file, "write", _killed)
    for call in calls:
        with pytest.raises(KeyboardInterrupt), store.transaction() if is_together else nullcontext():
            call()
    assert [store.task(new.id), store.task(run.id)] == [new, run]


def test_a_package_that_cannot_be_written_is_recorded(
    store: QueueStore, tmp_path: Path, messages: Messages
) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "sessions").touch()  # no folder
    store.request_stop(queued(store, package=str(folder)).id, STOP)
    (event,) = [event for event in store.events() if event.kind == "trouble"]
    assert str(folder) in event.text
    messages.check(event.text)
    store.request_stop(queued(store, package=str(tmp_path / "gone")).id, STOP)
    assert len([event for event in store.events() if event.kind == "trouble"]) == 1


# --- many at once


def test_many_writers_and_a_reader_that_holds_a_snapshot(tmp_path: Path) -> None:
    """Faults F20 and F26: one name, one second, no row lost."""
    folder = tmp_path / "lab"
    QueueStore.open(folder).close()
    reader = sqlite3.connect(folder / "lab.db", isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM task").fetchone() == (0,)

    def submit(folder: Path, number: int) -> None:
        with QueueStore.open(folder) as store:
            for _ in range(WRITES):
                store.submit([task(id=new_id(1.0), name="same", user=str(number))])

    together(WRITERS, submit, folder)
    assert reader.execute("SELECT count(*) FROM task").fetchone() == (0,)
    reader.close()
    with QueueStore.open(folder) as store:
        assert Counter(one.user for one in store.tasks()) == {str(n): WRITES for n in range(WRITERS)}
        store.check()


WRITERS, WRITES = 50, 20


def test_of_two_starts_on_one_card_one_succeeds(tmp_path: Path) -> None:
    """The same task, and two tasks: never is a card given twice."""
    folder = tmp_path / "lab"
    with QueueStore.open(folder) as store:
        store.submit([task() for _ in range(30)])
        waiting = store.tasks()

    def start(folder: Path, number: int) -> None:
        won = 0
        with QueueStore.open(folder) as store:
            for round in range(15):
                for seen in (waiting[2 * round], waiting[2 * round + number % 2]):
                    try:
                        store.start(seen, [card(round)], None)
                        won += 1
                    except ConcurrentChange:
                        continue
        (folder / f"won-{number}").write_text(str(won))

    together(4, start, folder)
    assert sum(int(path.read_text()) for path in folder.glob("won-*")) == 15
    with QueueStore.open(folder) as store:
        live = store.tasks(states=LIVE)
        assert sorted(one.cards for one in live) == sorted((f"GPU-{n}",) for n in range(15))
        assert {one.attempt for one in live} == {1}


def test_the_oldest_and_of_a_sweep_its_first(store: QueueStore) -> None:
    tasks = [task(sweep="s1"), task(), task(sweep="s1"), task(sweep="s2"), task()]
    store.submit(tasks)
    assert [one.id for one in store.tasks(oldest=3)] == [tasks[n].id for n in (0, 1, 3)]
    store.start(tasks[0], [], None)
    assert [one.id for one in store.tasks(states=["pending"], oldest=2)] == [tasks[n].id for n in (1, 2)]


def test_in_a_transaction_a_failed_change_leaves_the_others(store: QueueStore) -> None:
    first, second = task(), task()
    store.submit([first, second])
    with store.transaction():
        begun = store.start(first, [card(0)], None)
        with pytest.raises(ConcurrentChange):
            store.start(second, [card(0)], None)
        with QueueStore.open(store.folder) as other:
            assert other.states([first.id]) == {first.id: PENDING}, (
                "other processes see no change before the commit"
            )
    assert store.states([first.id, second.id]) == {first.id: STARTING, second.id: PENDING}
    assert store.task(first.id).cards == begun.cards


def test_an_error_rolls_the_whole_transaction_back(store: QueueStore, tmp_path: Path) -> None:
    waits = task(package=str(package(tmp_path / "waits")))
    store.submit([waits])
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.request_stop(waits.id, STOP)
        raise ZeroDivisionError
    assert store.task(waits.id).state == PENDING and task_file.read_all(tmp_path / "waits") == []
    with store.transaction():
        store.request_stop(waits.id, STOP)
    assert [one.task.state for one in task_file.read_all(tmp_path / "waits")] == [STOPPED]
