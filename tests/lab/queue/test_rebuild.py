"""A queue rebuilt from its packages."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.base import durable
from roost.base.errors import Refused
from roost.devices.resource_request import ResourceRequest
from roost.lab.queue import package_roots, task_file
from roost.lab.queue.history import MemoryPeak
from roost.lab.queue.queue_store import QueueStore
from roost.lab.queue.rebuild import rebuild
from roost.lab.queue.task import EVICT, FAILED, PENDING, RUNNING, STARTING, STOP, STOPPED, SUCCEEDED, Task
from roost.package import sessions
from tests.lab.queued import PLAN, card, package, task
from tests.messages import Messages

read = task_file.read_all
PEAK = MemoryPeak("k", 8.0, 1000.0, 300.0, 1, "H200", 5.0)


class Lab:
    """A queue whose tasks have packages, and sessions as an executor would start them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder / "lab", folder / "runs"
        self.store = QueueStore.open(self.folder)

    def submit(self, name: str, **given: Any) -> Task:
        new = task(id=name, name=name, package=str(package(self.runs / name)), **given)
        task_file.write(new, self.folder)
        package_roots.add(self.folder, [Path(new.package)])
        self.store.submit([new])
        return new

    def begin(self, task: Task, *numbers: int, mb: int | None = None) -> Task:
        begun = self.store.start(task, [card(number) for number in numbers], mb)
        asked = {"task": task.id, "attempt": begun.attempt, "cards": list(begun.cards), "reserved_mb": mb}
        sessions.write_request(Path(task.package) / "sessions", asked)
        return begun

    def run(self, task: Task, *numbers: int, mb: int | None = None) -> Task:
        begun = self.begin(task, *numbers, mb=mb)
        folder = Path(task.package) / "sessions"
        number = sessions.read_all(folder)[-1].number
        own = sessions.UnsupervisedRecord(folder / f"{number}.json", number)
        started = (sessions.load_json(folder / f"{own.number}.json") or {})["started"]
        return self.store.transition(begun, RUNNING, session=number, started=started)

    def succeed(self, task: Task) -> None:
        """Only the record of its supervisor shows it, besides the queue."""
        path = Path(task.package) / "sessions" / f"{task.session}.json"
        record = {**(sessions.load_json(path) or {}), "state": SUCCEEDED, "ended": 9.0, "exit_code": 0}
        path.write_bytes(sessions.to_json(record))
        self.store.transition(task, SUCCEEDED, ended=9.0, exit_code=0)

    def lose(self, damage: Callable[[Path], None]) -> list[Task]:
        """Damages the queue; returns its tasks."""
        listed = [self.store.task(task.id) for task in self.store.tasks()]
        self.store.close()
        damage(self.folder / "lab.db")
        return listed

    def rebuilt(self) -> list[Task]:
        done = rebuild(self.folder)
        self.store = QueueStore.open(self.folder)
        self.store.check()
        found = [self.store.task(task.id) for task in self.store.tasks()]
        assert done.tasks == len(found)
        return found


def alike(task: Task) -> Task:
    """Without the values that a rebuild does not restore: the version, the environment, and the plan of an
    ended task."""
    ended = task.state in (SUCCEEDED, FAILED, STOPPED)
    plan = {} if ended else {**task.plan, "env": None}
    return msgspec.structs.replace(task, version=0, plan=plan)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    yield lab
    lab.store.close()


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


@pytest.mark.parametrize("damage", [garbage, Path.unlink])
def test_the_listing_is_as_it_was(lab: Lab, damage: Callable[[Path], None]) -> None:
    """Fault F21."""
    store = lab.store
    lab.submit("first", need=ResourceRequest(cards=2, memory_mb=5), priority=1)
    lab.submit("after", after=("first",), sweep="sweep")
    store.change(lab.submit("held").id, held=True)
    store.change(lab.submit("urgent").id, priority=9)
    store.request_stop(lab.submit("stopped").id, STOP)
    lab.begin(lab.submit("starting"), 0, mb=1000)
    lab.run(lab.submit("running"), 1, 2)
    lab.run(lab.submit("sharing"), 0, mb=2000)
    lab.succeed(lab.run(lab.submit("done")))
    failed = lab.run(lab.submit("failed", retries=1))
    store.transition(failed, FAILED, reason="out of memory", ended=9.0, exit_code=1)
    retried = lab.run(lab.submit("retried", retries=1))
    store.transition(retried, PENDING, reason="again", retries=0)
    evicted = lab.run(lab.submit("evicted"))
    store.transition(store.request_stop(evicted.id, EVICT), PENDING)
    lab.run(store.task("evicted"), 3)
    before = lab.lose(damage)
    assert [alike(task) for task in lab.rebuilt()] == [alike(task) for task in before]


def test_pending_tasks_get_the_environment_of_the_rebuild(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.submit("waits")
    store = lab.store
    store.request_stop(lab.submit("stopped").id, STOP)
    lab.lose(garbage)
    monkeypatch.setenv("MINE", "1")
    waits, stopped = lab.rebuilt()
    assert waits.plan == {**PLAN, "env": dict(os.environ)} and stopped.plan == {}


def test_the_damaged_queue_is_kept_under_another_name(lab: Lab) -> None:
    lab.submit("a")
    lab.lose(garbage)
    done = rebuild(lab.folder)
    assert done.old_queue is not None
    assert done.old_queue.parent == lab.folder
    assert done.old_queue.read_bytes().startswith(b"garbage")
    assert not [path for path in lab.folder.iterdir() if ".tmp-" in path.name]
    assert (lab.folder / "lab.db").stat().st_mode & 0o777 == 0o600


def test_the_write_ahead_log_is_kept_with_the_old_queue(
    lab: Lab,
) -> None:
    lab.submit("a")
    stale = (lab.folder / "lab.db-wal").read_bytes()
    assert stale
    lab.lose(garbage)
    (lab.folder / "lab.db-wal").write_bytes(stale)
    done = rebuild(lab.folder)
    assert done.old_queue is not None
    assert done.old_queue.with_name(done.old_queue.name + "-wal").read_bytes() == stale
    with QueueStore.open(lab.folder) as store:
        store.check()
        assert [task.id for task in store.tasks()] == ["a"]


@pytest.mark.parametrize(
    ("what", "times"), [("link", 1), ("link", 2), ("rename", 1), ("unlink", 1), ("unlink", 2), ("rename", 2)]
)
def test_after_a_kill_the_old_queue_is_complete_or_missing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, what: str, times: int
) -> None:
    """The last changes are in the write-ahead log while a process has the queue open. Only the caller knows
    the folders of the packages."""
    lab.submit("a")
    (lab.folder / "roots.jsonl").unlink()
    lab.store.set_setting("drained", ["GPU-0"])
    assert (lab.folder / "lab.db-wal").read_bytes()
    left = itertools.count(times, -1)

    def cut(whole: Callable[..., None]) -> Callable[..., None]:
        def instead(*given: Any, **named: Any) -> None:
            if "lab.db" in str(given[0]) and next(left) == 1:
                raise KeyboardInterrupt
            whole(*given, **named)

        return instead

    with monkeypatch.context() as patch:
        where: Any = {"link": os, "rename": durable, "unlink": Path}[what]
        patch.setattr(where, what, cut(getattr(where, what)))
        with pytest.raises(KeyboardInterrupt):
            rebuild(lab.folder, [lab.runs])
    if (lab.folder / "lab.db").exists():
        with QueueStore.open(lab.folder) as store:
            assert [task.id for task in store.tasks()] == ["a"]
    else:
        with pytest.raises(Refused, match="roost lab rebuild"):
            QueueStore.open(lab.folder)
    lab.store.close()
    assert [task.id for task in lab.rebuilt()] == ["a"]
    assert lab.store.settings() == {"drained": ["GPU-0"]}


def test_settings_and_measured_memory_are_taken_over_if_they_can_be_read(lab: Lab) -> None:
    lab.store.set_setting("drained", ["GPU-0"])
    lab.store.add_peak(PEAK)
    lab.submit("a")
    lab.lose(lambda path: None)
    lab.rebuilt()
    assert lab.store.settings() == {"drained": ["GPU-0"]}
    assert lab.store.peaks() == [PEAK]


def test_an_attempt_that_ended_since_is_left_to_the_daemon_to_find(lab: Lab) -> None:
    run = lab.run(lab.submit("a"), 0)
    folder = Path(run.package) / "sessions"
    sessions.UnsupervisedRecord(folder / "1.json", 1).end("failed", "exception")
    lab.lose(garbage)
    (found,) = lab.rebuilt()
    assert (found.state, found.session, found.cards) == (RUNNING, 1, ("GPU-0",))


def test_the_record_of_a_failed_start_is_dropped(lab: Lab) -> None:
    begun = lab.store.start(lab.submit("a"), [], None)
    assert begun.state == STARTING
    task_file.write(begun, lab.folder)  # as one that was overtaken while it was written
    lab.lose(garbage)
    assert [task.state for task in lab.rebuilt()] == [PENDING]


def test_a_copy_of_a_package_is_no_second_task(lab: Lab, tmp_path: Path) -> None:
    given = lab.submit("b")
    shutil.copytree(given.package, lab.runs / "a")
    shutil.copytree(given.package, lab.runs / "c")
    lab.lose(garbage)
    assert [task.package for task in lab.rebuilt()] == [given.package]


def test_packages_that_were_moved_are_found_where_one_says(lab: Lab, tmp_path: Path) -> None:
    lab.submit("a")
    lab.lose(garbage)
    (tmp_path / "project").mkdir()
    lab.runs.rename(tmp_path / "project" / "runs")
    assert rebuild(lab.folder).tasks == 0
    for more in (tmp_path / "project", tmp_path / "project" / "runs", tmp_path / "project" / "runs" / "a"):
        assert rebuild(lab.folder, [more]).tasks == 1
    with QueueStore.open(lab.folder) as store:
        assert store.task("a").package == str(tmp_path / "project" / "runs" / "a")
    assert rebuild(lab.folder).tasks == 1, "and is known from then on"


def test_other_folders_and_packages_without_a_task_are_skipped(lab: Lab) -> None:
    lab.submit("a")
    package(lab.runs / "plain")
    (lab.runs / "file").touch()
    lab.lose(garbage)
    assert [task.id for task in lab.rebuilt()] == ["a"]


def notes(lab: Lab) -> list[str]:
    done = rebuild(lab.folder)
    lab.store = QueueStore.open(lab.folder)
    return [note.replace(str(lab.runs), "runs") for note in done.notes]


def test_an_invalid_task_file_is_skipped_and_reported(lab: Lab, messages: Messages) -> None:
    for name in ("good", "late", "twice"):
        lab.submit(name)
    (path,) = (lab.runs / "late" / "sessions").iterdir()
    path.write_text(path.read_text().replace('"begin": null', '"begin": 1e308'))
    sessions.write_request(lab.runs / "twice" / "sessions", {"task": "twice", "attempt": {}})
    lab.lose(garbage)
    late, twice = notes(lab)
    assert all(fact in late for fact in ("runs/late/sessions/task-late.json", "begin", "1e+308"))
    assert all(fact in twice for fact in ("twice", "runs/twice", "int() argument must be a string"))
    messages.check(late)
    assert [task.id for task in lab.store.tasks()] == ["good"]


def test_tasks_of_a_killed_submit_are_reported_and_do_not_run(lab: Lab, messages: Messages) -> None:
    task_file.announce(task(id="cut", package=str(package(lab.runs / "cut"))), lab.folder)
    lab.submit("good")
    lab.lose(garbage)
    (cut,) = notes(lab)
    assert "runs/cut/sessions/task-cut.coming" in cut
    messages.check(cut)
    assert [task.id for task in lab.store.tasks()] == ["good"]


def test_tasks_of_another_user_are_skipped(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    lab.submit("a")
    lab.lose(garbage)
    monkeypatch.setattr(
        task_file, "read_all", lambda *given: [one._replace(uid=12345) for one in read(*given)]
    )
    (other,) = notes(lab)
    assert "runs/a" in other
    messages.check(other)
    assert lab.store.tasks() == []


def test_tasks_that_can_never_start_are_reported(lab: Lab, messages: Messages) -> None:
    for one, other in (("a", "gone"), ("b", "c"), ("c", "b")):
        path = package(lab.runs / one)
        task_file.write(task(id=one, name=one, package=str(path), after=(other,)), lab.folder)
    package_roots.add(lab.folder, [path])
    lab.lose(garbage)
    first, second = notes(lab)
    assert "task a" in first and "gone" in first
    (circle,) = (circle for circle in ("b → c → b", "c → b → c") if circle in second)
    for note in (first, second.replace(circle, "<circle>")):
        messages.check(note)
    assert [task.id for task in lab.store.tasks()] == ["a", "b", "c"]


def test_tasks_of_another_lab_are_skipped_unless_taken_over(
    lab: Lab, tmp_path: Path, messages: Messages
) -> None:
    older = Path(lab.submit("unsaid").package) / "sessions" / "task-unsaid.json"
    said = json.loads(older.read_bytes())
    del said["lab"]
    older.write_text(json.dumps(said))
    lost = tmp_path / "lost state" / "lab"
    for name, whose in (("own", lab.folder), ("a", lost), ("b", lost)):
        task_file.write(task(id=name, name=name, package=str(package(lab.runs / name))), whose)
    (path,) = (lab.runs / "b" / "sessions").iterdir()
    path.write_text(path.read_text().replace(f'"lab": "{os.uname().nodename}:', '"lab": "elsewhere:'))
    lab.lose(garbage)
    fix = f"roost lab rebuild --take-over '{lost}'"
    lines, hosts = notes(lab), sorted(["elsewhere", os.uname().nodename])
    for note, host in zip(lines, hosts, strict=True):
        assert all(fact in note for fact in (str(lost), host, fix))
        messages.check(note.replace(host, "<host>"))
    assert sorted(one.id for one in lab.store.tasks()) == ["own", "unsaid"]
    lab.store.close()
    assert rebuild(lab.folder, lost_lab=lost).notes == ()
    assert rebuild(lab.folder).notes == (), "they are ours from then on"
    lab.store = QueueStore.open(lab.folder)
    assert sorted(one.id for one in lab.store.tasks()) == ["a", "b", "own", "unsaid"]


def test_a_task_is_taken_over_though_its_package_cannot_be_written(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    lost = tmp_path / "lost" / "lab"
    path = package(lab.runs / "a")
    task_file.write(task(id="a", name="a", package=str(path)), lost)
    package_roots.add(lab.folder, [path])

    def full(task: Task, lab: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    lab.lose(garbage)
    monkeypatch.setattr(task_file, "write", full)
    found = rebuild(lab.folder, lost_lab=lost)
    assert found.tasks == 1
    (note,) = found.notes
    assert str(path) in note and f"[Errno {errno.EROFS}] Read-only file system" in note
    messages.check(note)


def test_task_files_name_their_lab(lab: Lab) -> None:
    one = lab.submit("one")
    lab.store.change(one.id, held=True)
    (found,) = read(Path(one.package))
    assert found.lab == task_file.lab_name(lab.folder)
