"""The owner file: claimed once, renewed, and kept by the later session."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
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


CLAIMS = """
import os, sys
from pathlib import Path
from roost.base.errors import Refused
from roost.package.owner import other_owner, owner_file, takeover
find_other = other_owner.find_other

def found_at_the_same_moment(package):
    found = find_other(package)
    print("ready", flush=True)
    sys.stdin.readline()
    return found

other_owner.find_other = found_at_the_same_moment
os.uname = lambda: os.uname_result(("Linux", sys.argv[1], "", "", ""))
takeover.STOP_SECONDS = 0.0
for package in map(Path, sys.argv[2:]):
    try:
        print("won", takeover.take_over(package, steal=True, token=sys.argv[1]) is not None, flush=True)
    except Refused as error:
        print("refused", error, flush=True)
"""


def test_of_machines_that_steal_at_the_same_moment_one_wins(tmp_path: Path) -> None:
    packages = [tmp_path / f"{number}" for number in range(20)]
    for package in packages:
        other_machine.write(package)
    machines = {
        host: subprocess.Popen(
            [sys.executable, "-c", CLAIMS, host, *map(str, packages)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for host in ("b", "c", "d")
    }
    for package in packages:
        for one in machines.values():
            assert one.stdout is not None and one.stdout.readline() == "ready\n"
        for one in machines.values():
            assert one.stdin is not None
            one.stdin.write("\n")
            one.stdin.flush()
        said = {host: one.stdout.readline() for host, one in machines.items() if one.stdout is not None}
        found = owner_file.read(owner_file.path_of(package))
        assert found is not None and said.pop(found.host) == "won True\n"
        assert all(f"host {found.host} (user" in line for line in said.values()), said
        assert [path.name for path in (package / "sessions").iterdir()] == ["owner.json"]
    for one in machines.values():
        one.communicate(timeout=100)
        assert one.returncode == 0


def test_a_claim_that_was_cut_delays_the_next_one(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_file, "_CLAIM_SECONDS", 0.1)
    mark = package / "sessions" / "owner.json.claim"
    mark.touch()
    owner_file.claim(package, session=1, token="own")
    assert owner_file.read(owner_file.path_of(package)) is not None and not mark.exists()


def test_of_two_machines_that_begin_at_the_same_moment_one_is_refused(
    package: Path, messages: Messages
) -> None:
    def claim_first(operation: str, _: str) -> None:
        if operation == "rename":  # the other one has found no file either, and writes its own just now
            durable.fault = None
            other_machine.write(package, session=1, token="first")

    durable.fault = claim_first
    with pytest.raises(Refused) as refused:
        owner_file.claim(package, session=1, token="second")
    messages.check(refused.value)
    found = owner_file.read(owner_file.path_of(package))
    assert found is not None and found.token == "first"
    owner_file.claim(package, session=2, token="second")  # a later session: that one has ended
    other_machine.write(package, session=2, token="third", idle=other_machine.LONG_AGO)
    owner_file.claim(package, session=2, token="fourth")  # it was killed before its session began
    other_machine.write(package, session=2, token="fifth")
    owner_file.claim(package, session=2, token="sixth", known="fifth")
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
