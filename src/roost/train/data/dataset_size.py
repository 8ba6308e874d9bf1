"""How many samples a set has, and had: where that changes, no plan holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roost.base.errors import ContractError

LengthsByName = Mapping[str, int]
"""By the set's name, in words."""


class DatasetLengths:
    """The lengths of one set or of several, as they were at the beginning.

    Args:
        dataset: A set, or several by name. One without a length is not looked at.
        name: Of the one set, in words; may be empty.
    """

    def __init__(self, dataset: Any, name: str = "") -> None:
        self._sets = (
            {f"the set {one}": part for one, part in dataset.items()}
            if isinstance(dataset, Mapping)
            else {name or "the set": dataset}
        )
        self.lengths: LengthsByName = self._now()

    def _now(self) -> LengthsByName:
        found = {name: dataset_length(one) for name, one in self._sets.items()}
        return {name: number for name, number in found.items() if number is not None}

    def check(self) -> None:
        """Makes sure that they are as long as they were.

        Raises:
            ContractError: One is not.
        """
        for name, now in self._now().items():
            if now != self.lengths[name]:
                raise ContractError(
                    f"{name} had {self.lengths[name]:,} samples and has {now:,} now",
                    fix="let nothing change the data while they are read; `roost continue` goes on with them "
                    "as they are then",
                )

    def others_than(self, saved: LengthsByName) -> list[str]:
        """What is to be said where they were ``saved`` when the checkpoint was made."""
        return [
            f"{name} has {self.lengths[name]:,} samples, it had {before:,} when the checkpoint was made: the "
            "order of the rest is another one"
            for name, before in saved.items()
            if name in self.lengths and self.lengths[name] != before
        ]


def dataset_length(dataset: Any) -> int | None:
    """Its number of samples; None where it has none."""
    return len(dataset) if hasattr(type(dataset), "__len__") else None
