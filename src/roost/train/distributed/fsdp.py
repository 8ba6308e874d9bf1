"""Strategy fsdp: each rank keeps a shard of every weight, its gradient and its optimizer state. torch's FSDP2
gathers the weights while they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from roost.base.errors import ConfigError
from roost.base.text.word_list import join_names
from roost.train.distributed.ranks import Ranks
from roost.train.model.parameters import MAX_LISTED_NAMES, Parameters
from roost.train.optim.optimizer import Optim
from roost.train.reporting.media_files import Media

RUNNER_METHODS = ("loss", "evaluate", "test", "predict", "visualize")
"""The methods of a runner that compute with its weights."""
_UNSUPPORTED_OPTIMIZERS = ("Adafactor", "LBFGS", "Rprop", "SparseAdam")
"""Optimizers of torch that cannot step sharded weights."""
_SUPPORTED_FUSED = ("Adam", "AdamW")
"""Optimizers of torch whose fused kernels can."""


class ShardedRunner:
    """Shards the weights of a runner over the ranks.

    ```
    sharded = Sharded(runner, ranks)           # before its optimizers are made
    stepper = Stepper(optimizers, ranks=ranks, reduces_gradients=False, loss_wrapper=sharded.call)
    ```

    The elements of a list of modules of one class, such as the layers of a transformer, are gathered one
    after the other, all other weights at once. Parameters keep the names of the bare module. Gradients are
    the sums of the gradients of all ranks.

    Args:
        runner: On its device, with its initial weights, equal on all ranks; frozen parameters are frozen
            already.
        ranks: The ranks of the default group; all of them must call this together.

    Raises:
        ConfigError: A weight cannot be sharded, or torch is too old.
    """

    def __init__(self, runner: nn.Module, ranks: Ranks) -> None:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        if not hasattr(FSDPModule, "set_force_sum_reduction_for_comms"):
            raise _fsdp_error(f"needs torch 2.8, and this is {torch.__version__}", "update torch")
        _check_weights(runner)
        for parameter in runner.parameters():
            if not parameter.is_contiguous():  # FSDP2 takes no other layout
                parameter.data = parameter.data.contiguous()
        device = next(runner.parameters()).device.type
        mesh = DeviceMesh(device, list(range(ranks.world_size)))
        self._root = _Root(runner)
        self._is_inside = False
        for module in [*blocks(runner), self._root]:
            fully_shard(module, mesh=mesh)
            assert isinstance(module, FSDPModule)
            # A plain sum: each rank's loss is scaled by its share already. Gloo has no other reduction.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
        with torch.no_grad():  # FSDP2 initializes in the first forward pass, which must be the root's
            self.call(_no_operation)
        for name in RUNNER_METHODS:
            if callable(method := getattr(runner, name, None)):
                vars(runner)[name] = partial(self.call, method)  # not by nn.Module: it is no submodule

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls ``function`` with the runner's weights gathered and returns its result. All ranks must call
        it."""
        if self._is_inside:
            return function(*args, **kwargs)
        self._is_inside = True
        try:
            output = self._root(partial(function, *args, **kwargs))
        finally:
            self._is_inside = False
        if not torch.is_grad_enabled():
            self._root.reshard()  # type: ignore[operator]  # no backward pass will do it
        return output


class _Root(nn.Module):
    """A parent module of the runner, so that torch gathers the weights around any function as it does around
    `forward`: the runner may have a `forward` of its own, and its class does not change."""

    def __init__(self, runner: nn.Module) -> None:
        super().__init__()
        self.runner = runner
        elsewhere = {part for block in blocks(runner) for part in block.modules()}
        self._homes = [
            module._parameters
            for module in runner.modules()
            if module not in elsewhere and module._parameters
        ]

    def forward(self, function: Callable[[], Any]) -> Any:
        output = function()
        gathered = {_storage_address(one) for home in self._homes for one in home.values() if one is not None}
        return _copy_gathered(output, gathered)


def _copy_gathered(value: Any, gathered: set[int]) -> Any:
    """Copies the tensors of a nested value that share memory with gathered weights: FSDP2 frees that memory
    soon, and reading it later would crash the process. Mappings become dicts, because torch looks for tensors
    in no other mapping."""
    if isinstance(value, Tensor):
        return value.clone() if _storage_address(value) in gathered else value
    if isinstance(value, Mapping):
        return {name: _copy_gathered(one, gathered) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copy_gathered(one, gathered) for one in value)
    if isinstance(value, Media):
        return replace(value, data=_copy_gathered(value.data, gathered))
    return value


def _storage_address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0


def _no_operation() -> None:
    return None


def blocks(runner: nn.Module) -> list[nn.Module]:
    """The modules that are gathered one after the other: in each list of modules, those whose class occurs
    several times, such as the layers of a transformer. Modules without submodules are left out, as they gain
    nothing; so are modules that share a weight with others, because the weight would become two weights."""
    names: dict[int, list[str]] = {}
    for name, parameter in runner.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    found = dict(_repeated_modules(runner, ""))
    return [
        module
        for prefix, module in found.items()
        if all(name.startswith(f"{prefix}.") for one in module.parameters() for name in names[id(one)])
        and next(module.parameters(), None) is not None
    ]


def _repeated_modules(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    children = {f"{prefix}{name}": child for name, child in module.named_children()}
    is_list = isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential)
    kinds = [type(child) for child in children.values()]
    for name, child in children.items():
        if is_list and kinds.count(type(child)) > 1 and next(child.children(), None) is not None:
            yield name, child
        else:
            yield from _repeated_modules(child, f"{name}.")


def _check_weights(runner: nn.Module) -> None:
    """Refuses weights that would fail later in torch, or train wrongly without an error."""
    named = dict(runner.named_parameters())
    if scalars := [name for name, one in named.items() if not one.dim()]:
        raise _fsdp_error(
            f"shards rows, and these weights have none: {join_names(scalars, MAX_LISTED_NAMES)}",
            "give them one row, nn.Parameter(torch.ones(1)), or use strategy: ddp",
        )
    if sparse := sorted(Parameters(runner).sparse()):
        raise _fsdp_error(
            f"sums only dense gradients, and these are sparse: {join_names(sparse, MAX_LISTED_NAMES)}",
            "make the embedding with sparse=False",
        )
    if len(kinds := {str(one.dtype) for one in named.values() if one.requires_grad}) > 1:
        raise _fsdp_error(
            f"trains weights of one dtype, and the runner has {join_names(sorted(kinds))}",
            "use strategy: ddp",
        )


def check_optimizers(optims: Mapping[str, Optim]) -> None:
    """Makes sure that torch's own optimizers can step sharded weights; others are not checked.

    Raises:
        ConfigError: An optimizer, or its fused kernel, cannot.
    """
    for name, optim in optims.items():
        kind = type(optim.optimizer)
        homes = {base.__name__: base.__module__ for base in kind.__mro__ if base is not torch.optim.Optimizer}
        torchs = [base for base, home in homes.items() if f"{home}.".startswith("torch.optim.")]
        if any(one in _UNSUPPORTED_OPTIMIZERS for one in torchs):
            raise _fsdp_error(
                f"cannot be used with {kind.__name__} (optimizer {name!r}), which does not support sharded "
                "weights",
                "use another optimizer, or strategy: ddp",
            )
        fused = any(group.get("fused") for group in optim.optimizer.param_groups)
        if fused and torchs and not any(one in _SUPPORTED_FUSED for one in torchs):
            raise _fsdp_error(
                f"cannot be used with the fused kernel of {kind.__name__} (optimizer {name!r})",
                "set fused: false",
            )


def _fsdp_error(what: str, fix: str) -> ConfigError:
    return ConfigError(f"fsdp {what}", setting="strategy", received="fsdp", fix=fix)
