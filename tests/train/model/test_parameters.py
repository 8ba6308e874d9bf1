"""Globs over names, shared and frozen parameters, and which optimizer moves what."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from roost.base.errors import ConfigError
from roost.train.model.parameters import Parameters, check_owners
from roost.train.optim.optimizer import Optim
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
