"""Batches that come only one after the other: an epoch is so many of them, and behind it is a state."""

from __future__ import annotations

import copy
import itertools
import time
from abc import abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from roost.base import state_tree
from roost.base.errors import CheckpointError, ConfigError, ContractError
from roost.train.data.batches import Batch, Batches

REPORT_SECONDS = 30.0
"""Between two lines about a pass of which nobody knows how long it is."""
SizedBatch = tuple[Any, int]
"""A batch, and its samples."""


class BatchPosition(NamedTuple):
    """A place from which batches can be drawn."""

    position: int
    """Batches that lie before it, in all epochs."""
    state: Any
    """What `SequentialBatches._state` gave there; None at the beginning."""


class SequentialBatches(Batches):
    """Batches without random access. Whoever gives them is gone through again and again, pass after pass; an
    epoch is ``num_batches`` of these batches, wherever passes begin and end.

    A position that is asked for is reached from the nearest known state before it, by drawing and dropping.

    Args:
        num_batches: Batches of an epoch, and the most of an evaluation; None: nobody knows, which is enough
            for an evaluation.
        name: Of the set in words, for messages.
    """

    def __init__(self, num_batches: int | None, name: str) -> None:
        self.num_batches, self.name = num_batches, name
        self._forget()

    def _forget(self) -> None:
        self._mark = BatchPosition(0, None)
        self._position = 0
        self._is_live = False
        """Whether `_state` is that of `_position`."""
        self._is_checked = False
        self._of_other_epochs = False
        """Whether the mark comes from epochs of another length, which its position counts."""

    # ---- what each kind does ----------------------------------------------------------------------------

    @abstractmethod
    def _endless(self, state: Any) -> Generator[SizedBatch, None, None]:
        """Batches without end, from where `_state` gave ``state``; None: from the beginning."""

    @abstractmethod
    def _pass(self) -> Generator[SizedBatch, None, None]:
        """The batches of one pass from the beginning, for evaluation."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Of whoever gives the batches, as of the one that `_endless` gave last."""

    @property
    @abstractmethod
    def _outlives_errors(self) -> bool:
        """Whether `_state` is still that of the last batch after drawing the next one has failed."""

    # ---- Batches ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Batches of an epoch.

        Raises:
            ConfigError: Nobody knows.
        """
        if self.num_batches is None:
            raise ConfigError(
                f"{self.display_name} does not say how many batches an epoch has",
                setting="data.steps_per_epoch",
                fix="set it to the steps of an epoch, for example 1000",
            )
        return self.num_batches

    @property
    def display_name(self) -> str:
        """Its name, for messages."""
        return self.name or "the set"

    def excerpt(self, spans: Sequence[range]) -> SequentialBatches:
        other = copy.copy(self)
        other.num_batches = sum(map(len, spans))
        other._forget()
        return other

    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        """See `Batches.epochs`. A place that is not the known one is gone to from the nearest before it."""
        length = len(self)
        asked = epoch * length + batch
        mark = self._reached()
        if self._of_other_epochs:
            mark = BatchPosition(asked, mark.state)
        elif mark.position > asked:
            mark = BatchPosition(0, None)
        self._mark, self._is_live, self._of_other_epochs = mark, False, False
        with closing(self._endless(mark.state)) as drawn:
            for position in itertools.count(mark.position):
                value, num_samples = self._next(drawn)
                self._position, self._is_live = position + 1, True
                if position >= asked:
                    self._check()
                    yield Batch(value, num_samples, (position + 1) % length == 0)

    def once(self) -> Generator[Batch, None, None]:
        """See `Batches.once`. Of a pass that ends before ``num_batches`` nobody knows which batch is its
        last."""
        most, said = self.num_batches, time.monotonic()
        with closing(self._pass()) as drawn:
            for number, (value, num_samples) in enumerate(itertools.islice(drawn, most), 1):
                yield Batch(value, num_samples, number == most)
                if most is None and time.monotonic() - said > REPORT_SECONDS:
                    said = time.monotonic()
                    print(
                        f"{self.display_name} has given {number:,} batches in this pass, and does not say how many "
                        "it has; if it never ends: data.limit_valid_batches, data.limit_test_batches",
                        flush=True,
                    )

    def state_dict(self) -> dict[str, Any]:
        self._mark = self._reached()
        return {
            "position": self._mark.position,
            "num_batches": None if self._of_other_epochs else len(self),
            "state": self._mark.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave. The next `epochs` goes on from there, also where an epoch had
        another number of batches.

        Raises:
            CheckpointError: It is that of a set of another kind.
        """
        if "position" not in state:
            raise CheckpointError(
                f"{self.display_name} has no indices, and the checkpoint is that of a set with indices",
                fix="go on with the set with which the run began, or start anew",
            )
        self._mark = BatchPosition(state["position"], state["state"])
        self._is_live = False
        self._of_other_epochs = state["num_batches"] != len(self)

    # ---- drawing ----------------------------------------------------------------------------------------

    def _next(self, drawn: Generator[SizedBatch, None, None]) -> SizedBatch:
        try:
            return next(drawn)
        except BaseException:
            if self._outlives_errors:
                self._mark = self._reached()
            self._is_live = False
            raise

    def _reached(self) -> BatchPosition:
        """The newest place that can be come back to."""
        # A copy: it may be the very memory with which the set goes on.
        return BatchPosition(self._position, copy.deepcopy(self._state())) if self._is_live else self._mark

    def _check(self) -> None:
        """A state that no checkpoint can hold is told at the first batch, not at the first save."""
        if self._is_checked:
            return
        self._is_checked = True
        try:
            state_tree.pack(self._state())
        except CheckpointError as error:
            raise ContractError(
                f"{self.display_name} has a state that cannot be saved: {error.message}",
                fix="give it state_dict() and load_state_dict() of plain data, arrays and tensors",
            ) from error


def empty_pass_error(display_name: str, number: int) -> ContractError:
    """The error about a pass that gives no batch.

    Args:
        called: The set, in words.
        number: Of the pass, from 0.
    """
    return ContractError(
        f"pass {number} of {called} gave not one batch",
        fix="each iter() of it must begin anew"
        if number
        else "look at what it reads, and whether each iter() of it begins anew; with data.drop_last each "
        "worker needs data.batch_size items",
    )
