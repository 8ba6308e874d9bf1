from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from roost.base.errors import NotFound
from roost.base.system import state_folder
from roost.lab.queue import package_roots
from roost.serve.routes import served_packages


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ROOST_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(served_packages, "_extra_folders", [])
    monkeypatch.setattr(served_packages, "_names_by_folder", {})
    package(tmp_path / "root" / "one")
    served_packages.add_folders([tmp_path / "root"])
    return tmp_path / "root"


def package(path: Path) -> Path:
    path.mkdir(parents=True)
    (path / "request.json").write_text("{}")
    return path


def test_an_id_is_the_same_as_long_as_the_package_lies_there(root: Path) -> None:
    id = served_packages.run_id(root / "one")
    assert (
        served_packages.package_path(id) == root / "one" and served_packages.run_id(str(root / "one")) == id
    )
    assert str(root) not in id and "one" not in id
    (root / "one").rename(root / "two")
    with pytest.raises(NotFound):
        served_packages.package_path(id)
    assert served_packages.package_path(served_packages.run_id(root / "two")) == root / "two"


def test_a_package_has_one_id_by_whatever_path(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert served_packages.run_id(tmp_path / "link" / "one") == served_packages.run_id(root / "one")
    assert served_packages.run_id_in(root, "one") == served_packages.run_id(root / "one")


def test_a_package_created_within_a_tick_of_the_clock_is_found(root: Path) -> None:
    served_packages.package_path(served_packages.run_id(root / "one"))
    before = root.stat()
    package(root / "two")
    os.utime(root, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert served_packages.package_path(served_packages.run_id(root / "two")) == root / "two"


def test_a_folder_that_stays_as_it_is_is_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.utime(root, ns=(0, 0))
    served_packages.package_path(served_packages.run_id(root / "one"))
    monkeypatch.delattr(Path, "iterdir")
    assert served_packages.package_path(served_packages.run_id(root / "one")) == root / "one"


@pytest.mark.parametrize("id", ["", "-", "x", "../..", "00000000-0000000000000000"])
def test_other_ids_are_not_found(root: Path, id: str) -> None:
    with pytest.raises(NotFound, match="GET /api/v1/runs"):
        served_packages.package_path(id)


def test_a_link_and_a_folder_without_a_package_are_not_found(root: Path, tmp_path: Path) -> None:
    package(tmp_path / "elsewhere")
    (root / "link").symlink_to(tmp_path / "elsewhere")
    (root / "folder").mkdir()
    (root / "file").touch()
    for name in ("link", "folder", "file"):
        with pytest.raises(NotFound, match="GET /api/v1/runs"):
            served_packages.package_path(served_packages.run_id(root / name))


def test_packages_of_one_name_in_two_folders_have_two_ids(root: Path, tmp_path: Path) -> None:
    package(tmp_path / "other" / "one")
    served_packages.add_folders([tmp_path / "other"])
    found = {
        served_packages.package_path(served_packages.run_id(path / "one"))
        for path in (root, tmp_path / "other")
    }
    assert found == {root / "one", tmp_path / "other" / "one"}


def test_folders_are_those_given_and_those_of_the_lab(root: Path, tmp_path: Path) -> None:
    (tmp_path / "project" / "runs" / "a").mkdir(parents=True)
    served_packages.add_folders([tmp_path / "project", tmp_path / "gone"])
    (tmp_path / "lab_root" / "p").mkdir(parents=True)
    state_folder.prepare(state_folder.lab_folder())
    package_roots.add(state_folder.lab_folder(), [tmp_path / "lab_root" / "p"])
    assert served_packages.folders() == [root, tmp_path / "project" / "runs", tmp_path / "lab_root"]
