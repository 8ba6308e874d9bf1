"""Metrics on their way from the step to a row: device tensors in, floats out only when a row is cut."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from roost.base.errors import ContractError

Value = Tensor | float
_FOLD = 1024
"""Steps after which the waiting tensors are added up on their device, so that memory stays bounded."""


class Events:
    """Weighted means over the steps since the last row.

    `put` only appends (well below a microsecond a step); adding up waits for `row`, which costs the one
    host synchronisation.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Value, Mapping[str, Value]]] = []
        self._sums: dict[str, tuple[Tensor, Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting or self._sums)

    def put(self, values: Mapping[str, Value], weight: Value = 1.0) -> None:
        """Adds the values of one step: numbers or tensors with one element, on any device.

        Args:
            values: By name; must not be changed afterwards. A "weight" among them goes before ``weight``.
            weight: Of this step in the mean, for example its samples or tokens.
        """
        waiting = self._waiting
        waiting.append((weight, values))
        if len(waiting) >= _FOLD:
            self._fold()

    def _fold(self) -> None:
        columns: dict[str, tuple[list[Value], list[Value]]] = {}
        for weight, values in self._waiting:
            weight = values.get("weight", weight)
            for name, value in values.items():
                column = columns.get(name)
                if column is None:
                    column = columns[name] = ([], [])
                column[0].append(value)
                column[1].append(weight)
        columns.pop("weight", None)
        self._waiting = []
        for name, (column_values, weights) in columns.items():
            stacked = _stacked(name, column_values)
            self._add(name, stacked, _stacked("weight", weights).to(stacked.device))

    def _add(self, name: str, values: Tensor, weights: Tensor) -> None:
        total, weight = (values * weights).sum(), weights.sum()
        if name in self._sums:
            total, weight = self._sums[name][0] + total, self._sums[name][1] + weight
        self._sums[name] = (total, weight)

    def row(self) -> dict[str, float]:
        """The weighted mean of every name since the last row; starts a new window. A sync point."""
        self._fold()
        names, sums = list(self._sums), list(self._sums.values())
        self._sums = {}
        if not names:
            return {}
        device = sums[0][0].device
        means = torch.stack([(total / weight).to(device) for total, weight in sums])
        return dict(zip(names, means.tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """The open window, so that a checkpoint never cuts a row."""
        return {
            "sums": {name: list(pair) for name, pair in self._sums.items()},
            "waiting": [[weight, dict(values)] for weight, values in self._waiting],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` gave."""
        self._sums = {name: (pair[0], pair[1]) for name, pair in state["sums"].items()}
        self._waiting = [(weight, values) for weight, values in state["waiting"]]


def _stacked(name: str, values: list[Any]) -> Tensor:
    """(steps,) in float64 (float32 where the device has none), in the order of the steps."""
    try:
        if isinstance(values[0], Tensor):
            return _column(values)
        return torch.tensor(values, dtype=torch.float64).reshape(len(values))
    except (RuntimeError, TypeError, ValueError) as error:
        raise ContractError(
            "is no single number",
            setting=f"train/{name}",
            received=_shown(next((v for v in values if not _is_number(v)), values[0])),
            fix="return tensors with one element from loss(), for example a mean over the batch",
        ) from error


def _column(values: list[Any]) -> Tensor:
    dtype = torch.float32 if values[0].device.type == "mps" else torch.float64
    try:
        stacked = torch.stack(values)
    except (TypeError, RuntimeError):  # numbers among the tensors, or shapes like (1,)
        device = values[0].device
        stacked = torch.stack(
            [torch.as_tensor(value, dtype=dtype, device=device).reshape(()) for value in values]
        )
    return stacked.detach().to(dtype).reshape(len(values))


def _is_number(value: object) -> bool:
    return value.numel() == 1 if isinstance(value, Tensor) else isinstance(value, int | float)


def _shown(value: object) -> object:
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else value
