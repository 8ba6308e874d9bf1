"""Backward pass and optimizer step of torch without their overhead in Python.

On a small model a quarter of a step is overhead: ranges for a profiler that is not running, checks for
arguments that were not given. The functions here do the same operations in the same order, with the same
bits.
They use torch's own functions where a difference could be observed: with a hook on the optimizer, a wrapped
step, a profiler, or a tensor subclass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import graph
from torch.optim import optimizer as torch_optimizer
from torch.overrides import has_torch_function_unary

_engine: Callable[..., Any] | None = getattr(graph, "_engine_run_backward", None)
_is_profiled: Callable[[], bool] | None = getattr(torch.autograd, "_profiler_enabled", None)
_GLOBAL_HOOKS = [
    getattr(torch_optimizer, name, None)
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
]
_OWN_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def backward(loss: Tensor, share: float | None = None) -> None:
    """``loss.backward()``, or ``(loss * share).backward()``.

    Args:
        loss: () the value to minimise.
        share: The factor on the gradient. It is the initial gradient of the backward pass instead of 1, which
            saves a multiplication in the forward and the backward pass.
    """
    if _engine is None or type(loss) is not Tensor or has_torch_function_unary(loss):
        (loss if share is None else loss * share).backward()  # type: ignore[no-untyped-call]
        return
    # A new tensor each time: through views alone it becomes the gradient of a parameter itself.
    seed = torch.ones_like(loss) if share is None else loss.new_full((), share)
    _engine((loss,), (seed,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def step_function(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
    """Returns ``optimizer.step``, without torch's wrapper unless a hook, a profiler or a wrapper needs it."""
    wrapped = type(optimizer).step
    bare = getattr(wrapped, "__wrapped__", None)
    own = vars(optimizer).get("step")
    is_torchs = getattr(wrapped, "hooked", False) and (own is None or _is_scheduler_wrapper(own))
    if bare is None or not is_torchs or _is_profiled is None or None in _GLOBAL_HOOKS:
        return lambda: optimizer.step()  # looked up in each step: a scheduler may wrap it later
    is_profiled = _is_profiled
    listening = [*_GLOBAL_HOOKS, *(getattr(optimizer, name) for name in _OWN_HOOKS)]

    def step() -> object:
        if any(listening) or is_profiled() or vars(optimizer).get("step") is not own:
            return optimizer.step()
        optimizer._opt_called = True  # type: ignore[attr-defined]  # set by a scheduler's wrapper otherwise
        return bare(optimizer)

    return step


def _is_scheduler_wrapper(step: object) -> bool:
    return bool(getattr(step, "_wrapped_by_lr_sched", False))
