"""The forks of a package, found again and again by one process."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from roost.base import durable
from roost.operations.reading import forks
from roost.operations.reading.forks import find_forks
from roost.package.package import PackageFolder
from tests.operations.packages import VALUES


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_folders", {})


def made(root: Path, name: str, parent: str | None = None) -> PackageFolder:
    request: dict[str, Any] = {}
    if parent is not None:
        request["parent"] = {
            "package": parent, "path": str(root / parent), "checkpoint": 1, "step": 10, "sha256": "0" * 64,
        }  # fmt: skip
    return PackageFolder.create(root, name=name, exactly=True, values=VALUES, request=request)


def aged(folder: Path, seconds: float = 100.0) -> None:
    """As if the folder had last changed a while ago."""
    changed = folder.stat().st_mtime - seconds
    os.utime(folder, (changed, changed))


def names(package: PackageFolder) -> list[str]:
    return [one.name for one in find_forks(package.path)]


def test_forks_are_those_of_this_package_sorted_by_name(tmp_path: Path) -> None:
    one = made(tmp_path, "one")
    for name, parent in (("z", "one"), ("a", "one"), ("b", "z"), ("other", None)):
        made(tmp_path, name, parent)
    assert names(one) == ["a", "z"] and names(PackageFolder(tmp_path / "z")) == ["b"]
    assert names(PackageFolder(tmp_path / "b")) == []


@pytest.mark.parametrize("many", [1, 10_000], ids=["by the index", "one by one"])
def test_the_number_of_packages_costs_nothing(
    tmp_path: Path, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_MANY", many)
    one = made(tmp_path, "one")
    made(tmp_path, "fork", "one")
    for number in range(20):
        made(tmp_path, f"n{number}")
    aged(tmp_path)
    assert names(one) == ["fork"]
    read: list[str] = []
    load = forks.package_schema.load
    monkeypatch.setattr(
        forks.package_schema, "load", lambda path, name: (read.append(path.name), load(path, name))[1]
    )
    for word in ("_list", "entries"):
        monkeypatch.setattr(forks, word, lambda *_: pytest.fail("the folder is read again"))
    assert names(one) == ["fork"]
    assert set(read) <= {"fork"}, "only what is shown is read"


def test_a_package_that_is_new_gone_or_another_one_is_noticed(tmp_path: Path) -> None:
    one = made(tmp_path, "one")
    aged(tmp_path, 300)
    assert names(one) == []
    made(tmp_path, "first", "one")
    aged(tmp_path, 200)
    assert names(one) == ["first"]
    durable.remove_folder(tmp_path / "first")
    assert names(one) == []
    made(tmp_path, "first")
    assert names(one) == []
    (tmp_path / "second").mkdir()  # a package in the making: its request is written last
    aged(tmp_path, 100)
    assert names(one) == []
    stamp = tmp_path.stat().st_mtime_ns
    whole = made(tmp_path / "elsewhere", "x", "one")
    shutil.copytree(whole.path, tmp_path / "second", dirs_exist_ok=True)
    os.utime(tmp_path, ns=(stamp, stamp))
    assert names(one) == ["second"]


def test_a_change_within_the_clock_tick_of_the_folder_is_seen(tmp_path: Path) -> None:
    one = made(tmp_path, "one")
    stamp = tmp_path.stat().st_mtime_ns
    assert names(one) == []
    made(tmp_path, "fork", "one")
    os.utime(tmp_path, ns=(stamp, stamp))
    assert names(one) == ["fork"]


def test_a_damaged_package_is_nobody_s_fork_and_breaks_nothing(tmp_path: Path) -> None:
    one = made(tmp_path, "one")
    (made(tmp_path, "torn", "one").path / "request.json").write_text("{")
    made(tmp_path, "fork", "one")
    assert names(one) == ["fork"]
