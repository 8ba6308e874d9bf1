"""An optimizer with its scheduler, gradient clipping, loss scaler, and the interval of its steps."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import CheckpointError, ContractError
from roost.base.text.suggestions import closest_match
from roost.train.distributed import sharded_tensors
from roost.train.step import fast_ops

UNITS = ("step", "epoch", "validation")
LR_SCALE = "lr_scale"
"""Key of a torch parameter group: the factor on its learning rate."""


@dataclass
class Optim:
    """An optimizer with its scheduler and gradient clipping.

    ``unit`` is what the scheduler counts: "step", "epoch" or "validation" (then its ``step`` gets the value
    of ``monitor``, as `ReduceLROnPlateau` needs it). A parameter group with the key ``lr_scale`` uses its
    learning rate times that factor, independently of the scheduler.

    Args:
        optimizer: A torch optimizer.
        scheduler: Changes the learning rates. None: they are constant.
        unit: What the scheduler counts.
        monitor: The metric that the scheduler uses.
        max_grad_norm: The norm to which all gradients of its parameters together are clipped.
        grad_norm_type: p of that norm.
        every_n_steps: The optimizer takes a step at every n-th call only, on the loss of that call alone.

    Raises:
        ContractError: ``unit`` is unknown, or ``every_n_steps`` is less than 1.
    """

    optimizer: torch.optim.Optimizer
    scheduler: Any = None
    unit: str = "step"
    monitor: str | None = None
    max_grad_norm: float | None = None
    grad_norm_type: float = 2.0
    every_n_steps: int = 1
    scaler: torch.amp.GradScaler | None = field(init=False, default=None)
    """The scaler of its loss; set by the `Stepper` in fp16."""
    num_calls: int = field(init=False, default=0)
    """Number of calls of `is_due`; counted only if ``every_n_steps`` is more than 1."""
    rates_before: list[float] | None = field(init=False, default=None)
    """`rates` of the newest step, set by the hook that steps the scheduler. None: no hook steps one."""

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            fix = f"did you mean {near!r}?" if (near := closest_match(self.unit, UNITS)) else None
            raise ContractError(f"a scheduler must count {', '.join(UNITS)}", received=self.unit, fix=fix)
        if self.every_n_steps < 1:
            raise ContractError("every_n_steps must be 1 or more", received=self.every_n_steps)
        step = inspect.signature(type(self.optimizer).step).parameters
        self.needs_closure = "closure" in step and step["closure"].default is inspect.Parameter.empty
        """Whether the optimizer evaluates the loss itself, several times a step, as LBFGS does."""
        self.take_step = fast_ops.step_function(self.optimizer)
        """Takes one step: ``optimizer.step()``."""
        own = type(self.optimizer).zero_grad is not torch.optim.Optimizer.zero_grad
        self._has_own_zero_grad = own or "zero_grad" in vars(self.optimizer)
        # Torch warns if a scheduler steps before the optimizer. That happens if the optimizer does not take a
        # step each time, and after a validation that a stop interrupted.
        self.optimizer._opt_called = True  # type: ignore[attr-defined]

    @property
    def is_fused(self) -> bool:
        """Whether one kernel does the whole step; it can skip the step by a flag on the device."""
        return bool(getattr(self.optimizer, "_step_supports_amp_scaling", False))

    @property
    def begins_momentum(self) -> bool:
        """Whether a fused SGD creates its momentum buffer in this step. If that step were skipped by a flag,
        the buffer would hold uninitialised memory."""
        if not (self.is_fused and isinstance(self.optimizer, torch.optim.SGD)):
            return False
        state = self.optimizer.state
        return any(
            group["momentum"]
            and any(p.grad is not None for p in group["params"])
            and all(state.get(p, {}).get("momentum_buffer") is None for p in group["params"])
            for group in self.optimizer.param_groups
        )

    @property
    def parameters(self) -> list[Tensor]:
        """All its parameters, in the order of the groups. Read again each time: a hook may add a group."""
        return [p for group in self.optimizer.param_groups for p in group["params"]]

    def is_due(self) -> bool:
        """Counts a call, and returns whether the optimizer takes a step at this one."""
        if self.every_n_steps == 1:
            return True
        self.num_calls += 1
        return self.num_calls % self.every_n_steps == 0

    def clear(self) -> None:
        """Sets the gradients to None. Torch's `zero_grad` does the same in 20 times the time (5 µs)."""
        if self._has_own_zero_grad:
            self.optimizer.zero_grad()
            return
        for group in self.optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def clip(self) -> Tensor:
        """Clips the gradients to `max_grad_norm`; returns () their norm before."""
        assert self.max_grad_norm is not None
        parameters, kind = self.parameters, self.grad_norm_type
        if not sharded_tensors.any_sharded(parameters):
            return torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm, norm_type=kind)
        norm = self.gradient_norm(kind)
        torch.nn.utils.clip_grads_with_norm_(parameters, self.max_grad_norm, norm)
        return norm

    def gradient_norm(self, norm_type: float) -> Tensor:
        """Returns () the norm of all gradients together; 0 without gradients.

        Sparse gradients count with their values, sharded gradients with the shards of all ranks.
        """
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        if sharded_tensors.any_sharded(gradients):
            return sharded_tensors.total_norm(gradients, norm_type)
        dense = [gradient._values() if gradient.is_sparse else gradient for gradient in gradients]
        return torch.nn.utils.get_total_norm(dense, norm_type)

    @contextmanager
    def scaled_rates(self) -> Iterator[None]:
        """Multiplies the learning rates by their ``lr_scale`` inside the context."""
        groups = [group for group in self.optimizer.param_groups if LR_SCALE in group]
        rates = [group["lr"] for group in groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate * group[LR_SCALE]
        try:
            yield
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate

    @property
    def has_scaled_rates(self) -> bool:
        """Whether any group has a ``lr_scale``."""
        return any(LR_SCALE in group for group in self.optimizer.param_groups)

    @property
    def rates(self) -> list[float]:
        """The learning rate of each parameter group, with its ``lr_scale``."""
        return [float(group["lr"]) * float(group.get(LR_SCALE, 1.0)) for group in self.optimizer.param_groups]

    @property
    def lr(self) -> float:
        """The learning rate of the first group."""
        return self.rates[0]

    @property
    def rates_of_the_step(self) -> list[float]:
        """The learning rates that the newest step used, before the scheduler changed them."""
        return self.rates if self.rates_before is None else self.rates_before

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of optimizer, scheduler and scaler, and the number of calls."""
        scheduler = self.scheduler.state_dict() if self.scheduler is not None else None
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": scheduler,
            "scaler": self.scaler.state_dict() if self.scaler is not None else None,
            "asked": self.num_calls,
            "rates_before": self.rates_before,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`.

        Raises:
            CheckpointError: The state belongs to another optimizer.
        """
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        own = self._in_shards(state["optimizer"])
        # After the scheduler: building or loading one may write a learning rate into the groups.
        try:
            self.optimizer.load_state_dict(own)
        except ValueError as error:
            raise CheckpointError(
                f"the checkpoint does not fit the optimizer: {error}",
                fix="continue the package with its own code and settings",
            ) from error
        if type(self.optimizer).load_state_dict is torch.optim.Optimizer.load_state_dict:
            _restore_placement(self.optimizer, own)
        self._mark_as_fused()
        self.num_calls, self.rates_before = state.get("asked", 0), state.get("rates_before")
        if self.scaler is not None and state.get("scaler"):
            self.scaler.load_state_dict(state["scaler"])

    def _mark_as_fused(self) -> None:
        """Sets the mark of `is_fused` by the groups: a loaded state replaces their ``fused``, and torch sets
        the mark when the optimizer is built only. A wrong one is an assertion of torch in the next step."""
        groups = self.optimizer.param_groups
        # Another library's optimizer has a mark of its own.
        is_torchs = type(self.optimizer).__module__.startswith("torch.optim.")
        if is_torchs and all("fused" in group for group in groups):
            mark = all(group["fused"] for group in groups)
            self.optimizer._step_supports_amp_scaling = mark  # type: ignore[attr-defined]

    def _in_shards(self, saved: dict[str, Any]) -> dict[str, Any]:
        """Shards the tensors of a saved state whose parameters are sharded.

        ``fused`` and ``foreach`` are those of the current groups: the kernels of the run that saved the state
        may not support shards.
        """
        parameters, groups = self.parameters, saved["param_groups"]
        indices = [index for group in groups for index in group["params"]]
        fits = len(indices) == len(parameters) and len(groups) == len(self.optimizer.param_groups)
        if not fits or not sharded_tensors.any_sharded(parameters):
            return saved  # torch reports how it does not fit
        groups = [
            {**group, **{name: own[name] for name in ("fused", "foreach") if name in own}}
            for group, own in zip(groups, self.optimizer.param_groups, strict=True)
        ]
        owners = dict(zip(indices, parameters, strict=True))
        values = {
            index: {name: sharded_tensors.shard_like(value, owners.get(index)) for name, value in one.items()}
            for index, one in saved["state"].items()
        }
        return {**saved, "state": values, "param_groups": groups}


def _restore_placement(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Restores what torch changes when it loads the state of an optimizer.

    Floating-point state gets the dtype of its parameter: the float32 counters of NAdam and ASGD would lose
    bits with bf16 weights, and with float64 weights the next steps would round differently. And all of it
    moves to the device of the parameter: NAdam has its products on the CPU, and each step would read two of
    them back for each parameter.
    """
    indices = (index for group in saved["param_groups"] for index in group["params"])
    parameters = ((p, group) for group in optimizer.param_groups for p in group["params"])
    for index, (parameter, group) in zip(indices, parameters, strict=True):
        if index not in saved["state"]:
            continue
        own = saved["state"][index]
        optimizer.state[parameter] = loaded = _with_saved_dtype(optimizer.state[parameter], own)
        if isinstance(optimizer, torch.optim.NAdam) and not group["capturable"]:
            loaded["mu_product"] = own["mu_product"].to("cpu", copy=True)


def _with_saved_dtype(loaded: Any, saved: Any) -> Any:
    if isinstance(saved, Tensor) and isinstance(loaded, Tensor):
        return loaded if loaded.dtype == saved.dtype else saved.to(loaded.device, copy=True)
    if isinstance(saved, dict) and isinstance(loaded, dict):
        for key in saved:
            loaded[key] = _with_saved_dtype(loaded[key], saved[key])
    if type(saved) in (list, tuple) and type(loaded) is type(saved):
        return type(saved)(_with_saved_dtype(one, other) for one, other in zip(loaded, saved, strict=True))
    return loaded
