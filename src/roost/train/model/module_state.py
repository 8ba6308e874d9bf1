"""The complete state of a module, which is more than its state_dict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from roost.base.errors import CheckpointError, TrainingError
from roost.train.accelerators.device_errors import is_device_error
from roost.train.distributed import sharded_tensors


class ModuleState:
    """The state of a module: parameters, buffers (non-persistent ones too), extra state, which parameters are
    frozen, and which modules are in evaluation mode."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def _hidden(self) -> dict[str, Tensor]:
        """Returns the non-persistent buffers: not in the state_dict, but used by the next step."""
        persistent = self._module.state_dict(keep_vars=True).keys()
        return {name: buffer for name, buffer in self._module.named_buffers() if name not in persistent}

    def state_dict(self) -> dict[str, Any]:
        """Returns the state_dict, hidden buffers, and the names of frozen parameters and of modules in
        evaluation mode."""
        return {
            "state": dict(self._module.state_dict()),
            "hidden": self._hidden(),
            "frozen": [name for name, p in self._module.named_parameters() if not p.requires_grad],
            "evaluating": [name for name, part in self._module.named_modules() if not part.training],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the result of `state_dict`.

        Raises:
            CheckpointError: The checkpoint belongs to another model.
        """
        values = state["state"]
        if sharded_tensors.any_sharded(self._module.parameters()):
            own = self._module.state_dict()
            values = {
                name: sharded_tensors.shard_like(value, own.get(name)) for name, value in values.items()
            }
        try:
            self._module.load_state_dict(values)
        except RuntimeError as error:
            if is_device_error(error):
                raise
            difference = _difference(state["state"], self._module.state_dict())
            raise CheckpointError(
                f"the checkpoint does not fit the model: {difference}",
                fix="continue with the code and settings that it was made with; or start a new run with the "
                "weights that fit: init_from: {path: PACKAGE, strict: false}",
            ) from error
        for name, value in state["hidden"].items():
            self._put_hidden(name, value)
        frozen, evaluating = set(state["frozen"]), set(state["evaluating"])
        for name, parameter in self._module.named_parameters():
            parameter.requires_grad_(name not in frozen)
        for name, part in self._module.named_modules():
            part.training = name not in evaluating

    def _put_hidden(self, name: str, value: Tensor) -> None:
        """Restores a non-persistent buffer, which may have another size than a new one, or not exist yet."""
        owner, _, own_name = name.rpartition(".")
        buffers = self._module.get_submodule(owner)._buffers
        buffer = buffers.get(own_name)
        if buffer is not None and buffer.shape == value.shape:
            with torch.no_grad():
                buffer.copy_(value)
        else:
            like = buffer if buffer is not None else next(self._module.parameters(), value)
            buffers[own_name] = value.to(like.device)

    def check_finite(self) -> None:
        """Checks that every parameter is finite, and that no buffer of the state_dict holds NaN; infinity
        is common in buffers, in masks. One sync point for each device and dtype, for saves; for sharded
        weights all ranks check together.

        The state of the optimizers is not checked, which would read twice as much memory again: a
        non-finite value there reaches the weights with the next step.

        Raises:
            TrainingError: A parameter is not finite, or a buffer holds NaN; names them.
        """
        bad = self._failing(self._module.named_parameters(), torch.isfinite)
        if bad:
            what = "1 parameter is" if len(bad) == 1 else f"{len(bad)} parameters are"
            raise TrainingError(
                f"{what} not finite: {_first_names(bad)}",
                fix="lower the learning rate, or clip with max_grad_norm; older checkpoints are intact",
            )
        hidden = self._hidden()
        kept = ((name, buffer) for name, buffer in self._module.named_buffers() if name not in hidden)
        if bad := self._failing(kept, lambda norms: ~norms.isnan()):
            raise TrainingError(
                f"{'1 buffer holds' if len(bad) == 1 else f'{len(bad)} buffers hold'} NaN: "
                f"{_first_names(bad)}",
                fix="check what is written into it (a normalisation of NaN or infinite values?); if NaN is "
                "intended, use register_buffer(..., persistent=False); older checkpoints are intact",
            )

    def _failing(self, tensors: Iterable[tuple[str, Tensor]], good: Callable[[Tensor], Tensor]) -> list[str]:
        """Returns the names of the tensors whose maximum norm is not ``good``."""
        # One group for each device and dtype: one tensor of norms, one read. MPS has no float64.
        alike: dict[tuple[torch.device, torch.dtype], dict[str, Tensor]] = {}
        for name, tensor in tensors:
            if tensor.is_floating_point() and tensor.numel():
                alike.setdefault((tensor.device, tensor.dtype), {})[name] = tensor.detach()
        bad = []
        for named in alike.values():
            # One pass over the memory; the maximum norm is infinite or NaN if any value is.
            values = list(named.values())
            if _sums_pass(values, good):
                continue
            if sharded_tensors.any_sharded(values):
                norms = sharded_tensors.norms(values, math.inf)
            else:
                norms = list(torch._foreach_norm(values, math.inf))
            flags = good(torch.stack(norms)).cpu().tolist()
            bad += [name for name, is_good in zip(named, flags, strict=True) if not is_good]
        return bad


def _sums_pass(values: list[Tensor], good: Callable[[Tensor], Tensor]) -> bool:
    """Whether the sums prove that all tensors are good: on the CPU they take 1/25 of the time of maximum
    norms. A sum that overflows proves nothing."""
    if values[0].device.type != "cpu" or sharded_tensors.any_sharded(values):
        return False
    return bool(good(torch.stack([one.sum() for one in values])).all())


def _first_names(names: list[str]) -> str:
    return f"{', '.join(names[:5])}{' …' if len(names) > 5 else ''}"


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """Describes how two state dicts differ: the first tensor of each kind of difference, and a count."""
    both = [name for name in there if name in here]
    shapes = {name: [list(getattr(one[name], "shape", ())) for one in (there, here)] for name in both}
    others = [
        f"{name} is {a} in the checkpoint, {b} in the model" for name, (a, b) in shapes.items() if a != b
    ]
    missing = [f"{name} is not in the checkpoint" for name in here if name not in there]
    left_over = [f"{name} is not in the model" for name in there if name not in here]
    found = [
        f"{kind[0]}{f' and {len(kind) - 1} more' * (len(kind) > 1)}"
        for kind in (others, missing, left_over)
        if kind
    ]
    return "; ".join(found) or "state other than tensors"
