"""The list of pending notices: its entries, their locks, and the cost of checking it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roost.supervisor.notices import notice_folders, run_notice_list
from roost.supervisor.session_spec import SessionSpec
from tests.supervisor.real_sessions import Session


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"ROOST_STATE": str(tmp_path / "state")}


def entered(session: Session, env: dict[str, str]) -> run_notice_list.RunNoticeEntry:
    entry = run_notice_list.add_entry(session.spec("", **env))
    assert entry is not None
    return entry


def test_an_entry_is_unsent_once_no_process_locks_it(session: Session, env: dict[str, str]) -> None:
    entry = entered(session, env)
    copy = os.dup(entry.fd)
    for fd in (entry.fd, copy):
        assert run_notice_list.unsent_entries(env) == []
        with run_notice_list.lock_entry(entry.path) as found:
            assert found is None
        os.close(fd)
    assert run_notice_list.unsent_entries(env) == [entry.path]
    with run_notice_list.lock_entry(entry.path) as found:
        assert found == (str(session.folder), 1, notice_folders.receivers_file(env))
        assert run_notice_list.unsent_entries(env) == [], "it is locked"
    run_notice_list.postpone_entry(entry.path)
    assert run_notice_list.unsent_entries(env) == [], "it was tried just now"
    os.utime(entry.path, (0, 0))
    assert run_notice_list.unsent_entries(env) == [entry.path]


def test_who_has_settled_it_leaves_nothing_to_be_taken(session: Session, env: dict[str, str]) -> None:
    entry = entered(session, env)
    os.close(entry.fd)
    with run_notice_list.lock_entry(entry.path) as found:
        assert found is not None
        run_notice_list.remove_entry(entry.path)
    with run_notice_list.lock_entry(entry.path) as found:
        assert found is None


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2]", '["/x", "1", "/y"]', '["/x", true, "/y"]', "[]", "7", "\xff"]
)
def test_what_says_nothing_is_taken_off_the_list(env: dict[str, str], text: str) -> None:
    folder = Path(notice_folders.pending_folder(env))
    folder.mkdir(parents=True)
    (folder / "x").write_bytes(text.encode("latin-1"))
    with run_notice_list.lock_entry(str(folder / "x")) as found:
        assert found is None
    assert list(folder.iterdir()) == []


def test_a_run_begins_though_it_cannot_be_listed(session: Session, env: dict[str, str]) -> None:
    Path(notice_folders.pending_folder(env)).parent.mkdir()
    Path(notice_folders.pending_folder(env)).write_text("a file in its place")
    spec = session.spec("", **env)
    assert run_notice_list.add_entry(spec) is None and run_notice_list.unsent_entries(env) == []
    nowhere = spec._replace(env={**env, "ROOST_STATE": "relative"})
    assert run_notice_list.add_entry(nowhere) is None


def test_no_process_is_started_for_an_empty_list(env: dict[str, str]) -> None:
    assert run_notice_list.send_unsent(env) is None


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"ROOST_STATE": "/s", "HOME": "/h"}, "/s/noticed"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/roost/noticed"),
        ({"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/roost/noticed"),
        ({"ROOST_STATE": "s"}, ""),
        ({}, ""),
    ],
)
def test_the_list_is_next_to_the_lab(env: dict[str, str], folder: str) -> None:
    assert notice_folders.pending_folder(env) == folder


def test_a_check_of_the_list_imports_little() -> None:
    names = "{'json', 'pathlib', 'subprocess'}"
    line = f"from roost.supervisor.notices import run_notice_list; print({names} & {{*sys.modules}})"
    source = str(Path(run_notice_list.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {source!r}); {line}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "set()\n"


def test_its_package_is_that_of_the_session(session: Session, env: dict[str, str]) -> None:
    spec: SessionSpec = session.spec("", **env)._replace(package="/a \n \udcff", session=12)
    entry = run_notice_list.add_entry(spec)
    assert entry is not None
    os.close(entry.fd)
    with run_notice_list.lock_entry(entry.path) as found:
        assert found is not None and found[:2] == ("/a \n \udcff", 12)
