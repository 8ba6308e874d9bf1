"""Parameters that no optimizer holds."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from roost.base.errors import ConfigError
from roost.config.sections.optimizers import OptimizerSettings
from roost.train.model.frozen_parameters import freeze
from roost.train.optim.optimizer_config import build_optimizers
from tests.messages import Messages


def net() -> nn.Module:
    """body.0 (20 values), body.1 (a normalisation, 8), head (10)."""
    body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    return nn.ModuleDict({"body": body, "head": nn.Linear(4, 2)})


def test_what_is_frozen_is_held_by_no_optimizer(messages: Messages) -> None:
    module = net()
    (line,) = freeze(module, ["body.0.*"])
    assert re.findall(r"\b\d+\b", line) == ["2", "6", "20", "38", "0"] and "body.0.*" in line
    messages.check(line)
    settings = OptimizerSettings(class_="torch.optim.SGD", arguments={"lr": 1.0})
    optims = build_optimizers(module, {"main": settings}, totals={})
    named = {id(p): name for name, p in module.named_parameters()}
    held = [named[id(p)] for p in optims["main"].parameters]
    assert held == ["body.1.weight", "body.1.bias", "head.weight", "head.bias"]


def test_one_glob_or_none() -> None:
    module = net()
    assert freeze(module, []) == [] and all(p.requires_grad for p in module.parameters())
    assert re.findall(r"\b\d+\b", freeze(module, "*.bias")[0])[:2] == ["3", "6"]


def test_what_the_project_has_frozen_counts_too() -> None:
    module = net()
    module["head"].requires_grad_(False)
    assert re.findall(r"\b\d+\b", freeze(module, "body.0.*")[0])[:4] == ["4", "6", "30", "38"]


def test_shared_parameters_have_all_their_names() -> None:
    module = net()
    module["head"].weight = module["body"][0].weight
    freeze(module, "head.weight")
    assert not module["body"][0].weight.requires_grad


def test_frozen_normalisations_are_named(messages: Messages) -> None:
    module = net()
    (_, said) = freeze(module, "body.*")
    assert "body.1" in said
    messages.check(said)
    before = module["body"][1].running_mean.clone()
    module["body"](torch.randn(8, 4, generator=torch.Generator().manual_seed(0)) + 1)
    assert not torch.equal(module["body"][1].running_mean, before), "as it was said"


def test_a_glob_that_matches_nothing(messages: Messages) -> None:
    with pytest.raises(ConfigError, match=re.escape("'bodi.*'")) as raised:
        freeze(net(), ["head.*", "bodi.*"], where=lambda key: "c.yaml:3")
    assert (raised.value.setting, raised.value.where) == ("freeze", "c.yaml:3")
    assert "'body.*'" in str(raised.value.fix)
    messages.check(raised.value)


def test_nothing_left_to_train(messages: Messages) -> None:
    with pytest.raises(ConfigError) as raised:
        freeze(net(), "*")
    assert raised.value.setting == "freeze"
    messages.check(raised.value)


def test_an_optimizer_of_frozen_parameters_alone(messages: Messages) -> None:
    module = net()
    freeze(module, "body.*")
    one = OptimizerSettings(class_="torch.optim.SGD", params="body.*", arguments={"lr": 1.0})
    with pytest.raises(ConfigError) as raised:
        build_optimizers(module, {"main": one}, totals={})
    assert raised.value.setting == "optimizers.main.params"
    messages.check(raised.value)
