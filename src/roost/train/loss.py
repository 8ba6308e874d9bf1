"""What a loss function takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex, overload

from torch import Tensor

from roost.base.errors import ContractError
from roost.train.events import Value

LossFunction = Callable[[Any], Tensor | Mapping[str, Tensor]]


class Window(list[Any]):
    """Several micro-batches of one step, and how many samples each has."""

    def __init__(self) -> None:
        super().__init__()
        self.num_samples: list[int] = []

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Window: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """A batch, or with a slice a window of some of them: an `update` may hand on ``batches[:2]``."""
        if not isinstance(index, slice):
            return super().__getitem__(index)
        part = Window()
        part.extend(super().__getitem__(index))
        part.num_samples = self.num_samples[index]
        return part


def split(output: Any, name: str) -> tuple[Tensor, dict[str, Value]]:
    """The loss to train on, and detached values to record, the loss among them under ``name``.

    Raises:
        ContractError: There is none.
    """
    if isinstance(output, Tensor):
        loss, values = output, {}
    elif (type(output) is dict or isinstance(output, Mapping)) and "loss" in output:
        loss = output["loss"]
        values = {n: v.detach() if isinstance(v, Tensor) else v for n, v in output.items() if n != "loss"}
    else:
        raise _no_loss(output)
    if not isinstance(loss, Tensor):
        check(loss)
    values[name] = loss.detach()
    return loss, values


def _no_loss(output: object) -> ContractError:
    what = (
        f"a mapping with {', '.join(map(str, output)) or 'nothing'}"
        if isinstance(output, Mapping)
        else output
    )
    return ContractError(
        "loss() gave no loss", received=what, fix='return a tensor, or a mapping that has "loss"'
    )


def check(loss: object) -> None:
    """Makes sure that it can be trained on.

    Raises:
        ContractError: It is no single number, or depends on no parameter.
    """
    if not isinstance(loss, Tensor) or loss.dim() != 0 or not loss.is_floating_point():
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else loss
        raise ContractError(
            "the loss is no single number",
            setting="Runner.loss()",
            received=what,
            fix="give the mean over the batch, for example .mean()",
        )
    if not loss.requires_grad:
        raise ContractError(
            "the loss does not depend on any trainable parameter",
            setting="Runner.loss()",
            fix="compute it from the model's output, without detach(), .item() or torch.no_grad()",
        )


def num_samples(batches: Sequence[Any], number: int) -> int:
    """As the Trainer counted them; of any other sequence, the length of the batch's first tensor, else 1."""
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
