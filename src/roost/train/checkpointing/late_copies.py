"""The tensors of a state that need not be copied at once when it is saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from roost.train.distributed import sharded_tensors
from roost.train.optim.optimizer import Optim
from roost.train.optim.weight_average import Average

_ParameterMarks = list[tuple[int, Tensor]]


class LateCopies:
    """Knows which tensors a save may copy during the next forward and backward pass: those that only an
    optimizer or a hook changes. The project may change other parameters at any time, such as those of an
    averaged teacher, and through ``.data`` without a new version.

    The first step shows whether the forward pass itself changes parameters, as an embedding with
    ``max_norm`` does; then all tensors are copied at once.

    Args:
        optimizers: The optimizers by name.
        averages: The averaged weights by name; may grow later.
    """

    def __init__(self, optimizers: Mapping[str, Optim], averages: Mapping[str, Average]) -> None:
        self._optimizers, self._averages = optimizers, averages
        self.is_in_first_step = False
        """Whether no optimizer has stepped since `begin_first_step`."""
        self._before: _ParameterMarks = []
        """Marks of the trained parameters before the first step."""
        self._after: _ParameterMarks | None = None
        """Marks after the forward and backward pass of the first step; None once compared."""
        self._are_safe = False
        """Whether forward and backward are known to leave the parameters unchanged."""

    def begin_first_step(self) -> None:
        """Called before the first step."""
        self.give_up()
        self._before, self.is_in_first_step = self._marks(), True

    def end_first_pass(self) -> None:
        """Called in the first step, after the forward and backward pass, before an optimizer steps."""
        self._after, self.is_in_first_step = self._marks(), False

    def give_up(self) -> None:
        """Has all tensors copied at once from now on, for example because a late copy was torn."""
        self._after, self._are_safe, self.is_in_first_step = None, False, False

    def tensors(self) -> list[Tensor]:
        """Returns the tensors that may be copied late; none before the first step is over. A sync point the
        first time after it."""
        if self._after is not None:
            self._are_safe, self._after = _are_unchanged(self._before, self._after), None
        return list(self._changed_by_steps()) if self._are_safe else []

    def _changed_by_steps(self) -> Iterator[Tensor]:
        yield from self._trained_parameters()
        for optim in self._optimizers.values():
            for state in optim.optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, Tensor))
        for average in self._averages.values():
            yield from average.state_dict()["weights"].values()

    def _trained_parameters(self) -> list[Tensor]:
        """The parameters that an optimizer changes."""
        optims = self._optimizers.values()
        return [parameter for optim in optims for parameter in optim.parameters if parameter.requires_grad]

    def _marks(self) -> _ParameterMarks:
        """The version and norm of each parameter: a change through ``.data`` does not change the version. No
        sync point."""
        return [(parameter._version, _norm(parameter)) for parameter in self._trained_parameters()]


def _norm(parameter: Tensor) -> Tensor:
    """() the norm of the rows that this rank holds, in float32 for 16-bit types."""
    own = sharded_tensors.local_shard(parameter.detach())
    norm: Tensor = torch.linalg.vector_norm(own.float() if own.itemsize < 4 else own)
    return norm


def _are_unchanged(before: _ParameterMarks, after: _ParameterMarks) -> bool:
    if len(before) != len(after):
        return False
    return all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(before, after, strict=True))
