"""The batches of a training loader, epoch after epoch, from any position, with the same bits."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from roost.base.errors import CheckpointError, ContractError
from roost.train.data import loader_parts
from roost.train.data.fetch import fingerprint
from roost.train.data.workers import seeding_probe
from roost.train.data.workers.stream_shard import is_stateful
from roost.train.step import seeding

END = object()
"""The result of `EpochBatches.draw` after the last batch of an epoch."""
_NAME = "the training loader"
_NUM_PROBED_INDICES = 64


class EpochBatches:
    """The batches of the loader that ``Dataset.init`` returned, as a plain ``for`` loop over it gives them.

    A loader draws random numbers from the generators that the training uses, too: its order and the seeds of
    its workers at the beginning of a pass, samples of a loader without workers at each batch. So a position
    within a pass is reached from the state of the generators at the pass's beginning: the pass is begun again
    and its batches are drawn and dropped. The caller then restores the generators to the state of the
    position, from which the rest of the pass follows as if it had not been interrupted.

    Args:
        loader: A DataLoader, or any iterable.
        note_inexact: Called with why the run cannot be resumed bit for bit.
    """

    def __init__(self, loader: Any, *, note_inexact: Callable[[str], None]) -> None:
        self._loader, self._note_inexact = loader, note_inexact
        self._iterator: Iterator[Any] = iter(())
        self._start: dict[str, Any] = {}
        self._is_probed = False
        loader_parts.disable_persistent_workers(loader, _NAME)

    @property
    def length(self) -> int | None:
        """The batches of an epoch; None if the loader does not know."""
        try:
            return len(self._loader)
        except (TypeError, NotImplementedError):
            return None

    @property
    def _has_indices(self) -> bool:
        return isinstance(self._loader, DataLoader) and not isinstance(self._loader.dataset, IterableDataset)

    def begin(self, *, epoch: int | None = None) -> None:
        """Begins a pass.

        Args:
            epoch: Set on the sampler, if it has ``set_epoch``; None: it is left alone.
        """
        self._probe()
        self._set_epoch(epoch)
        self._start = {
            "generators": seeding.rng_state(),
            **own_state(self._loader),
        }
        self._iterator = loader_parts.start_pass(self._loader)

    def resume(self, start: Mapping[str, Any], num_drawn: int, *, epoch: int | None = None) -> None:
        """Begins a pass again and draws its first batches. Leaves the generators in another state.

        Args:
            start: The result of `state` in that pass.
            num_drawn: The batches that were used.
            epoch: As for `begin`.

        Raises:
            CheckpointError: The loader has other parts than the one whose state was saved.
            ContractError: The pass has fewer batches.
        """
        self._probe()
        if num_drawn:
            self._note_unknown_order()
            print(f"{num_drawn:,} batches are drawn and dropped, to resume within the epoch", flush=True)
        self._set_epoch(epoch)
        restore_own_state(self._loader, start)
        seeding.set_rng_state(start["generators"])
        self._start = dict(start)
        self._iterator = loader_parts.start_pass(self._loader)
        for number in range(num_drawn):
            if self.draw() is END:
                raise ContractError(
                    f"{_NAME} ended after {number} batches, where the run had used {num_drawn}",
                    fix="continue with the data with which it began, or start a new run",
                )

    def draw(self) -> Any:
        """Returns the next batch, or `END`."""
        try:
            return next(self._iterator, END)
        except Exception as error:
            loader_parts.note_killed_worker(error, self._iterator)
            error.add_note(f"while drawing a batch of {_NAME}")
            raise

    def state(self) -> dict[str, Any]:
        """Returns the state of the generators, and of the loader's parts, at the beginning of the pass."""
        return self._start

    def close(self) -> None:
        """Ends the pass and its workers."""
        loader_parts.shut_down(self._loader, self._iterator)
        self._iterator = iter(())

    def _set_epoch(self, epoch: int | None) -> None:
        sampler: Any = getattr(self._loader, "sampler", None)
        if epoch is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)

    @property
    def _may_ignore_seeds(self) -> bool:
        """Whether the set or a sampler is the project's own."""
        parts = loader_parts.parts(self._loader)[1:]
        return self._has_indices and not all(type(one).__module__.startswith("torch.") for one in parts)

    def _note_unknown_order(self) -> None:
        """Notes a loader that need not give the same batches again."""
        loader: Any = self._loader
        if isinstance(loader, list | tuple) or self._has_indices:
            return
        kind = type(loader.dataset if isinstance(loader, DataLoader) else loader).__name__
        self._note_inexact(
            f"{_NAME} iterates a {kind}, which need not give the same batches again: it resumed by skipping"
        )

    def _probe(self) -> None:
        """Notes a set or a sampler that gives other values when it is read twice with the same seeds. They
        are read only before the first pass, and in another process: no file stays open, and no generator of
        this process advances."""
        if self._is_probed:
            return
        self._is_probed = True
        if isinstance(self._loader, Iterator):
            self._note_inexact(f"{_NAME} can be iterated only once: a later session begins it anew")
        elif self._may_ignore_seeds and seeding_probe.probe_seeding(_PassProbe(self._loader)).ignores_seeding:
            self._note_inexact(f"{_NAME} draws from a generator that roost neither seeds nor saves")


def own_state(loader: Any) -> dict[str, Any]:
    """Returns the state of the loader's own generators, set and samplers, as far as they have one."""
    return {
        "own": [one.get_state() for one in loader_parts.generators(loader)],
        "parts": [copy.deepcopy(one.state_dict()) for one in _stateful_parts(loader)],
    }


def restore_own_state(loader: Any, state: Mapping[str, Any], *, generators_only: bool = False) -> None:
    """Restores the result of `own_state`, or only the generators of it.

    Raises:
        CheckpointError: The loader has other parts than the one whose state was saved.
    """
    generators, parts = loader_parts.generators(loader), _stateful_parts(loader)
    if len(generators) != len(state["own"]) or len(parts) != len(state["parts"]):
        raise CheckpointError(
            f"{_NAME} has other generators or samplers than the one with which the epoch began",
            fix="continue with the data with which it began, or start a new run",
        )
    for generator, own in zip(generators, state["own"], strict=True):
        generator.set_state(own)
    for part, own in () if generators_only else zip(parts, state["parts"], strict=True):
        part.load_state_dict(copy.deepcopy(own))


def _stateful_parts(loader: Any) -> list[Any]:
    """Returns the set and the samplers with a state; not a DataLoader, which begins a pass anew, nor
    torchdata's samplers, whose state is a position that the next pass would begin from."""
    found = loader_parts.parts(loader)
    return [
        one
        for one in (found[1:] if isinstance(loader, DataLoader) else found)
        if is_stateful(one) and not type(one).__module__.startswith("torchdata.")
    ]


class _PassProbe:
    """Reads the beginning of a pass twice with the same seeds."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader

    def ignores_seeding(self) -> bool:
        """Whether the order or the first sample differs."""
        begin = own_state(self._loader)
        first, second = (self._read(begin) for _ in range(2))
        return first[0] != second[0] or (None not in (first[1], second[1]) and first[1] != second[1])

    def _read(self, begin: Mapping[str, Any]) -> tuple[Any, Any]:
        sampler: Any = self._loader.batch_sampler
        if sampler is None:
            sampler = self._loader.sampler
        restore_own_state(self._loader, begin)
        seeding.seed_all(0)
        chosen = list(itertools.islice(sampler, _NUM_PROBED_INDICES))
        index = chosen[0][0] if chosen and isinstance(chosen[0], list) else chosen[0] if chosen else None
        sample = None if index is None else fingerprint(self._loader.dataset[index])
        return repr(chosen), sample
