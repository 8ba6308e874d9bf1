"""Gradients averaged over the ranks in each backward pass, in a training loop that is not roost's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd import Variable

from roost.train.distributed.rank_consistency import require_same_model
from roost.train.distributed.ranks import Ranks
from roost.train.distributed.reducer import GradientReducer
from roost.train.distributed.replicas import BufferSync, broadcast_module


class BackwardMean:
    """Averages the gradients of modules over all ranks, whenever a backward pass has computed some of them.

    The modules remain as they are: where torch's DistributedDataParallel synchronizes only what is called by
    the wrapper, here a part of a module, an element of a list or another method may be called. Gradients that
    accumulate over several passes are averaged in each. All ranks must take the same backward passes through
    the same modules; a parameter may be unused on some ranks.

    Args:
        ranks: The ranks; the same modules are added on all of them, in the same order.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._parts: list[_Part] = []
        self._open: list[_Part] = []
        """The parts that the current backward pass has reached."""
        self._pass = -1
        """The number that autograd gives the current backward pass."""

    def add(self, module: nn.Module) -> None:
        """Adds a module, with the weights and buffers of rank 0 on all ranks.

        Raises:
            ContractError: The ranks built different modules (raised on rank 0; on the others `PeerLost`).
        """
        require_same_model(module, self._ranks)
        broadcast_module(module, self._ranks)
        self._parts.append(_Part(module, self._ranks))

    def refresh(self) -> None:
        """Takes over which parameters of the modules are trained now."""
        known: set[int] = set()
        for part in self._parts:
            part.refresh(known, self._note)
            known.update(map(id, part.parameters))

    def synchronize_buffers(self) -> None:
        """Copies rank 0's buffers to all ranks; they all call it after each step."""
        for part in self._parts:
            part.buffers.synchronize()

    def _note(self, part: _Part) -> None:
        """Notes that the backward pass has reached a part."""
        current = torch._C._current_graph_task_id()
        if current != self._pass:  # a new pass, or one within another (reentrant checkpointing)
            self._finish()
            self._pass = current
            Variable._execution_engine.queue_callback(self._finish)
        if part not in self._open:
            part.begin()
            self._open.append(part)

    def _finish(self) -> None:
        """Completes the averages of all parts that the pass has reached."""
        for part in self._parts:  # in one order on all ranks
            if part in self._open:
                part.finish()
        self._open, self._pass = [], -1


class _Part:
    """A module and the reducer of its gradients."""

    def __init__(self, module: nn.Module, ranks: Ranks) -> None:
        self._module, self._world_size = module, ranks.world_size
        # A group of its own: the parts that one backward pass reaches send at the same time, in an order that
        # may differ between ranks.
        self._group = dist.new_group()
        self.buffers = BufferSync(module, ranks)
        self.parameters: Sequence[Tensor] = ()
        self._reducer = GradientReducer(())

    def refresh(self, known: set[int], note: Any) -> None:
        trained = [one for one in self._module.parameters() if one.requires_grad and id(one) not in known]
        if list(map(id, trained)) != list(map(id, self.parameters)):
            added = {id(one) for one in trained} - {id(one) for one in self.parameters}
            for parameter in trained:
                if id(parameter) in added:
                    # Before the hook of the reducer, which counts only after `begin`.
                    hook = _hook(self, note)
                    parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
            self.parameters = trained
            self._reducer = GradientReducer(trained, group=self._group)

    def begin(self) -> None:
        self._reducer.begin()

    def finish(self) -> None:
        with torch.no_grad():
            own = [parameter.grad for parameter in self.parameters]
            self._reducer.finish()
            for parameter, gradient in zip(self.parameters, own, strict=True):
                mean = parameter.grad
                if mean is not None:  # the reducer's memory, which the next pass writes
                    gradient = mean.clone() if gradient is None else gradient.copy_(mean)
                    parameter.grad = gradient.div_(self._world_size)


def _hook(part: _Part, note: Any) -> Any:
    return lambda parameter: note(part)
