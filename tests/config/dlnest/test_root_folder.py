"""The project's folder of a config of DLNest's contract."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound
from roost.config import layers
from roost.config.dlnest.root_folder import RootFolder, find_root
from tests.dlnest_project import dlnest_project
from tests.messages import Messages


def found(folder: Path, root: Any = ..., given: Path | None = None) -> RootFolder:
    return find_root(layers.load(dlnest_project(folder, root_file_path=root)), given)


def test_without_a_root_it_is_the_configs_folder(tmp_path: Path) -> None:
    for number, root in enumerate((..., "", ".", None, str(tmp_path / "4"))):
        here = tmp_path / str(number)
        assert found(here, root) == RootFolder(here)


def test_a_root_elsewhere_is_said(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    for name, root in (("a", "../code"), ("b", str(tmp_path / "code"))):
        one = found(tmp_path / name, root)
        assert one.path == tmp_path / "code" and one.former is None
        (note,) = one.notes
        assert str(tmp_path / "code") in note and "root.json:" in note


def test_a_copied_project_is_told_that_the_first_ones_code_runs(tmp_path: Path) -> None:
    """`new` writes an absolute root, so a copy would train the code that was not edited."""
    first = dlnest_project(tmp_path / "first", root_file_path=str(tmp_path / "first")).parent
    shutil.copytree(first, tmp_path / "copy")
    one = find_root(layers.load(tmp_path / "copy" / "root.json"), None)
    assert one.path == first
    assert str(tmp_path / "copy") in one.notes[0] and '"root_file_path": "."' in one.notes[0]


def test_the_caller_wins(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one = found(tmp_path / "p", "/gone", tmp_path / "other")
    assert (one.path, one.former, one.notes) == (tmp_path / "other", Path("/gone"), ())
    with pytest.raises(NotFound):
        found(tmp_path / "q", given=tmp_path / "missing")


def test_a_moved_project(tmp_path: Path) -> None:
    """An absolute root of another machine: the config's folder is taken, also for paths in the old root."""
    one = found(tmp_path / "p", "/home/alice/old")
    assert (one.path, one.former) == (tmp_path / "p", Path("/home/alice/old"))
    assert one.resolve("/home/alice/old/Saves") == tmp_path / "p/Saves"
    assert one.resolve("/home/alice/older") == Path("/home/alice/older")
    assert one.resolve("Model/../LifeCycle.py") == tmp_path / "p/LifeCycle.py"
    assert "/home/alice/old" in one.notes[0] and str(tmp_path / "p") in one.notes[0]


@pytest.mark.parametrize("root", ["nowhere", "root.json", 3, ["a"]])
def test_a_wrong_root_is_refused(tmp_path: Path, root: Any, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        found(tmp_path / "p", root)
    assert refused.value.setting == "root_file_path" and str(refused.value.where).startswith("root.json:")
    messages.check(refused.value)
