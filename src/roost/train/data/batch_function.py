"""Whole batches from one function with a cursor."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from roost.base.errors import ContractError

SampleFunction = Callable[[Any, Any, bool], tuple[Any, Any]]


class Sampled:
    """Batches that ``sample(state, index, augment) -> batch, index`` makes, whole and without end.

    ```
    def sample(db, index, augment):
        if index == 0 and augment:
            random.shuffle(db["order"])
        rows = db["order"][index : index + 16]
        return {"xs": ..., "ys": ...}, (index + 16) % len(db["order"])

    roost.Data(train=roost.Sampled(sample, {"order": list(range(1000))}))
    ```

    The index begins at 0 and is then whatever the function returned last. Each worker process has its own
    state and index; what is drawn at random follows the run's seed, the worker and the number of the batch.

    Args:
        sample: Makes a batch; ``augment`` is True in training and False in evaluation.
        state: Anything. With `state_dict` and `load_state_dict` these are used, else it is saved whole and
            must be plain data.
        length: Batches of an epoch; `data.steps_per_epoch` goes before it.

    Raises:
        ContractError: ``sample`` is no function, or ``length`` no number of batches.
    """

    def __init__(self, sample: SampleFunction, state: Any = None, *, length: int | None = None) -> None:
        if not callable(sample):
            raise ContractError(
                "Sampled needs a function",
                received=sample,
                fix="give sample(state, index, augment) -> batch, index",
            )
        if length is not None and (not isinstance(length, int) or length < 1):
            raise ContractError(
                "the length of a Sampled is no number of batches",
                received=length,
                fix="give a whole number above 0, or None and data.steps_per_epoch",
            )
        self.sample, self.state, self.length = sample, state, length
        self.index: Any = 0
        self.augment = True

    def for_evaluation(self) -> Sampled:
        """One that shares the state, with ``augment`` False."""
        other = copy.copy(self)
        other.augment = False
        return other

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            drawn = self.sample(self.state, self.index, self.augment)
        except StopIteration as error:  # whoever iterates would take it for the end
            raise ContractError(
                f"{self._display_name}() raised StopIteration, and its batches must not end",
                fix="return the index to begin anew with, for example 0",
            ) from error
        if not isinstance(drawn, tuple) or len(drawn) != 2:
            received = f"{len(drawn)} values" if isinstance(drawn, tuple) else type(drawn).__name__
            raise ContractError(
                f"{self._display_name}() must return a batch and the next index",
                received=received,
                fix="return batch, index",
            )
        batch, self.index = drawn
        return batch

    @property
    def _display_name(self) -> str:
        return getattr(self.sample, "__qualname__", "sample")

    def state_dict(self) -> dict[str, Any]:
        """The index and the state."""
        own = self.state.state_dict() if hasattr(self.state, "state_dict") else self.state
        return {"index": self.index, "state": own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self.index = state["index"]
        if hasattr(self.state, "load_state_dict"):
            self.state.load_state_dict(state["state"])
        else:
            self.state = state["state"]
