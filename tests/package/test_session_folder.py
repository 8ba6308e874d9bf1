"""Session folders inside a package: made, found and locked."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roost.base import durable
from roost.base.errors import NotFound, Refused
from roost.package import package_name, session_folder, sessions
from roost.package.kinds import TaskKind
from roost.package.package import PackageFolder
from tests.messages import Messages
from tests.operations.packages import package


def test_a_new_one_has_the_next_number_and_is_found_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = package(tmp_path / "runs")
    (made.path / "predictions" / "7").mkdir(parents=True)  # one that was made at a terminal
    first = session_folder.create(made.path, TaskKind.ANALYZE, {"trust": True})
    second = session_folder.create(made.path, TaskKind.PREDICT, {})
    assert [one.path for one in (first, second)] == [
        made.path / "analyzers" / "1",
        made.path / "predictions" / "8",
    ]
    assert sessions.load_json(first.path / "request.json") == {"kind": "analyze", "trust": True}
    assert [(kind, one.path) for kind, one in session_folder.find_all(made.path)] == [
        ("analyze", first.path),
        ("predict", second.path),
    ]
    monkeypatch.chdir(made.path)
    for path in (first.path, Path("analyzers/1")):
        found = session_folder.find_at(path)
        assert found is not None and (found.path, found.package_path) == (first.path, made.path)
    for other in (
        made.path,
        made.path / "analyzers",
        made.path / "predictions" / "7",
        made.path / "analyzers" / "2",
    ):
        assert session_folder.find_at(other) is None, other
    assert not first.is_package and PackageFolder.open(made.path).is_package
    with pytest.raises(NotFound):
        session_folder.open_folder(made.path / "analyzers" / "2", made.path)


def test_a_package_whose_name_is_a_number_is_a_package(tmp_path: Path) -> None:
    made = PackageFolder.create(tmp_path / "predictions", name="1", values={})
    assert session_folder.find_at(made.path) is None


def test_sessions_are_numbered_and_locked_there(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    folder = session_folder.create(made.path, TaskKind.ANALYZE, {})
    assert folder.state == "new"
    lock_fd, package_fd = folder.lock(), made.lock()
    assert [folder.new_session({"kind": "analyze"}) for _ in range(2)] == [1, 2]
    assert folder.sessions()[-1].is_locked and folder.state == "starting"
    with pytest.raises(Refused, match="in use"):
        folder.lock()
    os.close(lock_fd)
    os.close(package_fd)
    assert len(made.sessions()) == 1, "the package has its own alone"


def test_one_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    made = package(tmp_path / "runs")
    (made.path / "analyzers").write_text("in the way")
    with pytest.raises(Refused, match="analyzers"):
        session_folder.create(made.path, TaskKind.ANALYZE, {})
    (made.path / "analyzers").unlink()
    (made.path / "analyzers" / "1").mkdir(parents=True)
    (made.path / "analyzers" / "1" / "sessions").symlink_to("nowhere")
    assert session_folder.create(made.path, TaskKind.ANALYZE, {}).path.name == "2"


@pytest.mark.parametrize("kind", [TaskKind.EVALUATE, TaskKind.PREDICT])
def test_a_package_that_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages, kind: TaskKind
) -> None:
    """The fix is one that helps: an evaluation writes into its package without the lab, too."""
    made = package(tmp_path / "runs")

    def read_only(operation: str, path: str) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(durable, "fault", read_only)
    with pytest.raises(Refused) as refused:
        session_folder.create(made.path, kind, {}, name="beam" if kind is TaskKind.EVALUATE else None)
    assert "copy" in (refused.value.fix or "")
    messages.check(refused.value)


def test_of_two_with_one_name_the_slower_is_refused_and_no_half_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    made = package(tmp_path / "runs")

    def faster(operation: str, path: str) -> None:
        if (operation, Path(path).name) == ("rename", "request.json"):
            monkeypatch.setattr(durable, "fault", None)
            assert not (made.path / "evaluations" / "beam").exists()
            session_folder.create(made.path, TaskKind.EVALUATE, {"of": "the faster"}, name="beam")

    monkeypatch.setattr(durable, "fault", faster)
    with pytest.raises(Refused) as refused:
        session_folder.create(made.path, TaskKind.EVALUATE, {"of": "the slower"}, name="beam")
    messages.check(refused.value)
    (left,) = (made.path / "evaluations").iterdir()
    assert sessions.load_json(left / "request.json") == {"kind": "evaluate", "of": "the faster"}


def test_many_processes_make_one_each(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from roost.package import package_name as n\n"
    code += "print(*[n.make_numbered(Path(sys.argv[1])).name for _ in range(20)])"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "all")], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    found = [int(name) for one in running for name in one.communicate()[0].split()]
    assert sorted(found) == package_name.numbers(tmp_path / "all") == list(range(1, 61))
