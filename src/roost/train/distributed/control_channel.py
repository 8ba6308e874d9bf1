"""Small messages between the ranks on the CPU, separate from the gradients."""

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
"""The part of each message that names the synchronization point of its sender: 64 bytes of text."""
_MAX_NUMBERS = 10


class ControlChannel:
    """A process group on the CPU for small messages. It has one owner, which must use it from one thread and
    make the same calls in the same order on every rank. With a single rank, every call returns at once.

    Each message has the same size and names the synchronization point of its sender; such a message also goes
    before values of any size. So ranks that wait at different points detect it, where collectives of
    different sizes would abort the process.

    Args:
        rank: The rank of this process.
        world_size: Number of ranks.
        group: The gloo group; None for a single rank.
    """

    def __init__(self, rank: int = 0, world_size: int = 1, group: Any = None) -> None:
        self.rank, self.world_size, self._group = rank, world_size, group

    def exchange(self, numbers: Sequence[int], at: str) -> Exchange:
        """Starts an all-gather of integers; every rank must send the same number of them.

        Args:
            numbers: Ten at most.
            at: Name of the synchronization point, in words that follow "at": "step 3".
        """
        if self._group is None:
            return Exchange(torch.tensor([numbers], dtype=torch.int64), len(numbers))
        assert len(numbers) <= _MAX_NUMBERS
        padding = [0] * (_MAX_NUMBERS - len(numbers))
        own = torch.tensor([*numbers, *padding, *_packed(at)], dtype=torch.int64)
        every = torch.empty(self.world_size, len(own), dtype=torch.int64)
        work = dist.all_gather(list(every), own, group=self._group, async_op=True)
        return Exchange(every, len(numbers), work)

    def gather(self, value: T, at: str) -> list[T]:
        """Returns the values of all ranks, ordered by rank; waits for all of them.

        Args:
            value: The value of this rank: plain data or CPU tensors.
            at: Name of the synchronization point, as in `exchange`.

        Raises:
            RuntimeError: Another rank has ended, or the timeout passed.
            RanksApart: Another rank waits at another synchronization point.
        """
        if self._group is None:
            return [value]
        self.barrier(at)
        every: list[Any] = [None] * self.world_size
        dist.all_gather_object(every, value, group=self._group)
        return every

    def broadcast(self, value: T, at: str, source: int = 0) -> T:
        """Returns the value of rank ``source`` on every rank; waits for it.

        Args:
            value: The value to send; ignored on the other ranks.
            at: Name of the synchronization point, as in `exchange`.
            source: The rank that sends.

        Raises:
            RuntimeError: Another rank has ended, or the timeout passed.
            RanksApart: Another rank waits at another synchronization point.
        """
        if self._group is None:
            return value
        self.barrier(at)
        box = [value if self.rank == source else None]
        dist.broadcast_object_list(box, group=self._group, group_src=source)
        return box[0]  # type: ignore[return-value]

    def fill(self, tensor: Tensor, at: str) -> None:
        """Copies rank 0's values into a CPU tensor of the same shape and dtype on all ranks; waits for them.

        Raises:
            RuntimeError: Another rank has ended, or the timeout passed.
            RanksApart: Another rank waits at another synchronization point.
        """
        if self._group is not None:
            self.barrier(at)
            dist.broadcast(tensor, group=self._group, group_src=0)

    def barrier(self, at: str) -> None:
        """Waits until every rank has reached this point.

        Raises:
            RuntimeError: Another rank has ended, or the timeout passed.
            RanksApart: Another rank waits at another synchronization point.
        """
        self.exchange([], at).wait()


def _packed(at: str) -> tuple[int, ...]:
    """The name of a synchronization point as integers; a name over 64 bytes is cut."""
    return _POINT.unpack(at.encode()[: _POINT.size].ljust(_POINT.size))


def _unpacked(numbers: Sequence[int]) -> str:
    return _POINT.pack(*numbers).decode(errors="ignore").rstrip()


class Exchange:
    """An all-gather of integers that was started.

    Args:
        every: (ranks, ...) receives each rank's message: the integers first, the synchronization point last.
        length: How many integers each rank sends.
        work: The handle of the collective; None for a single rank.
    """

    def __init__(self, every: Tensor, length: int, work: Any = None) -> None:
        self._every, self._length, self._work = every, length, work

    def wait(self) -> list[list[int]]:
        """Waits for all ranks and returns the integers of each, ordered by rank.

        Raises:
            RuntimeError: Another rank has ended, or the timeout passed.
            RanksApart: Another rank waits at another synchronization point; raised on every rank that takes
                part in this exchange.
        """
        if self._work is not None:
            self._work.wait()
            self._work = None
        found: list[list[int]] = self._every.tolist()
        points = [tuple(one[_MAX_NUMBERS:]) for one in found]
        if any(point != points[0] for point in points):
            raise ranks_apart_error([_unpacked(point) for point in points])
        return [one[: self._length] for one in found]


def ranks_apart_error(points: Sequence[str]) -> RanksApart:
    """The error of ranks that wait for each other at different synchronization points.

    Args:
        points: The point of each rank, ordered by rank.
    """
    return RanksApart(
        f"the ranks wait for each other at different points of the program: {describe_points(points)}",
        fix="save, evaluate and gather on every rank alike, and do not decide it by what only one rank knows "
        "(its rank, a file, a clock)",
    )


def describe_points(points: Sequence[str]) -> str:
    """``rank 0 at step 3, rank 2 at step 4``: the first rank at each point.

    Args:
        points: The point of each rank, ordered by rank.
    """
    first = [(rank, point) for rank, point in enumerate(points) if point not in points[:rank]]
    return ", ".join(f"rank {rank} at {point}" for rank, point in first)
