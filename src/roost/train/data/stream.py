"""Batches of what has no indices: of iterable sets, and of functions that make whole batches."""

from __future__ import annotations

import copy
import functools
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from typing import Any

from roost.base.errors import ConfigError, ContractError
from roost.train.data.batch_function import Sampled
from roost.train.data.batches import Batch
from roost.train.data.fetch import Collate
from roost.train.data.loader import TIMEOUT_SECONDS
from roost.train.data.plans.batch_plan import format_epoch_length
from roost.train.data.plans.permutations import check_not_empty, num_batches_of
from roost.train.data.sequential_batches import SequentialBatches, SizedBatch
from roost.train.data.workers import probe_process
from roost.train.data.workers.stream_order import StreamOrder
from roost.train.data.workers.stream_shard import RESTORE, ShardAnswer, StreamShard, StreamSpec, is_stateful
from roost.train.data.workers.worker_pool import WorkerPool
from roost.train.data.workers.worker_status import WorkerContext
from roost.train.step import seeding


class Stream(SequentialBatches):
    """Batches of an iterable set, or of a `Sampled`, from any position, with the state of the set beside
    each.

    Each worker goes through its own copy of the set, and `torch.utils.data.get_worker_info` tells the set
    which one it is; their batches come in turn. So the number of workers decides on the order, and a run goes
    on with the number with which it began; 0 and 1 give the same. When all have ended the next pass begins,
    with `set_epoch` called on a set that has it.

    What an item draws at random is f(seed, rank, worker, pass, number of the item). A set with `state_dict`
    and `load_state_dict` (or whose iterator has them) goes on where it was; what it draws before its first
    item must follow from that state. A set without is gone through again to where it was, which gives the
    same items where they follow from roost's seeds.

    Args:
        dataset: With ``__iter__``; or a `Sampled`.
        batch_size: Items of a batch; None: each item is a batch.
        num_batches: Batches of an epoch; follows from the set's length when None, where it has one.
        collate: Joins items to a batch; torch's default when None.
        drop_last: Leave out the last batch of a worker's pass when it is not full.
        num_workers: Worker processes; 0 draws inside this process.
        seed: Seed of the items' randomness.
        rank: Of this process, for the seeds.
        pin_memory: See `Loader`; so are the following.
        prefetch: Batches that each worker is ahead.
        timeout_seconds: Silence of a worker after which it is taken to hang.
        name: Of the set in words, for messages.

    Raises:
        ContractError: The set can be gone through only once.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int | None = 1,
        num_batches: int | None = None,
        collate: Collate | None = None,
        drop_last: bool = False,
        num_workers: int = 0,
        seed: int = 0,
        rank: int = 0,
        pin_memory: bool = False,
        prefetch: int = 2,
        timeout_seconds: float = TIMEOUT_SECONDS,
        name: str = "",
    ) -> None:
        if isinstance(dataset, Iterator) and not is_stateful(dataset):
            raise ContractError(
                f"{name or 'the set'} can be gone through only once",
                received=type(dataset).__name__,
                fix="give an object whose __iter__ begins anew, for example a torch IterableDataset",
            )
        self.dataset, self.num_workers = dataset, num_workers
        self.pin_memory, self.prefetch, self.timeout_seconds = pin_memory, prefetch, timeout_seconds
        if isinstance(dataset, Sampled):
            batch_size, collate = None, None
        super().__init__(num_batches or _num_batches(dataset, batch_size, drop_last), name)
        fresh = self._fresh_state() if is_stateful(dataset) else None
        self._recipe = StreamSpec(
            dataset, batch_size, collate, drop_last, seeding.mix(seed, "stream", rank), name, fresh
        )
        self._alone()

    def _fresh_state(self) -> Any:
        try:
            return copy.deepcopy(self.dataset.state_dict())
        except TypeError as error:  # an open file, a lock, a generator: in no worker and in no checkpoint
            raise ContractError(
                f"{self.display_name} has a state that cannot be copied: {error}",
                fix="let its state be plain data, arrays and tensors, or give it state_dict() and "
                "load_state_dict() of such",
            ) from error

    def _alone(self) -> None:
        """Has no workers yet."""
        self._pools: dict[str, WorkerPool] = {}
        self._share: StreamShard | None = None
        """That draws the training's batches inside this process."""
        self._course: StreamOrder | None = None

    @property
    def num_shards(self) -> int:
        """Copies of the set that are gone through."""
        return max(1, self.num_workers or 0)

    def excerpt(self, spans: Sequence[range]) -> SequentialBatches:
        other = super().excerpt(spans)
        assert isinstance(other, Stream)
        other._alone()
        return other

    def first_samples(self, num_samples: int) -> Batch | None:
        """The first items, joined by the set's own collate; of whole batches as `Batches.head`."""
        if self._recipe.batch_size is None:
            return super().first_samples(num_samples)
        recipe = self._recipe._replace(batch_size=num_samples, drop_last=False)
        if self.num_workers:
            other = self.excerpt([range(1)])
            assert isinstance(other, Stream)
            other._recipe = recipe
            with closing(other):
                return other.first_batch()
        # Not a copy: it would not know of a training that goes through the same set.
        kept, self._recipe = self._recipe, recipe
        try:
            return self.first_batch()
        finally:
            self._recipe = kept

    def describe(self) -> str:
        size = self._recipe.batch_size
        order = "whole batches as they come" if size is None else f"items as they come, {size:,} a batch"
        workers = f", from {self.num_workers} workers in turn" if self.num_shards > 1 else ""
        length = "" if self.num_batches is None else f", {format_epoch_length(self.num_batches)}"
        return order + workers + length

    def inexact_reasons(self) -> list[str]:
        """Whether the first item, drawn twice under the same seeds, differs; found out in a process that ends
        after it: a set that has begun to read may not be what workers begin with."""
        if not getattr(self.dataset, "draws_randomness", True) or not probe_process.ignores_seeding(self):
            return []
        return [f"{self.display_name} draws from a generator that roost does not seed"]

    def ignores_seeding(self) -> bool:
        """See `inexact`. Goes through the set in this process."""
        with seeding.isolated(devices=False):
            return StreamShard(self._recipe, num_workers=self.num_shards).ignores_seeding()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if state["state"]:
            self.keep_num_shards(len(state["state"]["shares"]))

    def keep_num_shards(self, num_shards: int) -> None:
        if num_shards != self.num_shards:
            print(
                f"{self.display_name} goes on with the {num_shards} workers with which the run began, not with "
                f"{self.num_workers}: they decide on the order of what has no indices",
                flush=True,
            )
            self.num_workers = num_shards

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools = {}

    # ---- drawing ----------------------------------------------------------------------------------------

    def _endless(self, state: Any) -> Generator[SizedBatch, None, None]:
        self._share = None if self.num_workers else StreamShard(self._recipe)
        self._course = StreamOrder(self.num_shards, state, display_name=self.display_name)
        answers = self._answers(self._course, "training", self._recipe, self._share)
        with closing(answers), closing(self._course.batches(answers)) as batches:
            yield from batches

    def _pass(self) -> Generator[SizedBatch, None, None]:
        recipe, num_workers = self._recipe, self.num_workers or 0
        if isinstance(self.dataset, Sampled):
            self._refuse_endless()
            # Each worker would begin with the same batches.
            recipe, num_workers = recipe._replace(dataset=self.dataset.for_evaluation()), min(1, num_workers)
        share = None if num_workers else StreamShard(recipe)
        course = StreamOrder(max(1, num_workers), None, display_name=self.display_name, only=True)
        with self._kept(share), closing(self._answers(course, "evaluation", recipe, share)) as answers:
            yield from course.batches(answers)

    @contextmanager
    def _kept(self, other: StreamShard | None) -> Iterator[None]:
        """Lets another share go through the set in this process; a set has one state, which may be that of a
        training that goes on afterwards."""
        training = self._share if self._is_live and other is not None else None
        if training is None or not training.is_stateful:
            yield
            return
        state = copy.deepcopy(training.state())
        try:
            yield
        finally:
            with seeding.isolated(devices=False):
                training((RESTORE, state))

    def _answers(
        self, course: StreamOrder, use: str, recipe: StreamSpec, share: StreamShard | None
    ) -> Generator[ShardAnswer, None, None]:
        if share is not None:
            for task in course.tasks():
                with seeding.isolated(devices=False) if share.draws_randomness else nullcontext():
                    answer = share(task)
                yield answer
            return
        pool = self._pools.get(use)
        if pool is None:
            pool = self._pools[use] = WorkerPool(
                functools.partial(_make_shard, recipe),
                num_workers=course.num_shards,
                prefetch=self.prefetch,
                timeout_seconds=self.timeout_seconds,
                pin_memory=self.pin_memory,
                name=self.name,
            )
        with closing(pool.map(course.tasks(), should_stop=self.should_stop)) as answers:
            yield from answers

    def _state(self) -> dict[str, Any]:
        assert self._course is not None
        inline = self._share is not None and self._share.is_stateful
        return self._course.state([self._share.state()] if self._share is not None and inline else None)

    @property
    def _outlives_errors(self) -> bool:
        return self._share is None or not self._share.is_stateful

    def _refuse_endless(self) -> None:
        if self.num_batches is None:
            split = "test" if "test" in self.name else "valid"
            raise ConfigError(
                f"{self.display_name} is a function without an end, which an evaluation needs",
                setting=f"data.limit_{split}_batches",
                fix="set it to the batches of an evaluation, or give Sampled(..., length=...)",
            )


def _make_shard(recipe: StreamSpec, context: WorkerContext) -> StreamShard:
    return StreamShard(
        recipe, worker=context.worker, num_workers=context.num_workers, sends_state=True, reading=context.begin_sample
    )


def _num_batches(dataset: Any, batch_size: int | None, drop_last: bool) -> int | None:
    """Batches of an epoch as the set tells them."""
    if isinstance(dataset, Sampled):
        return dataset.length
    try:
        length = len(dataset)
    except (TypeError, NotImplementedError):  # it has none, or says so as torch's classes do
        return None
    number = num_batches_of(length, batch_size or 1, drop_last)
    check_not_empty(length, number, batch_size)
    return number
