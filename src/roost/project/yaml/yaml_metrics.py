"""What a config measures: functions batch by batch, torchmetrics' classes over a whole set."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.project.yaml.batch_paths import Part, Place, called, described

_ROWS = "rows/"
"""So begin the names of what `WholeMetric` asks for; no metric has a slash in its name."""


@dataclass(frozen=True)
class Measured:
    """A function of a batch and the model's output: a value per sample (B,), or the batch's mean ()."""

    name: str
    fn: Callable[..., Any]
    inputs: list[Part]
    in_training: bool
    place: Place

    def of(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """(B,) or () each, by name: a mapping becomes several.

        Raises:
            ContractError: The function gave something else.
        """
        found = called(self.fn, self.inputs, values, self.place)
        named = _named(self.name, found) if isinstance(found, Mapping) else {self.name: found}
        return {name: self._checked(one) for name, one in named.items()}

    def _checked(self, value: Any) -> Tensor:
        if isinstance(value, int | float):
            return torch.as_tensor(float(value))
        if not isinstance(value, Tensor) or value.dim() > 1:
            raise ContractError(
                "is neither a value per sample nor the batch's mean",
                setting=self.place.setting,
                received=described(value),
                where=self.place.where,
                fix="give a tensor of shape (B,) or (), or several by name",
            )
        return value


class WholeMetric:
    """A metric of torchmetrics, computed once from all values of a set: so it is exact, whatever the batches.

    What it is called with is kept for all samples until then, on the CPU: 4 bytes x samples x classes for the
    scores of a classifier. A function, which is averaged over batches, keeps nothing.

    Args:
        name: Under which it is recorded; of several values ``NAME_KEY`` or ``NAME_NUMBER``.
        metric: With ``update``, ``compute`` and ``reset``.
        inputs: What it is called with.
        place: For messages.
    """

    def __init__(self, name: str, metric: Any, inputs: list[Part], place: Place) -> None:
        self._name, self._metric, self._inputs, self._place = name, metric, inputs, place

    def rows(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """(B, 1, ...) of each input, which is no metric by its shape; metrics that ask for the same share it.

        Raises:
            ContractError: An input has no row for each sample.
        """
        found = {}
        for part in self._inputs:
            value = part.of(values)
            if not isinstance(value, Tensor) or not value.dim():
                raise ContractError(
                    f"{part.text} is {described(value)}, and a metric of a whole set needs tensors with a "
                    "row for each sample",
                    setting=self._place.setting,
                    where=self._place.where,
                    fix="name other inputs, or write it as a function of a batch",
                )
            found[f"{_ROWS}{part.text}"] = value.unsqueeze(1)
        return found

    def result(self, values: Mapping[str, Tensor]) -> dict[str, float]:
        """Its values by name, from the rows of a whole set.

        Raises:
            ContractError: It gives something else than numbers.
            Exception: What the metric itself raises, with a note of the setting.
        """
        rows = [values[f"{_ROWS}{part.text}"].squeeze(1) for part in self._inputs]
        self._metric.reset()
        try:
            self._metric.update(*rows)
            found = self._metric.compute()
        except Exception as error:
            given = ", ".join(
                f"{part.text} {described(one)}" for part, one in zip(self._inputs, rows, strict=True)
            )
            error.add_note(f"in {self._place}, with {given}")
            raise
        self._metric.reset()
        return {name: self._number(one) for name, one in _flat(self._name, found)}

    def _number(self, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ContractError(
                f"gives what is no number: {error}",
                setting=self._place.setting,
                where=self._place.where,
                fix="take a metric that gives numbers, a vector of them, or several by name",
            ) from error


def is_of_whole_set(made: object) -> bool:
    """Whether it is a class of torchmetrics, or one like it."""
    return inspect.isclass(made) and all(
        callable(getattr(made, name, None)) for name in ("update", "compute", "reset")
    )


def _named(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}_{key}": value for key, value in found.items()}


def _flat(name: str, found: Any) -> Iterable[tuple[str, Any]]:
    """``(name, number)`` of whatever a metric gives."""
    if isinstance(found, Mapping):
        for inner, value in _named(name, found).items():
            yield from _flat(inner, value)
    elif isinstance(found, list | tuple) or (isinstance(found, Tensor) and found.dim()):
        if isinstance(found, Tensor) and found.numel() == 1:
            yield name, found.reshape(())
            return
        for number, value in enumerate(found):
            yield from _flat(f"{name}_{number}", value)
    else:
        yield name, found
