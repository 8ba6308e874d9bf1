"""`Sampled`: batches made whole by one function with an index."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from roost.base.errors import ContractError

SampleFunction = Callable[[Any, Any, bool], tuple[Any, Any]]


class Sampled:
    """An endless sequence of batches, each made by ``sample(state, index, augment) -> batch, index``.

    ```
    def sample(db, index, augment):
        if index == 0 and augment:
            random.shuffle(db["order"])
        rows = db["order"][index : index + 16]
        return {"xs": ..., "ys": ...}, (index + 16) % len(db["order"])

    roost.Data(train=roost.Sampled(sample, {"order": list(range(1000))}))
    ```

    The index is 0 at the beginning, and then the one that the function returned last. Each loader worker has
    its own state and index; random numbers follow from the run's seed, the worker and the batch number.

    Args:
        sample: Makes a batch; ``augment`` is True in training and False in evaluation.
        state: Any object. Checkpoints hold its `state_dict()` if it has one with `load_state_dict`; otherwise
            the state itself, which must then be plain data.
        length: Batches of an epoch; `data.steps_per_epoch` has priority over it.

    Raises:
        ContractError: ``sample`` is not callable, or ``length`` is not a number of batches.
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
                "the length of a Sampled is not a number of batches",
                received=length,
                fix="give a whole number above 0, or None and data.steps_per_epoch",
            )
        self.sample, self.state, self.length = sample, state, length
        self.index: Any = 0
        self.augment = True

    def for_evaluation(self) -> Sampled:
        """Returns a copy that shares the state and has ``augment`` False."""
        other = copy.copy(self)
        other.augment = False
        return other

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            drawn = self.sample(self.state, self.index, self.augment)
        except StopIteration as error:  # the iterating code would take it for the end
            raise ContractError(
                f"{self._display_name}() raised StopIteration, and its batches must not end",
                fix="return the index of the next batch, for example 0 to begin again",
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
        """Returns the index and the state."""
        own = self.state.state_dict() if hasattr(self.state, "state_dict") else self.state
        return {"index": self.index, "state": own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads the result of `state_dict`."""
        self.index = state["index"]
        if hasattr(self.state, "load_state_dict"):
            self.state.load_state_dict(state["state"])
        else:
            self.state = state["state"]
