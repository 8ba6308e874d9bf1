"""Which checkpoints stay in a package until its remote copy has them."""

from __future__ import annotations

from pathlib import Path

from roost.package.checkpoints import checkpoint
from roost.package.checkpoints.checkpoint import Manifest
from roost.package.remote import upload_holds
from tests.package.remote import statuses

MB = 1_000_000


def manifests(*sizes_mb: float) -> list[Manifest]:
    """Checkpoints of the steps 10, 20, …"""
    return [
        Manifest(
            id=id, step=10 * (id + 1), epoch=0, batch=0, line=[(0, id)], files={"a": {"bytes": int(mb * MB)}}
        )
        for id, mb in enumerate(sizes_mb)
    ]


def package(tmp_path: Path) -> Path:
    (tmp_path / "sessions").mkdir()
    return tmp_path


def test_what_the_copy_lacks_stays(tmp_path: Path) -> None:
    found, place = manifests(1, 1, 1, 1), package(tmp_path)
    assert upload_holds.held_ids(place, found, {2, 3}, max_mb=10) == ({0, 1}, set())
    statuses.write(place, step=10, checkpoints=[0])
    assert upload_holds.held_ids(place, found, {2, 3}, max_mb=10) == ({1}, set())
    statuses.write(place, step=30, checkpoints=[2])
    assert upload_holds.held_ids(place, found, {3}, max_mb=10) == (set(), set()), (
        "older ones are uploaded no more"
    )


def test_the_oldest_stay_as_long_as_there_is_space(tmp_path: Path) -> None:
    found, place = manifests(2, 2, 2, 1), package(tmp_path)
    assert upload_holds.held_ids(place, found, {3}, max_mb=5) == ({0, 1}, {2})
    assert upload_holds.held_ids(place, found, {3}, max_mb=0) == (set(), {0, 1, 2})


def test_the_sizes_are_those_of_real_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "Checkpoints").mkdir()
    made = checkpoint.write(tmp_path / "Checkpoints", {"a": {"x": "y" * MB}}, manifests(0)[0])
    held, removed = upload_holds.held_ids(package(tmp_path), [made], set(), max_mb=1)
    assert (held, removed) == (set(), {0}) and made.size_bytes > MB
