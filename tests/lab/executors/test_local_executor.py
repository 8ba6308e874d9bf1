"""Tasks under supervisors of their own, without a daemon: what is seen of them, whatever is killed or
removed."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from roost.base.errors import NotFound, Refused, RoostError
from roost.devices import inventory, lease_files
from roost.devices.lease import CardsBusy
from roost.devices.resource_request import ResourceRequest
from roost.lab.executors.executor import INTERRUPTED_START, NEVER_STARTED, AttemptStatus
from roost.lab.executors.local_executor import LocalExecutor
from roost.lab.queue import task_file
from roost.lab.queue.task import CRASHED, FAILED, RUNNING, STARTING, STOPPED, SUCCEEDED, Task
from roost.package.owner import other_owner
from roost.package.package import PackageFolder
from roost.supervisor import guard_start
from roost.supervisor.guard_start import StartInterrupted
from tests.lab.labs import Lab, kill_guard, kill_watchers, record_of
from tests.messages import Messages
from tests.package.owner import other_machine
from tests.processes import living_in
from tests.waiting import wait_for

FOREVER = "exec sleep 600"


@pytest.fixture
def local(lab: Lab) -> Iterator[LocalExecutor]:
    with lab.here():
        yield LocalExecutor()


def begun(lab: Lab, local: LocalExecutor, script: str, *, number_of_cards: int = 0) -> Task:
    """A task as the scheduler starts it."""
    cards = inventory.read_cards()[:number_of_cards]
    task = lab.task(script, need=ResourceRequest(cards=number_of_cards))
    task = msgspec.structs.replace(task, attempt=1, state=STARTING, cards=tuple(card.id for card in cards))
    local.start(task, cards)()
    return msgspec.structs.replace(task, state=RUNNING, session=newest(task))


def newest(task: Task) -> int:
    """The number of the session that its package has begun last."""
    return PackageFolder.open(task.package).sessions()[-1].number


def end_of(local: LocalExecutor, task: Task) -> AttemptStatus:
    wait_for(lambda: local.poll(task).state not in (RUNNING, STARTING))
    return local.poll(task)


def test_a_command_ends_as_its_exit_code_says(lab: Lab, local: LocalExecutor) -> None:
    status = end_of(local, begun(lab, local, "exit 5"))
    assert (status.state, status.exit_code, status.session, status.is_lost) == (FAILED, 5, 1, False)
    assert status.started is not None and status.ended is not None and status.started <= status.ended


def test_it_sees_its_cards_alone_and_holds_their_leases(lab: Lab, local: LocalExecutor) -> None:
    task = begun(lab, local, f"echo $CUDA_VISIBLE_DEVICES >> seen; {FOREVER}", number_of_cards=2)
    wait_for(lambda: lab.lines("seen"))
    assert lab.lines("seen") == [[",".join(task.cards)]]
    assert [lease_files.live_leases(card)[0].record.task for card in task.cards] == [task.id] * 2
    with pytest.raises(CardsBusy):
        begun(lab, local, FOREVER, number_of_cards=1)
    local.request_stop(task, now=True)
    assert end_of(local, task).state == STOPPED
    assert not any(lease_files.live_leases(card) for card in task.cards), (
        "seen as ended when its cards are free"
    )


def test_a_package_that_somebody_writes_to_is_left_alone(lab: Lab, local: LocalExecutor) -> None:
    task = lab.task("exit 0")
    lock_fd = PackageFolder.open(task.package).lock()
    with pytest.raises(Refused):
        local.start(task, ())
    os.close(lock_fd)
    assert local.poll(task) == NEVER_STARTED


def test_what_is_being_started_is_not_taken_for_what_never_began(lab: Lab, local: LocalExecutor) -> None:
    task = lab.task("exit 0")
    lock_fd = PackageFolder.open(task.package).lock()
    assert local.poll(task).state == STARTING
    os.close(lock_fd)
    assert local.poll(task) == NEVER_STARTED


def test_a_descriptor_tells_of_the_end(lab: Lab, local: LocalExecutor) -> None:
    task = begun(lab, local, "until [ -e go ]; do sleep 0.01; done")
    local.poll(task)
    fd = local.watch(task)
    assert fd is not None and not select.select([fd], [], [], 0)[0]
    (lab.folder / "go").touch()
    assert select.select([fd], [], [], 10)[0]
    os.close(fd)
    assert local.poll(task).state == SUCCEEDED


def test_a_task_has_not_ended_before_its_guard_can_be_reaped(lab: Lab, local: LocalExecutor) -> None:
    """A guard that ends releases the package's lock a moment before."""
    task = begun(lab, local, "exit 0")
    assert local._guards[task.id].wait(100) == 0
    with subprocess.Popen(["sleep", "600"]) as ending:
        local._guards[task.id] = ending
        assert local.poll(task).state == RUNNING
        ending.kill()
        assert end_of(local, task).state == SUCCEEDED
    assert local._guards == {}


def test_a_supervisor_whose_guard_was_killed_is_watched_itself(lab: Lab, local: LocalExecutor) -> None:
    task = begun(lab, local, FOREVER)
    record = record_of(task)
    os.kill(record["guard_pid"], signal.SIGKILL)
    assert local.poll(task).state == RUNNING
    wait_for(lambda: local.poll(task).state == RUNNING and local._guards == {})
    fd = local.watch(task)
    assert fd is not None and not select.select([fd], [], [], 0)[0]
    os.kill(record["worker_pid"], signal.SIGKILL)
    assert select.select([fd], [], [], 10)[0]
    os.close(fd)
    assert local.poll(task).state == CRASHED


def test_one_whose_guard_and_supervisor_were_killed_ended_by_accident(lab: Lab, local: LocalExecutor) -> None:
    task = begun(lab, local, "(trap '' HUP TERM; exec sleep 600) & wait", number_of_cards=1)
    kill_watchers(task)
    status = end_of(local, task)
    assert status.is_lost
    wait_for(lambda: set(living_in(lab.folder)) <= {os.getpid()})
    again = msgspec.structs.replace(task, attempt=2)
    local.start(again, ())()
    assert newest(task) == 2
    local.request_stop(again, now=True)
    assert end_of(local, again).session == 2


def test_one_whose_supervisor_alone_was_killed_ended_by_accident(lab: Lab, local: LocalExecutor) -> None:
    task = begun(lab, local, FOREVER)
    os.kill(record_of(task)["pid"], signal.SIGKILL)
    status = end_of(local, task)
    assert (status.state, status.is_lost, status.lost_in_a_row) == (CRASHED, True, 1)


def test_one_whose_guard_was_killed_at_its_start_ended_by_accident(
    lab: Lab, local: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_start, "_send_spec", kill_guard)
    with pytest.raises(StartInterrupted):
        begun(lab, local, FOREVER)
    (path,) = (lab.folder / "runs").iterdir()
    task = msgspec.structs.replace(next(iter(task_file.read_all(path))).task, attempt=1, state=STARTING)
    assert local.poll(task) == INTERRUPTED_START._replace(session=1, lost_in_a_row=1)


def test_a_session_of_another_boot_ended_by_accident(lab: Lab, local: LocalExecutor) -> None:
    """F31."""
    task = begun(lab, local, "exit 0")
    end_of(local, task)
    path = Path(task.package) / "sessions" / "1.json"
    body = {**json.loads(path.read_text()), "state": "running", "boot_id": "another"}
    del body["ended"]
    path.write_text(json.dumps(body))
    assert local.poll(task).is_lost


def test_without_its_package_it_goes_on_and_then_has_failed(
    lab: Lab, local: LocalExecutor, messages: Messages
) -> None:
    """F25."""
    task = begun(lab, local, FOREVER)
    local.poll(task)
    shutil.rmtree(task.package)
    assert local.poll(task).state == RUNNING
    local.request_stop(task, now=True)
    status = end_of(local, task)
    assert status.state == FAILED
    messages.check(status.reason)


def test_in_the_place_of_its_package_it_runs_nowhere(
    lab: Lab, local: LocalExecutor, messages: Messages
) -> None:
    task, other = lab.task("echo ran >> ran"), lab.task("exit 0")
    shutil.rmtree(task.package)
    Path(task.package).symlink_to(other.package)
    with pytest.raises(NotFound) as refused:
        local.start(task, ())
    messages.check(refused.value)
    status = local.poll(task)
    assert status.state == FAILED
    messages.check(status.reason)
    local.start(other, ())()
    assert end_of(local, other).state == SUCCEEDED


def test_an_attempt_that_another_daemon_has_begun_is_not_begun_again(
    lab: Lab, local: LocalExecutor, messages: Messages
) -> None:
    """Its queue was lost, and made anew under its feet."""
    task = begun(lab, local, "echo ran >> ran; until [ -e go ]; do sleep 0.01; done")
    starting = msgspec.structs.replace(task, state=STARTING, session=None)
    LocalExecutor().start(starting, ())()
    (lab.folder / "go").touch()
    assert end_of(local, task).state == SUCCEEDED
    LocalExecutor().start(starting, ())()
    assert (LocalExecutor().poll(starting).state, LocalExecutor().poll(starting).session) == (SUCCEEDED, 1)
    with pytest.raises(RoostError, match=r"attempt 1\b") as refused:
        local.start(msgspec.structs.replace(task, attempt=0), ())
    messages.check(refused.value)
    assert lab.lines("ran") == [["ran"]] and len(PackageFolder.open(task.package).sessions()) == 1


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("args.json")])
def test_a_lock_that_is_none_keeps_nobody_waiting(
    lab: Lab, local: LocalExecutor, put: Callable[[Path], None], messages: Messages
) -> None:
    task = lab.task("exit 0")
    (lock := Path(task.package) / "lock").unlink()
    put(lock)
    assert local.poll(task) == NEVER_STARTED
    with pytest.raises(RoostError, match="lock") as caught:
        local.start(task, ())
    messages.check(caught.value)
    assert not isinstance(caught.value, Refused), "else it would be tried for ever"


@pytest.mark.parametrize(
    ("said", "state", "reason"),
    [
        ({"exit_code": 2**80}, SUCCEEDED, "done"),
        ({"exit_code": {}, "ended": "late", "started": 1e300}, SUCCEEDED, "done"),
        ({"exit_code": True, "reason": {"a": 1}}, SUCCEEDED, "{'a': 1}"),
        ({"state": "foo", "exit_code": -1}, CRASHED, None),
        ({"state": "pending", "exit_code": None}, CRASHED, None),
    ],
)
def test_a_record_that_no_supervisor_has_written_is_read_all_the_same(
    lab: Lab,
    local: LocalExecutor,
    said: dict[str, object],
    state: str,
    reason: str | None,
    messages: Messages,
) -> None:
    task = begun(lab, local, "exit 0")
    end_of(local, task)
    path = Path(task.package) / "sessions" / "1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **said}))
    status = local.poll(task)
    assert (status.state, status.exit_code) == (state, None)
    if reason is None:
        messages.check(status.reason)
    else:
        assert status.reason == reason
    assert status.ended is not None and (status.started is None) == ("started" in said)


def bound(lab: Lab, local: LocalExecutor, cores: int | None, script: str = FOREVER) -> Task:
    task = lab.task(script, need=ResourceRequest(cores=cores))
    task = msgspec.structs.replace(task, attempt=1, state=STARTING)
    local.start(task, [])()
    return msgspec.structs.replace(task, state=RUNNING, session=newest(task))


def cores_of(task: Task) -> list[int]:
    record = record_of(task)
    found = {frozenset(os.sched_getaffinity(record[name])) for name in ("guard_pid", "pid", "worker_pid")}
    (own,) = found
    return sorted(own)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be divided")
def test_cores_are_given_once(lab: Lab, local: LocalExecutor) -> None:
    """A task with cores of its own, another one, and one that requests none; after a restart of the daemon,
    too. Once the first has ended, its core is free again."""
    all_cores = sorted(os.sched_getaffinity(0))
    first = bound(lab, local, 1)
    rest = bound(lab, local, None)
    assert len(cores_of(first)) == 1 and cores_of(rest) == sorted({*all_cores} - {*cores_of(first)})
    later = LocalExecutor()
    assert later.poll(first).state == RUNNING
    second = bound(lab, later, 1)
    assert cores_of(second) != cores_of(first)
    whole = bound(lab, local, len(all_cores))
    assert cores_of(whole) == all_cores
    for one, starter in ((first, local), (rest, local), (second, later), (whole, local)):
        starter.request_stop(one, now=True)
        end_of(starter, one)
    free = bound(lab, local, None)
    assert cores_of(free) == all_cores
    local.request_stop(free, now=True)
    end_of(local, free)


def test_a_package_that_runs_on_another_machine_is_waited_for(
    lab: Lab, local: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_owner, "SECOND_LOOK_SECONDS", 0.02)
    task = msgspec.structs.replace(lab.task("true"), attempt=1, state=STARTING)
    path = other_machine.write(Path(task.package))
    with pytest.raises(Refused, match="in use by host far"):
        local.start(task, ())
    other_machine.beat(path, idle=other_machine.LONG_AGO)
    with pytest.raises(Refused, match="a second look"):
        local.start(task, ())

    def is_started() -> bool:
        try:
            local.start(task, ())()
        except Refused:
            return False
        return True

    wait_for(is_started)
    running = msgspec.structs.replace(task, state=RUNNING, session=newest(task))
    assert end_of(local, running).state == SUCCEEDED
    request = PackageFolder.open(task.package).sessions()[-1].request
    assert request.taken_over is not None and "gave no sign of life for 3m" in request.taken_over
