"""Forward and backward: from a window of micro-batches to the gradient of its mean."""

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
    """Optimizers that move on one loss."""

    optims: Mapping[str, Optim]
    """By the prefix of the names under which they record."""
    loss_name: str
    moves_every_step: bool
    """Whether each of them moves in every step."""

    @property
    def parameters(self) -> list[Tensor]:
        """All that they move."""
        return [parameter for optim in self.optims.values() for parameter in optim.parameters]

    @property
    def scaler(self) -> torch.amp.GradScaler:
        """That of the loss: of the first optimizer that moves on it."""
        scaler = next(iter(self.optims.values())).scaler
        assert scaler is not None
        return scaler


class Gradients:
    """Leaves in the parameters the gradient of a window's weighted mean, over all micro-batches and ranks.

    Args:
        timing: Is told how long forward and backward take.
        device: Where they are computed.
        autocast: Entered around each forward.
        scales: Whether the loss is scaled, for fp16.
        ranks: Who takes the step together.
        reduces: Whether the gradients of the ranks are added up here; sharded models do it by themselves.
        agrees: Whether the ranks ask each other, before they add up, whether a forward or backward has
            failed, so that such a step can be passed over: one more wait in each.
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
        """The error of the newest step that all ranks know of."""

    def compute(self, fn: LossFunction, batches: Sequence[Any], target: LossTarget) -> dict[str, Value]:
        """Computes; gives what is recorded: of this rank's own batches, with their "weight" where there are
        several batches or ranks."""
        for optim in target.optims.values():
            optim.clear()
        if self._scales:  # what a step that failed halfway has left
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
        """Each micro-batch adds its share of the gradient, its samples by those of the window on all ranks,
        and of what is recorded, by those of its own. Weights of the loss's own are summed as they come."""
        counts = [losses.num_samples(batches, number) for number in range(len(batches))]
        own = float(sum(counts))
        every = self._samples_of_all(batches, own)
        sums = _WindowSums(own)
        for number, (count, batch) in enumerate(zip(counts, batches, strict=True)):
            loss, values = self._forward(fn, batch, target)
            part: Value = count / own if own else 0.0
            share: Value = count / every if every else 0.0  # of stand-ins alone, as part of a window may be
            if number == 0 and "weight" in values:
                sums.are_weighted, sums.total = True, 0.0
            if sums.are_weighted != ("weight" in values):
                raise ContractError(
                    "loss() gives a weight for some batches only", fix="give it always, or never"
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
        """What is recorded; of a loss with weights, their sum is divided out here, in the gradients too."""
        if sums.are_weighted:
            _divide(target, sums.total)
            sums.values = {name: value / sums.total for name, value in sums.values.items()}
        return {**sums.values, "weight": sums.total}

    def _forward(self, fn: LossFunction, batch: Any, target: LossTarget) -> tuple[Tensor, dict[str, Value]]:
        begun = perf_counter()
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
        self._timing.end_part(FORWARD, begun)
        return loss, values

    def _backward(self, loss: Tensor, share: Value | None, target: LossTarget) -> None:
        begun = perf_counter()
        try:
            if self._scales:
                scaled = target.scaler.scale(loss if share is None else loss * share)
                scaled.backward()  # type: ignore[no-untyped-call]
            elif isinstance(share, Tensor):
                fast_ops.backward(loss * share)
            else:
                fast_ops.backward(loss, share)
        except RuntimeError:
            losses.check_loss(loss)  # in the first step it could be trained on
            raise
        self._timing.end_part(BACKWARD, begun)

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
        begun = perf_counter()
        if reducer is not None:
            if self._agrees:
                reducer.begin()
            reducer.finish()
        if sums.are_weighted:
            total = self._on_device(sums.total)
            every = self._sum(total)
            _divide(target, torch.where(every != 0, every, 1.0))  # a step without weight has no gradient
            # A rank may hold nothing but padding, while others do not.
            sums.values = {
                name: torch.where(total != 0, value / total, 0.0) for name, value in sums.values.items()
            }
        self._timing.end_part(BACKWARD, begun)
        return {**sums.values, "weight": sums.total}

    def _refuse_failed(self) -> None:
        codes = [code for [code] in self._ranks.control.exchange([0], _EXCHANGE).wait()]
        if any(codes):
            words = failed_step.gather_first_error(self._ranks.control, None)
            self.agreed_error = failed_step.peer_error(codes, f"failed in this step: {words}")
            raise self.agreed_error

    def _compare_weights(self, are_weighted: bool) -> None:
        """Before the ranks add up the first gradients of a loss.

        Raises:
            ContractError: It gives a weight on some ranks alone.
        """
        said = [bool(one) for [one] in self._ranks.control.exchange([are_weighted], _EXCHANGE).wait()]
        if len(set(said)) > 1:
            raise ContractError(
                f"loss() gives a weight on rank {said.index(True)}, and none on rank {said.index(False)}",
                fix="give it always, or never",
            )

    def _samples_of_all(self, batches: Sequence[Any], own: float) -> float:
        """The samples of the window on all ranks: known with the window, or asked where it is not whole."""
        if not self._ranks.are_several:
            return own
        if isinstance(batches, Window) and batches.total is not None:
            return float(batches.total)
        return float(sum(count for [count] in self._ranks.control.exchange([int(own)], _EXCHANGE).wait()))

    def _on_device(self, value: Value) -> Tensor:
        """() the number on the device by which ranks talk, as exact as it came."""
        if isinstance(value, Tensor):
            return value.detach().to(self._device)
        return torch.tensor(value, dtype=torch.float64, device=self._device)

    def _sum(self, value: Tensor) -> Tensor:
        every = value.clone()
        dist.all_reduce(every)
        return every

    def loss_of_all(self, loss: Value) -> Tensor:
        """() a number that is finite exactly when the loss of each rank is."""
        return self._sum(self._on_device(loss)) if self._ranks.are_several else torch.as_tensor(loss)

    def _reducer(self, target: LossTarget) -> GradientReducer:
        parameters = target.parameters
        key = tuple(id(parameter) for parameter in parameters if parameter.requires_grad)
        if key not in self._reducers:
            self._reducers[key] = GradientReducer(parameters, group=self._ranks.gradients)
        return self._reducers[key]


class _WindowSums:
    """What the micro-batches of a window add up to."""

    def __init__(self, total: Value) -> None:
        self.values: dict[str, Value] = {}
        self.total = total
        """Samples, or weights of the loss's own."""
        self.are_weighted = False
        """Whether it is the loss's own; the values are then to be divided by it."""


def _divide(target: LossTarget, total: Value) -> None:
    gradients = [p.grad for p in target.parameters if p.grad is not None]
    if gradients:
        # Of a sharded one its own shard.
        own = [g.to_local() if hasattr(g, "to_local") else g for g in gradients]
        torch._foreach_div_(own, total)
