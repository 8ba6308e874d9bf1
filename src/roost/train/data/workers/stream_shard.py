"""One worker's part of a stream."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch.utils.data._utils.worker
from torch.utils.data import default_collate, default_convert

from roost.base.errors import CheckpointError, ContractError
from roost.train.data.batch_function import Sampled
from roost.train.data.batch_sizes import count_samples, is_empty
from roost.train.data.fetch import Collate, collate_samples, fingerprint
from roost.train.data.workers import sample_threads
from roost.train.step import seeding

RESTORE, SKIP, DRAW, IDLE = "go back", "go on", "draw", "rest"
"""Kinds of tasks: ``(GO_BACK, state)`` takes over what `StreamShard.state` gave, None: the beginning; ``(GO_ON,
None)`` goes on dropping items until it is there; ``(DRAW, pass)`` draws a batch; ``(REST, None)`` does
nothing."""
_SKIP_SECONDS = 1.0
"""Of one task."""
_END = object()
_BEFORE_FIRST_ITEM = -1
_torch_worker: Any = torch.utils.data._utils.worker
"""Where torch keeps who a worker is: a private name, and the only way to answer `get_worker_info`."""


class ShardAnswer(NamedTuple):
    """What a share answers to a task."""

    kind: str
    number: int = -1
    """Of the pass."""
    batch: tuple[Any, int] | None = None
    """With its samples; None: nothing is left in this pass."""
    ended: bool = False
    """Whether it is known that nothing is left."""
    state: dict[str, Any] | None = None
    """Of the share after it."""
    left: int = 0
    """Items still to be dropped."""


class StreamSpec(NamedTuple):
    """How a set becomes batches: the same for all shares of a stream."""

    dataset: Any
    batch_size: int | None
    """None: each item is a batch."""
    collate: Collate | None
    drop_last: bool
    seed: int
    name: str
    fresh: Any
    """The state of the set before it was iterated, where it has one."""


class StreamShard:
    """Draws the batches of one worker from its own copy of the set, whom `get_worker_info` tells who it is.

    What an item draws at random is f(seed, worker, pass, number of the item in it).

    Args:
        recipe: How the set becomes batches.
        worker: Number of the worker.
        num_workers: Of them.
        sends_state: Whether its state comes with each batch.
        reading: Is told the number of each item before it is drawn.
    """

    def __init__(
        self,
        recipe: StreamSpec,
        *,
        worker: int = 0,
        num_workers: int = 1,
        sends_state: bool = False,
        reading: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._recipe, self._dataset, self._collate = recipe, recipe.dataset, recipe.collate
        self._worker, self._num_workers = worker, num_workers
        self._seed = seeding.mix(recipe.seed, "worker", worker)
        self._sends_state, self._reading = sends_state, reading
        self.draws_randomness = getattr(recipe.dataset, "draws_randomness", True)
        self._iterator: Iterator[Any] = iter(())
        self._number, self._items, self._ended, self._to_drop = -1, 0, False, 0
        self._info: Any = None

    def __call__(self, task: tuple[str, Any]) -> ShardAnswer:
        """Does a task.

        Raises:
            Exception: Whatever the set raises, with a note that says where.
            ContractError: Items cannot be joined.
            CheckpointError: The set does not fit the state.
        """
        kind, what = task
        if kind == IDLE:
            return ShardAnswer(IDLE)
        with sample_threads.single_thread(), self._known_as_worker():
            if kind == DRAW:
                batch = self._draw(what)
                state = self.state() if self._sends_state or not self.is_stateful else None
                return ShardAnswer(DRAW, what, batch, self._ended, state)
            if kind == RESTORE:
                self._go_back(what)
            self._drop()
        return ShardAnswer(SKIP, left=self._to_drop)

    @property
    def is_stateful(self) -> bool:
        """Whether the set or its iterator has a state of its own."""
        return is_stateful(self._dataset) or is_stateful(self._iterator)

    def state(self) -> dict[str, Any]:
        """Where it is, with the states of the set and of its iterator where these have one."""
        own = is_stateful(self._iterator) and self._iterator is not self._dataset
        return {
            "pass": self._number,
            "items": self._items,
            "ended": self._ended,
            "set": self._dataset.state_dict() if is_stateful(self._dataset) else None,
            "iterator": self._iterator.state_dict() if own else None,  # type: ignore[attr-defined]
        }

    def ignores_seeding(self) -> bool:
        """Whether the first item, drawn twice under the same seeds, differs. Goes through the set."""
        found = []
        with self._known_as_worker():
            for _ in range(2):
                self._go_back(None)
                self._begin(0)
                found.append(fingerprint(self._item()))
        return found[0] is not None and found[0] != found[1]

    # ---- drawing ----------------------------------------------------------------------------------------

    def _draw(self, number: int) -> tuple[Any, int] | None:
        if number != self._number:
            self._begin(number)
        size = self._recipe.batch_size
        items: list[Any] = []
        while not self._ended and len(items) < (size or 1):
            item = self._item()
            if item is _END:
                self._ended = True
            else:
                items.append(item)
        if not items or (size is not None and self._recipe.drop_last and len(items) < size):
            return None
        if size is None:
            return self._whole(items[0])
        with _without_worker_info():
            value = collate_samples(items, self._collate or default_collate, self._dataset, self._recipe.name)
        return (None, 0) if is_empty(value) else (value, len(items))

    def _whole(self, value: Any) -> tuple[Any, int]:
        """A batch that the set has made; arrays in it become tensors, as torch's loader does."""
        num_samples = count_samples(value)
        if not num_samples:
            return None, 0
        if self._collate is not None:
            return self._collate(value), num_samples
        if not isinstance(self._dataset, Sampled):
            value = default_convert(value)  # type: ignore[no-untyped-call]
        return value, num_samples

    def _item(self) -> Any:
        """The next one."""
        self._reading(self._items)
        self._seed_for(self._items)
        try:
            item = next(self._iterator, _END)
        except Exception as error:
            error.add_note(f"while drawing item {self._items} of {self._place}")
            raise
        self._items += item is not _END
        return item

    def _begin(self, number: int) -> None:
        """The pass of this number, from its first item on."""
        self._number, self._items, self._ended = number, 0, False
        self._set_pass()
        self._iterate()

    def _set_pass(self) -> None:
        self._tell_who()
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(self._number)

    def _iterate(self) -> None:
        self._seed_for(_BEFORE_FIRST_ITEM)
        try:
            self._iterator = iter(self._dataset)
        except Exception as error:
            error.add_note(f"while {self._place} began")
            if isinstance(error, TypeError) and _was_raised_here(error):  # __iter__ gave no iterator
                raise ContractError(
                    f"{self._recipe.name or 'the set'} cannot be gone through: {error}",
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
        named = f"{self._recipe.name} ({kind})" if self._recipe.name else kind
        return f"pass {self._number} of {named}, in worker {self._worker}"

    # ---- going back -------------------------------------------------------------------------------------

    def _go_back(self, state: dict[str, Any] | None) -> None:
        """Is as it was at ``state``, but for items that are still to be dropped."""
        self._to_drop = 0
        if state is None or state["pass"] < 0:
            self._number = -1
            if is_stateful(self._dataset) and not _are_equal(self._dataset.state_dict(), self._recipe.fresh):
                self._load(self._dataset, self._recipe.fresh)
            return
        self._number, self._items, self._ended = state["pass"], state["items"], state["ended"]
        # The set's own state goes over the number of the pass, and is there before the iterator is.
        self._set_pass()
        if state["set"] is not None:
            self._load(self._dataset, state["set"])
        if self._ended:
            return
        self._iterate()
        if state["iterator"] is not None:
            self._load(self._iterator, state["iterator"])
        elif state["set"] is None:
            self._to_drop, self._items = state["items"], 0

    def _load(self, into: Any, state: Any) -> None:
        if not is_stateful(into):
            raise CheckpointError(
                f"{self._recipe.name or 'the set'} was saved with a state, and its "
                f"{type(into).__name__} has no load_state_dict",
                fix="give it state_dict() and load_state_dict() again",
            )
        # A copy: a set may go on with the very object that it is given.
        into.load_state_dict(copy.deepcopy(state))

    def _drop(self) -> None:
        """Draws items that were used before; for a while, one at least."""
        until = time.monotonic() + _SKIP_SECONDS
        while self._to_drop:
            if self._item() is _END:
                raise ContractError(
                    f"{self._recipe.name or 'the set'} ended after {self._items} items of pass "
                    f"{self._number}, where the run had used {self._items + self._to_drop}",
                    fix="go on with the data with which it began, or start anew",
                )
            self._to_drop -= 1
            if time.monotonic() > until:
                return

    # ---- who it is --------------------------------------------------------------------------------------

    @contextmanager
    def _known_as_worker(self) -> Iterator[None]:
        """Inside `torch.utils.data.get_worker_info` tells of this worker; also of one that is no process, so
        that one worker and none give the same."""
        before, _torch_worker._worker_info = _torch_worker._worker_info, self._info
        try:
            yield
        finally:
            _torch_worker._worker_info = before

    def _tell_who(self) -> None:
        # The seed differs from pass to pass, as torch's does.
        seed = seeding.mix(self._seed, "info", self._number)
        self._info = _torch_worker.WorkerInfo(
            id=self._worker, num_workers=self._num_workers, seed=seed, dataset=self._dataset
        )
        _torch_worker._worker_info = self._info


@contextmanager
def _without_worker_info() -> Iterator[None]:
    """Inside there is no worker: in one, torch's collate would make each batch in shared memory of its own,
    from which it is copied once more here, and which may be as small as 64 MB."""
    before, _torch_worker._worker_info = _torch_worker._worker_info, None
    try:
        yield
    finally:
        _torch_worker._worker_info = before


def is_stateful(value: Any) -> bool:
    """Whether it has a state of its own."""
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


def _was_raised_here(error: Exception) -> bool:
    """Whether it was raised in the very frame that caught it, not in code that this called."""
    return error.__traceback__ is not None and error.__traceback__.tb_next is None


def _are_equal(state: Any, other: Any) -> bool:
    one = fingerprint(state)
    return one is not None and one == fingerprint(other)
