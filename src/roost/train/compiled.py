"""A loss function that goes through torch.compile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.train.loss import LossFunction

MAX_SHAPES = 8
"""Shapes of batches that get kernels of their own: as many as torch keeps for one function."""


class Compiled:
    """A compiled loss function; called as the plain one is.

    Each shape of batches has its own kernels. Left to itself torch would compile the second shape for all
    others, so that the bits of a step would depend on which shapes came before it, and a run that goes on
    would not get those of one that was never cut.

    Args:
        fn: Gives the loss of a batch; a method of a module keeps its module's bare names.
        dynamic: One kernel for all shapes, from the first on.
    """

    def __init__(self, fn: LossFunction, *, dynamic: bool) -> None:
        # Past its limit torch would go on uncompiled, without an error.
        torch._dynamo.config.fail_on_recompile_limit_hit = True
        self._fn: LossFunction = torch.compile(fn, dynamic=dynamic)
        self._dynamic = dynamic
        self._shapes: set[Any] = set()

    def __call__(self, batch: Any) -> Tensor | Mapping[str, Tensor]:
        """The loss of a batch.

        Raises:
            ContractError: The batch has a ninth shape.
        """
        if not self._dynamic:
            shape = _shape(batch)
            if shape not in self._shapes:
                self._add(shape)
        return self._fn(batch)

    def _add(self, shape: Any) -> None:
        if len(self._shapes) == MAX_SHAPES:
            raise ContractError(
                f"step_mode compile has made kernels for {MAX_SHAPES} shapes of batches, and here is another one",
                setting="step_mode",
                received=shape,
                fix="set compile_dynamic: true, which makes one kernel for all shapes; or pad the batches to "
                "a few lengths in collate",
            )
        self._shapes.add(shape)


def _shape(value: Any) -> Any:
    """The shapes of the tensors in a nest, as something hashable."""
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if isinstance(value, Mapping):
        return tuple((name, _shape(item)) for name, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(_shape(item) for item in value)
    return type(value).__name__
