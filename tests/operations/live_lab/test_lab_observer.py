"""The observer against a real queue, a daemon, tasks and a training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.devices.resource_request import ResourceRequest
from roost.lab.queue import task_lookup
from roost.lab.queue.task import PENDING, RUNNING, SUCCEEDED
from roost.operations import lab as operations
from roost.operations.devices import devices
from roost.operations.live_lab import queue_watch
from roost.operations.live_lab.lab_change import LabChange, LabReset, TaskRowChange
from roost.operations.live_lab.lab_observer import LabObserver
from roost.operations.live_lab.lab_state import LabState
from roost.operations.queue.list_tasks import list_tasks
from roost.package.live_progress import ProgressFile
from roost.package.records import RecordsWriter
from tests.lab.labs import Lab
from tests.lab.queued import task
from tests.operations.packages import project
from tests.waiting import wait_for

CARD = "SIM-0"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    own = Lab(tmp_path, "sim:2x24GB")
    with own.here():
        yield own
    own.close()


class Follower:
    """An observer and the state that its changes build up."""

    def __init__(self) -> None:
        self.observer, self.state = LabObserver(), LabState()
        self.changes: list[LabChange] = []

    def look(self) -> list[LabChange]:
        found = self.observer.poll()
        # As a subscriber gets them.
        changes = msgspec.json.decode(msgspec.json.encode(found), type=list[LabChange])
        self.state.apply_all(changes)
        self.changes += changes
        return changes

    def until(self, condition: Callable[[], Any]) -> Any:
        def is_true() -> Any:
            self.look()
            return condition()

        return wait_for(is_true)

    def state_of(self, id: str) -> str:
        found = self.state.task(id)
        return "" if found is None else found.row.state

    def close(self) -> None:
        self.observer.close()


@pytest.fixture
def follower(lab: Lab) -> Iterator[Follower]:
    with closing(Follower()) as one:
        yield one


def test_who_only_looks_creates_no_queue(lab: Lab, follower: Follower) -> None:
    changes = follower.look()
    assert isinstance(changes[0], LabReset)
    follower.until(lambda: len(follower.state.cards()) == 2)
    assert follower.state.tasks() == [] and follower.state.summary.trouble == ""
    assert not (lab.state / "lab.db").exists()
    id = lab.queue("true").id
    follower.until(lambda: follower.state_of(id) == "pending")


def test_the_first_look_has_the_rows_of_roost_tasks(lab: Lab, follower: Follower) -> None:
    lab.start()
    need = ResourceRequest(cards=1, memory_mb=1000)
    running = lab.submit("exec sleep 600", need=need)
    lab.wait_for(running, RUNNING)
    held = lab.queue("true", need=need).id
    with lab.store() as store:
        store.change(held, held=True)
    after = lab.submit("true", need=need, after=(running,))
    lab.submit("false")
    wait_for(lambda: [one for one in lab.tasks() if one.state == "failed"])
    wait_for(lambda: lab.one(after).reason)
    follower.until(lambda: follower.state.cards())
    follower.until(lambda: [one.row for one in follower.state.all_tasks()] == list_tasks())
    assert {one.id: one.position for one in follower.state.all_tasks()}[held] is None
    shown = devices.show()
    card = next(one for one in follower.state.cards() if one.status.tasks)
    assert card.status.tasks == next(one for one in shown.cards if one.tasks).tasks
    assert [one.id for one in follower.state.tasks_on_card(card.id)] == [running]


def test_only_what_has_changed_is_reported(lab: Lab, follower: Follower) -> None:
    ids = [lab.queue("true").id for _ in range(3)]
    follower.until(lambda: len(follower.state.tasks()) == 3 and follower.state.cards())
    follower.until(lambda: all(one.settings is not None for one in follower.state.all_tasks()))
    with lab.store() as store:
        store.change(ids[1], priority=5)
    rows = [one.row for one in follower.look() if isinstance(one, TaskRowChange)]
    assert [(row.id, row.priority) for row in rows] == [(ids[1], 5)]
    follower.until(lambda: follower.state.all_tasks()[1].position == 0)
    assert [one.position for one in follower.state.all_tasks()] == [1, 0, 2]
    assert not [one for one in follower.look() if isinstance(one, TaskRowChange)]


def test_a_wait_reason_is_followed_although_it_is_no_event(lab: Lab, follower: Follower) -> None:
    id = lab.queue("true").id
    follower.until(lambda: follower.state_of(id))
    with lab.store() as store:
        store.set_wait_reasons({id: "memory: waits for room"})
    found = follower.state.task(id)
    assert found is not None
    follower.until(lambda: found.row.reason == "memory: waits for room")


def test_prefixes_become_longer_when_an_id_comes_that_begins_alike(lab: Lab, follower: Follower) -> None:
    first = lab.task("true")
    with lab.store() as store:
        store.submit([first])
    follower.until(lambda: follower.state_of(first.id))
    shown = follower.state.task(first.id)
    assert shown is not None
    assert len(shown.row.short) == task_lookup.MIN_PREFIX_LENGTH
    alike = msgspec.structs.replace(first, id=first.id[:12] + "0" * 14)
    with lab.store() as store:
        store.submit([alike])
    follower.until(lambda: follower.state_of(alike.id))
    assert shown.row.short == first.id[: len(shown.row.short)] != alike.id[: len(shown.row.short)]
    assert [one.row for one in follower.state.all_tasks()] == list_tasks()


def test_a_task_that_changes_while_its_prefix_becomes_longer_has_its_new_row(
    lab: Lab, follower: Follower
) -> None:
    first = lab.task("true")
    with lab.store() as store:
        store.submit([first])
        follower.until(lambda: follower.state_of(first.id))
        store.change(first.id, priority=5)
        store.submit([msgspec.structs.replace(first, id=first.id[:12] + "0" * 14)])
    follower.look()
    shown = follower.state.task(first.id)
    assert shown is not None and shown.row.priority == 5
    assert [one.row for one in follower.state.all_tasks()] == list_tasks()


def test_the_ended_tasks_that_are_shown_are_bounded(
    lab: Lab, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_watch, "MAX_ENDED", 3)
    ended = [
        task(state=SUCCEEDED, started=1.0, ended=10.0 + number, attempt=1, plan={}) for number in range(8)
    ]
    swept = [task(state=SUCCEEDED, started=1.0, ended=2.0, attempt=1, sweep="s", plan={}) for _ in range(4)]
    waits = task(sweep="s")
    with lab.store() as store:
        store.restore([*ended, *swept, waits])
    follower.until(lambda: len(follower.state.tasks(expanded=None)) == 8)
    shown = {one.id for one in follower.state.all_tasks()}
    assert shown == {one.id for one in (*ended[-3:], *swept, waits)}
    with lab.store() as store:
        store.request_stop(waits.id, "stop")
    follower.until(lambda: len(follower.state.all_tasks()) == 3)
    assert {one.id for one in follower.state.all_tasks()} == {waits.id, *(one.id for one in ended[-2:])}


def test_a_damaged_queue_is_named_and_the_mended_one_is_followed(lab: Lab, follower: Follower) -> None:
    id = lab.queue("true").id
    follower.until(lambda: follower.state_of(id))
    good = (lab.state / "lab.db").read_bytes()
    replacement = lab.state / "lab.db.new"
    replacement.write_bytes(b"this is no database" * 1000)
    replacement.chmod(0o600)
    replacement.replace(lab.state / "lab.db")
    follower.until(lambda: "damaged" in follower.state.summary.trouble)
    assert follower.state.tasks() == []
    replacement.write_bytes(good)
    replacement.chmod(0o600)
    for name in ("lab.db-wal", "lab.db-shm"):
        (lab.state / name).unlink(missing_ok=True)
    replacement.replace(lab.state / "lab.db")
    follower.until(lambda: not follower.state.summary.trouble and follower.state.summary.counts)


def running_task(lab: Lab, **given: Any) -> Any:
    """A task that is running in the queue alone."""
    made = lab.task("true")
    began = msgspec.structs.replace(
        made, state=RUNNING, started=time.time() - 10, attempt=1, session=1, **given
    )
    with lab.store() as store:
        store.restore([began])
    (Path(began.package) / "records").mkdir(exist_ok=True)
    return began


def test_long_records_are_read_from_their_end_and_a_return_to_an_earlier_step_is_followed(
    lab: Lab, follower: Follower
) -> None:
    began = running_task(lab)
    path = Path(began.package) / "records" / "1.jsonl"
    writer = RecordsWriter(path, session=1, start_step=0)
    padding = {f"train/{number:03d}": 0.5 for number in range(50)}
    for step in range(1, 1001):
        writer.row(step, 1, {"loss": 1 / step, **padding})
    assert path.stat().st_size > 1 << 19
    found = follower.until(lambda: (one := follower.state.task(began.id)) and one.histories and one)
    assert found.histories["loss"].steps[-1] == 1000
    assert found.histories["loss"].steps[0] > 500
    writer.go_back(900)
    writer.row(901, 1, {"loss": 5.0})
    writer.close()
    follower.until(lambda: found.metric("loss") == 5.0)
    assert found.histories["loss"].steps[-1] == 901
    assert max(found.histories["train/001"].steps) <= 900


def test_expected_starts_come_from_progress_and_time_limits(lab: Lab, follower: Follower) -> None:
    need = ResourceRequest(cards=1, whole=True, time_limit=100.0)
    first = running_task(lab, cards=(CARD,), reserved_mb=None, need=ResourceRequest(cards=1, whole=True))
    second = msgspec.structs.replace(
        lab.task("true"),
        state=RUNNING,
        started=time.time(),
        attempt=1,
        cards=("SIM-1",),
        need=msgspec.structs.replace(need, time_limit=300.0),
    )
    with lab.store() as store:
        store.restore([second])
    progress = ProgressFile(Path(first.package) / "progress")
    progress.publish(50, 1, 50, 1, 100, 10, 50, 50.0, 5.0, 0.5)
    waiting = [lab.queue("true", need=need).id for _ in range(3)]
    unlimited = lab.queue("true", need=ResourceRequest(cards=2, whole=True)).id
    follower.until(lambda: all(one.expected_start for one in map(follower.state.task, waiting) if one))
    now = time.time()
    starts = {one.id: one.expected_start for one in follower.state.all_tasks() if one.row.state == PENDING}
    left = [0.0 if (at := starts[id]) is None else at - now for id in waiting]
    # The first card is free in 50 s, and again 100 s after that; the second one in 300 s.
    assert left[0] == pytest.approx(50, abs=15)
    assert left[1] == pytest.approx(150, abs=15)
    assert left[2] == pytest.approx(250, abs=15)
    last = starts[unlimited]
    assert last is not None
    assert last - now == pytest.approx(350, abs=15)


def test_a_training_is_followed_with_its_settings_metrics_and_end(
    lab: Lab, follower: Follower, tmp_path: Path
) -> None:
    config = project(tmp_path / "project", max_epochs="40")
    lab.start()
    queued = lab.train(config, "optimizers.main.lr=0.002")
    follower.until(lambda: follower.state_of(queued.id) == "succeeded")
    found = follower.state.task(queued.id)
    assert found is not None
    follower.until(lambda: found.settings and found.recorded)
    steps = [one for one in follower.changes if type(one).__name__ == "TaskProgress"]
    assert steps, "progress was published while it ran"
    assert found.main_metric() is not None
    names = found.metric_names()
    assert any(name.startswith("train/") for name in names), names
    assert [one.id for one in follower.state.tasks(filter="lr=0.002 state:succeeded")] == [queued.id]
    assert follower.state.tasks(filter="lr<1e-3") == []
    metric = next(name for name in names if name.startswith("train/"))
    value = found.metric(metric)
    assert value is not None
    assert [one.id for one in follower.state.tasks(filter=f"{metric}<={value}")] == [queued.id]


def test_a_lab_that_is_killed_and_comes_back(lab: Lab, follower: Follower) -> None:
    lab.start()
    id = lab.submit("exec sleep 600")
    follower.until(lambda: follower.state_of(id) == "running" and follower.state.summary.daemon)
    lab.kill_daemon()
    follower.until(lambda: follower.state.summary.daemon is None)
    assert follower.state_of(id) == "running"
    operations.start()
    follower.until(lambda: follower.state.summary.daemon)
    lab.ask(id, "kill")
    follower.until(lambda: follower.state_of(id) == "stopped")
