"""What is found out about a described Runner and Dataset before anything is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from roost.base.errors import ConfigError
from roost.config import layers
from roost.config.settings import typed

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
    typed(found.values, where=found.where)


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
    ("section", "message"),
    [
        (
            {"losses": {}},
            r"runner\.losses: is empty, and a model is trained by its losses \(at config\.yaml:\d+\)",
        ),
        ({"losses": None}, r"runner\.losses: is missing"),
        ({"losses": {"a": {}}}, r"runner\.losses\.a\.class: is missing"),
        ({"losses": {"a b": LOSS}}, r"'a b' is no name \(at config\.yaml:\d+\)"),
        ({"losses": {"loss": LOSS, "b": LOSS}}, r"runner\.losses\.loss: 'loss' is the name under which"),
        ({"losses": {"one_loss": LOSS, "b": LOSS}}, r"'one_loss' is the name under which something else"),
        (
            {"losses": {"a": {**LOSS, "weight": "1"}}},
            r"runner\.losses\.a\.weight: expected a number; received '1'",
        ),
        (
            {"metrics": {"a": LOSS}},
            r"runner\.metrics\.a: 'a' is the name under which something else is recorded",
        ),
        ({"metrics": {"skipped": LOSS}}, r"'skipped' is the name under which"),
        (
            {"updates": {"on": ["a"]}},
            r"updates\.on: there is no optimizer 'on' \(at config\.yaml:\d+\).*'one'",
        ),
        (
            {"updates": {"one": ["c"]}},
            r"updates\.one: there is no loss 'c'; received \['c'\].*there are a, b",
        ),
        (
            {"losses": {"a": {**LOSS, "weight": float("nan")}}},
            r"runner\.losses\.a\.weight: is no finite number; received nan \(at config\.yaml:\d+\)",
        ),
        (
            {"updates": {"one": ["a", "a"]}},
            r"runner\.updates\.one: names a loss twice; received \['a', 'a'\].*losses\.a\.weight",
        ),
        ({"updates": {"one": []}}, r"runner\.updates\.one: names no loss .*name some of a, b"),
        (
            {"updates": {"one": ["a"], "two": ["a"]}},
            r"runner\.losses\.b: no optimizer moves on it: runner\.updates \(at .*\) leaves it out \(at",
        ),
        (
            {"updates": {"one": ["a", "b"]}},
            r"optimizers\.two: it moves on no loss: runner\.updates .* leaves it out",
        ),
        (
            {"inputs": ["output.0"]},
            r"runner\.inputs: 'output\.0' is no part of batch \(at config\.yaml:\d+\)",
        ),
        (
            {"losses": {"a": {**LOSS, "inputs": "bacth.1"}}},
            r"losses\.a\.inputs: 'bacth\.1' is no part of .*'batch'",
        ),
        (
            {"metrics": {"m": {**LOSS, "inputs": ["batch..1"]}}},
            r"metrics\.m\.inputs: 'batch\.\.1' is no part",
        ),
        ({"losses": {"a": {**LOSS, "inputs": "model.x"}}}, r"'model\.x' is no part"),
        ({"predicts": {"x": "model"}}, r"runner\.predicts\.x: 'model' is no part of batch or output"),
        ({"metric": {}}, r"runner has no setting 'metric'.*did you mean 'metrics'"),
        ({"model": "Net.py:Net"}, r"runner\.model: is a section; received 'Net\.py:Net'"),
    ],
)
def test_one_clear_error(section: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        check(tmp_path, section)


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"train": None}, r"dataset\.train: expected a section; received None \(at config\.yaml:\d+\)"),
        ({"collate": {}}, r"dataset\.collate: names no function \(at config\.yaml:\d+\)"),
        ({"train": {}}, r"dataset\.train: is empty \(at config\.yaml:\d+\)"),
        (
            {"train": {"clean": {"arrays": "x.npy"}}},
            r"dataset\.train\.clean: names neither a class nor several sets",
        ),
        (
            {"valid": {"arrays": "x.npy", "part": [0, 1]}},
            r"dataset\.valid\.arrays: names neither a class .*at config",
        ),
        ({"train": "x.npy"}, r"dataset\.train: expected a section; received 'x\.npy'"),
        ({"trian": {}}, r"dataset has no setting 'trian'.*did you mean 'train'"),
    ],
)
def test_sets(section: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        check(tmp_path, dataset=section)
