"""The processes that train together, and how they talk to each other beside the gradients."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store

T = TypeVar("T")
_MOST_DAYS = 30
_LOOK_SECONDS = 0.02
TIMEOUT_SECONDS = 1800.0
"""How long one rank waits for another before it gives up, unless asked otherwise."""


class Channel:
    """A group of its own on the CPU, for small things: whoever owns it talks to the same owner in every rank,
    in the same order, from one thread. Alone, what is said comes back at once.

    Args:
        rank: Of this process.
        world: Number of ranks.
        group: The gloo group; None when alone.
    """

    def __init__(self, rank: int = 0, world: int = 1, group: Any = None) -> None:
        self.rank, self.world, self._group = rank, world, group

    def exchange(self, numbers: Sequence[int]) -> Exchange:
        """Begins to tell every rank these whole numbers, as many as each other rank tells."""
        own = torch.tensor(numbers, dtype=torch.int64)
        if self._group is None:
            return Exchange(own.unsqueeze(0), None)
        every = torch.empty(self.world, len(numbers), dtype=torch.int64)
        work = dist.all_gather(list(every), own, group=self._group, async_op=True)
        return Exchange(every, work)

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in their order; plain data or CPU tensors. Waits for all.

        Raises:
            RuntimeError: Another rank is gone, or did not come in time.
        """
        if self._group is None:
            return [value]
        every: list[Any] = [None] * self.world
        dist.all_gather_object(every, value, group=self._group)
        return every

    def broadcast(self, value: T, source: int = 0) -> T:
        """The value of one rank, for all. Waits for it.

        Raises:
            RuntimeError: As `gather`.
        """
        if self._group is None:
            return value
        box = [value if self.rank == source else None]
        dist.broadcast_object_list(box, group=self._group, group_src=source)
        return box[0]  # type: ignore[return-value]

    def barrier(self) -> None:
        """Waits until every rank is here."""
        self.exchange([0]).wait()


class Exchange:
    """Numbers on their way."""

    def __init__(self, every: Tensor, work: Any) -> None:
        self._every, self._work = every, work

    def wait(self) -> list[list[int]]:
        """What each rank said, in their order.

        Raises:
            RuntimeError: Another rank is gone, or did not come in time.
        """
        if self._work is not None:
            self._work.wait()
            self._work = None
        found: list[list[int]] = self._every.tolist()
        return found


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, as one of them sees them; `ALONE` is the usual case."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    """Among those of this machine."""
    control: Channel = field(default_factory=Channel)
    """For the training thread."""
    saving: Channel = field(default_factory=Channel)
    """For the thread that writes checkpoints."""
    gradients: Any = None
    """The group by which gradients are added up."""
    store: Store | None = None
    """Where the ranks have met; None when alone."""

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

    def silent(self, seconds: float) -> list[int]:
        """The other ranks that do not call this, too, within some seconds; where something has gone wrong,
        all do that can.

        Raises:
            RuntimeError: The place where they have met is gone.
        """
        if self.store is None:
            return []
        self.store.set(f"called/{self.rank}", "")
        deadline = time.monotonic() + seconds
        while missing := [rank for rank in range(self.world) if not self.store.check([f"called/{rank}"])]:
            if time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_SECONDS)
        return missing

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
        Channel(rank, world, dist.new_group(backend="gloo", timeout=timeout)) for _ in ("control", "saving")
    )
    gradients = dist.new_group(backend=backend, timeout=timeout)
    return Ranks(rank, world, local_rank, control, saving, gradients, store)
