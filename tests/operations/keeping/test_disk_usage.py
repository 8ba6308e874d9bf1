"""The bytes of packages by their parts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roost.operations.keeping import trash
from roost.operations.keeping.disk_usage import disk_usage
from tests.operations.packages import package


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_parts_add_up_and_the_largest_is_first(tmp_path: Path) -> None:
    small, large = (package(tmp_path / "runs", name) for name in ("a", "b"))
    (large.path / "media").mkdir()
    (large.path / "media" / "film").write_bytes(bytes(300_000))
    found = disk_usage([small.path, large.path])
    assert [one.name for one in found.packages] == ["b", "a"]
    first = found.packages[0]
    assert first.media >= 300_000 and min(first.checkpoints, first.records, first.code, first.other) > 0
    parts = (first.checkpoints, first.records, first.media, first.code, first.other)
    assert sum(parts) == first.total and found.total == sum(one.total for one in found.packages)
    assert first.prunable == 20  # the one file of the checkpoint that is neither best nor last


def test_hard_links_count_once(tmp_path: Path) -> None:
    one, other = (package(tmp_path / "runs", name) for name in ("a", "b"))
    alone = disk_usage([one.path, other.path]).total
    (one.path / "big").write_bytes(bytes(1_000_000))
    os.link(one.path / "big", other.path / "big")
    os.link(one.path / "big", one.path / "again")
    assert 1_000_000 <= disk_usage([one.path, other.path]).total - alone < 1_100_000


def test_the_trash_is_counted_separately(tmp_path: Path) -> None:
    made = [package(tmp_path / "runs", name) for name in ("a", "b")]
    list(trash.remove([made[0].path]))
    found = disk_usage([made[1].path])
    assert [one.name for one in found.packages] == ["b"] and found.trash > found.total / 2
    list(trash.restore([str(tmp_path / "runs" / "a")]))
    assert disk_usage([made[1].path]).trash == 0, "an empty trash"
