"""Metrics of a config: functions of a batch, and torchmetrics' classes over a whole set."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import ContractError
from roost.project.yaml.batch_paths import BatchPath, SettingLocation, call_with_paths, describe_value
from roost.train.accelerators.device_errors import is_device_error

_ROWS = "rows/"
"""The prefix of the values that `DatasetMetric` collects; no metric has a slash in its name."""


@dataclass(frozen=True)
class BatchMetric:
    """A function of a batch and the model's output: a value per sample (B,), or the batch's mean ()."""

    name: str
    fn: Callable[..., Any]
    inputs: list[BatchPath]
    in_training: bool
    location: SettingLocation

    def values(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """Returns values of shape (B,) or () by name; a mapping becomes several.

        Raises:
            ContractError: The function returned something else.
        """
        found = call_with_paths(self.fn, self.inputs, values, self.location)
        named = _named(self.name, found) if isinstance(found, Mapping) else {self.name: found}
        return {name: self._checked(one) for name, one in named.items()}

    def _checked(self, value: Any) -> Tensor:
        if isinstance(value, int | float):
            return torch.as_tensor(float(value))
        if not isinstance(value, Tensor) or value.dim() > 1:
            raise ContractError(
                "is neither a value per sample nor the batch's mean",
                setting=self.location.setting,
                received=describe_value(value),
                where=self.location.where,
                fix="give a tensor of shape (B,) or (), or several by name",
            )
        return value


class DatasetMetric:
    """A metric of torchmetrics, computed once from all values of a set, so it is exact for any batches.

    Its inputs are kept for all samples until then, on the CPU: 4 bytes x samples x classes for the scores of
    a classifier. A `BatchMetric`, which is averaged over batches, keeps nothing.

    Args:
        name: The name in records; several values become ``NAME_KEY`` or ``NAME_NUMBER``.
        metric: An object with ``update``, ``compute`` and ``reset``.
        inputs: The paths of its arguments.
        location: For messages.
    """

    def __init__(self, name: str, metric: Any, inputs: list[BatchPath], location: SettingLocation) -> None:
        self._name, self._metric, self._inputs, self._location = name, metric, inputs, location

    def rows(self, values: Mapping[str, Any]) -> dict[str, Tensor]:
        """Returns each input with shape (B, 1, ...), which no averaged metric has; metrics with the same
        input share it.

        Raises:
            ContractError: An input does not have a row for each sample.
        """
        found = {}
        for part in self._inputs:
            value = part.value(values)
            if not isinstance(value, Tensor) or not value.dim():
                raise ContractError(
                    f"{part.text} is {describe_value(value)}, and a metric of a whole set needs tensors with "
                    "a row for each sample",
                    setting=self._location.setting,
                    where=self._location.where,
                    fix="name other inputs, or write it as a function of a batch",
                )
            found[f"{_ROWS}{part.text}"] = value.unsqueeze(1)
        return found

    def result(self, values: Mapping[str, Tensor]) -> dict[str, float]:
        """Returns the metric's values by name, from the rows of a whole set.

        Raises:
            ContractError: A value is not a number.
            Exception: Any error of the metric, with a note that names the setting.
        """
        rows = [values[f"{_ROWS}{part.text}"].squeeze(1) for part in self._inputs]
        self._metric.reset()
        try:
            self._metric.update(*rows)
            found = self._metric.compute()
        except Exception as error:
            given = ", ".join(
                f"{part.text} {describe_value(one)}" for part, one in zip(self._inputs, rows, strict=True)
            )
            error.add_note(f"in {self._location}, with {given}")
            raise
        self._metric.reset()
        return {name: self._number(one) for name, one in _flat(self._name, found)}

    def _number(self, value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            if is_device_error(error):
                raise
            raise ContractError(
                f"returned a value that is not a number: {error}",
                setting=self._location.setting,
                where=self._location.where,
                fix="use a metric that returns a number, a vector, or several by name",
            ) from error


def is_dataset_metric(made: object) -> bool:
    """Whether an object is a class with the interface of torchmetrics."""
    return inspect.isclass(made) and all(
        callable(getattr(made, name, None)) for name in ("update", "compute", "reset")
    )


def _named(name: str, found: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}_{key}": value for key, value in found.items()}


def _flat(name: str, found: Any) -> Iterable[tuple[str, Any]]:
    """Yields ``(name, number)`` for each value in a metric's result."""
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
