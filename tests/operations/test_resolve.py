"""What a person means who names a task or a package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from roost.base.errors import NotFound, Refused, UsageError
from roost.lab.queue.task import STOPPED
from roost.operations import resolve
from roost.operations.curves.export_records import export_records
from roost.operations.models.export_weights import ExportWeightsRequest, export_weights
from roost.operations.plots.plot import plot
from roost.operations.reading.logs import logs
from roost.operations.reading.show import show
from roost.operations.reading.verify import verify
from tests.lab import queued
from tests.lab.labs import Lab
from tests.messages import Messages


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab


def test_a_package_or_its_task(lab: Lab) -> None:
    path = queued.package(lab.folder / "runs" / "one")
    task = queued.task(name="called", package=str(path))
    with lab.store() as store:
        store.submit([task])
    for text in (path, "runs/one", "called", task.id, task.id[:20]):
        assert resolve.find_package(text).resolve() == path, text
    assert [one.id for one in resolve.find_tasks("runs/one")] == [task.id]


def test_a_path_goes_before_what_a_task_is_called(lab: Lab) -> None:
    path = queued.package(lab.folder / "one")
    with lab.store() as store:
        store.submit([queued.task(name="one")])
    assert resolve.find_package("one").resolve() == path


@pytest.mark.parametrize("has_queue", [False, True])
def test_a_package_that_was_never_a_task(lab: Lab, has_queue: bool, messages: Messages) -> None:
    """`ls` shows it by its name where ``./runs`` is meant."""
    path = queued.package(lab.folder / "runs" / "cc")
    if has_queue:
        with lab.store() as store:
            store.submit([queued.task(name="ck")])
    assert resolve.find_package("cc").resolve() == path
    for text in ("cc", "runs/cc"):
        with pytest.raises(NotFound) as error:
            resolve.find_tasks(text)
        assert repr(text) in error.value.detail and "`roost show runs/cc`" in str(error.value.fix)
        assert "'ck'" not in str(error.value)
    messages.check(error.value)


def test_a_sweep_is_all_its_tasks_and_no_package(lab: Lab, messages: Messages) -> None:
    tasks = [queued.task(sweep="7sweep", package=f"/nowhere/s{number}") for number in range(3)]
    with lab.store() as store:
        store.submit(tasks)
    assert [one.id for one in resolve.find_tasks("7sw")] == [one.id for one in tasks]
    with pytest.raises(UsageError) as refused:
        resolve.find_package("7sweep")
    assert "'7sweep'" in refused.value.detail and " 3 " in refused.value.detail
    assert all(f"{one.name} (pending)" in refused.value.detail for one in tasks)
    messages.check(refused.value.fix)


def test_what_reads_one_package_names_the_tasks_of_a_sweep(lab: Lab) -> None:
    tasks = [queued.task(sweep="7sweep", sweep_name="tries") for _ in range(2)]
    with lab.store() as store:
        store.submit(tasks)
    export = ExportWeightsRequest(package=Path("tries"), output=Path("pt"))
    readers: list[Callable[[], object]] = [
        lambda: show(Path("tries")),
        lambda: plot([Path("tries")]),
        lambda: export_records(Path("tries"), kind="csv"),
        lambda: export_weights(export).__enter__(),
        lambda: list(verify(Path("tries"))),
        lambda: list(logs(Path("tries"))),
    ]
    for read in readers:
        with pytest.raises(UsageError) as refused:
            read()
        assert all(one.name in str(refused.value) for one in tasks)
        assert str(refused.value.fix).endswith(f"{tasks[0].package}")


@pytest.mark.parametrize("has_queue", [False, True])
def test_nothing_like_it(lab: Lab, has_queue: bool, messages: Messages) -> None:
    if has_queue:
        lab.store().close()
    for text, received in (
        ("nothing", "nothing"),
        ("runs/nothing", str(lab.folder / "runs" / "nothing")),
        (".", str(lab.folder)),
        ("a\0b", "a\0b"),
        ("~nobody", "~nobody"),
    ):
        with pytest.raises(NotFound) as refused:
            resolve.find_package(text)
        assert repr(received) in refused.value.detail
        messages.check(refused.value)
    assert resolve.has_queue() == has_queue  # whoever looks makes none


def test_the_task_that_a_package_waits_or_runs_as(lab: Lab) -> None:
    path = queued.package(lab.folder / "one")
    assert resolve.unfinished_task(path) is None
    task = queued.task(package=str(path))
    with lab.store() as store:
        store.submit([task])
    assert resolve.unfinished_task(path) is None  # it has no ticket, so nobody looks
    (path / "sessions" / f"task-{task.id}.json").write_text("{}")
    found = resolve.unfinished_task(path)
    assert found is not None and found.id == task.id
    with lab.store() as store:
        store.request_stop(task.id, "stop")
        assert store.task(task.id).state == STOPPED
    assert resolve.unfinished_task(path) is None


def test_a_copy_of_a_package_is_no_task(lab: Lab) -> None:
    lab.store().close()
    path = queued.package(lab.folder / "copy")
    (path / "sessions" / "task-01abc.json").write_text("{}")
    assert resolve.unfinished_task(path) is None


def test_a_package_that_was_never_a_task_needs_no_queue(lab: Lab) -> None:
    path = queued.package(lab.folder / "one")
    lab.store().close()
    lab.state.chmod(0o755)
    assert resolve.unfinished_task(path) is None and resolve.find_package(path) == path
    with pytest.raises(Refused, match="chmod"):
        resolve.find_tasks("x")
