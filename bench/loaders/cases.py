"""The data sets that are loaded, and the work of the consumer on each batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Dataset, TensorDataset

KIB = 1024
WIDTH = 32
"""Number of floats in a small sample."""


@dataclass(frozen=True)
class Case:
    """One kind of batch.

    Args:
        name: Name of the case in the table.
        dataset: Map-style data set.
        batch_size: Samples per batch; None: each sample is a batch, and is not collated.
        shape: Shape of the batch, or of its first tensor.
        shuffle: Whether the order of the samples is random.
        consume_ms: CPU time that the consumer spends on each batch.
    """

    name: str
    dataset: Any
    batch_size: int | None
    shape: tuple[int, ...]
    shuffle: bool = False
    consume_ms: float = 0.0

    def check(self, value: Any) -> None:
        """Raises an AssertionError if ``value`` is not a batch of the data set."""
        first = value if isinstance(value, torch.Tensor) else value[0]
        assert first.numel() == torch.Size(self.shape).numel(), f"{self.name}: a batch of {first.shape}"
        if isinstance(self.dataset, RepeatedTensor):
            assert torch.equal(first.reshape(-1), self.dataset.ready), f"{self.name}: wrong bytes"

    def consume(self) -> None:
        """Spends the CPU time of the consumer on a batch."""
        if self.consume_ms:
            burn(self.consume_ms)


class RepeatedTensor(Dataset[torch.Tensor]):
    """Gives the same tensor for every index: the loader only hands it over."""

    draws_randomness = False

    def __init__(self, num_bytes: int, length: int = 200_000) -> None:
        self.ready = torch.arange(num_bytes // 4, dtype=torch.float32)
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.ready


class SeededRows(Dataset[tuple[torch.Tensor, int]]):
    """Rows of a tensor, in Python; roost assumes that it draws random numbers, and seeds each sample."""

    def __init__(self, length: int, width: int = WIDTH, work: Callable[[], None] | None = None) -> None:
        self._rows = torch.rand(min(length, 4096), width, generator=torch.Generator().manual_seed(0))
        self._length, self._work = length, work

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self._work is not None:
            self._work()
        return self._rows[index % len(self._rows)], index


class Rows(SeededRows):
    """The same data, declared to draw no random numbers."""

    draws_randomness = False


def burn(milliseconds: float) -> None:
    """Keeps a core busy until this thread has used the given CPU time."""
    until = time.thread_time() + milliseconds / 1000
    while time.thread_time() < until:
        pass


def queues(*sizes_kib: int) -> list[Case]:
    """Returns cases that hand over an existing tensor of each size."""
    return [
        Case(
            f"{size} KiB" if size < KIB else f"{size // KIB} MiB",
            RepeatedTensor(size * KIB),
            None,
            (size * KIB // 4,),
        )
        for size in sizes_kib
    ]


def samples(num_batches: int = 4000) -> list[Case]:
    """Returns cases of cheap samples: 64 of 32 floats, shuffled; then 64 of 64 KiB."""
    length = 64 * num_batches
    generator = torch.Generator().manual_seed(0)
    tensors = TensorDataset(torch.rand(length, WIDTH, generator=generator), torch.arange(length))
    return [
        Case("TensorDataset", tensors, 64, (64, WIDTH), shuffle=True),
        Case("Python set, draws nothing", Rows(length), 64, (64, WIDTH), shuffle=True),
        Case("Python set", SeededRows(length), 64, (64, WIDTH), shuffle=True),
        Case("64 × 64 KiB", Rows(length, 16 * KIB), 64, (64, 16 * KIB)),
    ]


def heavy() -> list[Case]:
    """Returns cases of 8 samples of 2 ms of work or sleep, with and without a consumer of 5 ms per batch."""
    works = {
        "burn": Rows(8 * 4000, work=lambda: burn(2)),
        "sleep": Rows(8 * 4000, work=lambda: time.sleep(0.002)),
    }
    return [
        Case(
            f"{name}{', consumer 5 ms' if consume_ms else ''}", dataset, 8, (8, WIDTH), consume_ms=consume_ms
        )
        for name, dataset in works.items()
        for consume_ms in (0.0, 5.0)
    ]


def every() -> dict[str, list[Case]]:
    """Returns all cases, by group."""
    return {"queue": queues(4, 256, 4096, 16384), "light": samples(), "heavy": heavy()}


def few() -> dict[str, list[Case]]:
    """Returns the cases of a quick run, by group."""
    return {"queue": queues(4, 4096), "light": samples()[:1]}
