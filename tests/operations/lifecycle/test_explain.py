"""What a run would take, without making one."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import ConfigError
from roost.config.layers import ABSENT
from roost.operations.lifecycle.explain import explain, merged_settings
from tests.messages import Messages
from tests.operations.packages import project


def test_each_layer_from_lowest_to_highest(tmp_path: Path) -> None:
    config = project(tmp_path / "p")
    (tmp_path / "tune.yaml").write_text("max_epochs: 4\n")
    found = explain(config, "max_epochs", tuning=tmp_path / "tune.yaml", overrides=["max_epochs=5"])
    assert [value for _, value in found.layers] == [10, 4, 5]
    assert found.layers[0][0].startswith("config.yaml:") and found.layers[2][0] == "command line"
    assert found.help


def test_what_was_taken_away(tmp_path: Path) -> None:
    found = explain(project(tmp_path / "p"), "model.features", overrides=["~model"])
    assert found.layers[-1] == ("command line", ABSENT) and found.help is None


def test_a_setting_that_is_not_set(tmp_path: Path, messages: Messages) -> None:
    found = explain(project(tmp_path / "p"), "max_steps")
    assert found.layers == [] and found.help
    assert found.values is not None and ">= 1" in found.values and "null" in found.values
    messages.check(found.values)


def test_an_unknown_key(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        explain(project(tmp_path / "p"), "model.feature")
    assert all(fact in str(refused.value) for fact in ("'model.feature'", "'model.features'"))
    messages.check(refused.value)


def test_all_settings(tmp_path: Path) -> None:
    values = merged_settings(project(tmp_path / "p"), overrides=["+model.name=x"])
    assert values["model"] == {"features": 8, "name": "x"} and values["seed"] == 0
