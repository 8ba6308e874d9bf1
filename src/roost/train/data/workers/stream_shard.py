"""`StreamShard`: the part of a stream that one worker draws from its copy of the set."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch.utils.data._utils.worker
from torch.utils.data import default_collate, default_convert

from roost.base.errors import CheckpointError, ContractError
from roost.train.data import fetch
from roost.train.data.batch_function import Sampled
from roost.train.data.batch_sizes import count_samples, is_empty
from roost.train.data.fetch import Collate, collate_samples, fingerprint
from roost.train.step import seeding

RESTORE, SKIP, DRAW, IDLE = "restore", "skip", "draw", "idle"
"""Kinds of tasks: ``(RESTORE, state)`` loads the result of `StreamShard.state`, None: the beginning; ``(SKIP,
None)`` continues to skip items up to the position; ``(DRAW, pass)`` draws a batch; ``(IDLE, None)`` does
nothing."""
_SKIP_SECONDS = 1.0
"""Maximum duration of one task that skips items."""
_END = object()
_BEFORE_FIRST_ITEM = -1
_torch_worker: Any = torch.utils.data._utils.worker
"""Torch's module with the current WorkerInfo: private, and the only way to answer `get_worker_info`."""


class ShardAnswer(NamedTuple):
    """The answer of a shard to a task."""

    kind: str
    number: int = -1
    """Number of the pass."""
    batch: tuple[Any, int] | None = None
    """The batch and its number of samples; None: the pass has no further batch."""
    ended: bool = False
    """Whether the pass is known to have no further batch."""
    state: dict[str, Any] | None = None
    """State of the shard after the batch."""
    num_to_skip: int = 0
    """Items that must still be skipped."""


class StreamSpec(NamedTuple):
    """How the batches are made from the set; the same for all shards of a stream."""

    dataset: Any
    batch_size: int | None
    """None: each item is a batch."""
    collate: Collate | None
    drop_last: bool
    seed: int
    name: str
    initial_state: Any
    """The state of the set before it was first iterated, if it has one."""


class StreamShard:
    """Draws the batches of one worker from its own copy of the set, in which `get_worker_info` returns the
    worker's number.

    The random numbers of an item depend on (seed, worker, pass, number of the item in the pass).

    Args:
        spec: How the batches are made.
        worker: Number of this worker.
        num_workers: Number of workers.
        sends_state: Whether each answer contains the state of the shard.
        on_item: Called with the number of each item before it is drawn.
    """

    def __init__(
        self,
        spec: StreamSpec,
        *,
        worker: int = 0,
        num_workers: int = 1,
        sends_state: bool = False,
        on_item: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._spec, self._dataset, self._collate = spec, spec.dataset, spec.collate
        self._worker, self._num_workers = worker, num_workers
        self._seed = seeding.mix(spec.seed, "worker", worker)
        self._sends_state, self._on_item = sends_state, on_item
        self.draws_randomness = getattr(spec.dataset, "draws_randomness", True)
        self._iterator: Iterator[Any] = iter(())
        self._number, self._items, self._ended, self._num_to_skip = -1, 0, False, 0
        self._info: Any = None

    def __call__(self, task: tuple[str, Any]) -> ShardAnswer:
        """Performs a task.

        Raises:
            Exception: Any error of the set, with a note that names the item.
            ContractError: Items cannot be collated.
            CheckpointError: The set does not fit the state.
        """
        kind, argument = task
        if kind == IDLE:
            return ShardAnswer(IDLE)
        with fetch.single_thread(), self._with_worker_info():
            if kind == DRAW:
                batch = self._draw(argument)
                state = self.state() if self._sends_state or not self.is_stateful else None
                return ShardAnswer(DRAW, argument, batch, self._ended, state)
            if kind == RESTORE:
                self._restore(argument)
            self._skip_items()
        return ShardAnswer(SKIP, num_to_skip=self._num_to_skip)

    @property
    def is_stateful(self) -> bool:
        """Whether the set or its iterator has a state of its own."""
        return is_stateful(self._dataset) or is_stateful(self._iterator)

    def state(self) -> dict[str, Any]:
        """Returns the position, with the states of the set and of its iterator if they have one."""
        has_iterator_state = is_stateful(self._iterator) and self._iterator is not self._dataset
        return {
            "pass": self._number,
            "items": self._items,
            "ended": self._ended,
            "set": self._dataset.state_dict() if is_stateful(self._dataset) else None,
            "iterator": self._iterator.state_dict() if has_iterator_state else None,  # type: ignore[attr-defined]
        }

    def ignores_seeding(self) -> bool:
        """Whether the first item differs when drawn twice with the same seeds. Iterates the set."""
        found = []
        with self._with_worker_info():
            for _ in range(2):
                self._restore(None)
                self._begin_pass(0)
                found.append(fingerprint(self._next_item()))
        return found[0] is not None and found[0] != found[1]

    # ---- drawing ----------------------------------------------------------------------------------------

    def _draw(self, number: int) -> tuple[Any, int] | None:
        if number != self._number:
            self._begin_pass(number)
        size = self._spec.batch_size
        items: list[Any] = []
        while not self._ended and len(items) < (size or 1):
            item = self._next_item()
            if item is _END:
                self._ended = True
            else:
                items.append(item)
        if not items or (size is not None and self._spec.drop_last and len(items) < size):
            return None
        if size is None:
            return self._convert_batch(items[0])
        with _without_worker_info():
            value = collate_samples(items, self._collate or default_collate, self._dataset, self._spec.name)
        return (None, 0) if is_empty(value) else (value, len(items))

    def _convert_batch(self, value: Any) -> tuple[Any, int]:
        """Converts a batch that the set has made: arrays become tensors, as in torch's DataLoader."""
        num_samples = count_samples(value)
        if not num_samples:
            return None, 0
        if self._collate is not None:
            return self._collate(value), num_samples
        if not isinstance(self._dataset, Sampled):
            value = default_convert(value)  # type: ignore[no-untyped-call]
        return value, num_samples

    def _next_item(self) -> Any:
        """Draws the next item; `_END` after the last one."""
        self._on_item(self._items)
        self._seed_for(self._items)
        try:
            item = next(self._iterator, _END)
        except Exception as error:
            error.add_note(f"while drawing item {self._items} of {self._place}")
            raise
        self._items += item is not _END
        return item

    def _begin_pass(self, number: int) -> None:
        """Begins a pass at its first item."""
        self._number, self._items, self._ended = number, 0, False
        self._set_pass()
        self._iterate()

    def _set_pass(self) -> None:
        self._set_worker_info()
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(self._number)

    def _iterate(self) -> None:
        self._seed_for(_BEFORE_FIRST_ITEM)
        try:
            self._iterator = iter(self._dataset)
        except Exception as error:
            error.add_note(f"while {self._place} began")
            if isinstance(error, TypeError) and _was_raised_here(
                error
            ):  # __iter__ did not return an iterator
                raise ContractError(
                    f"{self._spec.name or 'the set'} cannot be iterated: {error}",
                    received=type(self._dataset).__name__,
                    fix="let __iter__ return an iterator, or be a generator with `yield`",
                ) from error
            raise

    def _seed_for(self, item: int) -> None:
        if self.draws_randomness:
            seeding.seed_sample(self._seed, self._number, item)

    @property
    def _place(self) -> str:
        kind = type(self._dataset).__name__
        named = f"{self._spec.name} ({kind})" if self._spec.name else kind
        return f"pass {self._number} of {named}, in worker {self._worker}"

    # ---- restoring --------------------------------------------------------------------------------------

    def _restore(self, state: dict[str, Any] | None) -> None:
        """Restores ``state``, except for items that must still be skipped (`_num_to_skip`)."""
        self._num_to_skip = 0
        if state is None or state["pass"] < 0:
            self._number = -1
            if is_stateful(self._dataset) and not _are_equal(
                self._dataset.state_dict(), self._spec.initial_state
            ):
                self._load(self._dataset, self._spec.initial_state)
            return
        self._number, self._items, self._ended = state["pass"], state["items"], state["ended"]
        # The set's own state has priority over set_epoch, and is loaded before the iterator is made.
        self._set_pass()
        if state["set"] is not None:
            self._load(self._dataset, state["set"])
        if self._ended:
            return
        self._iterate()
        if state["iterator"] is not None:
            self._load(self._iterator, state["iterator"])
        elif state["set"] is None:
            self._num_to_skip, self._items = state["items"], 0

    def _load(self, into: Any, state: Any) -> None:
        if not is_stateful(into):
            raise CheckpointError(
                f"{self._spec.name or 'the set'} was saved with a state, and its "
                f"{type(into).__name__} has no load_state_dict",
                fix="give it back its state_dict() and load_state_dict()",
            )
        # A copy: a set may continue to change the object that it gets.
        into.load_state_dict(copy.deepcopy(state))

    def _skip_items(self) -> None:
        """Skips items that were used before, for `_SKIP_SECONDS` and at least one."""
        deadline = time.monotonic() + _SKIP_SECONDS
        while self._num_to_skip:
            if self._next_item() is _END:
                raise ContractError(
                    f"{self._spec.name or 'the set'} ended after {self._items} items of pass "
                    f"{self._number}, where the run had used {self._items + self._num_to_skip}",
                    fix="continue with the data with which it began, or start a new run",
                )
            self._num_to_skip -= 1
            if time.monotonic() > deadline:
                return

    # ---- torch's WorkerInfo -----------------------------------------------------------------------------

    @contextmanager
    def _with_worker_info(self) -> Iterator[None]:
        """Lets `torch.utils.data.get_worker_info` return this worker, even without a worker process, so that
        one worker and none give the same batches."""
        before, _torch_worker._worker_info = _torch_worker._worker_info, self._info
        try:
            yield
        finally:
            _torch_worker._worker_info = before

    def _set_worker_info(self) -> None:
        # The seed differs from pass to pass, as torch's does.
        seed = seeding.mix(self._seed, "info", self._number)
        self._info = _torch_worker.WorkerInfo(
            id=self._worker, num_workers=self._num_workers, seed=seed, dataset=self._dataset
        )
        _torch_worker._worker_info = self._info


@contextmanager
def _without_worker_info() -> Iterator[None]:
    """Hides the WorkerInfo from torch's collate, which would otherwise put each batch into torch's shared
    memory: that costs one more copy, and /dev/shm may be as small as 64 MB."""
    before, _torch_worker._worker_info = _torch_worker._worker_info, None
    try:
        yield
    finally:
        _torch_worker._worker_info = before


def is_stateful(value: Any) -> bool:
    """Whether an object has `state_dict` and `load_state_dict`."""
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _was_raised_here(error: Exception) -> bool:
    """Whether an error was raised in the frame that caught it, not in code called from there."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _are_equal(state: Any, other: Any) -> bool:
    one = fingerprint(state)
    return one is not None and one == fingerprint(other)
