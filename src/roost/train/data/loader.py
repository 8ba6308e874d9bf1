"""`Loader`: batches of map-style sets, fetched in this process or by loader workers with the same bits."""

from __future__ import annotations

import copy
import functools
import hashlib
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch

from roost.train.data import sample_labels
from roost.train.data.batch_sizes import is_empty
from roost.train.data.batches import Batch, Batches
from roost.train.data.dataset_size import DatasetLengths, LengthsByName
from roost.train.data.fetch import BatchFetcher, Collate, Fetcher, MultiSetFetcher
from roost.train.data.plans.batch_plan import (
    BatchPlan,
    Draw,
    Draws,
    Plan,
    PlanExcerpt,
    is_padding,
    num_samples_of,
)
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.data.workers import seeding_probe, worker_count
from roost.train.data.workers.shared_memory import SharedMemoryFull
from roost.train.data.workers.worker_pool import WorkerPool
from roost.train.data.workers.worker_status import WorkerContext
from roost.train.step import seeding

TIMEOUT_SECONDS = 300.0
_DIGEST_BATCHES = 64
"""The batches of the first epoch that the digest of the order covers; they take less than a millisecond."""
_DIGEST_CHARACTERS = 16
_OUT_OF_MEMORY = "DefaultCPUAllocator: "


class Loader(Batches):
    """Batches in the order of a plan, from any position, at no cost for the batches before it.

    Args:
        dataset: See `BatchFetcher`; several by name if the plan draws from each (`CombinedPlan`).
        plan: Which samples make which batch.
        collate: See `BatchFetcher`.
        num_workers: Loader workers; 0 fetches in this process. The batches are the same. None ("auto"):
            `worker_count.choose_num_workers` measures and chooses, before the first batch or at
            `inexact_reasons`; the choice is printed and becomes the attribute.
        seed: Seed of the samples' random numbers.
        pin_memory: Batches are in page-locked memory, so that a copy to a CUDA device is asynchronous. Opens
            a CUDA context: only for training on CUDA.
        prefetch: Batches that each worker fetches ahead.
        timeout_seconds: A worker without progress for this time is considered hanging.
        name: See `BatchFetcher`.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        plan: Plan,
        collate: Collate | None = None,
        num_workers: int | None = 0,
        seed: int = 0,
        pin_memory: bool = False,
        prefetch: int = 2,
        timeout_seconds: float = TIMEOUT_SECONDS,
        name: str = "",
    ) -> None:
        self.dataset, self.plan = dataset, plan
        self.num_workers: int | None = num_workers
        self.pin_memory, self.name = pin_memory, name
        self.prefetch, self.timeout_seconds = prefetch, timeout_seconds
        self.fetch: Fetcher = (
            MultiSetFetcher(
                # Each set has its own seed: otherwise sample 7 of two sets would draw the same numbers.
                {
                    one: BatchFetcher(part, collate=collate, seed=seeding.mix(seed, one), name=one)
                    for one, part in dataset.items()
                }
            )
            if isinstance(dataset, Mapping)
            else BatchFetcher(dataset, collate=collate, seed=seed, name=name)
        )
        self._lengths = DatasetLengths(dataset, name)
        self._saved_lengths: LengthsByName = {}
        """The lengths at the time of the loaded checkpoint."""
        self._pools: list[WorkerPool] = []
        """One for each concurrent iterator."""
        self._parent: Loader | None = None
        """The loader of which this is a copy with another plan; it resolves the number of workers for
        both."""

    has_indices = True

    def __len__(self) -> int:
        return self.plan.num_batches

    def with_plan(self, plan: Plan) -> Loader:
        """Returns a loader with another plan of the same set, and its own workers."""
        other = copy.copy(self)
        other.plan, other._pools, other._parent = plan, [], self._parent or self
        return other

    def excerpt(self, spans: Sequence[range]) -> Loader:
        return self.with_plan(PlanExcerpt(self.plan, tuple(spans)))

    def first_samples(self, num_samples: int) -> Batch | None:
        """Returns the first samples of the set as one batch of its own collate, independently of the plan."""
        if isinstance(self.dataset, Mapping):
            return super().first_samples(num_samples)
        self.resolve_num_workers()
        other = self.with_plan(BatchPlan(self.plan.num_samples, num_samples, shuffle=False))
        # Not in this process if workers read: see `_ignores_seeding`.
        other.num_workers = min(1, self.num_workers or 0)
        with closing(other):
            return other.first_batch()

    def describe(self) -> str:
        return self.plan.describe()

    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        return self._batches(self._draws(epoch, batch))

    def once(self) -> Generator[Batch, None, None]:
        return self._batches(self._draws(0, 0, epochs=1))

    def shard(self, rank: int, world_size: int) -> Generator[tuple[int | None, Batch], None, None]:
        """See `Batches.shard`. Reads only the batches of this rank; padding is the last batch of the pass."""
        own = range(rank, len(self), world_size)
        is_short = len(own) < -(-len(self) // world_size)
        spans = (own, range(len(self) - 1, len(self))) if is_short else (own,)
        drawn = self._batches((draws, False) for draws in PlanExcerpt(self.plan, spans).batches(0))
        with closing(drawn):
            yield from zip([*own, *([None] if is_short else [])], drawn, strict=True)

    def inexact_reasons(self) -> list[str]:
        """Reports a changed length of the set, and a sample that differs when drawn twice with the same
        seeds."""
        return self._lengths.describe_changes(self._saved_lengths) + self._ignores_seeding()

    def _ignores_seeding(self) -> list[str]:
        if not self.fetch.draws_randomness:
            return []
        self.resolve_num_workers()
        # With workers the sample is drawn in a process that ends afterwards. A set that opens its file at the
        # first sample must not do so here: all workers would inherit the descriptor, share its offset and
        # read each other's samples without an error.
        if self.num_workers == 0:
            ignores = self.fetch.ignores_seeding()
        else:
            ignores, self.seeding_unknown_reason = seeding_probe.probe_seeding(self.fetch)
        return (
            [f"{self.name or 'the set'} draws from a generator that roost does not seed"] if ignores else []
        )

    def sample_indices(self, epoch: int, batch: int, num_batches: int) -> list[int]:
        plan = self.plan.base if isinstance(self.plan, ShardedPlan) else self.plan
        draws = itertools.islice(plan.batches(epoch, batch), num_batches)
        parts = [[draw] if not isinstance(draw, Mapping) else list(draw.values()) for draw in draws]
        return [index for part in parts for draw in part for index in draw.indices]

    def sample_ids(self, indices: Sequence[int]) -> list[int | float | str]:
        return sample_labels.ids_at(self.dataset, indices)

    def order_digest(self) -> str | None:
        plan = self.plan.base if isinstance(self.plan, ShardedPlan) else self.plan
        digest = hashlib.sha256(f"{plan.num_samples} {plan.num_batches}".encode())
        for draws in itertools.islice(plan.batches(0), _DIGEST_BATCHES):
            for name, draw in ({"": draws} if isinstance(draws, Draw) else draws).items():
                digest.update(f" {name} {len(draw.indices)} ".encode())
                digest.update(np.array(draw.indices, np.int64).tobytes())
        return digest.hexdigest()[:_DIGEST_CHARACTERS]

    def redraw(self, epoch: int, batch: int, num_batches: int) -> list[Batch]:
        drawn = itertools.islice(self._draws(epoch, batch, epochs=1), num_batches)
        found = []
        for draws, last in drawn:
            with seeding.isolated():
                found.append(_make_batch(self.fetch(draws), draws, last))
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"num_samples": dict(self._lengths.lengths)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._saved_lengths = state.get("num_samples", {})

    def close(self) -> None:
        for pool in self._pools:
            pool.close()
        self._pools = []

    def _draws(self, epoch: int, batch: int, *, epochs: int | None = None) -> Iterator[tuple[Draws, bool]]:
        """Yields the draws of each batch, and whether it ends its epoch."""
        for number in itertools.count(epoch) if epochs is None else range(epoch, epoch + epochs):
            last = len(self) - 1
            for position, draws in enumerate(self.plan.batches(number, batch), batch):
                yield draws, position == last
            batch = 0

    def _batches(self, drawn: Iterator[tuple[Draws, bool]]) -> Generator[Batch, None, None]:
        self.resolve_num_workers()
        requested, drawn = itertools.tee(drawn)
        tasks = (draws for draws, _ in requested)
        values = self._inline(tasks) if self.num_workers == 0 else self._from_workers(tasks)
        is_epoch_start = True
        with closing(values):
            for draws, last in drawn:
                if is_epoch_start:
                    self._lengths.check()
                yield _make_batch(next(values), draws, last)
                is_epoch_start = last

    def resolve_num_workers(self) -> None:
        """Chooses the number of workers if it is "auto", and prints it. The first batch does so otherwise."""
        if self.num_workers is not None:
            return
        if self._parent is not None:
            self._parent.resolve_num_workers()
            self.num_workers = self._parent.num_workers
            self.worker_count_reason = self._parent.worker_count_reason
            return
        # With pinned batches, training computes on a device other than the CPU.
        training_threads = 0 if self.pin_memory else torch.get_num_threads()
        choice = worker_count.choose_num_workers(
            functools.partial(_make_worker_fetch, self.fetch),
            self.plan.batches(0),
            num_tasks=len(self),
            budget=worker_count.local_budget(training_threads=training_threads),
            prefetch=self.prefetch,
            timeout_seconds=self.timeout_seconds,
            name=self.name,
            fetch_inline=self.fetch if self.fetch.is_in_memory else None,
            should_stop=self.should_stop,
        )
        self.num_workers, self.worker_count_reason = choice
        if choice.reason:
            print(
                f"num_workers: {choice.num_workers} for {self.name or 'the set'}: {choice.reason}", flush=True
            )

    def _inline(self, tasks: Iterator[Draws]) -> Generator[Any, None, None]:
        for task in tasks:
            yield self._fetched(task)

    def _fetched(self, task: Draws) -> Any:
        try:
            if self.fetch.draws_randomness:
                with seeding.isolated(devices=False):
                    return self.fetch(task)
            return self.fetch(task)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, MemoryError) or _OUT_OF_MEMORY in str(error):
                error.add_note(
                    f"while a batch of {num_samples_of(task):,} samples was read (data.batch_size)"
                )
            raise

    def _from_workers(self, tasks: Iterator[Draws]) -> Generator[Any, None, None]:
        sent, unanswered = itertools.tee(tasks)
        try:
            with closing(self._idle_pool().map(sent, should_stop=self.should_stop)) as values:
                for value in values:
                    next(unanswered)
                    yield value
                    del value  # a reference here would keep the view of shared memory alive
            return
        except SharedMemoryFull as error:
            self.close()
            self.num_workers = 0
            set_name = self.name or "the set"
            print(
                f"{error.message}; {set_name} is now read in the training process, without workers",
                flush=True,
            )
        yield from self._inline(unanswered)

    def _idle_pool(self) -> WorkerPool:
        """Returns an idle worker pool, a new one if all are in use."""
        for pool in self._pools:
            if not pool.is_in_use:
                return pool
        self._pools.append(
            WorkerPool(
                functools.partial(_make_worker_fetch, self.fetch),
                num_workers=self.num_workers or 1,
                prefetch=self.prefetch,
                timeout_seconds=self.timeout_seconds,
                pin_memory=self.pin_memory,
                name=self.name,
                stacks=self.worker_stacks,
            )
        )
        return self._pools[-1]


def _make_worker_fetch(fetch: Fetcher, context: WorkerContext) -> Callable[[Draws], Any]:
    fetch.report_samples_to(context.begin_sample)
    return fetch


def _make_batch(value: Any, draws: Draws, last: bool) -> Batch:
    if is_empty(value):
        return Batch(None, 0, last)
    if isinstance(draws, Mapping):  # the collate may return an empty batch for one of the sets
        draws = {name: draw for name, draw in draws.items() if not is_empty(value[name])}
    return Batch(value, num_samples_of(draws), last, is_padding(draws))
