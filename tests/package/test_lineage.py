"""Where a fork comes from, read from its own files alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from roost.base.errors import ConfigError
from roost.config.values import nested_values
from roost.package import lineage
from roost.package.package import PackageFolder
from roost.package.results.skipped_steps import NAME, SkippedStep, append
from tests.messages import Messages
from tests.operations.packages import add_checkpoint, package, record_rows, session

GRAND = {"package": "old", "path": "/runs/old", "checkpoint": 1, "step": 10, "sha256": "0" * 64}
PARENT = {**GRAND, "package": "one", "path": "/runs/one", "checkpoint": 3, "step": 25}


def forked(root: Path, **parent: Any) -> PackageFolder:
    request = {"parent": {**PARENT, **parent}, "ancestors": [GRAND]}
    return PackageFolder.create(root, name="fork", values={"max_epochs": 3}, request=request)


def test_the_whole_ancestry_is_in_the_package_itself(tmp_path: Path) -> None:
    made = forked(tmp_path)
    assert [(one.package, one.step) for one in lineage.ancestry(made)] == [("one", 25), ("old", 10)]
    assert lineage.parent_of(made) == lineage.ancestry(made)[0]


def test_a_package_that_began_by_itself_has_none(tmp_path: Path) -> None:
    made = PackageFolder.create(tmp_path, name="one", values={})
    assert lineage.ancestry(made) == [] and lineage.parent_of(made) is None
    assert lineage.changed_settings(made) == []


@pytest.mark.parametrize("parent", [{"step": "many"}, {"package": None}])
def test_an_unreadable_request_has_no_ancestry(tmp_path: Path, parent: dict[str, Any]) -> None:
    assert lineage.ancestry(forked(tmp_path, **parent)) == []


def test_changes_are_kept_with_both_values() -> None:
    found = nested_values.differences({"a": 1, "b": None, "gone": 2}, {"a": 1.5, "b": None, "new": [1]})
    kept = lineage.setting_changes(found)
    assert [str(one) for one in kept] == ["a: 1 -> 1.5", "gone: 2 -> (not set)", "new: (not set) -> [1]"]


def test_a_schedule_follows_the_end_that_it_was_laid_out_for(tmp_path: Path) -> None:
    schedule = {"scheduler": {"T_max": "${total_steps}"}}
    request = {"parent": {**PARENT, "changed": [{"key": "max_epochs", "old": 2, "new": 3}]}}
    values = {"max_epochs": 3, "optimizers": {"main": schedule}}
    made = PackageFolder.create(tmp_path, name="fork", values=values, request=request)
    assert lineage.changed_settings(made) == ["max_epochs", "optimizers.main.scheduler.T_max"]
    other = PackageFolder.create(tmp_path, name="same", values=values, request={"parent": PARENT})
    assert lineage.changed_settings(other) == []


def test_what_has_changed_since_a_checkpoint_was_saved(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", values={"optimizers": {"main": {"lr": 1}}, "max_epochs": 2})
    (old, *_) = made.store().lineage()
    assert not lineage.optimizers_may_differ(made) and lineage.settings_changed_since(made, old) == []
    asked = {"kind": "python", "overrides": ["optimizers.main.lr=2", "max_epochs=3"]}
    number = made.new_session(asked)
    assert lineage.optimizers_may_differ(made)
    assert lineage.settings_changed_since(made, old) == ["optimizers.main.lr"]
    assert lineage.settings_changed_since(made, msgspec.structs.replace(old, session=number)) == []


def test_history_is_that_of_the_checkpoint_not_of_the_branch_that_came_later(tmp_path: Path) -> None:
    made = package(tmp_path / "runs", state="stopped")
    append(
        made.path / NAME,
        SkippedStep(session=1, step=15, epoch=1, batch=4, kind="error", error="e", samples=[7]),
    )
    branch = session(made, "succeeded")
    record_rows(made, branch, 10, [{"step": 20, "epoch": 2, "train/loss": 9.0, "valid/loss": 9.0}])
    add_checkpoint(made, 3, {"step": 20, "epoch": 2})
    old, new = made.store().lineage()[2], made.store().lineage()[3]
    rows, steps = lineage.history_before(made, old)
    assert [(row["step"], row["train/loss"]) for row in rows] == [(10, 2.0), (20, 1.0), (30, 0.5)]
    assert [(one.step, one.session, one.samples) for one in steps] == [(15, 0, [7])]
    rows, steps = lineage.history_before(made, msgspec.structs.replace(new, session=branch))
    assert [(row["step"], row["train/loss"]) for row in rows] == [(10, 2.0), (20, 9.0)] and steps == []


@pytest.mark.parametrize(
    ("old", "new", "setting", "facts"),
    [
        ({"class": "A"}, {"class": "B"}, "optimizers.main.class", ["'B'"]),
        ({"params": "net.*"}, {"params": "head.*"}, "optimizers.main.params", []),
        ({}, {"groups": [{"params": "x"}]}, "optimizers.main.groups", []),
        ({"groups": [{"params": "y"}]}, {"groups": [{"params": "x"}]}, "optimizers.main.groups", []),
    ],
)
def test_what_the_state_of_an_optimizer_cannot_become(
    old: Any, new: Any, setting: str, facts: list[str], messages: Messages
) -> None:
    found = nested_values.differences(
        {"optimizers": {"main": {"lr": 1, **old}}}, {"optimizers": {"main": {"lr": 2, **new}}}
    )
    with pytest.raises(ConfigError) as refused:
        lineage.require_loadable(found)
    messages.check(refused.value)
    assert refused.value.setting == setting and all(fact in str(refused.value) for fact in facts)


def test_what_it_can_become() -> None:
    groups = [{"params": "x", "lr": 1.0}], [{"params": "x", "lr": 2.0}]
    old, new = (
        {"optimizers": {"main": {"lr": lr, "groups": one}}} for lr, one in zip((1, 2), groups, strict=True)
    )
    lineage.require_loadable(nested_values.differences(old, new))


def test_another_optimizer_has_no_state(messages: Messages) -> None:
    one = {"class": "A", "lr": 1}
    found = nested_values.differences({"optimizers": {"d": one}}, {"optimizers": {"d": one, "g": one}})
    with pytest.raises(ConfigError) as refused:
        lineage.require_loadable(found)
    messages.check(refused.value)
    assert refused.value.setting == "optimizers.g.class" and "'g'" in str(refused.value)


def test_it_is_read_without_the_parent(tmp_path: Path) -> None:
    made = forked(tmp_path / "runs")
    moved = Path(shutil.move(made.path, tmp_path / "elsewhere"))
    assert json.loads((moved / "request.json").read_text())["parent"]["package"] == "one"
    assert (
        lineage.ancestry(PackageFolder.open(Path(shutil.copytree(moved, tmp_path / "copy"))))[1].package
        == "old"
    )
