"""A folder that a user has filled with files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roost.devices import demand, lease_files, shared_folder, usage_ledger
from tests.devices.leasing import card, take
from tests.waiting import wait_for

ME = os.geteuid()


@contextmanager
def opened(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def names(folder: Path, most: int = 3) -> list[str]:
    with opened(folder) as fd:
        return shared_folder.list_user_files(fd, max_per_user=most)


def touch(folder: Path, *files: str) -> None:
    folder.mkdir(exist_ok=True)
    for file in files:
        (folder / file).touch()


def test_what_begins_with_a_number_as_long_as_it_is_little(tmp_path: Path) -> None:
    touch(tmp_path, "7-b.json", "7-a.json", "8.jsonl", "x-a.json", ".7-a.json.tmp-123456789abc", "a file")
    assert names(tmp_path) == ["7-a.json", "7-b.json", "8.jsonl"]


def test_of_one_user_so_many_and_none_of_others_under_his_name(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{ME}-{n}.json" for n in range(5)), f"{ME + 1}-0.json")
    assert names(tmp_path) == [f"{ME}-{n}.json" for n in range(3)]
    other = tmp_path / "other"
    touch(other, *(f"{ME + 1}-{n}.json" for n in range(50)), f"{ME}-1.json")
    assert names(other) == [f"{ME}-1.json"]


def test_very_many_users_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "_MAX_USERS", 3)
    touch(tmp_path, f"{ME}-a.json", *(f"{ME + n}-a.json" for n in range(1, 5)))
    assert names(tmp_path) == [f"{ME}-a.json"]


def test_a_full_folder_is_looked_at_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, *(f"{ME}-{n}.json" for n in range(5)))
    first = names(tmp_path)
    touch(tmp_path, f"{ME}--.json")  # in the same instant, as far as its clock goes
    assert names(tmp_path) != first
    monkeypatch.setattr(shared_folder, "_SETTLED_NS", -1)
    again = names(tmp_path)
    calls: list[object] = []
    monkeypatch.setattr(os, "listdir", lambda fd: calls.append(fd) or [])
    assert names(tmp_path) == again and not calls
    monkeypatch.undo()
    changed = tmp_path.stat().st_ctime_ns
    wait_for(lambda: tmp_path.chmod(0o700) or tmp_path.stat().st_ctime_ns > changed)  # its clock is coarse
    (tmp_path / f"{ME}--.json").unlink()
    assert names(tmp_path) == first


def test_whose_a_file_is_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the folder changes all the time; but not of a ledger, whose name comes again."""
    touch(tmp_path, *(f"{ME + 1}-{n}.json" for n in range(9)), *(f"{ME + n}.jsonl" for n in range(1, 4)))
    asked: list[str] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda name, **how: asked.append(str(name)) or real(name, **how))
    assert names(tmp_path) == [] and len(asked) == 12
    asked.clear()
    touch(tmp_path, f"{ME}-a.json")
    asked.clear()
    assert names(tmp_path) == [f"{ME}-a.json"]
    assert sorted(asked) == sorted([f"{ME}-a.json", *(f"{ME + n}.jsonl" for n in range(1, 4))])


def test_leases_demands_and_ledgers_in_flooded_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file that is opened costs; what lies there under the name of others is not."""
    root = tmp_path / "leases"
    monkeypatch.setenv(lease_files.VARIABLE, str(root))
    lease = take(card())
    post = demand.DemandFile()
    post.publish(demand.DemandRecord(wants=(demand.CardDemand(cards=1, since=1.0),)))
    (root / "usage").mkdir()
    (root / "usage").chmod(0o1777)
    for folder, ending in (("GPU-0", ".json"), ("wants", ".json"), ("usage", ".jsonl")):
        touch(root / folder, *(f"{ME + 1}-{n}{ending}" for n in range(3_000)))
    seen: list[str] = []
    real = lease_files.open_owned_file
    monkeypatch.setattr(lease_files, "open_owned_file", lambda fd, name: seen.append(name) or real(fd, name))
    assert [one.token for one in lease_files.all_leases(root)] == [lease.token]
    assert [one.token for one in demand.read_demands()] == [post.token]
    assert usage_ledger.decayed_usage(time.time(), leases=[]) == {}
    assert len(seen) == 2
    post.withdraw()
    lease.close()


def test_very_many_folders_are_no_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_files, "_MAX_CARDS", 3)
    monkeypatch.setenv(lease_files.VARIABLE, str(tmp_path / "leases"))
    lease = take(card())
    for n in range(10):
        lease_files.make_shared_folder(tmp_path / "leases" / f"A-{n}")
    found = lease_files.all_leases(tmp_path / "leases", first=["GPU-0", "GPU-1"])
    assert [one.card for one in found] == ["GPU-0"]
    lease.close()
