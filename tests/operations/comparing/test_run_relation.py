"""Forks, sweeps, and runs that differ only in their seed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import NotFound, UsageError
from roost.operations.comparing.code_comparison import compare_code
from roost.operations.comparing.comparison import CommonParent, RunRelation
from roost.operations.comparing.run_relation import find_parent, relate
from roost.operations.comparing.setting_comparison import compare_settings
from roost.package.package import PackageFolder
from tests.operations.comparing.runs import edit_project, make, optimizer, read


def relation(*made: PackageFolder) -> RunRelation:
    runs = read(*made)
    return relate(runs, compare_settings(runs), compare_code(runs).is_same)


def parent_entry(parent: PackageFolder, step: int) -> dict[str, Any]:
    return {
        "package": parent.path.name, "path": str(parent.path), "checkpoint": 1, "step": step,
        "sha256": "0" * 64, "changed": [{"key": "lr", "old": 1, "new": 2}],
    }  # fmt: skip


def make_fork(made: PackageFolder, parent: PackageFolder, step: int) -> PackageFolder:
    """Makes a package a fork, as `roost fork` writes it."""
    above = parent.request
    ancestors = [one for one in [above.get("parent"), *above.get("ancestors", [])] if one]
    request = {**made.request, "parent": parent_entry(parent, step), "ancestors": ancestors}
    (made.path / "request.json").write_text(json.dumps(request))
    return made


def test_only_the_seed_the_same_and_neither(tmp_path: Path) -> None:
    a, b, c = (make(tmp_path / "runs", name, seed=seed) for name, seed in (("a", 0), ("b", 1), ("c", 1)))
    found = relation(a, b)
    assert found.only_seed and not found.same_settings
    found = relation(b, c)
    assert found.same_settings and not found.only_seed
    found = relation(a, b, make(tmp_path / "runs", "d", seed=2, optimizers=optimizer(3.0)))
    assert not found.only_seed and not found.same_settings
    edit_project(tmp_path / "runs", "x.py", b"")
    assert not relation(a, make(tmp_path / "runs", "e", seed=5)).only_seed


def test_name_and_place_of_a_run_are_no_difference(tmp_path: Path) -> None:
    found = relation(
        make(tmp_path / "runs", "a", description="x", seed=0),
        make(tmp_path / "runs", "b", save_root="y", seed=1),
    )
    assert found.only_seed


def test_unknown_settings_are_neither_equal_nor_different(tmp_path: Path) -> None:
    a, b = make(tmp_path / "runs", "a"), make(tmp_path / "runs", "b")
    (b.path / "args.json").write_text("{")
    found = relation(a, b)
    assert found.same_settings is None and not found.only_seed


def test_forks_and_their_forks(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    first = make(root, "first")
    fork = make_fork(make(root, "fork"), first, 20)
    below = make_fork(make(root, "below"), fork, 30)
    sibling = make_fork(make(root, "sibling"), first, 10)
    (found,) = relation(first, fork).forks
    assert (found.fork, found.parent, found.step, str(found.changed[0])) == (1, 0, 20, "lr: 1 -> 2")
    (found,) = relation(below, first).forks
    assert (found.fork, found.parent, found.step, found.changed) == (0, 1, 20, [])
    both = relation(below, sibling)
    assert both.forks == [] and both.common_parent == CommonParent(package="first", step=10)
    stranger = make(tmp_path / "other", "first")
    assert relation(stranger, fork).forks == []
    shutil.rmtree(first.path)
    assert len(relation(stranger, fork).forks) == 1  # it may be the parent, moved


def test_the_parent_of_a_single_fork(tmp_path: Path) -> None:
    first = make(tmp_path / "runs", "first")
    fork = make_fork(make(tmp_path / "runs", "fork"), first, 20)
    assert find_parent(fork.path) == first.path
    shutil.move(tmp_path / "runs", tmp_path / "moved")
    assert find_parent(tmp_path / "moved" / "fork") == tmp_path / "moved" / "first"
    with pytest.raises(UsageError):
        find_parent(tmp_path / "moved" / "first")
    shutil.rmtree(tmp_path / "moved" / "first")
    with pytest.raises(NotFound):
        find_parent(tmp_path / "moved" / "fork")
