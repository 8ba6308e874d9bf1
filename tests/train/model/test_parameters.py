"""Globs over names, shared and frozen parameters, and which optimizer moves what."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from roost.base.errors import ConfigError
from roost.config.sections.optimizers import GroupSettings, OptimizerSettings
from roost.train.model.parameters import Parameters, check_owners, freeze
from roost.train.optim.optimizer import Optim
from roost.train.optim.optimizer_config import build_optimizers
from tests.messages import Messages


class Net(nn.Module):
    """encoder.0.weight, encoder.0.bias, encoder.1.weight (an embedding), head.weight (shared), head.bias."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2, 2), nn.Embedding(3, 2, sparse=True))
        self.head = nn.Linear(2, 3)
        self.head.weight = self.encoder[1].weight  # type: ignore[assignment]
        self.held = nn.ParameterList([torch.zeros(1)])


def matching(module: nn.Module, *patterns: str, among: list[str] | None = None) -> list[str]:
    found = Parameters(module)
    names = found.trainable if among is None else among
    return found.matching(list(patterns), among=names, setting="p", where=lambda key: "here")


def test_a_glob_matches_any_name_of_a_shared_parameter() -> None:
    assert matching(Net(), "encoder.1.*") == matching(Net(), "head.weight") == ["encoder.1.weight"]
    assert matching(Net(), "head.*") == ["encoder.1.weight", "head.bias"]
    assert matching(Net(), "*.bias", "held.*") == ["encoder.0.bias", "head.bias", "held.0"]
    assert matching(Net(), "head.*", among=["head.bias"]) == ["head.bias"]


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("head", "'head.*'"),
        ("encoder.0", "'encoder.0.*'"),
        ("encodr.*", "'encoder.*'"),
        ("0.weight", "'*.0.weight'"),
        ("something", None),
    ],
)
def test_a_glob_that_matches_nothing(pattern: str, meant: str | None, messages: Messages) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"'{pattern}'")) as refused:
        matching(Net(), pattern)
    fix = str(refused.value.fix)
    assert refused.value.where == "here" and "encoder.0.weight, head.bias, held.0" in fix
    assert meant in fix if meant else "'" not in fix
    messages.check(refused.value)


def test_a_glob_that_matches_others(messages: Messages) -> None:
    net = Net()
    net.held[0].requires_grad_(False)
    with pytest.raises(ConfigError, match=r"\(held\.0\)") as refused:
        matching(net, "held.*")
    messages.check(refused.value)
    with pytest.raises(ConfigError, match=r"\(encoder\.0\.weight, encoder\.0\.bias\)") as refused:
        matching(net, "encoder.0.*", among=["head.bias"])
    messages.check(refused.value)


def test_a_condition_on_dimensions() -> None:
    assert matching(Net(), "ndim >= 2") == ["encoder.0.weight", "encoder.1.weight"]
    assert matching(Net(), "ndim<2") == ["encoder.0.bias", "head.bias", "held.0"]
    assert matching(Net(), "ndim == 2", "held.*") == ["encoder.0.weight", "encoder.1.weight", "held.0"]


@pytest.mark.parametrize("given", ["ndim > 7", "ndim = 2", "ndim"])
def test_a_condition_that_matches_nothing(given: str, messages: Messages) -> None:
    with pytest.raises(ConfigError) as refused:
        matching(Net(), given)
    messages.check(refused.value)


def test_one_of_several_globs_may_match_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Sequential(nn.Linear(2, 2, bias=False), nn.LayerNorm(2, bias=False))
    assert matching(net, "*.bias", "1.*") == ["1.weight"]
    assert capsys.readouterr().out.startswith("p: '*.bias' matches none")
    with pytest.raises(ConfigError, match=re.escape("'encodr.*'")):
        matching(Net(), "encodr.*", "head.*")  # a probable misspelling is refused all the same


def test_weight_decay_for_matrices_alone() -> None:
    group = GroupSettings(params="ndim < 2", arguments={"weight_decay": 0})
    asked = OptimizerSettings(
        class_="torch.optim.AdamW", groups=[group], arguments={"lr": 0.1, "weight_decay": 0.5}
    )
    net = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    made = build_optimizers(net, {"main": asked}, totals={}, root=None)["main"].optimizer
    decay = {id(p): group["weight_decay"] for group in made.param_groups for p in group["params"]}
    assert {name: decay[id(p)] for name, p in net.named_parameters()} == {
        "0.weight": 0.5,
        "0.bias": 0,
        "1.weight": 0,
        "1.bias": 0,
    }


def test_which_gradients_are_sparse() -> None:
    found = Parameters(Net())
    assert found.sparse() == {"encoder.1.weight"}
    assert found.dense() == {"encoder.0.weight", "encoder.0.bias", "head.bias"}, "held.0 is unknown"


def sgd(*parameters: torch.Tensor) -> Optim:
    return Optim(torch.optim.SGD(parameters, lr=0.1))


def test_optimizers_made_by_hand(capsys: pytest.CaptureFixture[str], messages: Messages) -> None:
    net = Net()
    check_owners(net, {"main": sgd(*net.parameters())})
    assert capsys.readouterr().out == ""
    weight, _, table, *_ = net.parameters()
    net.held[0].requires_grad_(False)
    check_owners(net, {"a": sgd(weight, table), "b": sgd(weight, table, torch.ones(2))})
    foreign, shared, nobodys = capsys.readouterr().out.splitlines()
    assert "'b'" in foreign and "'a'" not in foreign and re.findall(r"\b\d+\b", foreign) == ["1"]
    assert all(name in shared for name in ("'a'", "'b'", "encoder.0.weight, encoder.1.weight"))
    assert "encoder.0.bias, head.bias" in nobodys
    for line in (foreign, shared, nobodys):
        messages.check(line)


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


def test_frozen_parameters_a_glob_that_matches_nothing(messages: Messages) -> None:
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
