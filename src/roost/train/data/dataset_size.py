"""The lengths of datasets, and the check that they do not change: a batch plan holds only for one length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roost.base.errors import ContractError

LengthsByName = Mapping[str, int]
"""Number of samples by the display name of the set."""


class DatasetLengths:
    """The lengths of one or several sets when the object was made.

    Args:
        dataset: A set, or several by name. A set without a length is ignored.
        name: Display name of a single set; may be empty.
    """

    def __init__(self, dataset: Any, name: str = "") -> None:
        self._sets = (
            {f"the set {one}": part for one, part in dataset.items()}
            if isinstance(dataset, Mapping)
            else {name or "the set": dataset}
        )
        self.lengths: LengthsByName = self._current()

    def _current(self) -> LengthsByName:
        found = {name: dataset_length(one) for name, one in self._sets.items()}
        return {name: number for name, number in found.items() if number is not None}

    def check(self) -> None:
        """Checks that no length has changed.

        Raises:
            ContractError: A length has changed.
        """
        for name, now in self._current().items():
            if now != self.lengths[name]:
                raise ContractError(
                    f"{name} had {self.lengths[name]:,} samples and has {now:,} now",
                    fix="do not change the data while they are read; `roost continue` continues with the "
                    "data as they are then",
                )

    def describe_changes(self, saved: LengthsByName) -> list[str]:
        """Returns a sentence for each set whose length in the checkpoint (``saved``) was another one."""
        return [
            f"{name} has {self.lengths[name]:,} samples, it had {before:,} when the checkpoint was made: the "
            "order of the remaining samples is different"
            for name, before in saved.items()
            if name in self.lengths and self.lengths[name] != before
        ]


def dataset_length(dataset: Any) -> int | None:
    """Returns the number of samples; None if the set has no length."""
    return len(dataset) if hasattr(type(dataset), "__len__") else None
