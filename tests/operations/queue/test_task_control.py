"""Orders to tasks, carried out by a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from roost import __version__
from roost.base.errors import NotFound, Refused, RoostError
from roost.devices.resource_request import ResourceRequest
from roost.lab.background import daemon_presence
from roost.lab.queue import task_file
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.task import KILL, PENDING, RUNNING, STOP, STOPPED, Task
from roost.operations.lifecycle.stop import StopPending, StopResult
from roost.operations.queue import task_control
from roost.operations.queue.task_control import StopProgress, change, request_stop, stop_all
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.operations.packages import package
from tests.waiting import wait_for


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, "sim:1x24GB")
    with lab.here():
        yield lab
    lab.close()


def ended(reported: list[StopProgress]) -> dict[str, StopResult]:
    return {
        one.task.id: one.event
        for one in reported
        if one.task is not None and isinstance(one.event, StopResult)
    }


def queued(lab: Lab, script: str = "sleep 1000", **changes: object) -> Task:
    """One that a new queue would know, too."""
    task = msgspec.structs.replace(lab.task(script, need=ResourceRequest(cards=1)), **changes)
    task_file.write(task, lab.state)
    with lab.store() as store:
        store.submit([task])
    return task


def test_what_waits_never_begins_and_needs_no_daemon(lab: Lab) -> None:
    tasks = [queued(lab), queued(lab)]
    reported = list(stop_all([tasks[0].id, tasks[1].package]))
    assert ended(reported) == {task.id: StopResult(None, STOPPED, None, False) for task in tasks}
    assert daemon_presence.find_daemon(lab.state) is None


@pytest.mark.parametrize(("now", "code"), [(False, 75), (True, 130)])
def test_what_runs_ends_though_the_daemon_was_killed(lab: Lab, now: bool, code: int) -> None:
    id = lab.submit("exec sleep 1000", need=ResourceRequest(cards=1))
    lab.wait_for(id, RUNNING)
    lab.kill_daemon()
    reported = list(stop_all([id], now=now))
    assert isinstance(reported[0].event, StopPending)
    assert ended(reported)[id] == StopResult(1, STOPPED, None, True) and lab.one(id).exit_code == code
    assert reported[-1].can_continue


def test_the_daemon_is_started_again_while_we_wait(lab: Lab) -> None:
    id = lab.submit(
        "trap '' TERM; echo x > deaf; while :; do sleep 0.05; done", need=ResourceRequest(cards=1)
    )
    lab.wait_for(id, RUNNING)
    wait_for((lab.folder / "deaf").exists)
    events = stop_all([id])
    assert isinstance(next(events).event, StopPending)
    lab.kill_daemon()
    lab.ask(id, KILL)
    assert list(ended(list(events))) == [id]


def test_a_sweep_ends_as_one_and_what_has_ended_is_left(lab: Lab, messages: Messages) -> None:
    first, *others = [queued(lab, sweep="7sweep") for _ in range(3)]
    list(stop_all([first.id]))
    version = lab.one(first.id).version
    assert list(ended(list(stop_all(["7sweep"])))) == [task.id for task in others]
    assert lab.one(first.id).version == version
    with pytest.raises(Refused) as refused:
        list(stop_all(["7sweep"]))
    assert "'7sweep'" in str(refused.value)
    messages.check(refused.value)


def test_nothing_is_asked_where_one_of_them_is_wrong(lab: Lab, messages: Messages) -> None:
    over, waits = queued(lab, name="over"), queued(lab)
    list(stop_all([over.id]))
    with pytest.raises(Refused) as refused:
        change(["over"], priority=3)
    assert all(fact in str(refused.value) for fact in ("stopped", "'over'", "`roost why over`"))
    messages.check(refused.value)
    for wrong, error in ((over.id, Refused), ("nothing", NotFound), ("runs/nothing", NotFound)):
        with pytest.raises(error):
            list(stop_all([waits.id, wrong]))
        with pytest.raises(error):
            change([waits.id, wrong], priority=3)
    assert lab.one(waits.id).state == PENDING and lab.one(waits.id).priority == 0


def test_one_that_ends_meanwhile_leaves_all_as_they_were(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    waits, other = queued(lab), queued(lab)
    monkeypatch.setattr(task_control, "_require_current_daemon", lambda: lab.ask(other.id, KILL))
    with pytest.raises(Refused) as refused:
        change([waits.id, other.id], priority=3)
    assert all(fact in str(refused.value) for fact in ("stopped", repr(other.id)))
    assert lab.one(waits.id).priority == 0
    monkeypatch.setattr(task_control, "_require_current_daemon", lambda: lab.ask(waits.id, KILL))
    assert list(ended(list(stop_all([waits.id])))) == [waits.id]


def test_a_package_without_the_lab_is_stopped_as_ever(lab: Lab) -> None:
    over = queued(lab)
    list(stop_all([over.id]))
    made = package(lab.folder / "alone", state="succeeded").path
    reported = list(stop_all([made, over.package]))
    assert [(one.package, one.task) for one in reported] == [(made, None), (Path(over.package), None)]
    assert reported[0].event == StopResult(1, "succeeded", 30, False)
    named = package(lab.folder / "runs", "cc").path  # as `ls` shows it
    assert [one.package.resolve() for one in stop_all(["cc"])] == [named]


def test_of_what_a_pattern_or_a_query_names_those_that_run_or_wait(lab: Lab, messages: Messages) -> None:
    first, second, other = queued(lab), queued(lab), queued(lab)
    folder = Path(first.package).parent
    package(folder, "over", state="succeeded")
    assert ended(list(stop_all([str(folder), f"name={Path(first.package).name}"]))).keys() == {first.id}
    pattern = f"{folder}/[!o]*{Path(second.package).name[-3:]}"
    assert ended(list(stop_all([pattern]))).keys() == {second.id}
    assert lab.one(other.id).state == PENDING
    for words in ([f"{folder}/ov*"], [str(folder), "status:succeeded"]):
        with pytest.raises(NotFound) as caught:
            list(stop_all(words))
        messages.check(str(caught.value).replace(str(folder), "<folder>"))
    with pytest.raises(NotFound):
        list(stop_all(["nothing"]))


def test_held_back_until_it_is_released(lab: Lab) -> None:
    task = queued(lab, "true")
    ((held,), _) = change([task.id], held=True)  # which wakes the daemon, or starts it
    assert held.task.held and not held.unchanged and daemon_presence.find_daemon(lab.state) is not None
    other = lab.submit("true", need=ResourceRequest(cards=1))
    lab.wait_for(other)
    assert lab.one(task.id).attempt == 0
    change([task.id], held=False)
    assert lab.wait_for(task.id).state == "succeeded"


def test_what_is_so_already_is_no_event(lab: Lab, messages: Messages) -> None:
    task = queued(lab)
    with lab.store() as store:
        store.change(task.id, held=True, priority=2)
        before = store.events(task=task.id)
        assert before[-1].text.endswith(", priority 2")
        messages.check(before[-1].text)
    for asked in ({"held": True}, {"priority": 2}):
        ((found,), _) = change([task.id], **asked)
        assert found.unchanged and found.task.held
    with lab.store() as store:
        assert store.events(task=task.id) == before


def test_what_is_changed_though_no_daemon_starts_is_reported_as_changed(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    running, task = queued(lab, "exec sleep 600"), queued(lab)
    lab.start()
    lab.wait_for(running.id, RUNNING)
    lab.kill_daemon()
    monkeypatch.setenv("ROOST_DEVICES", "nonsense")
    (changed,), notes = change([task.id], priority=4)
    assert changed.task.priority == 4 == lab.one(task.id).priority
    messages.check(notes)
    with pytest.raises(RoostError) as refused:
        list(stop_all([running.id]))
    messages.check(refused.value)
    assert lab.one(running.id).stop_asked == STOP
    monkeypatch.setenv("ROOST_DEVICES", "sim:1x24GB")
    lab.start()
    assert lab.wait_for(running.id).state == "stopped"


def test_a_request_that_the_queue_does_not_take_is_no_success(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(*_: object) -> None:
        raise Refused("the lab's queue cannot be opened for writing")

    task = queued(lab)
    monkeypatch.setattr(QueueStore, "request_stop", unwritable)
    for request in (lambda: request_stop(task.id), lambda: list(stop_all([task.id]))):
        with pytest.raises(Refused, match="for writing"):
            request()


def test_the_higher_priority_comes_first(lab: Lab) -> None:
    blocker = queued(lab, "while [ ! -e go ]; do sleep 0.02; done")
    lab.start()
    lab.wait_for(blocker.id, RUNNING)
    low, high = queued(lab, "echo low >> order"), queued(lab, "echo high >> order")
    change([high.id], priority=5)
    (lab.folder / "go").touch()
    for one in (low, high):
        lab.wait_for(one.id)
    assert lab.lines("order") == [["high"], ["low"]]


def test_a_daemon_of_another_version_refuses_it_and_nothing_is_changed(lab: Lab) -> None:
    lab.start()
    blocker = lab.submit("exec sleep 1000", need=ResourceRequest(cards=1))
    lab.wait_for(blocker, RUNNING)
    about = lab.state / "daemon.json"
    own = about.read_bytes()
    about.write_bytes(own.replace(__version__.encode(), b"0.0.0"))
    for ordered in (lambda: change([blocker], priority=9), lambda: list(stop_all([blocker]))):
        with pytest.raises(Refused, match=r"0\.0\.0"):
            ordered()
    assert lab.one(blocker).priority == 0 and not lab.one(blocker).stop_asked
    about.write_bytes(own)


def test_who_does_not_wait_asks_tasks_alone(lab: Lab) -> None:
    first, *others = [queued(lab, sweep="7sweep", name=f"a/{n}") for n in range(3)]
    assert [task.id for task in request_stop("a/0")] == [first.id]
    assert [task.id for task in request_stop("7sweep")] == [task.id for task in others]
    assert {task.state for task in lab.tasks()} == {STOPPED}
    for text in (first.id, first.package, "7sweep"):
        with pytest.raises(Refused) as refused:
            request_stop(text)
        assert repr(str(text)) in refused.value.detail
    with pytest.raises(NotFound):
        request_stop(str(package(lab.folder / "other")))
