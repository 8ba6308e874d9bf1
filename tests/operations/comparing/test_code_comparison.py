"""The copied files in which runs differ."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.operations.comparing.code_comparison import compare_code
from roost.operations.comparing.comparison import FileChange
from roost.package.package import PackageFolder
from tests.operations.comparing.runs import edit_project, make, read


def two(root: Path, name: str, first: bytes | None, second: bytes | None) -> list[PackageFolder]:
    """Packages that differ in one file."""
    if first is not None:
        edit_project(root, name, first)
    one = make(root, "a")
    edit_project(root, name, second)
    return [one, make(root, "b")]


def changes(packages: list[PackageFolder], diff: list[str] | None = None) -> list[FileChange]:
    return compare_code(read(*packages), diff=diff).files


def test_the_same_code(tmp_path: Path) -> None:
    found = compare_code(read(make(tmp_path / "runs", "a"), make(tmp_path / "runs", "b")))
    (version,) = found.versions
    assert found.is_same and version.runs == [0, 1] and version.files > 3 and found.files == []


def test_changed_lines(tmp_path: Path) -> None:
    packages = two(tmp_path / "runs", "Model/Net.py", b"a\nb\nc\n", b"a\nx\ny\nc\n")
    (found,) = changes(packages)
    assert (found.path, found.kind, found.added, found.removed) == ("Model/Net.py", "changed", 2, 1)
    assert found.note is None and found.diff is None
    for names in ([], ["Model/*"], ["Model/Net.py"]):
        (found,) = changes(packages, names)
        assert found.diff == ["@@ -1,3 +1,4 @@", " a", "-b", "+x", "+y", " c"]
    with pytest.raises(NotFound, match=r"Model/Net\.py"):
        changes(packages, ["Model/Nut.py"])


def test_files_that_only_one_has(tmp_path: Path) -> None:
    (found,) = changes(two(tmp_path / "1" / "runs", "new.py", None, b"a\nb"))
    assert (found.kind, found.added, found.removed) == ("only in second", 2, 0)
    (found,) = changes(two(tmp_path / "2" / "runs", "old.py", b"a\n", None), [])
    assert (found.kind, found.added, found.removed) == ("only in first", 0, 1)
    assert found.diff == ["@@ -1 +0,0 @@", "-a"]


def test_binary_large_and_unreadable_files(tmp_path: Path) -> None:
    (found,) = changes(two(tmp_path / "1" / "runs", "x.bin", b"\0\1", b"\0\2"), [])
    assert (found.added, found.diff, found.note) == (None, None, "binary, 2 B")
    (found,) = changes(two(tmp_path / "2" / "runs", "latin.py", b"\xe9\n", b"\xe8\n"), [])
    assert found.diff == ["@@ -1 +1 @@", "-\\xe9", "+\\xe8"]
    packages = two(tmp_path / "3" / "runs", "x.py", b"a\n", b"b\n")
    (packages[1].path / "x.py").unlink()
    (found,) = changes(packages, [])
    assert found.added is None and "cannot be read in b" in (found.note or "")


def test_a_text_of_fifty_megabytes_is_named_and_not_read(tmp_path: Path) -> None:
    packages = two(tmp_path / "runs", "big.txt", b"a\n", b"b\n")
    with open(packages[1].path / "big.txt", "wb") as file:
        file.truncate(50 << 20)
    (found,) = changes(packages, [])
    assert found.added is None and found.diff is None and "too large" in (found.note or "")


def test_a_file_that_was_edited_in_the_package(tmp_path: Path) -> None:
    packages = two(tmp_path / "runs", "x.py", b"a\n", b"b\n")
    (packages[0].path / "x.py").write_bytes(b"edited\n")
    (found,) = changes(packages, [])
    assert found.note == "has changed in a since it was copied" and found.diff == [
        "@@ -1 +1 @@", "-edited", "+b",
    ]  # fmt: skip


def test_an_edit_that_a_session_was_forced_to_continue_with_is_its_code(tmp_path: Path) -> None:
    one, other = make(tmp_path / "runs", "a"), make(tmp_path / "runs", "b")
    name = "Model/Runner.py"
    digest = "0" * 64
    other.new_session({"kind": "train", "overrides": [], "changed": {name: digest}})
    assert [found.path for found in changes([one, other])] == [name]


def test_no_link_leads_out_of_a_package(tmp_path: Path) -> None:
    """Neither a file that is a link, nor a folder, nor a name in a manifest that another program wrote."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "x.py").write_text("secret\n")
    packages = two(tmp_path / "runs", "sub/x.py", b"a\n", b"b\n")
    (packages[1].path / "sub" / "x.py").unlink()
    (packages[1].path / "sub" / "x.py").symlink_to(secret / "x.py")
    (found,) = changes(packages, [])
    assert found.diff is None and found.note is not None
    (packages[1].path / "sub" / "x.py").unlink()
    (packages[1].path / "sub").rmdir()
    (packages[1].path / "sub").symlink_to(secret)
    (found,) = changes(packages, [])
    assert found.diff is None and found.note is not None
    manifest = packages[1].manifest
    manifest["files"]["../../secret/x.py"] = {"size": 7, "sha256": "0" * 64}
    (packages[1].path / "manifest.json").write_text(json.dumps(manifest))
    found = next(one for one in changes(packages, []) if "secret" in one.path)
    assert found.diff is None and "cannot be read" in (found.note or "")


def test_a_fifo_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    packages = two(tmp_path / "runs", "x.py", b"a\n", b"b\n")
    (packages[1].path / "x.py").unlink()
    os.mkfifo(packages[1].path / "x.py")
    (found,) = changes(packages, [])
    assert "cannot be read" in (found.note or "")


def test_copied_links(tmp_path: Path) -> None:
    source = tmp_path / "runs-source"
    edit_project(tmp_path / "runs", "one.py", b"1\n")
    edit_project(tmp_path / "runs", "two.py", b"2\n")
    (source / "link.py").symlink_to("one.py")
    first = make(tmp_path / "runs", "a")
    (source / "link.py").unlink()
    (source / "link.py").symlink_to("two.py")
    (found,) = changes([first, make(tmp_path / "runs", "b")], [])
    assert found.note == "link -> one.py, -> two.py" and found.diff is None


def test_more_than_two_versions(tmp_path: Path) -> None:
    packages = two(tmp_path / "runs", "x.py", b"a\n", b"b\n")
    packages.append(make(tmp_path / "runs", "c"))
    (packages[2].path / "manifest.json").write_text("{")
    found = compare_code(read(*packages))
    assert (found.unknown, [one.runs for one in found.versions], found.is_same) == ([2], [[0], [1]], False)
    edit_project(tmp_path / "runs", "y.py", b"")
    packages += [make(tmp_path / "runs", name) for name in "de"]
    found = compare_code(read(*packages))
    assert [(one.runs, one.changed) for one in found.versions] == [
        ([3, 4], []), ([0], ["x.py", "y.py"]), ([1], ["y.py"]),
    ]  # fmt: skip
    assert found.files == [] and len({one.digest for one in found.versions}) == 3
