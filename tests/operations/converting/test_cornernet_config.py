"""What each option of CornerNet becomes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from roost.base.errors import ConfigError, NotFound, UsageError
from roost.config.values.nested_values import value_at
from roost.operations.converting.conversion import Conversion
from roost.operations.converting.cornernet_config import convert_cornernet
from tests.messages import Messages
from tests.operations.converting.configs import SQUEEZE, check_keys, json_config


def converted(tmp_path: Path, *words: str, **system: object) -> Conversion:
    values = {"system": {"dataset": "COCO", **system}, "db": {"size": 8}}
    return convert_cornernet(json_config(tmp_path, values), words)


def at(conversion: Conversion, key: str) -> Any:
    return value_at(conversion.settings, tuple(key.split(".")))


DEFAULTS = {
    "seed": 317,
    "determinism": "off",
    "max_steps": 100000,
    "log_every": 5,
    "validate_every": 20,
    "data.limit_valid_batches": 1,
    "data.num_workers": 4,
    "data.prefetch": 25,  # 100 of all workers together
    "checkpoint.every": 400,
    "checkpoint.fast": 250,  # all
    "optimizers.main.class": "torch.optim.Adam",
    "optimizers.main.lr": 0.001,
    "optimizers.main.scheduler.step_size": 5000,
    "optimizers.main.scheduler.gamma": 0.1,
    "devices": 1,
    "strategy": None,
    "test_at_end": "none",
    "save_root": "./cache",
}


def test_the_defaults_are_those_of_cornernet(tmp_path: Path) -> None:
    found = converted(tmp_path)
    assert {key: at(found, key) for key in DEFAULTS} == DEFAULTS
    assert found.own["system"]["batch_size"] == 1 and found.own["db"] == {"size": 8}
    assert found.without_counterpart() == []


def test_a_config(tmp_path: Path) -> None:
    found = convert_cornernet(json_config(tmp_path, SQUEEZE, "CornerNet_Squeeze"), [])
    assert (at(found, "devices"), at(found, "strategy")) == (4, "ddp")
    assert (at(found, "checkpoint.every"), at(found, "checkpoint.fast")) == (5000, 100)
    assert found.own["model"] == "CornerNet_Squeeze"
    assert found.own["system"]["train_split"] == "trainval" and found.own["db"] == SQUEEZE["db"]
    assert [name for name, _ in found.without_counterpart()] == ["chunk_sizes"]


@pytest.mark.parametrize(
    ("system", "settings"),
    [
        ({"val_iter": 0}, {"validate_every": "never"}),
        ({"display": None}, {"log_every": "never"}),
        ({"decay_rate": 5}, {"optimizers.main.scheduler.gamma": 0.2}),
        (
            {"opt_algo": "sgd"},
            {"optimizers.main.momentum": 0.9, "optimizers.main.weight_decay": 1e-4},
        ),
        ({"pretrain": "a.pkl"}, {"init_from.path": "a.pkl", "init_from.mapping": {"module.": "net."}}),
        ({"max_iter": 10, "snapshot": 400}, {"checkpoint.fast": 1}),
    ],
    ids=lambda given: ",".join(given),
)
def test_an_option(tmp_path: Path, system: dict[str, object], settings: dict[str, Any]) -> None:
    found = converted(tmp_path, **system)
    assert {key: at(found, key) for key in settings} == settings


def test_words_are_those_of_the_command_line(tmp_path: Path) -> None:
    found = converted(tmp_path, "--workers=8", "max_iter=50", "distributed=true", max_iter=10)
    assert (at(found, "data.num_workers"), at(found, "data.prefetch")) == (8, 13)
    assert (at(found, "max_steps"), at(found, "strategy")) == (50, "ddp")


def test_each_setting_is_one_that_the_table_names(tmp_path: Path) -> None:
    check_keys(converted(tmp_path, "distributed=true", "workers=2", pretrain="a.pkl", chunk_sizes=[1, 2]))


def test_weights_are_found_around_the_config(tmp_path: Path) -> None:
    (tmp_path / "pre.pkl").write_bytes(b"")
    found = converted(tmp_path, pretrain="pre.pkl")
    assert at(found, "init_from.path") == str(tmp_path / "pre.pkl")
    missing = converted(tmp_path, pretrain="${other}.pkl")
    assert at(missing, "init_from.path") == "$${other}.pkl"
    assert any("${other}.pkl" in text for text in missing.remarks)


def test_a_key_that_was_ignored_is_said(tmp_path: Path) -> None:
    found = converted(tmp_path, max_iters=3)
    assert [name for name, _ in found.without_counterpart()] == ["system.max_iters"]


@pytest.mark.parametrize(
    ("system", "setting"),
    [
        ({"opt_algo": "lamb"}, "opt_algo"),
        ({"decay_rate": 0}, "decay_rate"),
        ({"max_iter": "many"}, "max_iter"),
        ({"chunk_sizes": 4}, "chunk_sizes"),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, dict) else given,
)
def test_a_value_that_is_none(
    tmp_path: Path, system: dict[str, object], setting: str, messages: Messages
) -> None:
    with pytest.raises(ConfigError) as error:
        converted(tmp_path, **system)
    assert error.value.setting == setting
    messages.check(error.value)


def test_another_file(tmp_path: Path, messages: Messages) -> None:
    with pytest.raises(ConfigError) as error:
        convert_cornernet(json_config(tmp_path, {"system": {}}), [])
    messages.check(error.value)
    with pytest.raises(NotFound):
        convert_cornernet(tmp_path / "none.json", [])
    with pytest.raises(UsageError):
        converted(tmp_path, "worker=3")
