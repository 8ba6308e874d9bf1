"""The ranks of a run: their number, their process groups and control channels."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from roost.train.distributed.control_channel import ControlChannel

_MOST_DAYS = 30
TIMEOUT_SECONDS = 1800.0
"""The default time that one rank waits for another before it raises an error."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run, as one of them sees them; `ALONE` is the value for a run in one process."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """The rank among those of this machine."""
    control: ControlChannel = field(default_factory=ControlChannel)
    """The channel of the training thread."""
    saving: ControlChannel = field(default_factory=ControlChannel)
    """The channel of the thread that writes checkpoints."""
    gradients: Any = None
    """The process group of the gradient all-reduce."""
    store: Store | None = None
    """The store of the rendezvous; None for a single rank."""
    _said: set[str] = field(default_factory=set)

    @property
    def is_main(self) -> bool:
        """Whether this rank writes the files that a run has once: records, media, manifests."""
        return self.rank == 0

    @property
    def is_first_on_machine(self) -> bool:
        """Whether this rank does the work that each machine needs once, such as a download."""
        return self.local_rank == 0

    def wait_for_first_on_machine(self) -> None:
        """Waits until the first rank of this machine has called this, too. It waits without the usual
        timeout: a download may take hours, and the death of any rank ends all of them."""
        if self.store is None:
            return
        key = f"first/{self.rank - self.local_rank}"
        if self.is_first_on_machine:
            self.store.set(key, "ready")
        else:
            self.store.wait([key], datetime.timedelta(days=_MOST_DAYS))

    def warn_of_partial_values(self, prefix: str, every: Sequence[Collection[str]]) -> None:
        """Prints once, on rank 0, each value that only some ranks give. It may be intended, as for a value
        that only some batches have. A rank that gives no value at all had no batch and does not count.

        Args:
            prefix: Prefix of the names, for the message.
            every: The names that each rank gives, ordered by rank.
        """
        for name in sorted(set().union(*every)):
            without = [rank for rank, names in enumerate(every) if names and name not in names]
            if without and self.is_main and prefix + name not in self._said:
                self._said.add(prefix + name)
                print(
                    f"{prefix}{name} is not given by rank {without[0]}: the mean over the other ranks is "
                    "recorded",
                    flush=True,
                )

    @property
    def are_several(self) -> bool:
        """Whether the run has more than one rank."""
        return self.world_size > 1


ALONE = Ranks()


def join(
    store: Store,
    rank: int,
    world_size: int,
    *,
    local_rank: int,
    backend: str = "gloo",
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Ranks:
    """Joins the process groups of all ranks; waits for all of them.

    Args:
        store: The store of the rendezvous.
        rank: The rank of this process.
        world_size: Number of ranks.
        local_rank: The rank among those of this machine.
        backend: The backend of tensors and gradients: gloo on the CPU, else that of the accelerator.
        timeout_seconds: How long one rank waits for another.

    Raises:
        RuntimeError: A rank did not join before the timeout.
    """
    timeout = datetime.timedelta(seconds=timeout_seconds)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=timeout)
    control, saving = (
        ControlChannel(rank, world_size, dist.new_group(backend="gloo", timeout=timeout))
        for _ in ("control", "saving")
    )
    gradients = dist.new_group(backend=backend, timeout=timeout)
    return Ranks(rank, world_size, local_rank, control, saving, gradients, store)
