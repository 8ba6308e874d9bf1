"""Parameters that no optimizer holds."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from roost.base.errors import ConfigError
from roost.config.structs.optimizers import OptimizerSettings
from roost.train.freezing import freeze
from roost.train.optimizers import build_optimizers


def net() -> nn.Module:
    """body.0 (20 values), body.1 (a normalisation, 8), head (10)."""
    body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    return nn.ModuleDict({"body": body, "head": nn.Linear(4, 2)})


def test_what_is_frozen_is_held_by_no_optimizer() -> None:
    module = net()
    lines = freeze(module, ["body.0.*"])
    assert lines == ["frozen: 2 of 6 parameter tensors (20 of 38 values): body.0.*"]
    settings = OptimizerSettings(class_="torch.optim.SGD", arguments={"lr": 1.0})
    optims = build_optimizers(module, {"main": settings}, totals={})
    named = {id(p): name for name, p in module.named_parameters()}
    held = [named[id(p)] for p in optims["main"].parameters]
    assert held == ["body.1.weight", "body.1.bias", "head.weight", "head.bias"]


def test_one_glob_or_none() -> None:
    module = net()
    assert freeze(module, []) == [] and all(p.requires_grad for p in module.parameters())
    assert freeze(module, "*.bias")[0].startswith("frozen: 3 of 6 parameter tensors")


def test_what_the_project_has_frozen_counts_too() -> None:
    module = net()
    module["head"].requires_grad_(False)
    assert freeze(module, "body.0.*")[0].startswith("frozen: 4 of 6 parameter tensors (30 of 38 values)")


def test_shared_parameters_have_all_their_names() -> None:
    module = net()
    module["head"].weight = module["body"][0].weight
    freeze(module, "head.weight")
    assert not module["body"][0].weight.requires_grad


def test_frozen_normalisations_are_named() -> None:
    module = net()
    (_, said) = freeze(module, "body.*")
    assert said.startswith("body.1 is frozen, and the running statistics still move")
    before = module["body"][1].running_mean.clone()
    module["body"](torch.randn(8, 4, generator=torch.Generator().manual_seed(0)) + 1)
    assert not torch.equal(module["body"][1].running_mean, before), "as it was said"


def test_a_glob_that_matches_nothing() -> None:
    with pytest.raises(ConfigError, match=re.escape("received 'bodi.*' (at c.yaml:3)")) as raised:
        freeze(net(), ["head.*", "bodi.*"], where=lambda key: "c.yaml:3")
    assert raised.value.setting == "freeze" and "did you mean 'body.*'?" in str(raised.value)


def test_nothing_left_to_train() -> None:
    with pytest.raises(ConfigError, match="nothing is left to train"):
        freeze(net(), "*")


def test_an_optimizer_of_frozen_parameters_alone() -> None:
    module = net()
    freeze(module, "body.*")
    one = OptimizerSettings(class_="torch.optim.SGD", params="body.*", arguments={"lr": 1.0})
    with pytest.raises(ConfigError, match="matches only frozen ones"):
        build_optimizers(module, {"main": one}, totals={})
