"""Under which name a task's memory is remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from roost.lab.memory.memory_features import MemoryFeatures
from roost.lab.sessions.session_plan import SessionPlan
from roost.operations.queue import memory_profile
from roost.package.package import PackageFolder
from tests.operations.packages import VALUES, package

TRAINING: dict[str, Any] = {"overrides": [], "strategy": "single"}


def of(made: PackageFolder, **request: Any) -> tuple[str, float | None]:
    return memory_profile.profile_of(made, SessionPlan(request={**TRAINING, **request}, argv=[], env={}))


def test_the_code_the_settings_and_the_strategy_count(tmp_path: Path) -> None:
    values = {**VALUES, "data": {"batch_size": 16}}
    made = package(tmp_path / "runs", values=values)
    key, scale = of(made)
    assert scale == 16.0 and "model.features" in MemoryFeatures.from_text(key).settings
    assert of(package(tmp_path / "runs", "two", values={**values, "seed": 9})) == (key, 16.0)
    assert of(made, overrides=["data.batch_size=32", "max_epochs=9"]) == (key, 32.0)
    assert of(made, strategy="fsdp")[0] != key
    assert of(made, overrides=["model.features=9"])[0] != key
    code = next((tmp_path / "runs-source").rglob("*.py"))
    code.write_text(code.read_text() + "\n# changed\n")
    edited = MemoryFeatures.from_text(of(package(tmp_path / "runs", "three", values=values))[0])
    before = MemoryFeatures.from_text(key)
    assert edited.code != before.code
    assert (edited.family, edited.settings) == (before.family, before.settings), "only the code is another"


def test_what_is_no_code_does_not_count(tmp_path: Path) -> None:
    key = of(package(tmp_path / "runs"))
    (tmp_path / "runs-source" / "notes.txt").write_text("of no matter")
    assert of(package(tmp_path / "runs", "two")) == key


def test_a_command_has_none(tmp_path: Path) -> None:
    plan = SessionPlan(request={"kind": "command"}, argv=["true"], env={}, is_command=True)
    assert memory_profile.profile_of(package(tmp_path / "runs"), plan) == ("", None)
