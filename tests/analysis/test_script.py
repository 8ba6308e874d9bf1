"""Finding a script, looking at it without running it, and importing it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.analysis import script
from roost.base.errors import ContractError, NotFound, Refused
from tests.messages import Messages

GOOD = "def experience(self):\n    return 1\n"


@pytest.fixture(autouse=True)
def own_imports() -> Iterator[None]:
    """What a test imports is not seen by the next."""
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - before:
        del sys.modules[name]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The AnalyzeScripts of a project and of its package; the working folder is another one."""
    for name in ("project", "package"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "accuracy.py").write_text(GOOD)
    (tmp_path / "package" / "old.py").write_text(GOOD)
    (tmp_path / "project" / "sub" / "deep.py").write_text(GOOD)
    (tmp_path / "outside.py").write_text(GOOD)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return [tmp_path / "project", tmp_path / "package"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("accuracy", "project/accuracy.py"),
        ("accuracy.py", "project/accuracy.py"),
        ("old", "package/old.py"),
        ("sub/deep", "project/sub/deep.py"),
        ("../outside.py", "outside.py"),
        ("mine.py", "here/mine.py"),
    ],
)
def test_a_path_as_typed_and_then_a_name(asked: str, found: str, folders: list[Path], tmp_path: Path) -> None:
    Path("mine.py").write_text(GOOD)
    assert script.find(asked, folders).resolve() == tmp_path / found


def test_what_is_typed_goes_before_a_name(folders: list[Path]) -> None:
    Path("accuracy.py").write_text(GOOD)
    assert script.find("accuracy.py", folders) == Path("accuracy.py").absolute()
    assert script.find("accuracy", folders) == folders[0] / "accuracy.py"


def test_nothing_of_that_name(folders: list[Path], tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(NotFound) as caught:
        script.find("acuracy", folders)
    text = str(caught.value)
    assert all(str(folder) in text for folder in folders)
    assert "'accuracy'" in text and "accuracy, old, sub/deep" in text
    messages.check(text)
    with pytest.raises(NotFound, match="nowhere") as refused:
        script.find("acuracy", [tmp_path / "nowhere"])
    messages.check(refused.value)


@pytest.mark.parametrize("asked", ["../package/old", "sub/../old", "/nowhere/old", ""])
def test_a_name_that_climbs_is_not_searched_for(asked: str, folders: list[Path], messages: Messages) -> None:
    (folders[0] / "old.py").write_text(GOOD)
    with pytest.raises(NotFound, match=repr(asked)) as refused:
        script.find(asked, folders)
    messages.check(refused.value)


def test_a_folder_is_no_script(folders: list[Path], messages: Messages) -> None:
    Path("folder").mkdir()
    with pytest.raises(NotFound, match="folder") as refused:
        script.find("folder", folders)
    messages.check(refused.value)
    (folders[0] / "folder.py").write_text(GOOD)
    assert script.find("folder", folders) == folders[0] / "folder.py", "a name all the same"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        "from other import experience",
        "from other import *",
        "import other as experience",
        "experience = lambda self: 1",
        "if True:\n    def experience(self): ...",
        "try:\n    import x\nexcept ImportError:\n    experience = print",
        "def experience(*self): ...",
        "def experience(self, a=1, *, b=2, **more): ...",
        "import torch\n@torch.no_grad()\ndef experience(self): ...",
        "async def experience(): ...\ndef experience(self): ...",
        "# -*- coding: latin-1 -*-\nx = '\xe9'\n" + GOOD,
    ],
)
def test_what_can_be_called(text: str, tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_bytes(text.encode("latin-1"))
    assert script.read(file) == (file, text.encode("latin-1"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "`experience`.*x.py"),
        ("def experiment(self): ...", "'experiment'"),
        ("class A:\n    def experience(self): ...", "`experience`.*x.py"),
        ("def f():\n    experience = 1", "`experience`.*x.py"),
        ("def experience(): ...", "x.py:1"),
        ("x = 1\n\ndef experience(*, a): ...", "x.py:3"),
        ("def experience(self, a, b=1): ...", " a[ ,].*x.py:1"),
        ("def experience(self, *, a): ...", " a[ ,].*x.py:1"),
        ("class experience: ...", "class.*x.py:1"),
        ("async def experience(self): ...", "coroutine.*x.py:1"),
        ("x = 1\ndef experience(self:\n", r"Python: .*x.py:2\)"),
        ("\tx\n  y", r"Python: .*x.py:\d"),
        ("x = '\0'", "Python: "),
        ("\x80\xff", "Python: "),
        ("(" * 5000, "Python: "),
        ('{"cells": [], "nbformat": 4}', "`experience`.*x.py"),
    ],
)
def test_what_cannot(text: str, says: str, tmp_path: Path, messages: Messages) -> None:
    file = tmp_path / "x.py"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ContractError, match=says) as refused:
        script.read(file)
    if "Python: " not in says:
        messages.check(refused.value)


def test_a_fifo_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.py")
    with pytest.raises(Refused, match=r"not a regular file .*x\.py"):
        script.read(tmp_path / "x.py")


def test_a_file_that_is_far_too_long_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "x.py").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Refused, match="cannot be read"):
        script.read(tmp_path / "x.py")


# --- imported ----------------------------------------------------------------------------------------------


def placed(tmp_path: Path, text: str) -> tuple[Path, Path, Path]:
    """(copy, script, package)"""
    package, scripts = tmp_path / "package", tmp_path / "project" / "AnalyzeScripts"
    package.mkdir()
    scripts.mkdir(parents=True)
    (tmp_path / "copy.py").write_text(text)
    (scripts / "look.py").write_text("raise SystemExit('edited meanwhile')")
    return tmp_path / "copy.py", scripts / "look.py", package


def test_runs_the_copy_in_the_place_of_the_script(tmp_path: Path) -> None:
    copy, path, package = placed(tmp_path, "from beside import x\ndef experience(self): return __file__, x")
    (path.parent / "beside.py").write_text("x = 'neighbour'")
    assert script.load(copy, path, package)(None) == (str(path), "neighbour")


def test_the_package_goes_first(tmp_path: Path) -> None:
    copy, path, package = placed(tmp_path, "from owned import x\ndef experience(self): return x")
    (path.parent / "owned.py").write_text("x = 'the scripts folder'")
    (package / "Model").mkdir()
    (package / "Model" / "owned.py").write_text("x = 'the package'")
    sys.path.insert(0, str(package / "Model"))
    assert script.load(copy, path, package)(None) == "the package"
    assert sys.path[:3] == [str(package), str(package / "Model"), str(path.parent)]


def test_a_dataclass_in_a_script_finds_its_module(tmp_path: Path) -> None:
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text += "@dataclass\nclass A:\n    x: int\ndef experience(self): return A(1).x"
    assert script.load(*placed(tmp_path, text))(None) == 1


@pytest.mark.parametrize("text", ["experience = 3", "from os import sep as experience"])
def test_what_turns_out_to_be_no_function(text: str, tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ContractError, match="`experience`") as refused:
        script.load(*placed(tmp_path, text))
    messages.check(refused.value)


def test_an_error_names_the_script(tmp_path: Path) -> None:
    copy, path, package = placed(tmp_path, "x = 1\nraise ValueError('here')")
    with pytest.raises(ValueError, match="here") as caught:
        script.load(copy, path, package)
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (last.filename, last.lineno) == (str(path), 2)
