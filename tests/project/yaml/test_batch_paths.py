"""Dotted parts of a batch and of an output."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from roost.base.errors import ContractError
from roost.project.yaml.batch_paths import BatchPath, SettingLocation, describe_value, parse_paths
from tests.messages import Messages

PLACE = SettingLocation("runner.inputs", "config.yaml:4")
Pair = namedtuple("Pair", ["x", "y"])
X, Y = torch.zeros(3, 4), torch.ones(3, dtype=torch.int64)


def of(text: str, batch: Any = None, output: Any = None) -> Any:
    return BatchPath(text, PLACE).value({"batch": batch, "output": output})


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("batch", X),
        ("batch.0", X),
        ("batch.0", [X]),
        ("batch.0", (X, Y)),
        ("batch.1", (Y, X)),
        ("batch.x", {"x": X}),
        ("batch.x", Pair(X, Y)),
        ("batch.0", Pair(X, Y)),
        ("batch.x", SimpleNamespace(x=X)),
        ("batch.clean.1.x", {"clean": [Y, {"x": X}]}),
        ("batch.0", OrderedDict({"0": X})),
        ("batch.3", {3: X}),
    ],
)
def test_found(text: str, batch: Any) -> None:
    assert of(text, batch) is X


@pytest.mark.parametrize(
    ("text", "output", "message"),
    [
        (
            "output.x",
            (X, Y),
            r"output\.x.* 2: float32 \(3, 4\), int64 \(3,\)",
        ),
        ("output.2", [X, Y], r"output\.2"),
        ("output.-1", [X, Y], r"output\.-1"),
        ("output.logit", {"logits": X}, r" logits: float32 \(3, 4\).*'logits'"),
        ("output.0", X, r"output\.0.*float32 \(3, 4\)"),
        ("output.T", X, r"output\.T"),
        ("output.a.b", {"a": {}}, r"output\.a\.b.* output\.a "),
        ("output.x.0", {"x": "text"}, r"output\.x .*str"),
        ("output._fields", Pair(X, Y), r"output\._fields"),
        ("output.x", None, r"output .*NoneType"),
    ],
)
def test_not_found(text: str, output: Any, message: str, messages: Messages) -> None:
    with pytest.raises(ContractError, match=message) as caught:
        of(text, output=output)
    assert caught.value.setting == "runner.inputs"
    messages.check(caught.value)
    assert caught.value.where == "config.yaml:4"


def test_left_out_or_one_or_several() -> None:
    assert [part.text for part in parse_paths(None, ["batch.0"], PLACE)] == ["batch.0"]
    assert [part.text for part in parse_paths("batch", ["batch.0"], PLACE)] == ["batch"]
    assert [part.text for part in parse_paths(["batch.1", "batch.0"], [], PLACE)] == ["batch.1", "batch.0"]


def test_large_values_are_described_in_short() -> None:
    assert len(describe_value({str(i): X for i in range(1000)})) < 500
    assert len(describe_value([X] * 1000)) < 500
