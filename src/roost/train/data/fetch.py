"""Fetches the batch for given indices, with the same bits in every process."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import TensorDataset, default_collate

from roost.base import state_tree
from roost.base.errors import ContractError
from roost.train.accelerators.device_errors import is_device_error
from roost.train.data.arrays import Arrays
from roost.train.data.dataset_size import dataset_length
from roost.train.data.plans.batch_plan import Draw
from roost.train.step import seeding

_MAX_LISTED = 8
Collate = Callable[[list[Any]], Any]


class BatchFetcher:
    """Fetches batches of one set; the random numbers of a sample depend on (seed, turn, index) alone.

    Args:
        dataset: Map-style: ``len()`` and ``[]``. If its ``__getitem__`` takes ``rng``, it gets a NumPy
            generator for each sample; with ``draws_randomness = False`` no time is spent on seeding.
        collate: Makes a batch from a list of samples; torch's default if None.
        seed: Seed of the samples' random numbers.
        name: Display name of the set for messages; its class if empty.
    """

    def __init__(
        self, dataset: Any, *, collate: Collate | None = None, seed: int = 0, name: str = ""
    ) -> None:
        self._dataset, self._collate, self._seed = dataset, collate or default_collate, seed
        self._name, self._length = name, dataset_length(dataset)
        self.is_in_memory = type(dataset) in (TensorDataset, Arrays) and collate is None
        self.draws_randomness = not self.is_in_memory and getattr(dataset, "draws_randomness", True)
        self._takes_rng = takes_rng(dataset)
        self._on_sample: Callable[[int], None] | None = None

    def __call__(self, draw: Draw) -> Any:
        """Returns the batch of these samples; None if there are none.

        Raises:
            ContractError: The samples cannot be collated.
        """
        indices, turn = draw
        if not indices:
            return None
        if self.is_in_memory:
            if isinstance(self._dataset, Arrays):
                return self._dataset.batch(indices)
            chosen = torch.from_numpy(np.array(indices, np.int64))  # torch reads a list several times slower
            return [tensor[chosen] for tensor in self._dataset.tensors]
        with single_thread():
            if not self.draws_randomness and hasattr(self._dataset, "__getitems__"):
                return self._join(self._dataset.__getitems__(indices), indices)
            turns = itertools.repeat(turn) if isinstance(turn, int) else turn
            return self._join([self._sample(*one) for one in zip(turns, indices, strict=False)], indices)

    def _sample(self, turn: int, index: int) -> Any:
        if self._on_sample is not None:
            self._on_sample(index)
        try:
            if self.draws_randomness:
                seeding.seed_sample(self._seed, turn, index)
            if self._takes_rng:
                return self._dataset.__getitem__(index, rng=np.random.default_rng((self._seed, turn, index)))
            return self._dataset[index]
        except StopIteration as error:  # the iterating code would take it for the end
            raise RuntimeError(f"sample {index} of {self._display_name} raised StopIteration") from error
        except Exception as error:
            error.add_note(f"while reading sample {index} of {self._display_name}")
            if isinstance(error, IndexError):
                self._check_length(index, error)
            raise

    @property
    def _display_name(self) -> str:
        kind = type(self._dataset).__name__
        return f"{self._name} ({kind})" if self._name else kind

    def _check_length(self, index: int, error: IndexError) -> None:
        now = dataset_length(self._dataset)
        if now is not None and index >= now:
            before = "" if self._length in (None, now) else f"; it had {self._length:,} at the beginning"
            raise ContractError(
                f"there is no sample {index:,} in {self._display_name}, which has {now:,}{before}",
                fix="keep its length constant, and request no index beyond it",
            ) from error

    def _join(self, samples: Sequence[Any], indices: Sequence[int]) -> Any:
        try:
            return collate_samples(samples, self._collate, self._dataset, self._name)
        except Exception as error:
            error.add_note(_describe_mismatch(samples, indices))
            raise

    def report_samples_to(self, callback: Callable[[int], None]) -> None:
        """Calls ``callback`` with each sample's index before it is read: a loader worker records it."""
        self._on_sample = callback

    def ignores_seeding(self) -> bool:
        """Whether a sample differs when it is drawn twice with the same seeds: then no resume can be exact.
        Draws the first sample, and of a concatenated set the first of each part, in this process; see
        `Loader.inexact_reasons`."""
        if not self.draws_randomness:
            return False
        ends = getattr(
            self._dataset, "cumulative_sizes", []
        )  # of torch's ConcatDataset and `ConcatenatedSet`
        with seeding.isolated(devices=False):
            return any(map(self._sample_differs, dict.fromkeys([0, *ends[:-1]])))

    def _sample_differs(self, index: int) -> bool:
        first, second = (fingerprint(self._sample(0, index)) for _ in range(2))
        return first is not None and first != second


class Fetcher(Protocol):
    """Fetches the batch for the draws of a plan: `BatchFetcher` or `MultiSetFetcher`."""

    draws_randomness: bool
    is_in_memory: bool
    """Whether only tensors in memory are read, so that a fetch opens no file and draws no random number."""

    def __call__(self, draws: Any, /) -> Any:
        """Returns the batch of these samples; None if there are none."""

    def report_samples_to(self, callback: Callable[[int], None]) -> None:
        """See `BatchFetcher.report_samples_to`."""

    def ignores_seeding(self) -> bool:
        """See `BatchFetcher.ignores_seeding`."""


class MultiSetFetcher:
    """Fetches a batch of each of several sets, by name."""

    def __init__(self, parts: Mapping[str, BatchFetcher]) -> None:
        self._parts = parts
        self.draws_randomness = any(part.draws_randomness for part in parts.values())
        self.is_in_memory = all(part.is_in_memory for part in parts.values())

    def __call__(self, draws: Mapping[str, Draw]) -> dict[str, Any] | None:
        """Returns the batches of these samples; None if all are empty.

        Raises:
            ContractError: Samples cannot be collated.
        """
        found = {name: self._parts[name](draw) for name, draw in draws.items()}
        return None if all(batch is None for batch in found.values()) else found

    def report_samples_to(self, callback: Callable[[int], None]) -> None:
        """See `BatchFetcher.report_samples_to`."""
        for part in self._parts.values():
            part.report_samples_to(callback)

    def ignores_seeding(self) -> bool:
        """See `BatchFetcher.ignores_seeding`."""
        return any(part.ignores_seeding() for part in self._parts.values())


def collate_samples(samples: Sequence[Any], collate: Collate, dataset: Any, name: str) -> Any:
    """Collates samples of a set into one batch.

    Raises:
        ContractError: torch's default collate fails.
    """
    if collate is not default_collate:
        return collate(list(samples))
    try:
        return default_collate(list(samples))
    except (TypeError, RuntimeError, ValueError, LookupError, AttributeError) as error:
        if is_device_error(error):  # of samples that are on a device already
            raise
        kinds = sorted({type(sample).__name__ for sample in samples})
        within = f" in {name}" if name else ""
        raise ContractError(
            f"the samples of {type(dataset).__name__} ({', '.join(kinds)}){within} "
            f"cannot be collated into a batch: {str(error).partition(chr(10))[0]}",
            fix="return tensors, numbers, strings, or nests of them, of one shape, or pass Data(collate=...)",
        ) from error


def _describe_mismatch(samples: Sequence[Any], indices: Sequence[int]) -> str:
    """Names the sample whose type or shape differs from the first one's; else lists the samples."""
    for index, sample in zip(indices, samples, strict=False):
        if (kind := _describe_type(sample)) != (first := _describe_type(samples[0])):
            return f"sample {indices[0]} is {first}, sample {index} is {kind}"
    named = ", ".join(map(str, indices[:_MAX_LISTED]))
    return f"of samples {named}{', …' if len(indices) > _MAX_LISTED else ''}"


def _describe_type(sample: Any) -> str:
    """The types and shapes in a sample: ``(float32 (3, 4), int)``."""
    if isinstance(sample, torch.Tensor | np.ndarray):
        return f"{str(sample.dtype).removeprefix('torch.')} {tuple(sample.shape)}"
    if isinstance(sample, Mapping):
        return f"{{{', '.join(f'{name}: {_describe_type(one)}' for name, one in sample.items())}}}"
    if isinstance(sample, list | tuple):
        return f"({', '.join(map(_describe_type, sample))})"
    return type(sample).__name__


def takes_rng(dataset: Any) -> bool:
    """Whether the set's ``__getitem__`` takes ``rng``."""
    try:
        return "rng" in inspect.signature(type(dataset).__getitem__).parameters
    except (AttributeError, TypeError, ValueError):
        return False


def fingerprint(sample: Any) -> Any:
    """Returns a value that is equal for two samples with the same bits; None if a sample cannot be
    compared."""
    try:
        skeleton, leaves = state_tree.pack(sample)
    except Exception:  # noqa: BLE001  - a sample may hold any object; unknown ones are not compared
        return None
    return repr(skeleton), [(name, bytes(leaf.data)) for name, leaf in leaves.items()]


@contextmanager
def single_thread() -> Iterator[None]:
    """Sets torch to one thread inside, as in a worker process: a sum over a large tensor has other bits on
    two threads, and a batch must not depend on the process that fetched it. Costs 1 µs."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
