"""The processes that train together, and how they talk to each other beside the gradients."""

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
"""How long one rank waits for another before it gives up, unless asked otherwise."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, as one of them sees them; `ALONE` is the usual case."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    """Among those of this machine."""
    control: ControlChannel = field(default_factory=ControlChannel)
    """For the training thread."""
    saving: ControlChannel = field(default_factory=ControlChannel)
    """For the thread that writes checkpoints."""
    gradients: Any = None
    """The group by which gradients are added up."""
    store: Store | None = None
    """Where the ranks have met; None when alone."""
    _said: set[str] = field(default_factory=set)

    @property
    def is_main(self) -> bool:
        """Whether this is the rank that writes what the run has once: records, media, manifests."""
        return self.rank == 0

    @property
    def is_first_here(self) -> bool:
        """Whether this is the rank that does what a machine needs once."""
        return self.local_rank == 0

    def after_first_here(self) -> None:
        """Waits until the first rank of this machine is here, too, however long that takes: a download may
        take hours, and the death of a rank ends them all."""
        if self.store is None:
            return
        key = f"first/{self.rank - self.local_rank}"
        if self.is_first_here:
            self.store.set(key, "here")
        else:
            self.store.wait([key], datetime.timedelta(days=_MOST_DAYS))

    def note_given_by_some(self, prefix: str, every: Sequence[Collection[str]]) -> None:
        """Says once of each value that not all ranks give, on rank 0: it may be meant, as where only some
        batches have it. A rank that gives nothing at all has had no batch.

        Args:
            prefix: Of the names.
            every: The names that each rank has given.
        """
        for name in sorted(set().union(*every)):
            without = [rank for rank, names in enumerate(every) if names and name not in names]
            if without and self.is_main and prefix + name not in self._said:
                self._said.add(prefix + name)
                print(
                    f"{prefix}{name} is not given by rank {without[0]}: recorded is the mean over what the "
                    "other ranks give",
                    flush=True,
                )

    @property
    def are_several(self) -> bool:
        """Whether there is anybody to agree with."""
        return self.world > 1


ALONE = Ranks()


def join(
    store: Store,
    rank: int,
    world: int,
    *,
    local_rank: int,
    backend: str = "gloo",
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Ranks:
    """Meets the other ranks.

    Args:
        store: Where they meet.
        rank: Of this process.
        world: Number of ranks.
        local_rank: Among those of this machine.
        backend: For what is computed with: gloo on the CPU, nccl on CUDA.
        timeout_seconds: How long one rank waits for another.

    Raises:
        RuntimeError: Not all came in time.
    """
    timeout = datetime.timedelta(seconds=timeout_seconds)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
    control, saving = (
        ControlChannel(rank, world, dist.new_group(backend="gloo", timeout=timeout))
        for _ in ("control", "saving")
    )
    gradients = dist.new_group(backend=backend, timeout=timeout)
    return Ranks(rank, world, local_rank, control, saving, gradients, store)
