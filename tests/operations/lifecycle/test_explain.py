"""What a run would take, without making one."""

from __future__ import annotations

from pathlib import Path

import pytest

from roost.base.errors import ConfigError
from roost.config.values.nested_values import ABSENT
from roost.operations.lifecycle.explain import declared_options, explain, merged_settings
from tests.dlnest_project import dlnest_project
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


def test_a_config_of_dlnest(tmp_path: Path, messages: Messages) -> None:
    config = dlnest_project(tmp_path / "p", seed="mine", options={"x": 1})
    values = merged_settings(config, overrides=["model.lr=3", "roost.seed=4"])
    assert (values["seed"], values["roost"]["seed"], values["model"]["lr"]) == ("mine", 4, 3)
    found = explain(config, "model.lr", overrides=["model.lr=3"])
    assert found.layers == [("model.json:1", 0.1), ("command line", 3)]
    assert (found.help, found.values) == (None, None)
    found = explain(config, "roost.precision")
    assert found.layers == [("default", 32)] and found.values == "32 or 'bf16'"
    found = explain(config, "checkpoint_args.max_ckpt_in_fast_track")
    assert found.layers == [] and found.help == "newest checkpoints kept"
    for key in ("roost.sead", "model.rl"):
        with pytest.raises(ConfigError) as refused:
            explain(config, key)
        messages.check(refused.value)
    with pytest.raises(ConfigError):
        merged_settings(config, overrides=["checkpoint_args.dilation_in_slow_track=0"])


def test_its_options_are_the_settings_of_roost(tmp_path: Path) -> None:
    config = dlnest_project(tmp_path / "p", roost={"log_every": 5})
    found = {one.name: one for one in declared_options(config, overrides=["roost.limits.grace=9s"])}
    assert all(name.startswith("roost.") for name in found)
    assert found["roost.seed"].help == "seed of all random numbers"
    assert found["roost.seed"].default == "default 0"
    assert found["roost.log_every"].default == 'default "10/ep"; here 5'
    assert found["roost.limits.grace"].default == 'default "60s"; here "9s"'
    assert found["roost.max_time"].default == "not set"
    assert not {"roost", "roost.limits", "roost.mirrors", "roost.mirrors.wandb.mode"} & found.keys()
    assert "roost.mirrors.wandb" in found
