"""`ExternalLoader`: the batches of a loader of the user: torch's DataLoader, torchdata's, and others."""

from __future__ import annotations

import copy
import itertools
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from roost.base.errors import CheckpointError, ConfigError, ContractError
from roost.train.data import loader_parts
from roost.train.data.batch_sizes import count_samples
from roost.train.data.plans.batch_plan import format_epoch_length
from roost.train.data.sequential_batches import SequentialBatches, SizedBatch, empty_pass_error
from roost.train.data.workers.stream_shard import is_stateful
from roost.train.step import seeding

_END = object()


def is_external_loader(value: Any) -> bool:
    """Whether ``value`` makes batches: a DataLoader, a node of torchdata or its loader, or an iterable
    without ``[]`` that has a ``batch_size``."""
    if isinstance(value, DataLoader) or _torchdata_nodes(value) is not None:
        return True
    return hasattr(value, "__iter__") and hasattr(value, "batch_size") and not hasattr(value, "__getitem__")


class ExternalLoader(SequentialBatches):
    """The batches of a loader of the user, drawn in this process, from any position.

    Each pass and each batch begins with a seed that depends on (seed, rank, pass, batch), and the generators
    of the training are restored afterwards. So a loader that draws from torch's, NumPy's or Python's global
    generator gives the same batches each time. At the beginning of each pass, `set_epoch` is called with its
    number on the loader, its set and its samplers, and their own generators are seeded again.

    A loader with `state_dict` and `load_state_dict` resumes from its state; any other one is iterated again
    up to the position.

    Args:
        loader: A loader for which `is_external_loader` holds.
        num_batches: Batches of an epoch; None: the loader's length if it has one.
        seed: Seed of its random numbers.
        rank: Rank of this process, for the seeds.
        name: Display name of the set, for messages.
    """

    def __init__(
        self, loader: Any, *, num_batches: int | None = None, seed: int = 0, rank: int = 0, name: str = ""
    ) -> None:
        nodes = _torchdata_nodes(loader)
        if nodes is not None:
            # Otherwise the loader would restart automatically, but only after a state from the end of a pass.
            root = loader.root if isinstance(loader, nodes.Loader) else loader
            loader = nodes.Loader(root, restart_on_stop_iteration=False)
        super().__init__(num_batches or _num_batches(loader, name or "the loader"), name)
        self.loader = loader
        self.num_workers = getattr(loader, "num_workers", 0)
        self._seed = seeding.mix(seed, "foreign", rank)
        self._is_stateful = is_stateful(loader) and not _state_is_only_a_count(loader)
        loader_parts.disable_persistent_workers(loader, self.display_name)
        # iter() resets a DataLoader, but not its parts; its state_dict() would start its workers.
        parts = loader_parts.parts(loader)[1:] if isinstance(loader, DataLoader) else [loader]
        with seeding.isolated(devices=False):
            self._initial_states = [
                (part, copy.deepcopy(part.state_dict())) for part in parts if is_stateful(part)
            ]
            if nodes is not None:
                # state_dict() has begun an iteration, which the next iter() would return, whatever state is
                # loaded before.
                iter(loader)
        self._iterator: Iterator[Any] = iter(())
        """The iterator of the training."""
        self._number, self._num_drawn = 0, 0

    def describe(self) -> str:
        length = "" if self.num_batches is None else f", {format_epoch_length(self.num_batches)}"
        return f"in the order of its own {type(self.loader).__name__}{length}"

    def inexact_reasons(self) -> list[str]:
        """Returns what a loader that resumes in the middle of a pass does not restore."""
        kind = type(self.loader).__name__
        if not self._resume_point.position:
            return []
        if not self._is_stateful:
            return [
                f"{self.display_name} is a {kind} without a state: it is iterated again up to its position, "
                "and the batches are the same unless its set keeps a state of its own"
            ]
        if self.num_workers:
            return [f"{self.display_name} is a {kind} whose workers' generators are not in its state"]
        return []

    def close(self) -> None:
        """Ends the loader's workers."""
        loader_parts.shut_down(self.loader, self._iterator)
        loader_parts.shut_down(self.loader, getattr(self.loader, "_iterator", None))

    # ---- drawing ----------------------------------------------------------------------------------------

    def _draw_endless(self, state: Any) -> Generator[SizedBatch, None, None]:
        if state is not None and state["loader"] is None and state["drawn"]:
            print(
                f"{self.display_name} has no state_dict(): {state['drawn']:,} batches are drawn and dropped "
                "to resume at its position",
                flush=True,
            )
        self._restore(state)
        try:
            while True:
                value = self._next_batch(self._iterator, self._number, self._num_drawn)
                if value is _END:
                    self._start_next_pass()
                else:
                    self._num_drawn += 1
                    yield _sized(value)
        except GeneratorExit:
            self._resume_point, self._state_is_current = self._newest_point(), False
            raise
        finally:
            loader_parts.shut_down(self.loader, self._iterator)

    def _start_next_pass(self) -> None:
        if not self._num_drawn:
            raise empty_pass_error(self.display_name, self._number)
        self._number, self._num_drawn = self._number + 1, 0
        self._iterator = self._start_pass(self._number)

    def _restore(self, state: Mapping[str, Any] | None) -> None:
        loader_parts.shut_down(self.loader, self._iterator)
        if state is None:
            self._number, self._num_drawn = 0, 0
            self._iterator = self._start_pass(0, self._initial_states)
            return
        self._number, self._num_drawn = state["pass"], state["drawn"]
        own = state["loader"]
        self._iterator = self._start_pass(self._number, [] if own is None else [(self.loader, own)])
        if own is None:
            for number in range(self._num_drawn):
                if self._next_batch(self._iterator, self._number, number) is _END:
                    raise ContractError(
                        f"{self.display_name} ended after {number} batches of pass {self._number}, where the "
                        f"run had used {self._num_drawn}",
                        fix="continue with the data with which it began, or start a new run",
                    )

    def _draw_pass(self) -> Generator[SizedBatch, None, None]:
        with self._preserved_position():
            iterator = self._start_pass(0, self._initial_states)
            try:
                for number in itertools.count():
                    if (value := self._next_batch(iterator, 0, number)) is _END:
                        if not number:
                            raise empty_pass_error(self.display_name, 0)
                        return
                    yield _sized(value)
            finally:
                loader_parts.shut_down(self.loader, iterator)

    @contextmanager
    def _preserved_position(self) -> Iterator[None]:
        """Lets an evaluation iterate the loader, and restores the position of the training afterwards."""
        if not self._state_is_current:
            yield
            return
        whole = copy.deepcopy(self._state()) if self._is_stateful else None
        generators = [(one, one.get_state()) for one in loader_parts.generators(self.loader)]
        parts = [(part, copy.deepcopy(part.state_dict())) for part, _ in self._initial_states]
        try:
            yield
        finally:
            if whole is not None:
                self._restore(whole)
            else:
                for generator, state in generators:
                    generator.set_state(state)
                for part, state in parts:
                    part.load_state_dict(state)

    def _start_pass(self, number: int, states: Sequence[tuple[Any, Any]] = ()) -> Iterator[Any]:
        """Returns an iterator of the loader for pass ``number``, after loading ``states`` into its parts."""
        for part in loader_parts.parts(self.loader):
            if hasattr(part, "set_epoch"):
                part.set_epoch(number)
        for index, generator in enumerate(loader_parts.generators(self.loader)):
            generator.manual_seed(seeding.mix(self._seed, number, "generator", index))
        # The seed of the first batch: a sampler draws its order at iter(), or at its first index, which is
        # drawn here when a pass is resumed, and with the first batch when it begins.
        with seeding.isolated(seeding.mix(self._seed, number, 0), devices=False):
            for part, state in states:
                if not is_stateful(part):
                    raise CheckpointError(
                        f"{self.display_name} was saved with a state, and {type(part).__name__} has no "
                        "load_state_dict",
                        fix="use the loader with which the run began",
                    )
                # Before iter(): workers that it starts would not get the state.
                part.load_state_dict(copy.deepcopy(state))
            return loader_parts.start_pass(self.loader)

    def _next_batch(self, iterator: Iterator[Any], number: int, batch: int) -> Any:
        with seeding.isolated(seeding.mix(self._seed, number, batch), devices=False):
            try:
                return next(iterator, _END)
            except Exception as error:
                loader_parts.note_killed_worker(error, iterator)
                error.add_note(f"while drawing batch {batch} of pass {number} of {self.display_name}")
                raise

    def _state(self) -> dict[str, Any]:
        own = self.loader.state_dict() if self._is_stateful else None
        return {"pass": self._number, "drawn": self._num_drawn, "loader": own}

    @property
    def _state_survives_errors(self) -> bool:
        return not self._is_stateful


def _sized(value: Any) -> SizedBatch:
    num_samples = count_samples(value)
    return (value, num_samples) if num_samples else (None, 0)


def _state_is_only_a_count(loader: Any) -> bool:
    """Whether the loader's state would hold only its number of batches: torchdata's loader of an iterable set
    without a state counts them twice after a resume (0.11)."""
    dataset = getattr(loader, "dataset", None)
    return (
        isinstance(loader, DataLoader) and isinstance(dataset, IterableDataset) and not is_stateful(dataset)
    )


def _torchdata_nodes(value: Any) -> Any:
    """Returns torchdata's module of nodes if ``value`` is a node or its loader; torchdata is optional."""
    module: Any = sys.modules.get("torchdata.nodes")
    return module if module is not None and isinstance(value, module.BaseNode | module.Loader) else None


def _num_batches(loader: Any, display_name: str) -> int | None:
    """Returns the length of the loader; None if it has none."""
    try:
        number = len(loader)
    except (TypeError, NotImplementedError):
        return None
    if not number:
        raise ConfigError(
            f"{display_name} has no batch",
            received=type(loader).__name__,
            fix="check its set, its sampler and its drop_last",
        )
    return number
