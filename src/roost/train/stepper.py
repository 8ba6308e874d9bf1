"""The seam for everything about a step: accumulation, clipping, several optimizers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex, overload

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.train.events import Value
from roost.train.optimizers import Optim

LossFunction = Callable[[Any], Tensor | Mapping[str, Tensor]]
Wrap = Callable[[LossFunction], LossFunction]


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


class Stepper:
    """Takes optimizer steps; the same in a Trainer and in a hand-written loop.

    ```
    for batch in batches:
        optimizer.zero_grad()
        loss = fn(batch)
        loss.backward()
        clip_grad_norm_(parameters, max_grad_norm)
        optimizer.step()
    ```

    Args:
        optimizers: One optimizer, or several by name; a torch optimizer or an `Optim`.
        accumulation: Micro-batches per step; only `batches_per_step` uses it, `run` takes what it is given.
        wrap: Wraps the loss function once, the place for compilation and graphs.
    """

    def __init__(
        self,
        optimizers: torch.optim.Optimizer | Optim | Mapping[str, torch.optim.Optimizer | Optim],
        *,
        accumulation: int = 1,
        wrap: Wrap | None = None,
    ) -> None:
        named = optimizers if isinstance(optimizers, Mapping) else {"main": optimizers}
        self.optimizers = {n: o if isinstance(o, Optim) else Optim(o) for n, o in named.items()}
        self.batches_per_step = accumulation
        self._wrap = wrap
        self._wrapped: dict[Any, LossFunction] = {}
        self._checked: set[str] = set()

    def run(self, fn: LossFunction, batches: Sequence[Any], *, optimizer: str = "main") -> dict[str, Value]:
        """One step of one optimizer over a window of micro-batches.

        The gradient is that of the weighted mean over the whole window, however unequal its micro-batches.

        Args:
            fn: Gives the loss of a batch, or a mapping with "loss" (its mean over the batch), optionally
                "weight" (samples when absent), and whatever else shall be recorded.
            batches: One or more micro-batches.
            optimizer: Which optimizer steps.

        Returns:
            Detached tensors: "loss" ("<optimizer>_loss" for another than main), the other values, and
            "grad_norm" where it is clipped; "weight" when the loss function gave it, and always for several
            micro-batches. Nothing is read back to the host.

        Raises:
            ContractError: ``fn`` does not give a loss that can be trained on.
        """
        chosen = self.optimizers.get(optimizer) or self._missing(optimizer)
        if self._wrap is not None:
            fn = self._wrapped.get(fn) or self._wrapped.setdefault(fn, self._wrap(fn))
        chosen.optimizer.zero_grad()
        if len(batches) == 1:
            loss, values = self._split(fn(batches[0]), optimizer)
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            values = self._accumulate(fn, batches, optimizer, chosen)
        if chosen.max_grad_norm is not None:
            key = "grad_norm" if optimizer == "main" else f"{optimizer}_grad_norm"
            values[key] = torch.nn.utils.clip_grad_norm_(
                chosen.parameters, chosen.max_grad_norm, norm_type=chosen.grad_norm_type
            )
        chosen.optimizer.step()
        return values

    def _missing(self, name: str) -> Optim:
        have = ", ".join(self.optimizers)
        raise ContractError(f"there is no optimizer {name!r}; there are: {have}")

    def _accumulate(
        self, fn: LossFunction, batches: Sequence[Any], optimizer: str, chosen: Optim
    ) -> dict[str, Value]:
        """Sums weight x loss over the micro-batches, then divides the gradients by the sum of weights:
        that sum is known only after the last forward when the weights come from the loss function."""
        total: Value = 0.0
        sums: dict[str, Value] = {}
        for number, batch in enumerate(batches):
            loss, values = self._split(fn(batch), optimizer)
            weight = values.pop("weight", None)
            weight = float(_num_samples(batches, number)) if weight is None else weight
            (loss * weight).backward()  # type: ignore[no-untyped-call]
            total = total + weight
            for name, value in values.items():
                sums[name] = sums[name] + value * weight if name in sums else value * weight
        gradients = [p.grad for p in chosen.parameters if p.grad is not None]
        if gradients:
            torch._foreach_div_(gradients, total)
        return {**{name: value / total for name, value in sums.items()}, "weight": total}

    def _split(self, output: Any, optimizer: str) -> tuple[Tensor, dict[str, Value]]:
        """The loss to train on, and detached values to record."""
        if isinstance(output, Tensor):
            loss, values = output, {}
        elif (type(output) is dict or isinstance(output, Mapping)) and "loss" in output:
            loss = output["loss"]
            values = {n: v.detach() if isinstance(v, Tensor) else v for n, v in output.items() if n != "loss"}
        else:
            raise _no_loss(output)
        if optimizer not in self._checked:
            _check_loss(loss)
            self._checked.add(optimizer)
        values["loss" if optimizer == "main" else f"{optimizer}_loss"] = loss.detach()
        return loss, values

    def state_dict(self) -> dict[str, Any]:
        """Optimizers and schedulers by name."""
        return {name: optim.state_dict() for name, optim in self.optimizers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        for name, optim in self.optimizers.items():
            optim.load_state_dict(state[name])


def _no_loss(output: object) -> ContractError:
    what = (
        f"a mapping with {', '.join(map(str, output)) or 'nothing'}"
        if isinstance(output, Mapping)
        else output
    )
    return ContractError(
        "loss() gave no loss", received=what, fix='return a tensor, or a mapping that has "loss"'
    )


def _check_loss(loss: object) -> None:
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


def _num_samples(batches: Sequence[Any], number: int) -> int:
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
