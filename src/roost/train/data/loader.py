"""Batches of sets that have indices: fetched in this process or in workers, with the same bits either way."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import torch

from roost.train.data.batch_sizes import is_empty
from roost.train.data.batches import Batch, Batches
from roost.train.data.dataset_size import DatasetLengths, LengthsByName
from roost.train.data.fetch import BatchFetcher, Collate, Fetcher, MultiSetFetcher
from roost.train.data.plans.batch_plan import BatchPlan, Draws, Plan, is_padding, num_samples_of
from roost.train.data.plans.plan_excerpt import PlanExcerpt
from roost.train.data.plans.rank_shards import ShardedPlan
from roost.train.data.workers import probe_process, worker_count
from roost.train.data.workers.shared_memory import SharedMemoryFull
from roost.train.data.workers.worker_pool import WorkerPool
from roost.train.data.workers.worker_status import WorkerContext
from roost.train.step import seeding

TIMEOUT_SECONDS = 300.0
_OUT_OF_MEMORY = "DefaultCPUAllocator: "


class Loader(Batches):
    """Batches in the plan's order, from any position, at no cost for what lies before it.

    Args:
        dataset: See `BatchFetcher`; several by name where the plan draws from each (`Together`).
        plan: Which samples make which batch.
        collate: See `BatchFetcher`.
        num_workers: Worker processes; 0 fetches inside this process. The batches are the same. None: as many
            as `auto.choose` finds, at the first batch or at `inexact`; it is said, and is the attribute then.
        seed: Seed of the samples' randomness.
        pin_memory: Batches come in page-locked memory, from which a copy to a CUDA device need not be waited
            for. Opens a CUDA context, so only for training on one.
        prefetch: Batches that each worker is ahead.
        timeout_seconds: Silence of a worker after which it is taken to hang.
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
                # Each with a seed of its own: else sample 7 of two sets would draw the same.
                {
                    one: BatchFetcher(part, collate=collate, seed=seeding.mix(seed, one), name=one)
                    for one, part in dataset.items()
                }
            )
            if isinstance(dataset, Mapping)
            else BatchFetcher(dataset, collate=collate, seed=seed, name=name)
        )
        self._counted = DatasetLengths(dataset, name)
        self._saved: LengthsByName = {}
        """When the checkpoint was made that was loaded."""
        self._pools: list[WorkerPool] = []
        """One for each time that it is iterated at once."""
        self._whole: Loader | None = None
        """What it is made of, which decides on the number of workers for all its parts."""

    has_indices = True

    def __len__(self) -> int:
        return self.plan.num_batches

    def with_plan(self, plan: Plan) -> Loader:
        """The same with another plan of the same set, and workers of its own."""
        other = copy.copy(self)
        other.plan, other._pools, other._whole = plan, [], self._whole or self
        return other

    def excerpt(self, spans: Sequence[range]) -> Loader:
        return self.with_plan(PlanExcerpt(self.plan, tuple(spans)))

    def first_samples(self, num_samples: int) -> Batch | None:
        """The first samples of the set, joined by its own collate, whatever its plan is."""
        if isinstance(self.dataset, Mapping):
            return super().first_samples(num_samples)
        self.resolve()
        other = self.with_plan(BatchPlan(self.plan.num_samples, num_samples, shuffle=False))
        # Not in this process where workers read: see `_ignores_seeding`.
        other.num_workers = min(1, self.num_workers or 0)
        with closing(other):
            return other.first_batch()

    def describe(self) -> str:
        return self.plan.describe()

    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        return self._batches(self._endless(epoch, batch))

    def once(self) -> Generator[Batch, None, None]:
        return self._batches(self._endless(0, 0, epochs=1))

    def shard(self, rank: int, world: int) -> Generator[tuple[int | None, Batch], None, None]:
        """See `Batches.shard`. Only what is given is read; the last batch of all stands in."""
        own = range(rank, len(self), world)
        is_short = len(own) < -(-len(self) // world)
        spans = (own, range(len(self) - 1, len(self))) if is_short else (own,)
        drawn = self._batches((draws, False) for draws in PlanExcerpt(self.plan, spans).batches(0))
        with closing(drawn):
            yield from zip([*own, *([None] if is_short else [])], drawn, strict=True)

    def inexact_reasons(self) -> list[str]:
        """Whether the set had another length, and whether one sample, drawn twice under the same seeds,
        differs."""
        return self._counted.others_than(self._saved) + self._ignores_seeding()

    def _ignores_seeding(self) -> list[str]:
        if not self.fetch.draws_randomness:
            return []
        self.resolve()
        # With workers it is drawn in a process that ends after it. A set that opens its file at the first
        # sample must not do so here: all workers would inherit the descriptor and share its offset, and read
        # each other's samples without an error.
        ignores = (
            self.fetch.ignores_seeding()
            if self.num_workers == 0
            else probe_process.ignores_seeding(self.fetch)
        )
        return (
            [f"{self.name or 'the set'} draws from a generator that roost does not seed"] if ignores else []
        )

    def sample_indices(self, epoch: int, batch: int, num_batches: int) -> list[int]:
        plan = self.plan.whole if isinstance(self.plan, ShardedPlan) else self.plan
        draws = itertools.islice(plan.batches(epoch, batch), num_batches)
        parts = [[draw] if not isinstance(draw, Mapping) else list(draw.values()) for draw in draws]
        return [index for part in parts for draw in part for index in draw.indices]

    def redraw(self, epoch: int, batch: int, num_batches: int) -> list[Batch]:
        drawn = itertools.islice(self._endless(epoch, batch, epochs=1), num_batches)
        found = []
        for draws, last in drawn:
            with seeding.isolated():
                found.append(_make_batch(self.fetch(draws), draws, last))
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"num_samples": dict(self._counted.lengths)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._saved = state.get("num_samples", {})

    def close(self) -> None:
        for pool in self._pools:
            pool.close()
        self._pools = []

    def _endless(self, epoch: int, batch: int, *, epochs: int | None = None) -> Iterator[tuple[Draws, bool]]:
        """What makes each batch, and whether that ends its epoch."""
        for number in itertools.count(epoch) if epochs is None else range(epoch, epoch + epochs):
            last = len(self) - 1
            for at, draws in enumerate(self.plan.batches(number, batch), batch):
                yield draws, at == last
            batch = 0

    def _batches(self, drawn: Iterator[tuple[Draws, bool]]) -> Generator[Batch, None, None]:
        self.resolve()
        asked, drawn = itertools.tee(drawn)
        tasks = (draws for draws, _ in asked)
        values = self._inline(tasks) if self.num_workers == 0 else self._by_workers(tasks)
        begins = True
        with closing(values):
            for draws, last in drawn:
                if begins:
                    self._counted.check()
                yield _make_batch(next(values), draws, last)
                begins = last

    def resolve(self) -> None:
        """Finds out the number of workers where it is "auto", and says it; else the first batch does."""
        if self.num_workers is not None:
            return
        if self._whole is not None:
            self._whole.resolve()
            self.num_workers = self._whole.num_workers
            return
        # Where batches are pinned training computes on another device than the CPU.
        busy = 0 if self.pin_memory else torch.get_num_threads()
        choice = worker_count.choose_num_workers(
            functools.partial(_make_worker_fetch, self.fetch),
            self.plan.batches(0),
            num_tasks=len(self),
            budget=worker_count.local_budget(training_threads=busy),
            prefetch=self.prefetch,
            timeout_seconds=self.timeout_seconds,
            name=self.name,
            fetch_inline=self.fetch if self.fetch.is_in_memory else None,
            should_stop=self.should_stop,
        )
        self.num_workers = choice.num_workers
        if choice.said:
            print(choice.said, flush=True)

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

    def _by_workers(self, tasks: Iterator[Draws]) -> Generator[Any, None, None]:
        given, left = itertools.tee(tasks)
        try:
            with closing(self._idle_pool().map(given, should_stop=self.should_stop)) as values:
                for value in values:
                    next(left)
                    yield value
                    del value  # held here it would count as held by two
            return
        except SharedMemoryFull as error:
            self.close()
            self.num_workers = 0
            called = self.name or "the set"
            print(f"{error.message}; {called} goes on without workers, in the training process", flush=True)
        yield from self._inline(left)

    def _idle_pool(self) -> WorkerPool:
        """Workers that have nothing to do."""
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
            )
        )
        return self._pools[-1]


def _make_worker_fetch(fetch: Fetcher, context: WorkerContext) -> Callable[[Draws], Any]:
    fetch.report_samples_to(context.begin_sample)
    return fetch


def _make_batch(value: Any, draws: Draws, last: bool) -> Batch:
    if is_empty(value):
        return Batch(None, 0, last)
    if isinstance(draws, Mapping):  # a collate may find nothing in the part of one set
        draws = {name: draw for name, draw in draws.items() if not is_empty(value[name])}
    return Batch(value, num_samples_of(draws), last, is_padding(draws))
