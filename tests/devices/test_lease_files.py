"""The folder of the leases, and who is seen in it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import Refused
from roost.devices import lease_files, usage_ledger
from roost.devices.lease import cards_with_capacity
from tests.devices.leasing import NEEDS_ROOT, NOBODY, Child, card, shared_root, take
from tests.messages import Messages


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROOST_LEASES", str(tmp_path / "leases"))
    return tmp_path / "leases"


def test_the_folder_is_the_same_for_all_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lease_files.leases_folder() == tmp_path / "leases"
    locks = tmp_path / "lock"
    monkeypatch.setattr(lease_files, "_LOCK_FOLDER", locks)
    assert lease_files.leases_folder({}) == Path("/tmp/roost"), "there is none"
    locks.mkdir()
    locks.chmod(0o755)
    assert lease_files.leases_folder({}) == Path("/tmp/roost"), (
        "where not all may write, none does, root neither"
    )
    locks.chmod(0o1777)
    assert lease_files.leases_folder({}) == locks / "roost"


def test_everybody_may_write_to_a_folder_that_is_made(root: Path) -> None:
    before = os.umask(0o077)
    try:
        lease_files.make_shared_folder(root)
        lease = take(card())
    finally:
        os.umask(before)
    assert root.stat().st_mode & 0o7777 == (root / "GPU-0").stat().st_mode & 0o7777 == 0o1777
    (file,) = (root / "GPU-0").iterdir()
    assert file.stat().st_mode & 0o7777 == 0o644
    assert file.name == f"{os.geteuid()}-{lease.token}.json"
    lease.close()


@pytest.mark.parametrize("what", ["narrow", "link", "file"])
def test_a_folder_that_is_not_for_all_is_refused(
    what: str, root: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(lease_files, "_CREATION_SECONDS", 0.0)
    if what == "narrow":
        root.mkdir(mode=0o755)
    elif what == "file":
        root.touch()
    else:
        other = root.with_name("other")
        other.mkdir()
        other.chmod(0o1777)
        root.symlink_to(other)
    with pytest.raises(Refused) as refused:
        take(card())
    assert all(fact in str(refused.value) for fact in ("chmod 1777", str(root)))
    messages.check(refused.value)


def test_a_folder_that_cannot_be_made_is_refused(
    root: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setenv("ROOST_LEASES", str(root / "no" / "where"))
    with pytest.raises(Refused, match="No such file or directory") as refused:
        take(card())
    messages.check(refused.value)


def test_a_folder_being_created_is_waited_for(root: Path) -> None:
    def make() -> None:
        root.mkdir(mode=0o700)
        os.write(its_made, b"1")
        while not os.read(its_go, 1):
            continue
        root.chmod(0o1777)

    (made, its_made), (its_go, go) = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        make()
        os._exit(0)
    os.read(made, 1)
    os.write(go, b"1")
    take(card()).close()
    os.waitpid(pid, 0)


@pytest.mark.parametrize("id", ["MIG-GPU-a/1/0", "..", ".", "GPU a", "GPU-%2F"])
def test_any_id_makes_a_folder_of_its_own(id: str, root: Path) -> None:
    lease = take(card(id=id))
    assert lease_files.card_folder(root, id).parent == root
    assert [one.card for one in lease_files.live_leases(id)] == [id]
    assert [one.card for one in lease_files.all_leases(root)] == [id]
    lease.close()


def test_a_live_lease_has_its_owner_and_amount(root: Path) -> None:
    assert lease_files.live_leases("GPU-0") == [] and lease_files.all_leases(root) == []
    before = time.time()
    first, second = take(card(), mb=6144), take(card(), mb=12288)
    one, other = lease_files.live_leases("GPU-0")
    assert (one.token, other.token) == (first.token, second.token)
    assert (one.record.mb, one.record.share, one.record.pid) == (6144, 0.25, os.getpid())
    assert one.user == one.record.user == lease_files.user_name(os.geteuid())
    assert one.record.package == "/runs/a" and one.record.task == "a task"
    assert before - 0.01 <= one.record.since <= time.time() + 0.01
    assert str(one) == f"{one.user}: 6.0 GB since {lease_files.format_clock(one.record.since)}, /runs/a"
    first.close()
    assert lease_files.live_leases("GPU-0") == [other]
    (ended, still) = lease_files.all_leases(root)
    assert not ended.is_live and still.is_live
    second.close()


def test_what_a_file_says_does_nothing_to_the_terminal() -> None:
    said = lease_files.LeaseRecord(
        pid=1, start_ticks=None, boot_id="", user="", mb=None, share=1, since=0, package="/a\x1b[2J"
    )
    text = str(lease_files.CardLease("GPU-0", os.geteuid(), "t", True, 0, said))
    assert text.endswith(", /a\\x1b[2J") and "card" in text and "GB" not in text


def test_a_user_that_the_system_does_not_know_is_a_number() -> None:
    assert lease_files.user_name(4_000_000) == "4000000"


def test_what_is_no_lease_is_passed_over(root: Path) -> None:
    take(card()).close()
    folder = root / "GPU-0"
    mine = os.geteuid()
    (folder / f"{mine}.json").touch()
    (folder / f"{mine + 1}-abc.json").touch()  # another one's name
    (folder / f"{mine}-link.json").symlink_to(folder / f"{mine}.json")
    (folder / f"{mine}-folder.json").mkdir()
    os.mkfifo(folder / f"{mine}-fifo.json")
    (root / "a file").touch()
    assert len(lease_files.all_leases(root)) == 1
    assert lease_files.live_leases("GPU-0") == []


@pytest.mark.parametrize(
    "said",
    [b"", b"garbage", b'{"mb": 5}', b'{"user": "\xff"}', b'{"a":' * 10_000,
     {"mb": -1}, {"mb": 2**80}, {"since": 1e300}, {"since": -1e308}],
)  # fmt: skip
def test_a_live_lease_that_cannot_be_read_is_the_whole_card(said: bytes | dict[str, Any], root: Path) -> None:
    lease = take(card(), mb=6144)
    (file,) = (root / "GPU-0").iterdir()
    content = json.loads(file.read_bytes())
    file.write_bytes(said if isinstance(said, bytes) else json.dumps(content | said).encode())
    (found,) = lease_files.live_leases("GPU-0")
    assert re.search("card .*[0-9:]{5}$", str(found))
    assert usage_ledger.decayed_usage(time.time(), leases=[found]) is not None
    assert found.record.mb is None and found.record.share == 1
    assert found.user == lease_files.user_name(os.geteuid()), "according to the file system"
    lease.close()


def test_who_keeps_all_others_out_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_files, "ADMISSION_WAIT_SECONDS", 0.05)
    take(card()).close()

    def block() -> int:
        fd = os.open(root / "GPU-0", os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    child = Child(block)
    name = lease_files.user_name(os.geteuid())
    with pytest.raises(Refused) as refused:
        take(card())
    assert all(fact in str(refused.value) for fact in (f"pid {child.pid}", name, f"ps -fp {child.pid}"))
    lease = take(card(1))
    monkeypatch.setattr(lease_files, "READ_WAIT_SECONDS", 0.05)
    for found in (lease_files.live_leases("GPU-0"), lease_files.all_leases(root)[:1]):
        assert f"pid {child.pid}" in str(found[0]) and name in str(found[0]), found
    assert lease_files.all_leases(root)[1].token == lease.token, "the other card is seen as it is"
    assert cards_with_capacity([card(), card(1), card(2)], None) == [card(2)]
    lease.close()
    assert child.end() == 0
    assert lease_files.live_leases("GPU-0") == []
    take(card()).close()


@pytest.mark.parametrize("rights", [0o700, 0o1775])
def test_a_folder_that_is_not_for_all_costs_one_card_alone(
    rights: int, root: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr(lease_files, "READ_WAIT_SECONDS", 0.05)
    lease = take(card(1))
    (root / "GPU-0").mkdir()
    (root / "GPU-0").chmod(rights)
    (root / "no%card").mkdir(mode=0o700)
    blocked, other = lease_files.all_leases(root)
    assert (blocked.card, blocked.is_live, other.token) == ("GPU-0", True, lease.token)
    assert str(root / "GPU-0") in str(blocked)
    messages.check(blocked)
    lease.close()


@NEEDS_ROOT
def test_a_folder_that_may_not_be_read_costs_one_card_alone(tmp_path: Path) -> None:
    root = shared_root(tmp_path)
    take(card(1)).close()
    (root / "GPU-0").mkdir(mode=0o700)
    (root / "usage").mkdir(mode=0o700)

    def look() -> None:
        lease_files.READ_WAIT_SECONDS = 0.05
        blocked, ended = found = lease_files.all_leases(root)
        usage_ledger.decayed_usage(time.time(), leases=found)
        assert str(root / "GPU-0") in blocked.blocked and not ended.is_live

    assert Child(look, uid=NOBODY).end() == 0


def test_a_child_that_another_thread_forks_does_not_keep_the_lock(root: Path) -> None:
    take(card()).close()
    with lease_files.locked_folder(root / "GPU-0", fcntl.LOCK_EX, deadline=0.0):
        child = Child(lambda: None)
    with lease_files.locked_folder(root / "GPU-0", fcntl.LOCK_EX, deadline=0.0):
        assert child.end() == 0


def test_the_locker_that_the_kernel_does_not_tell() -> None:
    assert lease_files._lock_holder(-1) == 0


def test_lookers_do_not_wait_for_each_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_files, "ADMISSION_WAIT_SECONDS", 0.0)
    take(card()).close()
    with lease_files.locked_folder(root / "GPU-0", fcntl.LOCK_SH, deadline=0.0):
        assert lease_files.live_leases("GPU-0") == []


@NEEDS_ROOT
def test_another_user_sees_whose_it_is(tmp_path: Path) -> None:
    shared_root(tmp_path)
    child = Child(lambda: take(card()), uid=NOBODY)
    assert child.is_done
    (found,) = lease_files.live_leases("GPU-0")
    assert (found.uid, found.user) == (NOBODY, "nobody")
    assert child.end() == 0
    assert lease_files.live_leases("GPU-0") == []
