"""Which folders are packages of DLNest's own programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.package.dlnest.original_folder import is_original, read_json, read_only_error
from roost.package.package import PackageFolder
from tests.package.dlnest.original import original


def test_recognises_by_settings_or_tracks(tmp_path: Path) -> None:
    path = original(tmp_path / "old")
    assert is_original(path)
    (path / "_package.json").unlink()
    assert is_original(path)
    (path / "args.json").write_text(json.dumps({"runner": "x.py:Runner"}))
    assert not is_original(path)
    assert not is_original(tmp_path) and not is_original(tmp_path / "missing")
    own = PackageFolder.create(tmp_path, values={"runner_file_path": "x"}, request={"kind": "dlnest"})
    assert not is_original(own.path)
    (own.path / "request.json").unlink()
    assert not is_original(own.path), "an interrupted creation by roost"


def test_what_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[1]")
    assert read_json(tmp_path / "a.json") is None and read_json(tmp_path / "b.json") is None


def test_opening_it_to_write_says_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="only reads") as refused:
        PackageFolder.open(original(tmp_path / "old"))
    assert str(refused.value) == str(read_only_error(tmp_path / "old"))
