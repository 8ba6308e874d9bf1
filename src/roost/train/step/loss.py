"""The interface of loss functions: the window of micro-batches, and the checks of returned values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex, overload

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.train.events import Value

LossFunction = Callable[[Any], Tensor | Mapping[str, Tensor]]
StepFunction = Callable[[Sequence[Any]], Mapping[str, Value]]
"""Takes the step of a window; returns the values to record."""


class Window(list[Any]):
    """The micro-batches of one step, with the number of samples of each."""

    def __init__(self) -> None:
        super().__init__()
        self.num_samples: list[int] = []
        self.total: int | None = None
        """Samples in the windows of all ranks together; None if they were not counted."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Window: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Returns a batch; for a slice a `Window`: a `Runner.update` may pass on ``batches[:2]``."""
        if not isinstance(index, slice):
            return super().__getitem__(index)
        part = Window()
        part.extend(super().__getitem__(index))
        part.num_samples = self.num_samples[index]
        return part


def split_output(output: Any, name: str) -> tuple[Tensor, dict[str, Value]]:
    """Returns the loss, and the detached values to record, which include the loss under ``name``.

    Raises:
        ContractError: The output has no loss.
    """
    if isinstance(output, Tensor):
        loss, values = output, {}
    elif (type(output) is dict or isinstance(output, Mapping)) and "loss" in output:
        loss = output["loss"]
        values = {n: v.detach() if isinstance(v, Tensor) else v for n, v in output.items() if n != "loss"}
    else:
        raise _no_loss(output)
    if not isinstance(loss, Tensor):
        check_loss(loss)
    values[name] = loss.detach()
    return loss, values


def _no_loss(output: object) -> ContractError:
    what = (
        f"a mapping with {', '.join(map(str, output)) or 'nothing'}"
        if isinstance(output, Mapping)
        else output
    )
    return ContractError(
        "loss() returned no loss", received=what, fix='return a tensor, or a mapping with "loss"'
    )


def check_loss(loss: object) -> None:
    """Checks that a loss can be trained on.

    Raises:
        ContractError: The loss is not a single number, or depends on no parameter.
    """
    if not isinstance(loss, Tensor) or loss.dim() != 0 or not loss.is_floating_point():
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else loss
        if isinstance(loss, Tensor) and loss.dim() == 0:
            what = f"a tensor of type {loss.dtype}"
        raise ContractError(
            "the loss is not a single number",
            setting="Runner.loss()",
            received=what,
            fix="return the mean over the batch, for example .mean()",
        )
    if not loss.requires_grad:
        raise ContractError(
            "the loss does not depend on any trainable parameter",
            setting="Runner.loss()",
            fix="compute it from the model's output, without detach(), .item() or torch.no_grad()",
        )


def check_values(values: Mapping[str, Value]) -> None:
    """Checks the other values that a loss function returned.

    Raises:
        ContractError: The weight is not a single number, or a name is reserved by roost.
    """
    weight = values.get("weight", 1.0)
    if isinstance(weight, Tensor) and weight.numel() != 1:
        raise ContractError(
            "the weight is not a single number",
            setting="Runner.loss()",
            received=f"a tensor of shape {tuple(weight.shape)}",
            fix="return the weight of the whole batch, for example the sum over its samples",
        )
    if "skipped" in values:
        raise ContractError(
            "loss() returns 'skipped', the name under which roost records skipped steps",
            fix="choose another name",
        )


def scalar(weight: Value) -> Value:
    """Returns the weight without dimensions."""
    return weight.reshape(()) if isinstance(weight, Tensor) and weight.dim() else weight


def add_scaled(total: Value | None, value: Value, share: Value) -> Value:
    """Returns total + share x value; as one operation on the device if torch has one."""
    if total is None:
        return value * share
    if isinstance(value, Tensor) and not isinstance(share, Tensor) and isinstance(total, Tensor):
        return torch.add(total, value, alpha=share) if value.is_floating_point() else total + value * share
    return total + value * share


def check_update(values: object, *, has_run: bool) -> None:
    """Checks the result of `Runner.update`.

    Raises:
        ContractError: The result cannot be recorded, or `Runner.update` took no step.
    """
    if not isinstance(values, Mapping):
        raise ContractError(
            "Runner.update() returned nothing that can be recorded",
            received=values,
            fix="return the result of stepper.run(...); of several, {**stepper.run(...), **stepper.run(...)}",
        )
    if values and not has_run:
        raise ContractError(
            "Runner.update() has never called stepper.run(), so roost has changed no weight",
            fix="write the loss as a method, and call stepper.run(self.loss, batches) for each optimizer",
        )


def num_samples(batches: Sequence[Any], number: int) -> int:
    """Returns the samples of a batch, as the Trainer counted them. For any other sequence than a `Window` it
    is the length of the first tensor of the batch, or 1."""
    if isinstance(batches, Window):
        return batches.num_samples[number]
    value = batches[number]
    while not isinstance(value, Tensor):
        if isinstance(value, Mapping) and value:
            value = next(iter(value.values()))
        elif isinstance(value, list | tuple) and value:
            value = value[0]
        else:
            return 1
    return len(value) if value.dim() else 1
