"""Batches of loaders that make them by themselves: torch's DataLoader, torchdata's, and others."""

from __future__ import annotations

import copy
import functools
import itertools
import multiprocessing
import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset

from roost.base.errors import CheckpointError, ConfigError, ContractError
from roost.train.data.batch_sizes import count_samples
from roost.train.data.plans.batch_plan import format_epoch_length
from roost.train.data.sequential_batches import SequentialBatches, SizedBatch, empty_pass_error
from roost.train.data.workers import loader_worker
from roost.train.data.workers.stream_shard import is_stateful
from roost.train.step import seeding

_END = object()


def is_external_loader(value: Any) -> bool:
    """Whether it makes batches by itself: a DataLoader, a node of torchdata or its loader, or what can be
    gone through, has no indices, and tells a ``batch_size``."""
    if isinstance(value, DataLoader) or _torchdata_nodes(value) is not None:
        return True
    return hasattr(value, "__iter__") and hasattr(value, "batch_size") and not hasattr(value, "__getitem__")


class ExternalLoader(SequentialBatches):
    """The batches of a loader, drawn in this process, from any position.

    Each pass and each batch is begun under a seed that is f(seed, rank, pass, batch), and leaves the
    generators of the training alone: so a loader that draws from torch's, NumPy's or Python's generator gives
    the same each time. In each pass `set_epoch` is called on it, on its set and on its samplers with the
    pass's number, and generators of their own are seeded anew.

    A loader with `state_dict` and `load_state_dict` goes on from that; another one is gone through again to
    where it was.

    Args:
        loader: What `is_external_loader` takes.
        num_batches: Batches of an epoch; the loader's length when None, where it has one.
        seed: Of what it draws at random.
        rank: Of this process, for the seeds.
        name: Of the set in words, for messages.
    """

    def __init__(
        self, loader: Any, *, num_batches: int | None = None, seed: int = 0, rank: int = 0, name: str = ""
    ) -> None:
        nodes = _torchdata_nodes(loader)
        if nodes is not None:
            # Else its loader would begin the next pass by itself, but only where a state is that of an end.
            root = loader.root if isinstance(loader, nodes.Loader) else loader
            loader = nodes.Loader(root, restart_on_stop_iteration=False)
        super().__init__(num_batches or _num_batches(loader, name or "the loader"), name)
        self.loader = loader
        self.num_workers = getattr(loader, "num_workers", 0)
        self._seed = seeding.mix(seed, "foreign", rank)
        self._is_stateful = is_stateful(loader) and not _state_is_only_a_count(loader)
        self._end_persistence()
        # A DataLoader begins anew at each iter(), but for its parts; to ask it would start its workers.
        parts = self._parts[1:] if isinstance(loader, DataLoader) else [loader]
        with seeding.isolated(devices=False):
            self._fresh = [(part, copy.deepcopy(part.state_dict())) for part in parts if is_stateful(part)]
            if nodes is not None:
                # To give its state it has begun to iterate, and would let the next iter() pass for that,
                # whatever state it is given before.
                iter(loader)
        self._iterator: Iterator[Any] = iter(())
        """That of the training."""
        self._number, self._num_drawn = 0, 0

    def _end_persistence(self) -> None:
        """Workers that stay draw on where they were, and the first pass in a process begins otherwise than
        the others: no pass could be come back to."""
        if not getattr(self.loader, "persistent_workers", False):
            return
        print(
            f"{self.display_name}: persistent_workers is ignored, each pass has workers of its own: those that "
            "stay could not be put back to where they were",
            flush=True,
        )
        object.__setattr__(self.loader, "persistent_workers", False)  # past torch, which locks it

    def describe(self) -> str:
        length = "" if self.num_batches is None else f", {format_epoch_length(self.num_batches)}"
        return f"in the order of its own {type(self.loader).__name__}{length}"

    def inexact_reasons(self) -> list[str]:
        """What a loader that goes on in the middle does not bring back."""
        kind = type(self.loader).__name__
        if not self._mark.position:
            return []
        if not self._is_stateful:
            return [
                f"{self.display_name} is a {kind} without a state: it goes on by skipping batches, and whether "
                "they are the same ones nobody can tell"
            ]
        if self.num_workers:
            return [f"{self.display_name} is a {kind} whose workers' generators are not in its state"]
        return []

    def close(self) -> None:
        """Ends the loader's workers."""
        self._let_go(self._iterator)
        self._let_go(getattr(self.loader, "_iterator", None))

    # ---- drawing ----------------------------------------------------------------------------------------

    def _endless(self, state: Any) -> Generator[SizedBatch, None, None]:
        if state is not None and state["loader"] is None and state["drawn"]:
            print(
                f"{self.display_name} has no state_dict(): {state['drawn']:,} batches are drawn and dropped "
                "to go on where it was",
                flush=True,
            )
        self._go_to(state)
        try:
            while True:
                value = self._next_of(self._iterator, self._number, self._num_drawn)
                if value is _END:
                    self._begin_next()
                else:
                    self._num_drawn += 1
                    yield _sized(value)
        except GeneratorExit:
            self._mark, self._is_live = self._reached(), False
            raise
        finally:
            self._let_go(self._iterator)

    def _begin_next(self) -> None:
        if not self._num_drawn:
            raise empty_pass_error(self.display_name, self._number)
        self._number, self._num_drawn = self._number + 1, 0
        self._iterator = self._begun(self._number)

    def _go_to(self, state: Mapping[str, Any] | None) -> None:
        self._let_go(self._iterator)
        if state is None:
            self._number, self._num_drawn = 0, 0
            self._iterator = self._begun(0, self._fresh)
            return
        self._number, self._num_drawn = state["pass"], state["drawn"]
        own = state["loader"]
        self._iterator = self._begun(self._number, [] if own is None else [(self.loader, own)])
        if own is None:
            for number in range(self._num_drawn):
                if self._next_of(self._iterator, self._number, number) is _END:
                    raise ContractError(
                        f"{self.display_name} ended after {number} batches of pass {self._number}, where the run "
                        f"had used {self._num_drawn}",
                        fix="go on with the data with which it began, or start anew",
                    )

    def _pass(self) -> Generator[SizedBatch, None, None]:
        with self._kept():
            iterator = self._begun(0, self._fresh)
            try:
                for number in itertools.count():
                    if (value := self._next_of(iterator, 0, number)) is _END:
                        if not number:
                            raise empty_pass_error(self.display_name, 0)
                        return
                    yield _sized(value)
            finally:
                self._let_go(iterator)

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Lets an evaluation go through the loader; it may have one state, that of a training that goes on
        afterwards."""
        if not self._is_live:
            yield
            return
        whole = copy.deepcopy(self._state()) if self._is_stateful else None
        generators = [(one, one.get_state()) for one in self._generators]
        parts = [(part, copy.deepcopy(part.state_dict())) for part, _ in self._fresh]
        try:
            yield
        finally:
            if whole is not None:
                self._go_to(whole)
            else:
                for generator, state in generators:
                    generator.set_state(state)
                for part, state in parts:
                    part.load_state_dict(state)

    def _begun(self, number: int, states: Sequence[tuple[Any, Any]] = ()) -> Iterator[Any]:
        """An iterator of the loader for this pass, after parts of it took over these states."""
        for part in self._parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(number)
        for at, generator in enumerate(self._generators):
            generator.manual_seed(seeding.mix(self._seed, number, "generator", at))
        # The seed of the first batch: a sampler draws its order at iter(), or when it is asked for its first
        # index, which is here when it goes on, and at the first batch when it begins.
        with seeding.isolated(seeding.mix(self._seed, number, 0), devices=False):
            for part, state in states:
                if not is_stateful(part):
                    raise CheckpointError(
                        f"{self.display_name} was saved with a state, and {type(part).__name__} has no "
                        "load_state_dict",
                        fix="give the loader with which the run began",
                    )
                # First the state: workers that iter() starts would not hear of it.
                part.load_state_dict(copy.deepcopy(state))
            with _linked_worker_processes(self.loader):
                return iter(self.loader)

    def _next_of(self, iterator: Iterator[Any], number: int, batch: int) -> Any:
        with seeding.isolated(seeding.mix(self._seed, number, batch), devices=False):
            try:
                return next(iterator, _END)
            except Exception as error:
                error.add_note(f"while drawing batch {batch} of pass {number} of {self.display_name}")
                raise

    @property
    def _parts(self) -> list[Any]:
        """The loader, and what it has of a DataLoader."""
        own = [getattr(self.loader, name, None) for name in ("dataset", "sampler", "batch_sampler")]
        parts = [self.loader, *own, getattr(own[-1], "sampler", None)]
        return list({id(part): part for part in parts if part is not None}.values())

    @property
    def _generators(self) -> list[torch.Generator]:
        found = [getattr(part, "generator", None) for part in self._parts]
        return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())

    def _let_go(self, iterator: Any) -> None:
        """Ends the workers of a DataLoader's iterator; it would do so itself when it is collected."""
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()
            if self.loader._iterator is iterator:
                self.loader._iterator = None  # else it would ask them again

    def _state(self) -> dict[str, Any]:
        own = self.loader.state_dict() if self._is_stateful else None
        return {"pass": self._number, "drawn": self._num_drawn, "loader": own}

    @property
    def _outlives_errors(self) -> bool:
        return not self._is_stateful


def _sized(value: Any) -> SizedBatch:
    num_samples = count_samples(value)
    return (value, num_samples) if num_samples else (None, 0)


def _state_is_only_a_count(loader: Any) -> bool:
    """Whether its state would be but the number of its batches: that of torchdata's loader of an iterable set
    without a state, which counts them twice when it goes on (0.11)."""
    dataset = getattr(loader, "dataset", None)
    return (
        isinstance(loader, DataLoader) and isinstance(dataset, IterableDataset) and not is_stateful(dataset)
    )


@contextmanager
def _linked_worker_processes(loader: Any) -> Iterator[None]:
    """Worker processes that a DataLoader starts inside die with this one, and leave its signals to it."""
    if not isinstance(loader, DataLoader) or not loader.num_workers or not _is_forked(loader):
        yield
        return
    own = loader.worker_init_fn
    loader.worker_init_fn = functools.partial(_initialize_worker, os.getpid(), own)
    try:
        yield
    finally:
        loader.worker_init_fn = own


def _is_forked(loader: DataLoader[Any]) -> bool:
    context: Any = loader.multiprocessing_context
    set_before = context.get_start_method() if context else multiprocessing.get_start_method(allow_none=True)
    return (set_before or multiprocessing.get_all_start_methods()[0]) == "fork"


def _initialize_worker(parent: int, own: Callable[[int], None] | None, number: int) -> None:
    loader_worker.initialize_process(parent)
    if own is not None:
        own(number)


def _torchdata_nodes(value: Any) -> Any:
    """torchdata's module of nodes, if this is one of them or their loader; roost does not need torchdata."""
    module: Any = sys.modules.get("torchdata.nodes")
    return module if module is not None and isinstance(value, module.BaseNode | module.Loader) else None


def _num_batches(loader: Any, display_name: str) -> int | None:
    """Batches of an epoch as the loader tells them."""
    try:
        number = len(loader)
    except (TypeError, NotImplementedError):
        return None
    if not number:
        raise ConfigError(
            f"{called} has no batch",
            received=type(loader).__name__,
            fix="look at what its set and its sampler give, and at its drop_last",
        )
    return number
