"""The owner file: claimed once, renewed, and kept by the later session."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base import durable
from roost.base.errors import Refused
from roost.package.owner import owner_file
from roost.package.owner.owner_file import Heartbeat
from tests.messages import Messages
from tests.package.owner import other_machine


@pytest.fixture(autouse=True)
def no_fault() -> Iterator[None]:
    yield
    durable.fault = None


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "sessions").mkdir()
    return tmp_path


def claimed(package: Path, session: int = 1, token: str = "own") -> tuple[Path, Heartbeat]:
    owner_file.claim(package, session=session, token=token)
    path = owner_file.path_of(package)
    return path, Heartbeat(path, session, token)


def test_a_heartbeat_changes_the_file(package: Path) -> None:
    path, heartbeat = claimed(package)
    assert heartbeat.beat() is None  # the claim is as young
    texts = {path.read_text()}
    for _ in range(2):
        assert heartbeat.beat() is None
        texts.add(path.read_text())
    found = json.loads(path.read_text())
    assert len(texts) == 3
    assert (found["host"], found["pid"], found["session"]) == (os.uname().nodename, os.getpid(), 1)


def test_a_later_session_of_another_owner_is_seen_and_left_as_it_is(package: Path) -> None:
    path, heartbeat = claimed(package)
    other_machine.write(package, session=2)
    text = path.read_text()
    found = heartbeat.beat()
    assert found is not None and (found.host, found.session) == ("far", 2)
    assert path.read_text() == text


def test_the_later_of_two_owners_that_overwrote_each_other_wins(package: Path) -> None:
    path, heartbeat = claimed(package, session=2)
    heartbeat.beat()
    other_machine.write(package, session=1)
    assert heartbeat.beat() is None
    assert owner_file.read(path) is not None and json.loads(path.read_text())["token"] == "own"


def test_a_copy_of_the_whole_machine_is_another_owner(package: Path) -> None:
    path, heartbeat = claimed(package)
    _, copy = path, Heartbeat(path, 1, "own")
    for one in (heartbeat, copy, heartbeat):
        one.beat()
    assert copy.beat() is not None


def test_on_a_full_disk_the_time_of_the_file_is_renewed(package: Path) -> None:
    path, heartbeat = claimed(package)
    heartbeat.beat()
    other_machine.beat(path, idle=100)
    before = path.stat().st_mtime

    def full(operation: str, _: str) -> None:
        if operation == "write":
            raise OSError(errno.ENOSPC, "full")

    durable.fault = full
    assert heartbeat.beat() is None
    assert path.stat().st_mtime > before + 50


def test_of_two_machines_that_begin_at_the_same_moment_one_is_refused(package: Path) -> None:
    def claim_first(operation: str, _: str) -> None:
        if operation == "rename":  # the other one has found no file either, and writes its own just now
            durable.fault = None
            owner_file.claim(package, session=1, token="first")

    durable.fault = claim_first
    with pytest.raises(Refused):
        owner_file.claim(package, session=1, token="second")
    found = owner_file.read(owner_file.path_of(package))
    assert found is not None and found.token == "first"
    assert [path.name for path in (package / "sessions").iterdir()] == ["owner.json"]


def test_without_hard_links_an_existing_file_is_refused_too(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "no hard links")

    monkeypatch.setattr(os, "link", no_links)
    path = package / "sessions" / "new"
    durable.create_unsynced(path, b"1")
    with pytest.raises(FileExistsError):
        durable.create_unsynced(path, b"2")
    assert path.read_bytes() == b"1" and len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"host": 3, "session": "1"}'])
def test_a_file_that_is_none_names_no_owner_and_is_replaced(package: Path, text: str) -> None:
    path = owner_file.path_of(package)
    path.write_text(text)
    assert owner_file.read(path) is None
    claimed(package)
    assert owner_file.read(path) is not None


def test_a_link_is_not_followed(package: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text(other_machine.write(package).read_text())
    path = owner_file.path_of(package)
    path.unlink()
    path.symlink_to(target)
    assert owner_file.read(path) is None


def test_only_an_own_file_is_removed_at_the_end(package: Path) -> None:
    path, _ = claimed(package)
    other_machine.write(package, session=2)
    owner_file.release(path, 1, "own")
    assert path.exists()
    claimed(package, session=3)
    owner_file.release(path, 3, "own")
    assert not path.exists()


def test_a_session_that_lost_its_package_is_refused_before_a_commit(
    package: Path, messages: Messages
) -> None:
    other_machine.write(package, session=2)
    owner_file.require_not_taken_over(package, 2)
    with pytest.raises(Refused) as error:
        owner_file.require_not_taken_over(package, 1)
    messages.check(error.value)
