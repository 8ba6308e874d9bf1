"""Forward and backward pass: from a window of micro-batches to the gradient of its weighted mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from roost.base.errors import ContractError
from roost.train.distributed.ranks import ALONE, Ranks
from roost.train.distributed.reducer import GradientReducer
from roost.train.events import Value
from roost.train.failures import failed_step
from roost.train.optim.optimizer import Optim
from roost.train.step import fast_ops
from roost.train.step import loss as losses
from roost.train.step.loss import LossFunction, Window
from roost.train.step.timing import BACKWARD, FORWARD, Timing

_EXCHANGE = "the gradients of a step"


class LossTarget(NamedTuple):
    """Optimizers that take a step on one loss."""

    optims: Mapping[str, Optim]
    """By the prefix of the names that they record."""
    loss_name: str
    steps_every_time: bool
    """Whether each of them takes a step every time."""

    @property
    def parameters(self) -> list[Tensor]:
        """The parameters of all optimizers."""
        return [parameter for optim in self.optims.values() for parameter in optim.parameters]

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """The scaler of the loss: that of the first optimizer."""
        scaler = next(iter(self.optims.values())).scaler
        assert scaler is not None
        return scaler


class Gradients:
    """Computes the gradient of a window's weighted mean, over all micro-batches and ranks, into ``.grad``.

    Args:
        timing: Gets the durations of forward and backward.
        device: The device of the parameters.
        autocast: Entered around each forward pass.
        scales: Whether the loss is scaled, for fp16.
        ranks: The ranks that take the step together.
        reduces_gradients: Whether the gradients of the ranks are summed here. A sharded model does that
            itself.
        agrees_on_failures: Whether the ranks exchange, before they sum, whether a forward or backward pass
            has failed, so that such a step can be skipped. It costs one more wait in each step.
        before_waiting: Called before the ranks wait for each other.
    """

    def __init__(
        self,
        timing: Timing,
        *,
        device: torch.device | str = "cpu",
        autocast: AbstractContextManager[object] | None = None,
        scales: bool = False,
        ranks: Ranks = ALONE,
        reduces_gradients: bool = True,
        agrees_on_failures: bool = False,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> None:
        self._before_waiting = before_waiting
        self._device = torch.device(device)
        self._timing, self._autocast, self._scales, self._ranks = timing, autocast, scales, ranks
        self._reduces, self._agrees = (
            reduces_gradients and ranks.are_several,
            agrees_on_failures and ranks.are_several,
        )
        self._reducers: dict[tuple[int, ...], GradientReducer] = {}
        self._checked: set[str] = set()
        self._compared: set[str] = set()
        self.agreed_error: Exception | None = None
        """The newest error that all ranks know of."""

    def compute(self, fn: LossFunction, batches: Sequence[Any], target: LossTarget) -> dict[str, Value]:
        """Computes the gradients. Returns the values to record, of this rank's own batches; with their
        "weight" if there are several batches or ranks."""
        for optim in target.optims.values():
            optim.clear()
        if self._scales:  # state of a step that failed halfway
            target.scaler._per_optimizer_states.clear()
        if self._ranks.are_several:
            return self._compute_on_ranks(fn, batches, target)
        if len(batches) > 1:
            return self._normalized(self._accumulated(fn, batches, target), target)
        loss, values = self._forward(fn, batches[0], target)
        self._backward(loss, None, target)
        return values

    # ---- several micro-batches --------------------------------------------------------------------------

    def _accumulated(
        self,
        fn: LossFunction,
        batches: Sequence[Any],
        target: LossTarget,
        reducer: GradientReducer | None = None,
    ) -> _WindowSums:
        """Sums gradients and values over the micro-batches.

        The share of a micro-batch in the gradient is its samples divided by those of the window on all ranks;
        in the recorded values, by those of the window on this rank. Weights given by the loss are summed, and
        divided out later.
        """
        counts = [losses.num_samples(batches, number) for number in range(len(batches))]
        own = float(sum(counts))
        every = self._samples_of_all(batches, own)
        sums = _WindowSums(own)
        for number, (count, batch) in enumerate(zip(counts, batches, strict=True)):
            loss, values = self._forward(fn, batch, target)
            part: Value = count / own if own else 0.0
            share: Value = count / every if every else 0.0  # the window may hold padding only
            if number == 0 and "weight" in values:
                sums.are_weighted, sums.total = True, 0.0
            if sums.are_weighted != ("weight" in values):
                raise ContractError(
                    "loss() returns a weight for some batches only", fix="return it always, or never"
                )
            if sums.are_weighted:
                weight = losses.scalar(values.pop("weight"))
                part = share = weight if count else weight * 0.0
                sums.total = sums.total + share
            if reducer is not None and number == len(batches) - 1:
                reducer.begin()
            self._backward(loss, share, target)
            for name, value in values.items():
                sums.values[name] = losses.add_scaled(sums.values.get(name), value, part)
        return sums

    def _normalized(self, sums: _WindowSums, target: LossTarget) -> dict[str, Value]:
        """Returns the values to record; divides values and gradients by the sum of the weights of the
        loss."""
        if sums.are_weighted:
            _divide(target, sums.total)
            sums.values = {name: value / sums.total for name, value in sums.values.items()}
        return {**sums.values, "weight": sums.total}

    def _forward(self, fn: LossFunction, batch: Any, target: LossTarget) -> tuple[Tensor, dict[str, Value]]:
        started = perf_counter()
        if self._autocast is None:
            output = fn(batch)
        else:
            with self._autocast:
                output = fn(batch)
        loss, values = losses.split_output(output, target.loss_name)
        if target.loss_name not in self._checked:
            losses.check_loss(loss)
            losses.check_values(values)
            self._checked.add(target.loss_name)
        self._timing.end_part(FORWARD, started)
        return loss, values

    def _backward(self, loss: Tensor, share: Value | None, target: LossTarget) -> None:
        started = perf_counter()
        try:
            if self._scales:
                scaled = target.scaler.scale(loss if share is None else loss * share)
                scaled.backward()  # type: ignore[no-untyped-call]
            elif isinstance(share, Tensor):
                fast_ops.backward(loss * share)
            else:
                fast_ops.backward(loss, share)
        except RuntimeError:
            losses.check_loss(loss)  # it was trainable in the first step
            raise
        self._timing.end_part(BACKWARD, started)

    # ---- several ranks ----------------------------------------------------------------------------------

    def _compute_on_ranks(
        self, fn: LossFunction, batches: Sequence[Any], target: LossTarget
    ) -> dict[str, Value]:
        reducer = self._reducer(target) if self._reduces else None
        try:
            sums = self._accumulated(fn, batches, target, None if self._agrees else reducer)
        except Exception as error:
            if self._agrees:
                self._ranks.control.exchange([failed_step.failure_code(error)], _EXCHANGE).wait()
                failed_step.gather_first_error(self._ranks.control, error)
                self.agreed_error = error
            raise
        self._before_waiting()
        if self._agrees:
            self._refuse_failed()
        if target.loss_name not in self._compared:
            self._compare_weights(sums.are_weighted)
            self._compared.add(target.loss_name)
        started = perf_counter()
        if reducer is not None:
            if self._agrees:
                reducer.begin()
            reducer.finish()
        if sums.are_weighted:
            total = self._on_device(sums.total)
            every = self._sum(total)
            _divide(target, torch.where(every != 0, every, 1.0))  # without any weight the gradient is 0
            # One rank may have only padding, while others have samples.
            sums.values = {
                name: torch.where(total != 0, value / total, 0.0) for name, value in sums.values.items()
            }
        self._timing.end_part(BACKWARD, started)
        return {**sums.values, "weight": sums.total}

    def _refuse_failed(self) -> None:
        codes = [code for [code] in self._ranks.control.exchange([0], _EXCHANGE).wait()]
        if any(codes):
            words = failed_step.gather_first_error(self._ranks.control, None)
            self.agreed_error = failed_step.peer_error(codes, f"failed in this step: {words}")
            raise self.agreed_error

    def _compare_weights(self, are_weighted: bool) -> None:
        """Checks, before the first reduction of a loss, that all ranks have weights or none.

        Raises:
            ContractError: The loss returns a weight on some ranks only.
        """
        weighted = [bool(one) for [one] in self._ranks.control.exchange([are_weighted], _EXCHANGE).wait()]
        if len(set(weighted)) > 1:
            raise ContractError(
                f"loss() has a weight on rank {weighted.index(True)}, none on rank {weighted.index(False)}",
                fix="return it always, or never",
            )

    def _samples_of_all(self, batches: Sequence[Any], own: float) -> float:
        """Returns the samples of the window on all ranks; exchanges them if the window does not have the
        total."""
        if not self._ranks.are_several:
            return own
        if isinstance(batches, Window) and batches.total is not None:
            return float(batches.total)
        return float(sum(count for [count] in self._ranks.control.exchange([int(own)], _EXCHANGE).wait()))

    def _on_device(self, value: Value) -> Tensor:
        """Returns () the number on the device of the collectives, without loss of precision."""
        if isinstance(value, Tensor):
            return value.detach().to(self._device)
        return torch.tensor(value, dtype=torch.float64, device=self._device)

    def _sum(self, value: Tensor) -> Tensor:
        every = value.clone()
        dist.all_reduce(every)
        return every

    def loss_of_all(self, loss: Value) -> Tensor:
        """Returns () a number that is finite if and only if the loss of each rank is."""
        return self._sum(self._on_device(loss)) if self._ranks.are_several else torch.as_tensor(loss)

    def _reducer(self, target: LossTarget) -> GradientReducer:
        parameters = target.parameters
        key = tuple(id(parameter) for parameter in parameters if parameter.requires_grad)
        if key not in self._reducers:
            self._reducers[key] = GradientReducer(parameters, group=self._ranks.gradients)
        return self._reducers[key]


class _WindowSums:
    """The sums over the micro-batches of a window."""

    def __init__(self, total: Value) -> None:
        self.values: dict[str, Value] = {}
        self.total = total
        """The sum of samples, or of the weights that the loss returned."""
        self.are_weighted = False
        """Whether the loss returned weights; the values must then be divided by `total`."""


def _divide(target: LossTarget, total: Value) -> None:
    gradients = [p.grad for p in target.parameters if p.grad is not None]
    if gradients:
        # Of a sharded gradient, this rank's shard.
        own = [g.to_local() if hasattr(g, "to_local") else g for g in gradients]
        torch._foreach_div_(own, total)
