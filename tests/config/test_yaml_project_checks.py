"""Checks of a described Runner and Dataset before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from roost.base.errors import ConfigError
from roost.config import layers
from roost.config.settings import parse_settings
from tests.messages import Messages

SGD = {"class": "torch.optim.SGD", "lr": 0.1}
LOSS = {"class": "torch.nn.CrossEntropyLoss"}
CONFIG: dict[str, Any] = {
    "runner": {"model": {"class": "Net.py:Net"}, "losses": {"a": LOSS, "b": LOSS}},
    "dataset": {"train": {"class": "roost.Arrays"}},
    "optimizers": {"one": SGD, "two": SGD},
    "max_epochs": 1,
}


def check(folder: Path, runner: dict[str, Any] | None = None, dataset: dict[str, Any] | None = None) -> None:
    values = {
        **CONFIG,
        "runner": {**CONFIG["runner"], **(runner or {})},
        "dataset": {**CONFIG["dataset"], **(dataset or {})},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    found = layers.load(folder / "config.yaml")
    parse_settings(found.values, where=found.where)


GOOD: list[dict[str, Any]] = [
    {},
    {"updates": {"one": ["a"], "two": ["a", "b"]}},
    {"inputs": "batch", "losses": {"loss": {**LOSS, "inputs": ["model", "output.x.0", "batch.clean.1"]}}},
    {
        "metrics": {"f1-macro": {"class": "a.py:f", "inputs": "output"}},
        "predicts": {"x": "output.0", "y": "batch"},
    },
]


@pytest.mark.parametrize("section", GOOD)
def test_what_fits(section: dict[str, Any], tmp_path: Path) -> None:
    check(tmp_path, section)


@pytest.mark.parametrize(
    ("section", "setting", "facts"),
    [
        (
            {"losses": {}},
            "runner.losses",
            ["config.yaml"],
        ),
        ({"losses": None}, "runner.losses", []),
        ({"losses": {"a": {}}}, "runner.losses.a.class", []),
        ({"losses": {"a b": LOSS}}, "runner.losses.a b", ["'a b'", "config.yaml"]),
        ({"losses": {"loss": LOSS, "b": LOSS}}, "runner.losses.loss", ["'loss'"]),
        ({"losses": {"one_loss": LOSS, "b": LOSS}}, "runner.losses.one_loss", ["'one_loss'"]),
        (
            {"losses": {"a": {**LOSS, "weight": "1"}}},
            "runner.losses.a.weight",
            ["'1'"],
        ),
        (
            {"metrics": {"a": LOSS}},
            "runner.metrics.a",
            ["'a'"],
        ),
        ({"metrics": {"skipped": LOSS}}, "runner.metrics.skipped", ["'skipped'"]),
        (
            {"updates": {"on": ["a"]}},
            "runner.updates.on",
            ["updates.on", "'on'", "config.yaml", "'one'"],
        ),
        (
            {"updates": {"one": ["c"]}},
            "runner.updates.one",
            ["updates.one", "['c']"],
        ),
        (
            {"losses": {"a": {**LOSS, "weight": float("nan")}}},
            "runner.losses.a.weight",
            ["config.yaml", "nan"],
        ),
        (
            {"updates": {"one": ["a", "a"]}},
            "runner.updates.one",
            ["['a', 'a']", "losses.a.weight"],
        ),
        ({"updates": {"one": []}}, "runner.updates.one", []),
        (
            {"updates": {"one": ["a"], "two": ["a"]}},
            "runner.losses.b",
            ["runner.updates"],
        ),
        (
            {"updates": {"one": ["a", "b"]}},
            "optimizers.two",
            ["runner.updates"],
        ),
        (
            {"inputs": ["output.0"]},
            "runner.inputs",
            ["'output.0'", "config.yaml"],
        ),
        (
            {"losses": {"a": {**LOSS, "inputs": "bacth.1"}}},
            "runner.losses.a.inputs",
            ["losses.a.inputs", "'bacth.1'", "'batch'"],
        ),
        (
            {"metrics": {"m": {**LOSS, "inputs": ["batch..1"]}}},
            "runner.metrics.m.inputs",
            ["metrics.m.inputs", "'batch..1'"],
        ),
        ({"losses": {"a": {**LOSS, "inputs": "model.x"}}}, "runner.losses.a.inputs", ["'model.x'"]),
        ({"predicts": {"x": "model"}}, "runner.predicts.x", ["'model'"]),
        ({"metric": {}}, None, ["'metric'", "'metrics'"]),
        ({"model": "Net.py:Net"}, "runner.model", ["'Net.py:Net'"]),
    ],
)
def test_one_clear_error(
    section: dict[str, Any], setting: str | None, facts: list[str], tmp_path: Path, messages: Messages
) -> None:
    with pytest.raises(ConfigError) as refused:
        check(tmp_path, section)
    messages.check(refused.value)
    assert refused.value.setting == setting and all(fact in str(refused.value) for fact in facts)


@pytest.mark.parametrize(
    ("section", "setting", "facts"),
    [
        ({"train": None}, "dataset.train", ["config.yaml", "None"]),
        ({"collate": {}}, "dataset.collate", ["config.yaml"]),
        ({"train": {}}, "dataset.train", ["config.yaml"]),
        (
            {"train": {"clean": {"arrays": "x.npy"}}},
            "dataset.train.clean",
            [],
        ),
        (
            {"valid": {"arrays": "x.npy", "part": [0, 1]}},
            "dataset.valid.arrays",
            [],
        ),
        ({"train": "x.npy"}, "dataset.train", ["'x.npy'"]),
        ({"trian": {}}, None, ["'trian'", "'train'"]),
    ],
)
def test_sets(
    section: dict[str, Any], setting: str | None, facts: list[str], tmp_path: Path, messages: Messages
) -> None:
    with pytest.raises(ConfigError) as refused:
        check(tmp_path, dataset=section)
    messages.check(refused.value)
    assert refused.value.setting == setting and all(fact in str(refused.value) for fact in facts)
