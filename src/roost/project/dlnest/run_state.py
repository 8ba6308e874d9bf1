"""The state of a run of a project of document 000: the parts of its checkpoints.

==========  ================================================================================================
dlnest      what the project's ``getSaveDict`` methods return, and its log
loop        the position in the loop, the progress, what was recorded
rank-<n>    the random generators of a rank, the beginning of its pass over the data, the attributes of its
            objects that training has changed; of ranks other than 0 their own log, too
==========  ================================================================================================
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from roost.package.checkpoints.checkpoint import Manifest
from roost.train.checkpointing.checkpoints import Checkpoints
from roost.train.distributed.ranks import Ranks

PROJECT, LOOP = "dlnest", "loop"
OWN_OF_RANK = ("life_cycle", "dataset", "log_dict")
"""What a rank other than 0 saves of its project: its weights are those of rank 0."""


class Phase(enum.IntEnum):
    """The position within an epoch, in order. A checkpoint is saved at one of these."""

    EPOCH = 0
    """Before an epoch."""
    STEP = 1
    """Between two steps, or after the last one."""
    VALIDATION = 2
    """Before the validation, which was decided on."""
    SAVED = 3
    """After the project's own save; ``ASaveModel`` and ``AOneEpoch`` are still to be called."""


class SavedPart:
    """A part of a checkpoint: a state to save, or one that was read.

    Args:
        state: The state.
        optional: Whether a checkpoint may lack the part.
    """

    def __init__(self, state: dict[str, Any] | None = None, *, optional: bool = False) -> None:
        self.state, self.optional = state or {}, optional

    def state_dict(self) -> dict[str, Any]:
        """Returns the state."""
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes the state that was read."""
        self.state = state


def rank_part(ranks: Ranks) -> str:
    """Returns the name of a rank's own part."""
    return f"rank-{ranks.rank}"


def read(
    checkpoints: Checkpoints, ranks: Ranks, *, id: int | None = None
) -> tuple[Manifest | None, dict[str, dict[str, Any]], list[str]]:
    """Reads checkpoint ``id``, or the newest good one; all ranks must call it. See `Checkpoints.load`.

    Returns:
        Its manifest, None if there is none; its states by part, that of this rank empty if the checkpoint was
        saved by fewer ranks; and a line for each damaged one that was set aside.
    """
    parts = {
        PROJECT: SavedPart(),
        LOOP: SavedPart(),
        rank_part(ranks): SavedPart(optional=not ranks.is_main),
    }
    manifest, lines = checkpoints.load(parts, id=id)
    return manifest, {name: part.state for name, part in parts.items()}, lines


def project_state(states: Mapping[str, dict[str, Any]], ranks: Ranks) -> dict[str, Any]:
    """Returns the project's state for this rank, to be loaded: the project may keep and change all but the
    tensors of the runner."""
    found = {**states[PROJECT], **states[rank_part(ranks)].get("project", {})}
    return {name: copy.deepcopy(one) if name in OWN_OF_RANK else one for name, one in found.items()}


def host_copy(state: Any) -> Any:
    """Returns a copy of a state in the memory of the host, which later steps do not change."""
    memo: dict[int, Any] = {}
    kept = []  # an id is valid only as long as its object
    for tensor in _tensors(state):
        own = tensor.detach()
        kept.append(own)
        memo[id(tensor)] = copy.deepcopy(own, memo) if own.device.type == "cpu" else own.cpu()
    return copy.deepcopy(state, memo)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
