"""A removed package is whole in the trash, and comes back as it was."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from roost.base import durable
from roost.base.errors import NotFound, Refused, UsageError
from roost.devices.resource_request import TaskOptions
from roost.operations.keeping import disk_usage, label_packages, prune, trash
from roost.operations.keeping.prune import PlannedPruning, PruneRequest
from roost.operations.lifecycle.continue_ import ContinueRequest, continue_
from roost.operations.lifecycle.fork import ForkRequest, fork
from roost.operations.lifecycle.rerun import RerunRequest, rerun
from roost.operations.listing.list_packages import list_packages
from roost.operations.queue.submit import submit_continue
from roost.operations.reading.verify import verify
from roost.package import labels, sessions
from roost.package.checkpoints import checkpoint
from roost.package.package import PackageFolder
from tests.operations.packages import VALUES, package, session
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def names(folder: Path) -> list[str]:
    return [row.name for row in list_packages(folder)]


def remove(*words: str) -> list[Path]:
    return [to for _, to in trash.remove([one.path for one in trash.plan_removal(words)])]


def test_a_removed_package_is_in_no_list_and_comes_back_as_it_was(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for name in ("a", "b"):
        package(runs, name)
    labels.add_tags(runs / "a", ["baseline"])
    (found,) = trash.plan_removal(["a"])
    assert found.summary.tags == ["baseline"] and found.num_bytes > 0
    (to,) = remove("a")
    assert names(runs) == names(tmp_path) == ["b"] and to.parent == runs / ".trash"
    (entry,) = trash.entries(trash.find_roots([]))
    assert (entry.name, entry.path) == ("a", Path("runs/.trash") / to.name)
    ((_, restored),) = trash.restore(["a"])
    assert restored == Path("runs/a") and names(runs) == ["a", "b"]
    assert not any(finding.is_bad for finding in verify(restored))
    assert labels.read(restored).tags == ["baseline"]


def test_a_name_that_exists_meanwhile_gets_a_suffix(tmp_path: Path) -> None:
    package(tmp_path / "runs", "a")
    remove("a")
    package(tmp_path / "runs", "a")
    assert [to for _, to in trash.restore(["runs/a"])] == [Path("runs/a-2")]


def test_several_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    for _ in range(2):
        package(tmp_path / "runs", "a")
        remove("a")
    with pytest.raises(UsageError, match=r"2 removed packages.*\.trash"):
        list(trash.restore(["a"]))
    first, second = trash.entries([tmp_path / "runs"])
    assert [to.name for _, to in trash.restore([str(second.path)])] == ["a"]
    assert [one.path for one in trash.entries([tmp_path / "runs"])] == [first.path]
    with pytest.raises(NotFound):
        list(trash.restore(["b"]))


def test_a_pattern_takes_several_back_and_a_misspelled_name_is_corrected(tmp_path: Path) -> None:
    for name in ("lr-1", "lr-2", "width-1"):
        package(tmp_path / "runs", name)
    remove("lr-1", "lr-2", "width-1")
    with pytest.raises(NotFound, match="did you mean 'width-1'"):
        list(trash.restore(["widht-1"]))
    with pytest.raises(NotFound):
        list(trash.restore(["lr-*", "depth-*"]))
    assert [to.name for _, to in trash.restore(["runs/lr-*"])] == ["lr-1", "lr-2"]
    package(tmp_path / "runs", "width-1")
    remove("width-1")
    with pytest.raises(UsageError, match="2 removed packages"):
        list(trash.restore(["width-*"]))


def test_nothing_is_removed_unless_all_can_be(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        package(tmp_path / "runs", name)
    labels.set_starred(tmp_path / "runs" / "b", True)
    with pytest.raises(Refused, match=r"nothing was removed.*b is starred.*unstar") as caught:
        trash.plan_removal(["runs"])
    assert caught.value.exit_code == 5 and len(names(tmp_path / "runs")) == 3


def test_what_began_to_run_since_it_was_listed_is_left(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", name) for name in ("a", "b")]
    planned = trash.plan_removal(["a", "b"])
    made[0].new_session({"kind": "train", "overrides": [], "device": "auto", "checkpoint": None})
    labels.set_starred(made[0].path, True)
    with pytest.raises(Refused, match="a: "):
        list(trash.remove([one.path for one in planned]))
    assert names(tmp_path / "runs") == ["a"]


def test_a_package_that_another_process_removed_first_is_not_found(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", "a")
    planned = trash.plan_removal(["a"])
    remove("a")
    with pytest.raises(Refused, match="meanwhile"):
        list(trash.remove([one.path for one in planned]))
    fd = PackageFolder(trash.entries([made.path.parent])[0].path).lock()  # it was left open
    os.close(fd)


def test_a_package_that_took_the_name_while_the_lock_was_waited_for_stays(tmp_path: Path) -> None:
    made, other = package(tmp_path / "runs", "a"), package(tmp_path / "others", "a")
    (planned,) = trash.plan_removal(["runs/a"])
    fd, lock = made.lock(), made.path / sessions.LOCK_NAME
    found: list[BaseException] = []

    def remove_it() -> None:
        try:
            list(trash.remove([planned.path]))
        except Refused as error:
            found.append(error)

    def is_awaited() -> bool:
        opened = [os.path.realpath(one) for one in Path("/proc/self/fd").iterdir()]
        return opened.count(str(lock)) == 2

    waiting = threading.Thread(target=remove_it)
    waiting.start()
    wait_for(is_awaited)
    made.path.rename(tmp_path / "elsewhere")
    other.path.rename(made.path)
    os.close(fd)
    waiting.join()
    assert len(found) == 1 and names(tmp_path / "runs") == ["a"] and not list(tmp_path.glob("runs/.trash/*"))


@pytest.mark.parametrize("what", ["link", "newer", "no package", "half deleted"])
def test_what_is_no_package_of_this_roost_is_not_removed(tmp_path: Path, what: str) -> None:
    made = package(tmp_path / "runs", "a")
    word = "a"
    if what == "link":
        (tmp_path / "runs" / "linked").symlink_to(made.path)
        word = "runs/linked"
    elif what == "newer":
        request = made.path / "request.json"
        request.write_text(request.read_text().replace('"format": 1', '"format": 2'))
    else:
        (made.path / "request.json").unlink()
        word = "runs/a"
        if what == "half deleted":
            shutil.rmtree(made.path / "sessions")
    with pytest.raises((Refused, NotFound)) as caught:
        trash.plan_removal([word])
    assert len(str(caught.value).splitlines()) == 1
    assert made.path.is_dir()


def test_a_damaged_package_can_be_removed(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", "a")
    (made.path / "args.json").write_text("{")
    shutil.rmtree(made.path / "sessions")
    (to,) = remove("runs/a")
    assert (to / "args.json").exists()


def test_a_link_in_place_of_the_trash_is_refused(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", "a")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs" / ".trash").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="not a folder"):
        remove("a")
    assert made.path.is_dir() and not list((tmp_path / "elsewhere").iterdir())
    assert trash.entries([tmp_path / "runs"]) == []


def test_a_failed_restore_leaves_the_package_in_the_trash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "runs", "a")
    remove("a")

    def full(operation: str, path: str) -> None:
        if operation == "rename":
            raise OSError(errno.EDQUOT, "Disk quota exceeded", path)

    monkeypatch.setattr(durable, "fault", full)
    with pytest.raises(OSError, match="quota"):
        list(trash.restore(["a"]))
    assert not (tmp_path / "runs" / "a").exists() and len(trash.entries([tmp_path / "runs"])) == 1


def test_an_error_after_the_rename_destroys_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path / "runs", "a")
    remove("a")
    renamed = []

    def failing_sync(operation: str, path: str) -> None:
        if operation == "rename":
            renamed.append(path)
        if operation == "fsync" and renamed:
            raise OSError(errno.EIO, "Input/output error", path)

    monkeypatch.setattr(durable, "fault", failing_sync)
    with pytest.raises(OSError, match="Input/output"):
        list(trash.restore(["a"]))
    monkeypatch.setattr(durable, "fault", None)
    assert not any(finding.is_bad for finding in verify(tmp_path / "runs" / "a"))


def test_deletion_goes_on_with_what_was_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path / "runs", "a")
    remove("a")

    def cut(operation: str, path: str) -> None:
        if operation == "unlink":
            raise KeyboardInterrupt

    monkeypatch.setattr(durable, "fault", cut)
    with pytest.raises(KeyboardInterrupt):
        list(trash.delete([tmp_path / "runs"], trash.entries([tmp_path / "runs"])))
    monkeypatch.setattr(durable, "fault", None)
    roots = [tmp_path / "runs"]
    assert trash.entries(roots) == [] and names(tmp_path / "runs") == []
    assert len(list((tmp_path / "runs" / ".trash").iterdir())) == 1
    (done,) = trash.delete(roots, [])
    assert done.error is None and done.num_bytes > 0
    assert not list((tmp_path / "runs" / ".trash").iterdir())


def test_hostile_names_survive_both_ways(tmp_path: Path) -> None:
    for name in ("--yes", "a\nb", "20261124T041356.481Z_x", "ü" * 100):
        made = package(tmp_path / "runs", name)
        (to,) = remove(str(made.path))
        assert [back for _, back in trash.restore([str(to)])] == [made.path]


def test_a_name_without_room_for_the_time_is_refused(tmp_path: Path) -> None:
    package(tmp_path / "runs", "m" * 240)
    with pytest.raises(Refused, match="too long"):
        remove("m" * 240)
    assert names(tmp_path / "runs") == ["m" * 240]


def test_one_that_is_used_in_the_trash_is_not_deleted(tmp_path: Path) -> None:
    package(tmp_path / "runs", "a")
    (to,) = remove("a")
    fd = PackageFolder(to).lock()
    (done,) = trash.delete([tmp_path / "runs"], trash.entries([tmp_path / "runs"]))
    assert done.error == "is in use by another process" and to.is_dir()
    os.close(fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_nothing_of_another_user_is_half_deleted(tmp_path: Path) -> None:
    package(tmp_path / "runs", "a")
    (to,) = remove("a")
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    for path in (tmp_path / "runs", to.parent, to):
        os.chown(path, 65534, 65534)  # its folders below are those of root
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        (done,) = trash.delete([tmp_path / "runs"], trash.entries([tmp_path / "runs"]))
        os._exit(0 if done.error is not None and "belongs to another user" in done.error else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert not any(finding.is_bad for finding in verify(to))


def test_a_parent_goes_together_with_its_fork(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", "a")
    parent = {"package": "a", "path": str(made.path), "checkpoint": 2, "step": 30, "sha256": "0" * 64}
    child = PackageFolder.create(tmp_path / "runs", name="fork", values=VALUES, request={"parent": parent})
    session(child, "stopped")
    with pytest.raises(Refused, match="is the parent of fork"):
        trash.plan_removal(["a"])
    assert len(remove("a", "fork")) == 2


def test_what_is_needed_since_it_was_listed_is_left(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", "a")
    planned = trash.plan_removal(["a"])
    parent = {"package": "a", "path": str(made.path), "checkpoint": 2, "step": 30, "sha256": "0" * 64}
    child = PackageFolder.create(tmp_path / "runs", name="fork", values=VALUES, request={"parent": parent})
    session(child, "stopped")
    with pytest.raises(Refused, match="is the parent of fork"):
        list(trash.remove([one.path for one in planned]))
    with pytest.raises(Refused, match="is the parent of fork"):
        request = PruneRequest(keep=("last",))
        list(prune.prune([PlannedPruning(path=made.path, pruning=prune.plan_one(made, request))], request))
    assert made.path.is_dir()


def test_a_removed_package_is_neither_removed_again_nor_changed(tmp_path: Path) -> None:
    package(tmp_path / "runs", "a", state="crashed")
    (to,) = remove("a")
    for begin in (
        lambda: remove(str(to)),
        lambda: prune.plan([str(to)], PruneRequest(records_only=True)),
        lambda: continue_(ContinueRequest(package=to)),
        lambda: fork(ForkRequest(package=to)),
        lambda: rerun(RerunRequest(package=to)),
        lambda: submit_continue(ContinueRequest(package=to), TaskOptions()),
        lambda: label_packages.tag([str(to)], ["x"]),
    ):
        with pytest.raises(Refused, match=r"it is in the trash.*roost restore"):
            begin()
    assert list(to.parent.iterdir()) == [to]


def test_one_that_was_removed_and_replaced_meanwhile_is_not_pruned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock would be that of another folder."""
    made = package(tmp_path / "runs", "a")
    request = PruneRequest(records_only=True)
    planned = prune.plan(["a"], request)

    def lock(self: PackageFolder) -> int:
        fd = os.open(self.path / "lock", os.O_RDWR)
        monkeypatch.undo()
        made.path.rename(tmp_path / "elsewhere")
        package(tmp_path / "runs", "a")
        return fd

    monkeypatch.setattr(PackageFolder, "lock", lock)
    with pytest.raises(NotFound, match="removed meanwhile"):
        list(prune.prune(planned, request))
    assert checkpoint.ids(made.checkpoints) == [0, 1, 2]


def test_folders_nested_more_deeply_than_calls(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", "a")
    fd = os.open(made.path, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    assert disk_usage.disk_usage([made.path]).total > 0
    (to,) = remove("a")
    (done,) = trash.delete([tmp_path / "runs"], trash.entries([tmp_path / "runs"]))
    assert done.error is None or "could not be deleted" in done.error
    assert not to.exists()
    subprocess.run(["rm", "-rf", str(tmp_path / "runs")], check=True)  # pytest cannot


def test_a_deletion_that_is_stopped_stops_no_other_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package(tmp_path / "runs", "a")
    (to,) = remove("a")
    monkeypatch.setattr(trash, "_LOCK_SECONDS", 0.05)
    fd = os.open(to.parent, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(Refused, match="another process deletes"):
        list(trash.delete([tmp_path / "runs"], trash.entries([tmp_path / "runs"])))
    os.close(fd)
    assert to.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_trash_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    made = package(tmp_path / "runs", "a")
    (tmp_path / "runs" / ".trash").mkdir(mode=0o755)
    (tmp_path / "runs").chmod(0o777)
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)
    for path in (made.path, *made.path.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        try:
            list(trash.remove([made.path]))
        except Refused as error:
            os._exit(0 if "the trash belongs to root" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert made.path.is_dir()


def test_a_link_in_the_trash_is_no_removed_package(tmp_path: Path) -> None:
    package(tmp_path / "runs", "a")
    package(tmp_path / "elsewhere", "b")
    (to,) = remove("a")
    linked = to.with_name(to.name.replace("Z_a", "Z_b"))
    linked.symlink_to(tmp_path / "elsewhere" / "b")
    (to.parent / ".b.tmp-0123456789ab").symlink_to(tmp_path / "nowhere")
    roots = [tmp_path / "runs"]
    assert [one.path for one in trash.entries(roots)] == [to]
    with pytest.raises(NotFound):
        list(trash.restore(["b"]))
    assert [one.error for one in trash.delete(roots, trash.entries(roots))] == [None, None]
    assert list(to.parent.iterdir()) == [linked] and names(tmp_path / "elsewhere") == ["b"]
