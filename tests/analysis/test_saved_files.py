"""Names of what is saved."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from roost.analysis import analysis_folder
from roost.analysis.saved_files import SavedFiles
from roost.base.errors import ContractError
from tests.messages import Messages


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
