from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch

from roost.base.errors import ContractError
from roost.train.step import loss
from roost.train.step.loss import Window
from tests.messages import Messages


def trainable() -> torch.Tensor:
    return torch.ones((), requires_grad=True) * 2


@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_loss_and_what_is_recorded_beside_it(kind: Any) -> None:
    given, size = trainable(), trainable()
    found, values = loss.split_output(kind(loss=given, size=size, count=3), "d_loss")
    assert found is given
    assert values.keys() == {"d_loss", "size", "count"} and values["count"] == 3
    assert not any(value.requires_grad for value in (values["d_loss"], values["size"]))
    found, values = loss.split_output(given, "loss")
    assert found is given and values.keys() == {"loss"}


@pytest.mark.parametrize("given", [None, 1.0, [1.0], {}, {"accuracy": 1.0}])
def test_no_loss(given: Any, messages: Messages) -> None:
    with pytest.raises(ContractError, match=r"loss\(\)") as refused:
        loss.split_output(given, "loss")
    messages.check(refused.value)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_any_floating_number_can_be_trained_on(kind: torch.dtype) -> None:
    loss.check_loss(trainable().to(kind))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.ones(2, requires_grad=True), r"\(2,\)"),
        (torch.ones(1, requires_grad=True), r"\(1,\)"),
        (torch.ones((), dtype=torch.int64), r"torch\.int64"),
        (torch.ones((), dtype=torch.complex64, requires_grad=True), r"torch\.complex64"),
        (1.0, r"\b1\.0\b"),
        (torch.ones(()), "detach"),
    ],
)
def test_what_cannot_be_trained_on(given: Any, message: str, messages: Messages) -> None:
    with pytest.raises(ContractError, match=message) as refused:
        loss.check_loss(given)
    messages.check(refused.value)


def test_other_values_of_a_loss_function(messages: Messages) -> None:
    loss.check_values({"loss": 1.0, "weight": torch.ones(1), "many": torch.ones(3)})
    with pytest.raises(ContractError, match=r"\bweight\b.*\(4,\)") as refused:
        loss.check_values({"weight": torch.ones(4)})
    messages.check(refused.value)
    with pytest.raises(ContractError, match="'skipped'") as refused:
        loss.check_values({"skipped": 1.0})
    messages.check(refused.value)


def test_a_weight_has_no_dimensions() -> None:
    assert loss.scalar(torch.ones(1)).shape == ()
    weight = torch.ones(())
    assert loss.scalar(weight) is weight and loss.scalar(2.0) == 2.0


def test_what_an_update_gives(messages: Messages) -> None:
    loss.check_update({}, has_run=False)
    loss.check_update(UserDict(loss=1.0), has_run=True)
    for given in (None, torch.ones(()), [("loss", 1.0)]):
        with pytest.raises(ContractError, match=r"update\(\)") as refused:
            loss.check_update(given, has_run=True)
        messages.check(refused.value)
    with pytest.raises(ContractError, match=r"stepper\.run\(self\.loss, batches\)") as refused:
        loss.check_update({"loss": 1.0}, has_run=False)
    messages.check(refused.value)


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        (torch.zeros(5, 3), 5),
        ((torch.zeros(5, 3), torch.zeros(2)), 5),
        ({"x": [torch.zeros(5, 3)]}, 5),
        (torch.zeros(()), 1),
        ("text", 1),
        ([], 1),
        ({}, 1),
        (None, 1),
    ],
)
def test_the_samples_of_a_batch(batch: Any, count: int) -> None:
    assert loss.num_samples([None, batch], 1) == count
    counted = Window()
    counted.append(batch)
    counted.num_samples.append(17)
    assert loss.num_samples(counted, 0) == 17
