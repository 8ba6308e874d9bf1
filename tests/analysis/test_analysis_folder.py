"""Where analyses live."""

from __future__ import annotations

import errno
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from roost.analysis import analysis_folder
from roost.analysis.analysis_folder import SavedFiles
from roost.base import durable
from roost.base.errors import ContractError, Refused
from tests.messages import Messages
from tests.operations.packages import package


def test_a_place_within_the_package(tmp_path: Path, messages: Messages) -> None:
    made = package(tmp_path / "runs")
    (tmp_path / "link").symlink_to(made.path)
    for out in (made.path, made.path / "Checkpoints", tmp_path / "link" / "records"):
        with pytest.raises(Refused, match=r"analysis") as refused:
            analysis_folder.analyses_root(made, out)
        messages.check(refused.value)
    for out in (tmp_path, made.path / "analysis", made.path / "analysis" / "mine"):
        assert analysis_folder.analyses_root(made, out) == out
    assert analysis_folder.analyses_root(made, None) == made.path / "analysis"


def test_numbers_are_taken_once_each(tmp_path: Path) -> None:
    root = tmp_path / "package" / "analysis"
    with ThreadPoolExecutor(8) as many:
        made = list(many.map(lambda _: analysis_folder.create(root), range(24)))
    assert sorted(int(path.name) for path in made) == list(range(1, 25))


def test_a_number_below_the_highest_is_not_given_again(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        assert analysis_folder.create(tmp_path).name == str(number)
    (tmp_path / "2").rmdir()
    (tmp_path / "notes").mkdir()
    assert analysis_folder.create(tmp_path).name == "4"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_a_place_that_takes_nothing_names_the_way_out(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    def refuse(operation: str, path: str) -> None:
        if operation == "mkdir":
            raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(durable, "fault", refuse)
    with pytest.raises(Refused, match="-o DIR") as refused:
        analysis_folder.create(tmp_path / "analysis")
    messages.check(refused.value)


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "analysis").write_text("mine")
    with pytest.raises(Refused, match="-o DIR"):
        analysis_folder.create(tmp_path / "analysis")


def test_what_was_asked_and_what_became_of_it(tmp_path: Path) -> None:
    place = analysis_folder.create(tmp_path)
    assert analysis_folder.read_all(tmp_path) == [], "nothing was asked yet"
    analysis_folder.write_request(place, {"script": {"path": "/home/me/look.py"}})
    (only,) = analysis_folder.read_all(tmp_path)
    assert (only.number, only.state, only.request["pid"]) == (1, "starting", os.getpid())
    (place / analysis_folder.RECORD).write_bytes(b'{"state": "failed", "error": "ValueError: no"}')
    assert (analysis_folder.read(place).state, analysis_folder.read(place).error) == (
        "failed",
        "ValueError: no",
    )
    assert analysis_folder.read_all(tmp_path / "nowhere") == []


def test_where_the_script_is_from(tmp_path: Path) -> None:
    place = analysis_folder.create(tmp_path)
    assert analysis_folder.script_folder(place) == place, "not known yet"
    analysis_folder.write_request(place, {"script": {"path": "/home/me/look.py"}})
    assert analysis_folder.script_folder(place) == Path("/home/me")


@pytest.mark.parametrize("text", [None, "", "[1]", "{", '{"value": '])
def test_a_result_that_is_not_there_or_torn(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / analysis_folder.RESULT).write_text(text)
    assert analysis_folder.read_result(tmp_path) == {}


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../up", "a/b", "/tmp/x", "a\0b", "a\nb", ".hidden", "-dash", " x ", None, 3]
)
def test_what_is_no_file_name_is_refused(name: Any, tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ContractError, match=re.escape(repr(name))) as refused:
        SavedFiles(tmp_path).write(name, "txt", b"x")
    if name == "../up":
        messages.check(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    files = SavedFiles(tmp_path)
    written = [files.write(name, "txt", data) for name, data in (("a", b"1"), ("a", b"2"), ("a.txt", b"3"))]
    assert [path.name for path in written] == files.saved == ["a.txt", "a-2.txt", "a-3.txt"]
    assert [path.read_bytes() for path in written] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("name", sorted(analysis_folder.RESERVED_NAMES))
def test_the_names_of_the_analysis_itself_stay_free(name: str, tmp_path: Path) -> None:
    stem, _, suffix = name.rpartition(".")
    assert (
        SavedFiles(tmp_path).write(stem.lstrip("_") or stem, suffix, b"x").name
        not in analysis_folder.RESERVED_NAMES
    )
