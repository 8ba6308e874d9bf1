"""How the ranks of a run tell each other small things, beside the gradients."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from roost.base.errors import RanksApart

T = TypeVar("T")
_POINT = struct.Struct("<8q")
"""So much of each message says where the rank is that sends it."""
_MAX_NUMBERS = 10


class ControlChannel:
    """A group of its own on the CPU, for small things: whoever owns it talks to the same owner in every rank,
    in the same order, from one thread. Alone, what is said comes back at once.

    Each message has one form and says where the rank is that sends it, also before values of any size: ranks
    that do not meet at the same place know it, where collectives of other sizes would end the process.

    Args:
        rank: Of this process.
        world: Number of ranks.
        group: The gloo group; None when alone.
    """

    def __init__(self, rank: int = 0, world: int = 1, group: Any = None) -> None:
        self.rank, self.world, self._group = rank, world, group

    def exchange(self, numbers: Sequence[int], at: str) -> Exchange:
        """Begins to tell every rank these whole numbers, as many as each other rank tells.

        Args:
            numbers: Ten at most.
            at: Where the ranks are that tell each other this, in words that follow "at": "step 3".
        """
        if self._group is None:
            return Exchange(torch.tensor([numbers], dtype=torch.int64), len(numbers))
        assert len(numbers) <= _MAX_NUMBERS
        padding = [0] * (_MAX_NUMBERS - len(numbers))
        own = torch.tensor([*numbers, *padding, *_packed(at)], dtype=torch.int64)
        every = torch.empty(self.world, len(own), dtype=torch.int64)
        work = dist.all_gather(list(every), own, group=self._group, async_op=True)
        return Exchange(every, len(numbers), work)

    def gather(self, value: T, at: str) -> list[T]:
        """The values of all ranks, in their order; plain data or CPU tensors. Waits for all.

        Args:
            value: Of this rank.
            at: As in `exchange`.

        Raises:
            RuntimeError: Another rank is gone, or did not come in time.
            RanksApart: Another rank is at another place.
        """
        if self._group is None:
            return [value]
        self.barrier(at)
        every: list[Any] = [None] * self.world
        dist.all_gather_object(every, value, group=self._group)
        return every

    def broadcast(self, value: T, at: str, source: int = 0) -> T:
        """The value of one rank, for all. Waits for it.

        Args:
            value: Counts on that rank alone.
            at: As in `exchange`.
            source: That rank.

        Raises:
            RuntimeError: As `gather`.
            RanksApart: As `gather`.
        """
        if self._group is None:
            return value
        self.barrier(at)
        box = [value if self.rank == source else None]
        dist.broadcast_object_list(box, group=self._group, group_src=source)
        return box[0]  # type: ignore[return-value]

    def fill(self, tensor: Tensor, at: str) -> None:
        """Puts into a CPU tensor, of one shape and type on all ranks, what rank 0 has in it. Waits for it.

        Raises:
            RuntimeError: As `gather`.
            RanksApart: As `gather`.
        """
        if self._group is not None:
            self.barrier(at)
            dist.broadcast(tensor, group=self._group, group_src=0)

    def barrier(self, at: str) -> None:
        """Waits until every rank is here.

        Raises:
            RuntimeError: As `gather`.
            RanksApart: As `gather`.
        """
        self.exchange([], at).wait()


def _packed(at: str) -> tuple[int, ...]:
    """The words as numbers; what is too long is cut."""
    return _POINT.unpack(at.encode()[: _POINT.size].ljust(_POINT.size))


def _unpacked(numbers: Sequence[int]) -> str:
    return _POINT.pack(*numbers).decode(errors="ignore").rstrip()


class Exchange:
    """Numbers on their way.

    Args:
        every: (ranks, ...) takes what each rank says: the numbers first, its place last.
        length: How many numbers there are.
        work: That of the group; None when alone.
    """

    def __init__(self, every: Tensor, length: int, work: Any = None) -> None:
        self._every, self._length, self._work = every, length, work

    def wait(self) -> list[list[int]]:
        """What each rank said, in their order.

        Raises:
            RuntimeError: Another rank is gone, or did not come in time.
            RanksApart: Another rank is at another place; raised on every rank that is at this exchange.
        """
        if self._work is not None:
            self._work.wait()
            self._work = None
        found: list[list[int]] = self._every.tolist()
        places = [tuple(one[_MAX_NUMBERS:]) for one in found]
        if any(place != places[0] for place in places):
            raise ranks_apart_error([_unpacked(place) for place in places])
        return [one[: self._length] for one in found]


def ranks_apart_error(places: Sequence[str]) -> RanksApart:
    """The error about ranks that wait for each other in vain.

    Args:
        places: Where each of them is.
    """
    return RanksApart(
        f"the ranks wait for each other at different places: {describe_points(places)}",
        fix="save, evaluate and gather on every rank alike, by nothing that one alone knows: its number, a "
        "file, a clock",
    )


def describe_points(places: Sequence[str]) -> str:
    """The first rank at each place, and where that is.

    Args:
        places: Of the ranks, in their order.
    """
    first = [(rank, place) for rank, place in enumerate(places) if place not in places[:rank]]
    return ", ".join(f"rank {rank} at {place}" for rank, place in first)
