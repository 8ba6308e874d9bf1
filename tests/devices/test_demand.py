"""What the queues of a machine tell each other."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import msgspec
import pytest

from roost.devices import demand, lease_files
from roost.devices.demand import CardDemand, DemandFile, DemandRecord
from tests.devices.leasing import NEEDS_ROOT, NOBODY, Child, card, shared_root, take

SOME = DemandRecord(
    wants=(CardDemand(cards=2, since=1000.0), CardDemand(cards=1, mb=5000, since=2000.0)), ends={"a": 5.0}
)


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


def files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "wants").iterdir())


def test_a_published_demand_is_visible_to_others_until_withdrawn(root: Path) -> None:
    assert demand.read_demands() == []
    post = DemandFile()
    before = os.umask(0o077)
    try:
        post.publish(SOME)
    finally:
        os.umask(before)
    (found,) = demand.read_demands()
    assert (found.uid, found.token, found.record) == (os.geteuid(), post.token, SOME)
    assert demand.read_demands(exclude=post.token) == []
    (name,) = files(root)
    assert (root / "wants" / name).stat().st_mode & 0o7777 == 0o644
    assert (root / "wants").stat().st_mode & 0o7777 == 0o1777
    post.publish(DemandRecord(wants=SOME.wants[1:]))
    assert [one.record.wants for one in demand.read_demands()] == [SOME.wants[1:]] and files(root) == [name]
    post.withdraw()
    post.withdraw()
    assert demand.read_demands() == [] and files(root) == []
    post.publish(SOME)
    assert [one.record for one in demand.read_demands()] == [SOME]
    post.withdraw()


def test_the_same_is_not_written_again(root: Path) -> None:
    post = DemandFile()
    post.publish(SOME)
    (name,) = files(root)
    inode = (root / "wants" / name).stat().st_ino
    post.publish(msgspec.structs.replace(SOME))
    assert (root / "wants" / name).stat().st_ino == inode
    post.withdraw()


def test_one_that_is_replaced_while_it_is_read_is_read_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    post, later = DemandFile(), DemandRecord(wants=(CardDemand(cards=1, since=3000.0),))
    post.publish(SOME)
    open_file = lease_files.open_owned_file

    def open_and_replace(folder_fd: int, name: str) -> tuple[int, os.stat_result] | None:
        opened = open_file(folder_fd, name)
        post.publish(later)
        return opened

    monkeypatch.setattr(lease_files, "open_owned_file", open_and_replace)
    assert [found.record for found in demand.read_demands()] == [later]
    post.withdraw()


def test_who_has_not_looked_for_a_minute_wants_nothing(root: Path) -> None:
    post = DemandFile()
    post.publish(SOME)
    (path,) = (root / "wants").iterdir()
    os.utime(path, (0, 0))
    assert demand.read_demands() == []
    post.publish(SOME)
    assert len(demand.read_demands()) == 1
    post.withdraw()


def test_it_is_no_card() -> None:
    post = DemandFile()
    post.publish(SOME)
    assert lease_files.all_leases(lease_files.leases_folder()) == []
    lease = take(card())
    assert [one.card for one in lease_files.all_leases(lease_files.leases_folder())] == ["GPU-0"]
    lease.close()
    post.withdraw()


def test_one_that_was_killed_wants_nothing_and_is_removed_later(root: Path) -> None:
    def want() -> DemandFile:
        post = DemandFile()
        post.publish(SOME)
        return post

    child = Child(want)
    assert len(demand.read_demands()) == 1
    os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)
    assert demand.read_demands() == [] and len(files(root)) == 1
    (left,) = (root / "wants").iterdir()
    torn = root / "wants" / f".{left.name}.tmp-0123456789ab"
    torn.touch()
    for late, count in ((False, 3), (True, 1)):
        if late:
            for path in (left, torn):
                os.utime(path, (0, 0))
        post = DemandFile()
        post.publish(SOME)
        assert len(files(root)) == count
        post.withdraw()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"garbage", b"[" * 100_000, b"null", b'{"wants": 5}', b'{"wants": [{"cards": 0, "since": 1}]}',
        b'{"wants": [{"cards": 1, "since": NaN}]}', b'{"wants": [{"cards": 1, "since": 1e300}]}',
        b'{"wants": [{"cards": 1, "mb": -5, "since": 1}]}',
        b'{"wants": [{"cards": 1, "since": 1, "priority": 99999999999}]}',
        b'{"wants": [' + b",".join([b'{"cards": 1, "since": 1}'] * 65) + b"]}",
        b'{"wants": [], "closed": ["' + b"x" * 300 + b'"]}',
        msgspec.json.encode(SOME) + b" " * 600_000,
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_nobodys_want(data: bytes, root: Path) -> None:
    post, other = DemandFile(), DemandFile()
    post.publish(SOME)
    other.publish(SOME)
    (root / "wants" / f"{os.geteuid()}-{post.token}.json").write_bytes(data)
    assert [one.token for one in demand.read_demands()] == [other.token]
    post.withdraw()
    other.withdraw()


def test_what_is_no_want_is_passed_over(root: Path) -> None:
    post = DemandFile()
    post.publish(SOME)
    folder, me = root / "wants", os.geteuid()
    (real,) = folder.iterdir()
    (folder / f"{me}-link.json").symlink_to(real)
    os.mkfifo(folder / f"{me}-fifo.json")
    (folder / f"{me}-folder.json").mkdir()
    (folder / "garbage").touch()
    (folder / f"{me + 1}-a.json").write_bytes(real.read_bytes())
    (folder / f"{me}-dead.json").write_bytes(real.read_bytes())
    assert [one.token for one in demand.read_demands()] == [post.token]
    post.withdraw()


def test_of_one_user_so_many_files_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "_MAX_FILES", 2)
    posts = [DemandFile() for _ in range(3)]
    for post in posts:
        post.publish(SOME)
    assert len(demand.read_demands()) == 2
    for post in posts:
        post.withdraw()


@NEEDS_ROOT
def test_the_owner_of_a_demand_is_that_of_the_file(tmp_path: Path, root: Path) -> None:
    shared_root(tmp_path)
    lease_files.make_shared_folder(root / "wants")

    def want() -> DemandFile:
        post = DemandFile()
        post.publish(SOME)
        return post

    child = Child(want, uid=NOBODY)
    assert child.is_done
    assert [one.uid for one in demand.read_demands()] == [NOBODY]
    assert child.end() == 0


@NEEDS_ROOT
def test_files_with_the_name_of_another_user_do_not_count_as_his(tmp_path: Path) -> None:
    root = shared_root(tmp_path)
    post = DemandFile()
    post.publish(SOME)

    def flood() -> None:
        for number in range(demand._MAX_FILES + 1):
            (root / "wants" / f"0-{number:016d}.json").touch()

    assert Child(flood, uid=NOBODY).end() == 0
    assert [one.token for one in demand.read_demands()] == [post.token]
    post.withdraw()
