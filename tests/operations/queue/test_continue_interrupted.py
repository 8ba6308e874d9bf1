"""`roost up`: what was interrupted is queued again."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base import durable
from roost.operations.keeping import prune
from roost.operations.keeping.prune import PruneRequest
from roost.operations.queue.continue_interrupted import continue_all, find_interrupted
from tests.lab.labs import Lab
from tests.messages import Messages
from tests.operations.packages import package


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path)
    with lab.here():
        yield lab
    lab.close()


def test_what_counts_as_interrupted(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    package(root, "done", state="succeeded")
    package(root, "failed", state="failed")
    package(root, "killed", state="running", pid=2**22 - 1, start_ticks=1)
    package(root, "over-time", state="stopped", reason="time limit")
    package(root, "stopped", state="stopped", reason="signal")
    package(root, "shut-down", state="stopped", reason="signal", boot_id="another boot")
    package(root, "new", state="new")
    found = {Path(one.package).name: one for one in find_interrupted([str(root)])}
    assert sorted(found) == ["killed", "over-time", "shut-down"]
    assert found["over-time"].step == 30 and found["over-time"].ended == 1_800_000_060.0
    assert found["killed"].ended is None and found["killed"].reason
    assert [Path(one.package).name for one in find_interrupted([str(root), "name:over"])] == ["over-time"]


def test_each_is_queued_and_one_that_cannot_be_does_not_stop_the_others(lab: Lab, messages: Messages) -> None:
    root = lab.folder / "runs"
    for name in ("one", "two", "three"):
        package(root, name, state="crashed")
    found = find_interrupted([str(root)])
    assert len(found) == 3
    (root / "one" / "args.json").unlink()
    continued = list(continue_all(found))
    names = {Path(one.run.package).name: one for one in continued}
    assert names["one"].task is None and names["one"].error is not None
    messages.check(names["one"].error)
    queued = [names[name].task for name in ("two", "three")]
    assert all(task is not None and lab.one(task.id) is not None for task in queued)
    again = find_interrupted([str(root)])
    assert not {Path(one.package).name for one in again} & {"two", "three"}


def test_one_that_was_pruned_of_what_it_would_continue_with_is_passed_over(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", name, state="crashed") for name in ("one", "two")]
    request = PruneRequest(records_only=True)
    list(prune.prune(prune.plan([str(made[0].path)], request), request))
    assert [Path(one.package).name for one in find_interrupted([str(tmp_path / "runs")])] == ["two"]


def test_one_that_cannot_be_written_does_not_stop_the_others(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = lab.folder / "runs"
    for name in ("one", "two"):
        package(root, name, state="crashed")
    found = find_interrupted([str(root)])

    def read_only(operation: str, path: str) -> None:
        if path.startswith(f"{root}/one/"):
            raise OSError(errno.EROFS, "Read-only file system", path)

    monkeypatch.setattr(durable, "fault", read_only)
    continued = {Path(one.run.package).name: one for one in continue_all(found)}
    assert continued["two"].task is not None and continued["one"].task is None
    assert "Read-only file system" in str(continued["one"].error)


def test_one_that_gets_no_further_is_listed_and_not_continued(lab: Lab, messages: Messages) -> None:
    made = package(lab.folder / "runs", "one", state="stopped", reason="time limit", step=40)
    for _ in range(2):
        number = made.new_session({"kind": "train", "command": ["roost", "up"]})
        record = {"state": "stopped", "reason": "time limit", "step": 40}
        (made.path / "sessions" / f"{number}.json").write_text(json.dumps(record))
    (found,) = find_interrupted([str(lab.folder / "runs")])
    assert found.stuck == "its last 3 attempts have ended at step 40"
    (continued,) = continue_all([found])
    assert continued.task is None
    messages.check(continued.error)
