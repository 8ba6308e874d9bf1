"""The folders that roost has seen."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from roost.base.system import state_folder
from roost.lab.queue import package_roots
from roost.operations.listing.known_folders import known_folders
from roost.operations.listing.list_packages import list_packages
from tests.operations.packages import package


def test_those_that_were_listed_and_those_of_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    assert known_folders() == []
    for name in ("listed", "queued", "removed", "unseen"):
        package(tmp_path / name, "one", checkpoints=False)
    list_packages(tmp_path / "listed")
    list_packages(tmp_path / "removed")
    state_folder.lab_folder().mkdir(parents=True)
    package_roots.add(state_folder.lab_folder(), [tmp_path / "queued" / "one", tmp_path / "empty" / "one"])
    (tmp_path / "empty").mkdir()
    shutil.rmtree(tmp_path / "removed")
    next((tmp_path / "cache" / "roost" / "ls").glob("*.json")).with_name("torn.json").write_bytes(b"[6,")
    assert known_folders() == [tmp_path / "listed", tmp_path / "queued"]
