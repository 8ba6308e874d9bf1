"""Globs over names, shared and frozen parameters, and which optimizer moves what."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from roost.base.errors import ConfigError
from roost.train.optim import Optim
from roost.train.parameters import Parameters, check_owners


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
    ("pattern", "fix"),
    [
        ("head", "did you mean 'head.*'? the names are like encoder.0.weight, head.bias, held.0"),
        ("encoder.0", "did you mean 'encoder.0.*'? "),
        ("encodr.*", "did you mean 'encoder.*'? "),
        ("0.weight", "did you mean '*.0.weight'? "),
        ("something", "the names are like "),
    ],
)
def test_a_glob_that_matches_nothing(pattern: str, fix: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"received '{re.escape(pattern)}' \(at here\). To mend it: {re.escape(fix)}"
    ):
        matching(Net(), pattern)


def test_a_glob_that_matches_others() -> None:
    net = Net()
    net.held[0].requires_grad_(False)
    with pytest.raises(ConfigError, match=r"it matches only frozen ones \(held\.0\)"):
        matching(net, "held.*")
    with pytest.raises(
        ConfigError, match=r"in the optimizer's own `params` too \(encoder\.0\.weight, encoder\.0\.bia"
    ):
        matching(net, "encoder.0.*", among=["head.bias"])


def test_which_gradients_are_sparse() -> None:
    found = Parameters(Net())
    assert found.sparse() == {"encoder.1.weight"}
    assert found.dense() == {"encoder.0.weight", "encoder.0.bias", "head.bias"}, "of held.0 nobody knows"


def sgd(*parameters: torch.Tensor) -> Optim:
    return Optim(torch.optim.SGD(parameters, lr=0.1))


def test_optimizers_made_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    net = Net()
    check_owners(net, {"main": sgd(*net.parameters())})
    assert capsys.readouterr().out == ""
    weight, _, table, *_ = net.parameters()
    net.held[0].requires_grad_(False)
    check_owners(net, {"a": sgd(weight, table), "b": sgd(weight, table, torch.ones(2))})
    assert capsys.readouterr().out.splitlines() == [
        "optimizer 'b' moves 1 tensor that is no parameter of the Runner",
        "optimizers 'a' and 'b' both move encoder.0.weight, encoder.1.weight",
        "no optimizer moves encoder.0.bias, head.bias",
    ]
