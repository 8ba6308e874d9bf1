"""The settings of a config of DLNest's contract, and its overrides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError
from roost.config import layers
from roost.config.dlnest.dlnest_settings import (
    DlnestSettings,
    all_defaults,
    allowed_values,
    contract_keys,
    describe,
    parse_dlnest_settings,
    similar_key_notes,
)
from roost.config.run_settings import Contract
from roost.config.sections.checkpoint import CheckpointSettings
from roost.config.values.overrides import apply_overrides
from tests.messages import Messages

PROJECT: dict[str, Any] = {
    "runner_file_path": "Model/Runner.py",
    "runner_name": "Runner",
    "dataset_file_path": "Dataset/Dataset.py",
    "dataset_name": "MNISTDataset",
    "life_cycle_file_path": "LifeCycle.py",
    "life_cycle_name": "LifeCycle",
    "other_file_paths": ["./Model/MNISTCNN.py"],
    "save_root": "Saves",
}


def load(folder: Path, *overrides: str, **more: Any) -> layers.Config:
    root = folder / "root.json"
    root.write_text(json.dumps({**PROJECT, **more}, indent=1))
    return layers.load(root, overrides=overrides)


def read(folder: Path, *overrides: str, **more: Any) -> DlnestSettings:
    config = load(folder, *overrides, **more)
    return parse_dlnest_settings(config.values, where=config.where)


def test_defaults(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert settings.trains
    assert settings.key("devices") == "roost.devices"
    assert (settings.seed, settings.threads, settings.log_every) == (0, "auto", "10/ep")
    assert settings.checkpoint == CheckpointSettings(
        every="30min", fast=1, slow=0, slow_every=100, held=1, asynchronous=False
    )
    assert (settings.runner_key, settings.runner_file_path) == ("runner", "Model/Runner.py")
    assert (settings.plugins, settings.plugins_config) == ([], {})


def test_a_key_that_is_nearly_one_of_the_contract_is_named(tmp_path: Path) -> None:
    """Such keys are the project's: a misspelled one would do nothing, without a word."""
    mine = {"seed": 1, "names": ["a"], "plugins": [], "plugin": ["LogInit"], "child_json": ["a.json"]}
    tracks = {"max_ckpt_in_fast": 3, "max_ckpt_in_slow_track": 1, "mine": 2}
    config = load(tmp_path, **mine, pluggins_config={}, checkpoint_args=tracks, roost={"seed": 1})
    notes = similar_key_notes(config.values, config.where)
    assert [one.partition(" ")[0] for one in notes] == [
        "child_json",
        "pluggins_config",
        "checkpoint_args.max_ckpt_in_fast",
    ]
    assert "'child_jsons'" in notes[0] and "root.json:" in notes[0]
    assert "'max_ckpt_in_fast_track'" in notes[2]


@pytest.mark.parametrize(
    ("key", "typed"),
    [
        ("runner_name", "runner_nmae"),
        ("runner_file_path", "runner_filepath"),
        ("life_cycle_name", "lifecycle_name"),
    ],
)
def test_a_required_key_that_is_misspelled_is_named(tmp_path: Path, key: str, typed: str) -> None:
    (tmp_path / "root.json").write_text(
        json.dumps({typed if name == key else name: value for name, value in PROJECT.items()}, indent=0)
    )
    config = layers.load(tmp_path / "root.json")
    with pytest.raises(ConfigError, match=f"{key}: is missing .*root.json:[0-9]+.*'{typed}'"):
        parse_dlnest_settings(config.values, where=config.where)


def test_the_older_names_of_the_runner(tmp_path: Path) -> None:
    (tmp_path / "root.json").write_text(
        json.dumps({k.replace("runner", "model"): v for k, v in PROJECT.items() if k != "other_file_paths"})
    )
    config = layers.load(tmp_path / "root.json")
    settings = parse_dlnest_settings(config.values)
    assert (settings.runner_file_path, settings.runner_name) == ("Model/Runner.py", "Runner")
    assert (settings.runner_key, settings.other_file_paths) == ("model", [])


def test_tracks_become_retention(tmp_path: Path) -> None:
    tracks = {
        "max_ckpt_in_slow_track": 3,
        "dilation_in_slow_track": 7,
        "max_ckpt_in_fast_track": 0,
        "max_ckpt_in_consistent_track": 2,
        "mine": "kept",
    }
    config = load(tmp_path, checkpoint_args=tracks)
    assert config.values["checkpoint_args"] == tracks
    found = parse_dlnest_settings(config.values).checkpoint
    assert (found.slow, found.slow_every, found.fast, found.held) == (3, 7, 0, 2)


def test_the_section_of_roost(tmp_path: Path) -> None:
    section = {"seed": 5, "precision": "bf16", "checkpoint": {"every": ["10min", "5/ep"]}, "description": "d"}
    config = load(tmp_path, roost=section, seed="mine")
    settings = parse_dlnest_settings(config.values, where=config.where)
    assert (settings.seed, settings.precision, settings.description) == (5, "bf16", "d")
    assert settings.checkpoint.every == ["10min", "5/ep"]
    assert config.values["seed"] == "mine"
    # The section is stored whole, so that another version of roost with other defaults repeats the run.
    assert config.values["roost"]["threads"] == "auto"
    assert config.where("roost.seed") == "root.json:13"
    assert config.provenance["roost.threads"] == "default"


def test_an_empty_section(tmp_path: Path) -> None:
    assert read(tmp_path, roost=None).seed == 0


def test_overrides(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "epochs=3",
        "+new.key=[1, 2]",
        "model.lr=1e-3",
        "~gone",
        "roost.seed=7",
        "seed=8",
        model={"lr": 1, "width": 2},
        gone=1,
    )
    values = config.values
    assert (values["epochs"], values["new"], values["seed"]) == (3, {"key": [1, 2]}, 8)
    assert values["model"] == {"lr": 1e-3, "width": 2}
    assert "gone" not in values
    assert parse_dlnest_settings(values).seed == 7


def test_overrides_of_a_merged_config(tmp_path: Path) -> None:
    values = load(tmp_path).values
    found = apply_overrides(values, ["anything=1", "roost.max_time=1h"], Contract.DLNEST)
    assert (found["anything"], found["roost"]["max_time"]) == (1, "1h")


def test_bad_overrides(tmp_path: Path, messages: Messages) -> None:
    for override in (
        "roost.sead=1",
        "roost.limits.grease=1s",
        "+roost.sead=1",
        "~epocs",
        "child_jsons=[a.json]",
        "model.lr.x=1",
        "roost.precision=fp16",
        "roost.checkpoint.every=often",
        "roost.limits.grace=soon",
        "roost.devices=[]",
    ):
        with pytest.raises(ConfigError) as refused:
            read(tmp_path, override, epochs=1, model={"lr": 1})
        messages.check(refused.value)


def test_bad_values(tmp_path: Path, messages: Messages) -> None:
    cases: list[dict[str, Any]] = [
        {"roost": {"sed": 1}},
        {"roost": 3},
        {"roost": {"strategy": "fsdp"}},
        {"roost": {"checkpoint": {"fast": 1}}},
        {"checkpoint_args": {"dilation_in_slow_track": 0}},
        {"checkpoint_args": 5},
        {"other_file_paths": "Model"},
        {"plugins": "LogInit"},
        {"save_root": 3},
        {"life_cycle_name": None},
    ]
    for more in cases:
        with pytest.raises(ConfigError) as refused:
            read(tmp_path, **more)
        messages.check(refused.value)
    for key in ("runner_name", "runner_file_path", "dataset_file_path"):
        (tmp_path / "root.json").write_text(
            json.dumps({"child_jsons": [], **{k: v for k, v in PROJECT.items() if k != key}})
        )
        config = layers.load(tmp_path / "root.json")
        with pytest.raises(ConfigError) as refused:
            parse_dlnest_settings(config.values, where=config.where)
        assert refused.value.setting == key
        messages.check(refused.value)


def test_help_of_the_keys() -> None:
    assert describe("roost.seed") == "seed of all random numbers"
    assert allowed_values("roost.precision") == "32 or 'bf16'"
    assert describe("checkpoint_args.max_ckpt_in_fast_track") == "newest checkpoints kept"
    assert describe("epochs") is None


def test_the_keys_of_the_contract_that_are_read() -> None:
    assert {"runner_file_path", "checkpoint_args.dilation_in_slow_track"} <= {*contract_keys()}
    assert all_defaults()["checkpoint_args"]["max_ckpt_in_fast_track"] == 1
    assert all_defaults()["roost"]["checkpoint"] == {"every": "30min"}
