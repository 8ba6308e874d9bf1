"""The folder of a run: made whole or not at all, locked by one, readable by all, wherever it is moved."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.base.errors import NotFound, Refused, RoostError, UsageError
from roost.package import session_folder, sessions, snapshot
from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.package import PackageFolder
from roost.package.records import RecordsWriter
from tests.messages import Messages


@pytest.fixture(autouse=True)
def no_fault_left() -> Iterator[None]:
    yield
    durable.fault = None


@pytest.fixture
def package(tmp_path: Path) -> PackageFolder:
    return PackageFolder.create(tmp_path / "runs", name="one", values={"lr": 0.1, "data": {"batch_size": 8}})


def test_a_new_package_holds_what_was_asked(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "Model").mkdir(parents=True)
    (project / "Model" / "Runner.py").write_text("x = 1\n")
    package = PackageFolder.create(
        tmp_path / "a" / "runs",
        values={"a": {"b": "${project}"}},
        provenance={"a.b": "config.yaml:3"},
        request={"command": ["roost", "run"], "description": "größer"},
        selection=snapshot.select(project),
    )
    found = PackageFolder.open(package.path)
    assert found.args == found.settings == {"a": {"b": "${project}"}}
    assert found.provenance == {"a.b": "config.yaml:3"}
    assert found.request == {
        "format": 1, "kind": "train", "command": ["roost", "run"], "description": "größer",
    }  # fmt: skip
    assert list(found.manifest["files"]) == ["Model/Runner.py"]
    assert (found.path / "Model" / "Runner.py").read_text() == "x = 1\n"
    assert (found.state, found.sessions(), found.derived) == ("new", [], {})
    assert found.records().rows == [] and found.store().lineage() == []
    assert not any(durable.is_staging(path.name) for path in found.path.iterdir())


def test_what_json_has_no_word_for_is_kept(tmp_path: Path) -> None:
    values = {"clip": math.inf, "nan": math.nan, "name": os.fsdecode(b"\xff"), "big": 2**70, "none": None}
    package = PackageFolder.create(tmp_path, name="one", values=values)
    assert repr(PackageFolder.open(package.path).settings) == repr(values)


def test_open_wants_a_package(tmp_path: Path, package: PackageFolder, messages: Messages) -> None:
    with pytest.raises(NotFound) as refused:
        PackageFolder.open(tmp_path / "nowhere")
    messages.check(refused.value)
    assert "roost ls" in str(refused.value)
    with pytest.raises(NotFound) as refused:
        PackageFolder.open(tmp_path)
    messages.check(refused.value)
    with pytest.raises(NotFound):
        PackageFolder.open(package.path / "args.json")
    assert PackageFolder.open(str(package.path)).path == package.path


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"3", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_named(package: PackageFolder, content: bytes) -> None:
    (package.path / "args.json").write_bytes(content)
    with pytest.raises(NotFound) as refused:
        _ = package.settings
    assert "args.json" in str(refused.value)


def test_a_relative_path_stays_right_when_the_folder_is_left(
    package: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(package.path.parent)
    opened = PackageFolder.open("one")
    monkeypatch.chdir("/")
    assert opened.args["lr"] == 0.1


# --- creation that fails ----------------------------------------------------------------------------------


def test_a_creation_that_fails_anywhere_leaves_nothing(tmp_path: Path) -> None:
    count = 0

    def counting(operation: str, path: str) -> None:
        nonlocal count
        count += 1

    durable.fault = counting
    PackageFolder.create(tmp_path / "count", name="one", values={})
    total, root = count, tmp_path / "runs"
    assert total >= 16
    for position in range(1, total + 1):
        count = 0

        def failing(operation: str, path: str, position: int = position) -> None:
            nonlocal count
            count += 1
            if count == position:
                raise OSError(errno.ENOSPC, operation)

        durable.fault = failing
        with pytest.raises(OSError, match=r"open|write|fsync|rename"):
            PackageFolder.create(root, name="one", values={})
        assert list(root.iterdir()) == []


def test_a_creation_that_was_killed_is_no_package(tmp_path: Path) -> None:
    for position in (1, 4, 9, 12, 14):
        child = os.fork()
        if child == 0:
            count = 0

            def fault(operation: str, path: str, position: int = position) -> None:
                nonlocal count
                count += 1
                if count == position:
                    os._exit(9)

            try:
                durable.fault = fault
                PackageFolder.create(tmp_path / "runs", name="one", values={})
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    for folder in (tmp_path / "runs").iterdir():
        with pytest.raises(NotFound) as refused:
            PackageFolder.open(folder)
        assert repr(str(folder)) in str(refused.value)
    assert PackageFolder.create(tmp_path / "runs", name="one", values={}).path.name == "one-6"


def test_a_named_file_that_vanishes_while_it_is_copied_leaves_no_package(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.py").touch()
    selection = snapshot.select(project, named=[project / "a.py"])
    (project / "a.py").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.py"):
        PackageFolder.create(tmp_path / "runs", values={}, selection=selection)
    assert list((tmp_path / "runs").iterdir()) == []


# --- settings, sessions, lock -----------------------------------------------------------------------------


def test_settings_fold_over_the_sessions(package: PackageFolder) -> None:
    package.new_session({"overrides": []})
    package.new_session({"overrides": ["lr=0.2", "data.batch_size=16"]})
    package.new_session({"overrides": ["lr=0.3", "+data.extra=true"]})
    assert package.settings == {"lr": 0.3, "data": {"batch_size": 16, "extra": True}}
    assert package.settings_until(2) == {"lr": 0.2, "data": {"batch_size": 16}}
    assert package.args == {"lr": 0.1, "data": {"batch_size": 8}}


def _session(package: PackageFolder, **said: Any) -> int:
    number = package.new_session({})
    body = {"state": "running", **sessions.own_identity(), **said}
    (package.path / "sessions" / f"{number}.json").write_bytes(sessions.to_json(body))
    return number


def test_a_new_session_removes_what_killed_ones_had_not_finished_writing(package: PackageFolder) -> None:
    package.new_session({})
    profile = package.path / "profile" / "1"
    for folder in (package.blackbox, profile.parent, profile):
        folder.mkdir()
    for folder in (package.path, package.path / "sessions", package.blackbox, profile):
        durable.make_staging_folder(folder / "begun")
        (folder / "mine").mkdir()
    package.new_session({})
    left = [path.name for path in package.path.rglob("*") if durable.is_staging(path.name)]
    assert left == [] and len([*package.path.rglob("mine")]) == 4


def test_the_state_is_that_of_the_newest_session(package: PackageFolder) -> None:
    assert package.state == "new"
    _session(package, state="failed")
    assert package.state == "failed"
    _session(package)
    fd = package.lock()
    assert package.state == "running"
    os.close(fd)
    assert package.state == "crashed", "no process writes to it"
    fd = package.lock()
    for gone in ({"boot_id": "another boot"}, {"start_ticks": 1}):
        _session(package, **gone)
        assert package.state == "crashed"
    os.close(fd)


HOLD = """
import sys
from pathlib import Path
from roost.package.package import PackageFolder
from roost.package.sessions import own_identity, to_json
package = PackageFolder.open(sys.argv[1])
fd = package.lock()
number = package.new_session({})
(package.path / "sessions" / f"{number}.json").write_bytes(to_json({"state": "running", **own_identity()}))
print(flush=True)
sys.stdin.read()
"""


def test_a_second_lock_is_refused_and_free_after_a_death(package: PackageFolder) -> None:
    command = [sys.executable, "-c", HOLD, str(package.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            holder.stdout.readline()
            with pytest.raises(Refused, match=rf"\bsession 1\b.*\b{holder.pid}\b"):
                package.lock()
            assert package.state == "running"
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
    assert package.state == "crashed"
    fd = package.lock()
    os.close(fd)


def test_a_lock_is_a_plain_file_or_none(package: PackageFolder, messages: Messages) -> None:
    lock = package.path / "lock"
    for put in (os.mkfifo, os.mkdir, lambda path: path.symlink_to("args.json")):
        lock.unlink() if not lock.is_dir() else lock.rmdir()
        put(lock)
        with pytest.raises(RoostError) as refused:
            package.lock()
        messages.check(refused.value)


def test_a_lock_lives_as_long_as_its_last_copy(package: PackageFolder) -> None:
    """The lock is inherited by the worker: no other process may write while one of them could."""
    _session(package)  # so that a refusal comes at once
    fd = package.lock()
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[fd],
    )
    assert child.stdout is not None
    child.stdout.readline()
    os.close(fd)
    with pytest.raises(Refused):
        package.lock()
    child.communicate()
    os.close(package.lock())


def test_a_lock_waits_for_the_workers_of_a_killed_session() -> None:
    """Torch's look for their parent that often; they have inherited the descriptor."""
    from torch.utils.data._utils import MP_STATUS_CHECK_INTERVAL

    assert session_folder._LOCK_WAIT_SECONDS > MP_STATUS_CHECK_INTERVAL + 2


def test_a_refused_lock_leaks_no_descriptor(package: PackageFolder) -> None:
    _session(package)
    fd = package.lock()
    folder = Path("/proc/self/fd")
    before = len(list(folder.iterdir())) if folder.is_dir() else 0
    for _ in range(5):
        with pytest.raises(Refused):
            package.lock()
    assert (len(list(folder.iterdir())) if folder.is_dir() else 0) == before
    os.close(fd)


# --- checkpoints and what is derived ----------------------------------------------------------------------


def _save(package: PackageFolder, id: int, session: int, parent: Manifest | None) -> Manifest:
    line = checkpoint.lineage_after(parent, id)
    return checkpoint.write(
        package.checkpoints,
        {"n": id},
        Manifest(
            id=id, step=id, epoch=0, batch=0, parent=parent.id if parent else None, line=line, session=session
        ),
    )


def test_a_run_that_was_sent_back_goes_on_from_there_until_it_has_saved(package: PackageFolder) -> None:
    package.new_session({})
    saved: Manifest | None = None
    for id in range(4):
        saved = _save(package, id, 1, saved)
    assert [info.id for info in package.store().lineage()] == [0, 1, 2, 3]
    package.new_session({"checkpoint": 1})  # continue -c 1, killed before its first save
    assert [info.id for info in package.store().lineage()] == [0, 1]
    package.new_session({})  # continue, without saying it again
    assert package.store().newest_good(lambda path: path.name) == ("state_1.ckpt", [])
    _save(package, 4, 3, checkpoint.read_manifest(package.store().path(1)))
    assert [info.id for info in package.store().lineage()] == [0, 1, 4]


def test_what_is_derived_has_the_keys_of_dlnest(package: PackageFolder) -> None:
    package.write_derived({"fast": [3, 4], "slow": [0], "held": [], "best": [2]}, ["wall clock"])
    assert package.derived == {
        "format": 1, "id": "one", "kind": "train", "prefix": "state_", "ckpt_fast": [3, 4], "ckpt_slow": [0],
        "ckpt_consistent": [], "ckpt_best": [2], "inexact": ["wall clock"],
    }  # fmt: skip


def test_a_package_that_was_moved_is_the_same(tmp_path: Path, package: PackageFolder) -> None:
    package.new_session({"overrides": ["lr=0.5"]})
    _save(package, 0, 1, None)
    writer = RecordsWriter(package.path / "records" / "1.jsonl", session=1, start_step=0)
    writer.row(1, 0, {"a": 1.0})
    writer.close()
    (tmp_path / "elsewhere").mkdir()
    moved = PackageFolder.open(shutil.move(package.path, tmp_path / "elsewhere" / "new name"))
    assert moved.settings["lr"] == 0.5 and moved.records().last() == {"a": 1.0}
    assert moved.store().newest_good(lambda path: checkpoint.read(path, to="numpy")[1]) == ({"n": 0}, [])
    assert str(tmp_path) not in "".join(
        path.read_text() for path in moved.path.rglob("*.json") if path.name != "1.request.json"
    )
    os.close(moved.lock())


def test_reading_a_package_imports_no_torch_and_runs_nothing_of_it(package: PackageFolder) -> None:
    (package.path / "sitecustomize.py").write_text("raise SystemExit(9)\n")
    program = (
        "import json, sys\n"
        "from roost.package.package import PackageFolder\n"
        "package = PackageFolder.open(sys.argv[1])\n"
        "print(json.dumps([package.settings, package.state, package.records().rows]))\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(package.path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[1] == "new"


def test_a_session_that_never_began_changes_no_setting(tmp_path: Path) -> None:
    """A mistaken override that does not fit the checkpoint must not stay for ever."""
    package = PackageFolder.create(tmp_path, values={"width": 1, "depth": 1})
    for number, override in ((1, "width=2"), (2, "depth=2")):
        package.new_session({"overrides": [override]})
        (package.path / "sessions" / f"{number}.json").write_text('{"state": "failed"}')
    (package.path / "records" / "1.jsonl").touch()
    assert package.settings == {"width": 2, "depth": 1}


def test_an_edited_args_json_is_reported(tmp_path: Path) -> None:
    """It says what the run did; edited, it lies."""
    package = PackageFolder.create(tmp_path, values={"lr": 0.01})
    assert package.changed_files() == []
    (package.path / "args.json").write_text('{"lr": 0.05}')
    assert package.changed_files() == ["args.json"]


def test_a_session_number_never_comes_twice(tmp_path: Path) -> None:
    package = PackageFolder.create(tmp_path, values={})
    assert package.new_session({}) == 1
    (package.path / "sessions" / "1.request.json").unlink()
    (package.path / "records" / "1.jsonl").touch()
    assert package.new_session({}) == 2


def test_a_description_is_a_file_that_a_listing_shows(package: PackageFolder, messages: Messages) -> None:
    package.describe("a/b: more")
    assert (package.path / "_desc: a_b: more").read_text() == "a/b: more\n"
    package.describe("raw \udcff")
    assert (package.path / "_desc: raw _").read_bytes() == b"raw \xff\n"
    with pytest.raises(UsageError) as refused:
        package.describe("...")
    messages.check(refused.value)


def test_where_the_project_is_follows_the_sessions(tmp_path: Path) -> None:
    made = PackageFolder.create(tmp_path, values={})
    assert made.project == made.path, "none is recorded"
    made = PackageFolder.create(tmp_path, values={}, request={"project": "/old"})
    assert made.project == Path("/old")
    made.new_session({"project": "/new"})
    made.new_session({"kind": "python"})
    assert made.project == Path("/new")


def test_what_holds_the_lock_is_named_for_what_it_is(
    package: PackageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = package.lock()
    number = package.new_session({"kind": "python"})
    with pytest.raises(Refused, match=r"\bthis program, session 1\b.*`with`"):
        package.lock()
    sessions.UnsupervisedRecord(package.path / "sessions" / f"{number}.json", number).end("stopped", "closed")
    monkeypatch.setattr(session_folder, "_LOCK_WAIT_SECONDS", 0.0)
    with pytest.raises(Refused, match=r"\bsession 1\b") as refused:
        package.lock()
    assert refused.value.fix is not None and "`roost continue`" in refused.value.fix
    os.close(fd)
