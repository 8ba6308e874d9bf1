"""`SequentialBatches`: batches without random access, resumed from a saved state."""

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
"""Interval of the status lines about a pass of unknown length."""
SizedBatch = tuple[Any, int]
"""A batch, and its number of samples."""


class ResumePoint(NamedTuple):
    """A position from which batches can be drawn."""

    position: int
    """Batches before it, in all epochs."""
    state: Any
    """Result of `SequentialBatches._state` at the position; None at the beginning."""


class SequentialBatches(Batches):
    """Batches without random access: the source is iterated pass after pass, and an epoch is ``num_batches``
    batches, independently of where passes begin and end.

    A position is reached from the nearest known state before it, by drawing and dropping batches.

    Args:
        num_batches: Batches of an epoch, and the maximum of an evaluation; None: unknown, which is enough for
            an evaluation.
        name: Display name of the set, for messages.
    """

    def __init__(self, num_batches: int | None, name: str) -> None:
        self.num_batches, self.name = num_batches, name
        self._reset()

    def _reset(self) -> None:
        self._resume_point = ResumePoint(0, None)
        self._position = 0
        self._state_is_current = False
        """Whether `_state` is the state at `_position`."""
        self._is_checked = False
        self._has_other_epoch_length = False
        """Whether the position of the resume point counts epochs of another length."""

    # ---- to be implemented ------------------------------------------------------------------------------

    @abstractmethod
    def _draw_endless(self, state: Any) -> Generator[SizedBatch, None, None]:
        """Yields batches endlessly from a result of `_state`; None: from the beginning."""

    @abstractmethod
    def _draw_pass(self) -> Generator[SizedBatch, None, None]:
        """Yields the batches of one pass from the beginning, for evaluation."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """Returns the state of the source after the newest batch of `_draw_endless`."""

    @property
    @abstractmethod
    def _state_survives_errors(self) -> bool:
        """Whether `_state` is still the state after the last batch when drawing the next one has failed."""

    # ---- Batches ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Batches of an epoch.

        Raises:
            ConfigError: The number is unknown.
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
        """The name for messages; "the set" if there is none."""
        return self.name or "the set"

    def excerpt(self, spans: Sequence[range]) -> SequentialBatches:
        other = copy.copy(self)
        other.num_batches = sum(map(len, spans))
        other._reset()
        return other

    def epochs(self, epoch: int = 0, batch: int = 0) -> Generator[Batch, None, None]:
        """See `Batches.epochs`. Reaches another position from the nearest known state before it."""
        length = len(self)
        target = epoch * length + batch
        point = self._newest_point()
        if self._has_other_epoch_length:
            point = ResumePoint(target, point.state)
        elif point.position > target:
            point = ResumePoint(0, None)
        self._resume_point, self._state_is_current, self._has_other_epoch_length = point, False, False
        with closing(self._draw_endless(point.state)) as drawn:
            for position in itertools.count(point.position):
                value, num_samples = self._next(drawn)
                self._position, self._state_is_current = position + 1, True
                if position >= target:
                    self._check_state()
                    yield Batch(value, num_samples, (position + 1) % length == 0)

    def once(self) -> Generator[Batch, None, None]:
        """See `Batches.once`. If a pass ends before ``num_batches``, no batch has ``ends_epoch``."""
        limit, reported = self.num_batches, time.monotonic()
        with closing(self._draw_pass()) as drawn:
            for number, (value, num_samples) in enumerate(itertools.islice(drawn, limit), 1):
                yield Batch(value, num_samples, number == limit)
                if limit is None and time.monotonic() - reported > REPORT_SECONDS:
                    reported = time.monotonic()
                    print(
                        f"{self.display_name} has given {number:,} batches in this pass, and its length is "
                        "unknown; if it never ends, set data.limit_valid_batches or data.limit_test_batches",
                        flush=True,
                    )

    def state_dict(self) -> dict[str, Any]:
        self._resume_point = self._newest_point()
        return {
            "position": self._resume_point.position,
            "num_batches": None if self._has_other_epoch_length else len(self),
            "state": self._resume_point.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads the result of `state_dict`; the next `epochs` continues from there, even if an epoch had
        another number of batches.

        Raises:
            CheckpointError: The state is of a set with indices.
        """
        if "position" not in state:
            raise CheckpointError(
                f"{self.display_name} has no indices, and the checkpoint is that of a set with indices",
                fix="continue with the set with which the run began, or start a new run",
            )
        self._resume_point = ResumePoint(state["position"], state["state"])
        self._state_is_current = False
        self._has_other_epoch_length = state["num_batches"] != len(self)

    # ---- drawing ----------------------------------------------------------------------------------------

    def _next(self, drawn: Generator[SizedBatch, None, None]) -> SizedBatch:
        try:
            return next(drawn)
        except BaseException:
            if self._state_survives_errors:
                self._resume_point = self._newest_point()
            self._state_is_current = False
            raise

    def _newest_point(self) -> ResumePoint:
        """Returns the newest position that can be restored."""
        # A copy: the set may continue to change the same memory.
        return (
            ResumePoint(self._position, copy.deepcopy(self._state()))
            if self._state_is_current
            else self._resume_point
        )

    def _check_state(self) -> None:
        """Reports a state that no checkpoint can hold at the first batch, not at the first save."""
        if self._is_checked:
            return
        self._is_checked = True
        try:
            state_tree.pack(self._state())
        except CheckpointError as error:
            raise ContractError(
                f"{self.display_name} has a state that cannot be saved: {error.message}",
                fix="give it state_dict() and load_state_dict() with plain data, arrays and tensors",
            ) from error


def empty_pass_error(display_name: str, number: int) -> ContractError:
    """Returns the error about a pass without a batch.

    Args:
        display_name: The set.
        number: Number of the pass, from 0.
    """
    return ContractError(
        f"pass {number} of {display_name} gave no batch",
        fix="let each iter() of it begin again"
        if number
        else "check what it reads, and whether each iter() of it begins again; with data.drop_last each "
        "worker needs data.batch_size items",
    )
