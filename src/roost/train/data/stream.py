"""`Stream`: the batches of iterable sets, and of functions that make whole batches (`Sampled`)."""

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
from roost.train.data.workers import seeding_probe
from roost.train.data.workers.stream_order import StreamOrder
from roost.train.data.workers.stream_shard import RESTORE, ShardAnswer, StreamShard, StreamSpec, is_stateful
from roost.train.data.workers.worker_pool import WorkerPool
from roost.train.data.workers.worker_status import WorkerContext
from roost.train.step import seeding


class Stream(SequentialBatches):
    """Batches of an iterable set or of a `Sampled`, from any position; each batch comes with the state of the
    set after it.

    Each worker iterates its own copy of the set; `torch.utils.data.get_worker_info` gives the set the number
    of its worker. The batches of the workers come in turn, so the number of workers decides on the order, and
    a run continues with the number with which it began; 0 and 1 give the same order. When all workers have
    reached the end, the next pass begins; `set_epoch` is called on a set that has it.

    The random numbers of an item depend on (seed, rank, worker, pass, number of the item). A set with
    `state_dict` and `load_state_dict` (or whose iterator has them) resumes from its state; what it draws
    before its first item must follow from that state. Any other set is iterated again up to the position,
    which gives the same items if they follow from roost's seeds.

    Args:
        dataset: An object with ``__iter__``; or a `Sampled`.
        batch_size: Items of a batch; None: each item is a batch.
        num_batches: Batches of an epoch; None: follows from the set's length if it has one.
        collate: Makes a batch from a list of items; torch's default if None.
        drop_last: Leave out an incomplete last batch of a worker's pass.
        num_workers: Loader workers; 0 draws in this process.
        seed: Seed of the items' random numbers.
        rank: Rank of this process, for the seeds.
        pin_memory: See `Loader`.
        prefetch: See `Loader`.
        timeout_seconds: See `Loader`.
        name: Display name of the set, for messages.

    Raises:
        ContractError: The set can be iterated only once.
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
                f"{name or 'the set'} can be iterated only once",
                received=type(dataset).__name__,
                fix="give an object whose __iter__ begins again, for example a torch IterableDataset",
            )
        self.dataset, self.num_workers = dataset, num_workers
        self.pin_memory, self.prefetch, self.timeout_seconds = pin_memory, prefetch, timeout_seconds
        if isinstance(dataset, Sampled):
            batch_size, collate = None, None
        super().__init__(num_batches or _num_batches(dataset, batch_size, drop_last), name)
        initial_state = self._initial_state() if is_stateful(dataset) else None
        self._spec = StreamSpec(
            dataset, batch_size, collate, drop_last, seeding.mix(seed, "stream", rank), name, initial_state
        )
        self._reset_shards()

    def _initial_state(self) -> Any:
        try:
            return copy.deepcopy(self.dataset.state_dict())
        except TypeError as error:  # for example an open file, a lock or a generator
            raise ContractError(
                f"{self.display_name} has a state that cannot be copied: {error}",
                fix="let its state be plain data, arrays and tensors, or give it state_dict() and "
                "load_state_dict() that use these",
            ) from error

    def _reset_shards(self) -> None:
        """Starts without workers and without shards."""
        self._pools: dict[str, WorkerPool] = {}
        self._shard: StreamShard | None = None
        """Draws the training's batches in this process, without workers."""
        self._order: StreamOrder | None = None

    @property
    def num_shards(self) -> int:
        """Copies of the set that are iterated, one for each worker."""
        return max(1, self.num_workers or 0)

    def excerpt(self, spans: Sequence[range]) -> SequentialBatches:
        other = super().excerpt(spans)
        assert isinstance(other, Stream)
        other._reset_shards()
        return other

    def first_samples(self, num_samples: int) -> Batch | None:
        """Returns the first items as one batch of the set's collate; of whole batches see
        `Batches.first_samples`."""
        if self._spec.batch_size is None:
            return super().first_samples(num_samples)
        spec = self._spec._replace(batch_size=num_samples, drop_last=False)
        if self.num_workers:
            other = self.excerpt([range(1)])
            assert isinstance(other, Stream)
            other._spec = spec
            with closing(other):
                return other.first_batch()
        # Not on a copy, which would not know of a training that iterates the same set.
        own_spec, self._spec = self._spec, spec
        try:
            return self.first_batch()
        finally:
            self._spec = own_spec

    def describe(self) -> str:
        size = self._spec.batch_size
        order = "whole batches as they come" if size is None else f"items as they come, {size:,} a batch"
        workers = f", from {self.num_workers} workers in turn" if self.num_shards > 1 else ""
        length = "" if self.num_batches is None else f", {format_epoch_length(self.num_batches)}"
        return order + workers + length

    def inexact_reasons(self) -> list[str]:
        """Reports a first item that differs when drawn twice with the same seeds. Draws it in a process that
        ends afterwards: workers must not begin with a set that has already been read."""
        if not getattr(self.dataset, "draws_randomness", True):
            return []
        ignores, self.seeding_unknown_reason = seeding_probe.probe_seeding(self)
        if not ignores:
            return []
        return [f"{self.display_name} draws from a generator that roost does not seed"]

    def ignores_seeding(self) -> bool:
        """See `inexact_reasons`. Iterates the set in this process."""
        with seeding.isolated(devices=False):
            return StreamShard(self._spec, num_workers=self.num_shards).ignores_seeding()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        if state["state"]:
            self.keep_num_shards(len(state["state"]["shares"]))

    def keep_num_shards(self, num_shards: int) -> None:
        if num_shards != self.num_shards:
            print(
                f"{self.display_name} continues with the {num_shards} workers with which the run began, not "
                f"with {self.num_workers}: their number decides on the order",
                flush=True,
            )
            self.num_workers = num_shards

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()
        self._pools = {}

    # ---- drawing ----------------------------------------------------------------------------------------

    def _draw_endless(self, state: Any) -> Generator[SizedBatch, None, None]:
        self._shard = None if self.num_workers else StreamShard(self._spec)
        self._order = StreamOrder(self.num_shards, state, display_name=self.display_name)
        answers = self._answers(self._order, "training", self._spec, self._shard)
        with closing(answers), closing(self._order.batches(answers)) as batches:
            yield from batches

    def _draw_pass(self) -> Generator[SizedBatch, None, None]:
        spec, num_workers = self._spec, self.num_workers or 0
        if isinstance(self.dataset, Sampled):
            self._refuse_endless()
            # Several workers would begin with the same batches.
            spec, num_workers = spec._replace(dataset=self.dataset.for_evaluation()), min(1, num_workers)
        shard = None if num_workers else StreamShard(spec)
        order = StreamOrder(max(1, num_workers), None, display_name=self.display_name, single_pass=True)
        with (
            self._preserved_state(shard),
            closing(self._answers(order, "evaluation", spec, shard)) as answers,
        ):
            yield from order.batches(answers)

    @contextmanager
    def _preserved_state(self, other: StreamShard | None) -> Iterator[None]:
        """Lets another shard iterate the set in this process, and restores the state of the training
        afterwards: the set has only one state."""
        training = self._shard if self._state_is_current and other is not None else None
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
        self, order: StreamOrder, use: str, spec: StreamSpec, shard: StreamShard | None
    ) -> Generator[ShardAnswer, None, None]:
        if shard is not None:
            for task in order.tasks():
                with seeding.isolated(devices=False) if shard.draws_randomness else nullcontext():
                    answer = shard(task)
                yield answer
            return
        pool = self._pools.get(use)
        if pool is None:
            pool = self._pools[use] = WorkerPool(
                functools.partial(_make_shard, spec),
                num_workers=order.num_shards,
                prefetch=self.prefetch,
                timeout_seconds=self.timeout_seconds,
                pin_memory=self.pin_memory,
                name=self.name,
                stacks=self.worker_stacks,
            )
        with closing(pool.map(order.tasks(), should_stop=self.should_stop)) as answers:
            yield from answers

    def _state(self) -> dict[str, Any]:
        assert self._order is not None
        inline = self._shard is not None and self._shard.is_stateful
        return self._order.state([self._shard.state()] if self._shard is not None and inline else None)

    @property
    def _state_survives_errors(self) -> bool:
        return self._shard is None or not self._shard.is_stateful

    def _refuse_endless(self) -> None:
        if self.num_batches is None:
            split = "test" if "test" in self.name else "valid"
            raise ConfigError(
                f"{self.display_name} is an endless function, and an evaluation needs an end",
                setting=f"data.limit_{split}_batches",
                fix="set it to the batches of an evaluation, or give Sampled(..., length=...)",
            )


def _make_shard(spec: StreamSpec, context: WorkerContext) -> StreamShard:
    return StreamShard(
        spec,
        worker=context.worker,
        num_workers=context.num_workers,
        sends_state=True,
        on_item=context.begin_sample,
    )


def _num_batches(dataset: Any, batch_size: int | None, drop_last: bool) -> int | None:
    """Returns the batches of an epoch by the set's length; None if it has none."""
    if isinstance(dataset, Sampled):
        return dataset.length
    try:
        length = len(dataset)
    except (TypeError, NotImplementedError):  # no length: torch's own classes raise either
        return None
    number = num_batches_of(length, batch_size or 1, drop_last)
    check_not_empty(length, number, batch_size)
    return number
