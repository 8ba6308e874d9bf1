"""Fetching batches, in this process or in worker processes, with the same bits either way."""

from __future__ import annotations

import ctypes
import functools
import inspect
import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset, default_collate

from roost.base import tree
from roost.base.errors import ContractError, RoostError
from roost.train import seeding
from roost.train.plan import BatchPlan

Collate = Callable[[list[Any]], Any]
Key = tuple[int, list[int]]
"""An epoch and the indices of one of its batches."""


class Batch(NamedTuple):
    """One micro-batch. ``last``: it ends its epoch."""

    value: Any
    num_samples: int
    last: bool


class Fetch:
    """Turns indices into a batch; each sample's randomness is f(seed, epoch, index) and nothing else.

    Args:
        dataset: Map-style: ``len()`` and ``[]``. If its ``__getitem__`` takes ``rng`` it gets a NumPy
            generator of its own; with ``draws_randomness = False`` no time is spent on seeding.
        collate: Joins a list of samples to a batch; torch's default when None.
        seed: Seed of the samples' randomness.
        name: Of the set, in words, for messages; its class when empty.
    """

    def __init__(
        self, dataset: Any, *, collate: Collate | None = None, seed: int = 0, name: str = ""
    ) -> None:
        self._dataset, self._collate, self._seed = dataset, collate or default_collate, seed
        self._name = name
        self._whole = type(dataset) is TensorDataset and collate is None
        self.draws_randomness = not self._whole and getattr(dataset, "draws_randomness", True)
        self._takes_rng = _takes_rng(dataset)

    def __call__(self, epoch: int, indices: list[int]) -> Any:
        """The batch of these samples.

        Raises:
            ContractError: The samples cannot be joined.
        """
        if self._whole:
            chosen = torch.as_tensor(indices)
            return [tensor[chosen] for tensor in self._dataset.tensors]
        if not self.draws_randomness and hasattr(self._dataset, "__getitems__"):
            return self._join(self._dataset.__getitems__(indices))
        return self._join([self._sample(epoch, index) for index in indices])

    def _sample(self, epoch: int, index: int) -> Any:
        try:
            if self.draws_randomness:
                seeding.seed_sample(self._seed, epoch, index)
            if self._takes_rng:
                return self._dataset.__getitem__(index, rng=np.random.default_rng((self._seed, epoch, index)))
            return self._dataset[index]
        except Exception as error:
            kind = type(self._dataset).__name__
            named = f"{self._name} ({kind})" if self._name else kind
            error.add_note(f"while reading sample {index} of {named}")
            raise

    def _join(self, samples: Sequence[Any]) -> Any:
        if self._collate is not default_collate:
            return self._collate(list(samples))
        try:
            return default_collate(list(samples))
        except (TypeError, RuntimeError, ValueError, LookupError, AttributeError) as error:
            kinds = sorted({type(sample).__name__ for sample in samples})
            within = f" in {self._name}" if self._name else ""
            raise ContractError(
                f"the samples of {type(self._dataset).__name__} ({', '.join(kinds)}){within} "
                f"cannot be joined to a batch: {str(error).partition(chr(10))[0]}",
                fix="return tensors, numbers, strings, or nests of them, of one shape, "
                "or give Data(collate=...)",
            ) from error

    def ignores_seeding(self) -> bool:
        """Whether one sample, drawn twice under the same seeds, differs: then no resume can be exact.

        Reads the set in this process; see `Loader.ignores_seeding`.
        """
        if not self.draws_randomness:
            return False
        with seeding.isolated(devices=False):
            first, second = (_fingerprint(self._sample(0, 0)) for _ in range(2))
        return first is not None and first != second


def _takes_rng(dataset: Any) -> bool:
    try:
        return "rng" in inspect.signature(type(dataset).__getitem__).parameters
    except (AttributeError, TypeError, ValueError):
        return False


def _fingerprint(sample: Any) -> Any:
    try:
        skeleton, leaves = tree.pack(sample)
    except Exception:  # noqa: BLE001  - a sample may hold anything; what cannot be compared is not judged
        return None
    return repr(skeleton), [(name, bytes(leaf.data)) for name, leaf in leaves.items()]


class _Refusal(NamedTuple):
    """What a worker process gives instead of a batch when the dataset breaks the contract."""

    error: RoostError


class _Keyed(torch.utils.data.Dataset[Any]):
    """A dataset whose index is (epoch, indices): torch's DataLoader then moves whole batches of ours."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def __getitem__(self, key: Key) -> Any:
        try:
            return self._fetch(*key)
        except RoostError as error:
            # As a value: torch would put the worker's whole traceback into its text.
            return _Refusal(error)


_GRACE_SECONDS = 30
_LOOK_SECONDS = 60.0
"""How long one sample may take when it is looked at whether seeding works."""
_PR_SET_PDEATHSIG = 1  # prctl(2)
_CONTEXT = "fork" if sys.platform == "linux" else None


def _start_worker(parent: int, _: int = 0) -> None:
    _die_with(parent)
    # Signals are for the training process; it ends its workers itself. Ctrl-C reaches the whole group.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # Slurm and systemd send SIGTERM to everybody; a worker that died of it would fail the run that is saving.
    signal.signal(signal.SIGTERM, lambda *_: signal.alarm(_GRACE_SECONDS))


def _die_with(parent: int) -> None:
    """Ends this process when ``parent`` is killed: it holds a copy of the package's lock, and torch's own
    workers look for their parent only every 5 s, and not at all while they read a sample.

    The kernel goes by the thread that forked, not by the process: a loader must not be begun in a thread
    that ends before its last batch. Elsewhere than on Linux the workers live on for those 5 s.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it was killed before the line above
            os._exit(1)


def _look(fetch: Fetch, answer: Connection, parent: int) -> None:
    """Tells whether ``fetch`` ignores seeding; the whole life of a process."""
    _start_worker(parent)
    torch.set_num_threads(1)  # the threads of the parent's pool do not exist here
    try:
        answer.send(fetch.ignores_seeding())
    except Exception:  # noqa: BLE001  - what cannot be read is not judged: the workers raise it, with its place
        answer.send(False)


class Loader:
    """Batches in the plan's order, from any position, at no cost for what lies before it.

    Args:
        dataset: See `Fetch`.
        plan: Which samples make which batch.
        collate: See `Fetch`.
        num_workers: Worker processes; 0 fetches inside this process. The batches are the same.
        seed: Seed of the samples' randomness.
        pin_memory: Workers' batches come in page-locked memory, from which a copy to a CUDA device need not
            be waited for. Opens a CUDA context, so only for training on one.
        name: See `Fetch`.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        plan: BatchPlan,
        collate: Collate | None = None,
        num_workers: int = 0,
        seed: int = 0,
        pin_memory: bool = False,
        name: str = "",
    ) -> None:
        self.dataset, self.plan, self.num_workers = dataset, plan, num_workers
        self.pin_memory = pin_memory
        self.fetch = Fetch(dataset, collate=collate, seed=seed, name=name)

    def __len__(self) -> int:
        return self.plan.num_batches

    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        """Batches without end, epoch after epoch, from batch ``batch`` of ``epoch`` on."""
        numbers = itertools.chain(range(batch, len(self)), itertools.cycle(range(len(self))))
        return self._batches(self._endless(epoch, batch), numbers)

    def once(self) -> Generator[Batch, None, None]:
        """The batches of one pass, always the same ones: for evaluation."""
        return self._batches(((0, indices) for indices in self.plan.batches(0)), iter(range(len(self))))

    def ignores_seeding(self) -> bool:
        """Whether one sample, drawn twice under the same seeds, differs: then no resume can be exact.

        With workers it is drawn in a process that ends after it. A set that opens its file at the first
        sample must not do so here: all workers would inherit the descriptor and share its offset, and read
        each other's samples without an error.
        """
        if self.num_workers == 0 or not self.fetch.draws_randomness:
            return self.fetch.ignores_seeding()
        context = multiprocessing.get_context(_CONTEXT)
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_look, args=(self.fetch, theirs, os.getpid()), daemon=True)  # type: ignore[attr-defined]
        child.start()
        theirs.close()
        try:
            if ours.poll(_LOOK_SECONDS):
                return bool(ours.recv())
            why = f"no sample within {_LOOK_SECONDS:g} s"
        except EOFError:
            why = "the process that read a sample died"
        finally:
            child.kill()
            child.join()
            ours.close()
        print(f"whether the set follows roost's seeds is not known: {why}", flush=True)
        return False

    def _endless(self, epoch: int, batch: int) -> Iterator[Key]:
        while True:
            for indices in self.plan.batches(epoch, batch):
                yield epoch, indices
            epoch, batch = epoch + 1, 0

    def _batches(self, keys: Iterator[Key], numbers: Iterator[int]) -> Generator[Batch, None, None]:
        values = self._inline(keys) if self.num_workers == 0 else self._forked(keys)
        for value, number in zip(values, numbers, strict=False):
            yield Batch(value, self.plan.size(number), last=number == len(self) - 1)

    def _inline(self, keys: Iterator[Key]) -> Iterator[Any]:
        for key in keys:
            if self.fetch.draws_randomness:
                with seeding.isolated(devices=False):
                    value = self.fetch(*key)
            else:
                value = self.fetch(*key)
            yield value

    def _forked(self, keys: Iterator[Key]) -> Iterator[Any]:
        loader = DataLoader(
            _Keyed(self.fetch),
            batch_size=None,
            sampler=keys,
            num_workers=self.num_workers,
            worker_init_fn=functools.partial(_start_worker, os.getpid()),
            # Its own generator: torch draws a base seed for its workers, from the global one otherwise.
            generator=torch.Generator(),
            pin_memory=self.pin_memory,
            multiprocessing_context=_CONTEXT,
        )
        fetching: Any = iter(loader)
        try:
            for value in fetching:
                if isinstance(value, _Refusal):
                    raise value.error
                yield value
        finally:
            # Torch waits for the garbage collector, and the traceback of an error keeps the processes alive.
            fetching._shutdown_workers()
