"""Metrics of a whole set: `Runner.summarize`, objects of torchmetrics and plain functions.

All are computed once, from the merged rows in the order of the set: so they are exact for any number of
ranks, any batches, and any number of sessions, and no state of a metric has to be saved. What they read must
be returned by `Runner.test` for each sample, as a number, text, list, or array of at most
`roost.package.results.evaluations.row_columns.MAX_INLINE_NUMBERS` numbers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import torch
from torch import Tensor

from roost.base.errors import ConfigError, ContractError
from roost.base.text.suggestions import did_you_mean
from roost.evaluation.summaries.summary import SetValues
from roost.package.results.evaluations import evaluation_rows
from roost.package.results.evaluations.evaluation_rows import Rows
from roost.package.results.evaluations.row_columns import ERROR, ID, RowColumn
from roost.train.evaluation import split_evaluation
from roost.train.step import seeding

SETTING = "Runner.test_metrics"
HELPER_PREFIX = "rows/"
"""The prefix of values that only serve `Runner.summarize`, as a metric of a whole set in a config needs
them."""
_CHUNK_ROWS = 65_536
"""Rows of one ``update`` of a metric, which bounds the memory of its arguments."""


class SetMetric(NamedTuple):
    """A metric of a whole set."""

    name: str
    metric: Any
    """A function of columns, or an object with ``update``, ``compute`` and ``reset``."""
    inputs: tuple[str, ...]
    """The columns that it takes, in the order of its arguments."""

    @property
    def is_object(self) -> bool:
        """Whether it is an object of torchmetrics' interface."""
        return _is_metric_object(self.metric)


def parse_metrics(given: object, *, setting: str = SETTING) -> list[SetMetric]:
    """Checks metrics by name: each a function or an object of torchmetrics, whose arguments are named as
    columns, or a pair of it and the names of the columns.

    Raises:
        ConfigError: They are something else.
    """
    if not isinstance(given, Mapping):
        raise _malformed(setting, given)
    made = []
    for name, entry in given.items():
        metric, inputs = entry if isinstance(entry, tuple) and len(entry) == 2 else (entry, None)
        if not isinstance(name, str) or not (_is_metric_object(metric) or callable(metric)):
            raise _malformed(setting, entry)
        if inputs is None:
            inputs = _parameters(metric.update if _is_metric_object(metric) else metric, setting, name)
        made.append(SetMetric(name, metric, tuple(inputs)))
    return made


def _malformed(setting: str, given: object) -> ConfigError:
    return ConfigError(
        "is no mapping of metrics by name",
        setting=setting,
        received=given,
        fix='write {"accuracy": (MulticlassAccuracy(10), ["prediction", "label"]), "wer": corpus_wer}: '
        "objects of torchmetrics or functions, with the results of test() that they take",
    )


def _is_metric_object(metric: object) -> bool:
    return not inspect.isclass(metric) and all(
        callable(getattr(metric, name, None)) for name in ("update", "compute", "reset")
    )


def _parameters(function: Callable[..., Any], setting: str, name: str) -> tuple[str, ...]:
    """Returns the names of the arguments that a function needs."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = tuple(
        one.name for one in parameters if one.kind in plain and one.default is inspect.Parameter.empty
    )
    if not found:
        raise ConfigError(
            "the arguments of this metric have no names",
            setting=setting,
            received=name,
            fix="name what it takes: (metric, [names of results of test()])",
        )
    return found


def compute_set_values(cell: Path, runner: Any, split: str, *, seed: int) -> SetValues:
    """Returns the metrics of the whole set of a cell whose rows are merged.

    Args:
        cell: The folder of the cell.
        runner: Its ``test_metrics`` and `summarize` are used. A value None of `summarize` hides the metric of
            this name.
        split: The name of the set.
        seed: The seed of random numbers that `summarize` draws.

    Raises:
        ConfigError: ``test_metrics`` are malformed, or need a result that `test` does not return.
        ContractError: A metric is no number.
        Exception: Any error of the project's code, with a note that names the metric.
    """
    types = evaluation_rows.column_types(cell)
    hidden = {name for name in types if name.startswith(HELPER_PREFIX)}
    metrics = parse_metrics(getattr(runner, "test_metrics", None) or {})
    method = getattr(type(runner), "summarize", None)
    summarizes = method is not None and not getattr(method, "is_default", False)
    if not metrics and not summarizes:
        return SetValues({}, hidden)
    check_inputs(metrics, evaluation_rows.result_names(types))
    needed = None if summarizes else [ID, ERROR, *{name for one in metrics for name in one.inputs}]
    values = _column_values(evaluation_rows.read_rows(cell, needed))
    found: dict[str, float] = {}
    for one in metrics:
        found.update(_computed(one, values))
    if summarizes:
        with seeding.isolated(seeding.mix(seed, "summarize", split)), torch.no_grad():
            summary = runner.summarize(values, split)
        for name, value in split_evaluation.summary_numbers(summary).items():
            if value is None:
                hidden.add(name)
            else:
                found[name] = value
    return SetValues(found, hidden)


def check_inputs(metrics: Sequence[SetMetric], known: Sequence[str]) -> None:
    """Checks that there are the columns that metrics take.

    Raises:
        ConfigError: One is missing; the error lists those that there are.
    """
    for one in metrics:
        for name in one.inputs:
            if name not in known:
                raise ConfigError(
                    "takes a result that test() does not return for each sample; "
                    f"it returns: {', '.join(known)}",
                    setting=f"{SETTING}[{one.name!r}]",
                    received=name,
                    fix=f"{did_you_mean(name, known)}name one of them, or return it from test()",
                )


def _column_values(rows: Rows) -> dict[str, Any]:
    """Returns the values of the samples that were not skipped, in the set's order: numbers and arrays as
    tensors, all else as lists."""
    evaluated = rows.evaluated
    names = evaluation_rows.result_names({name: column.type for name, column in rows.columns.items()})
    return {name: _value(rows.columns[name].take(evaluated)) for name in names}


def _value(column: RowColumn) -> Tensor | list[Any]:
    if isinstance(column.values, list):
        return column.values
    if column.missing is not None and column.missing.any():
        if not column.is_number:
            return column.items()
        numbers = column.values.astype(np.float64)  # a missing integer must not count as 0
        numbers[column.missing] = np.nan
        return torch.from_numpy(numbers)
    return torch.from_numpy(np.ascontiguousarray(column.values))


def _computed(one: SetMetric, values: Mapping[str, Any]) -> dict[str, float]:
    inputs = [values[name] for name in one.inputs]
    try:
        with torch.no_grad():
            result = _of_object(one.metric, inputs) if one.is_object else one.metric(*inputs)
    except Exception as error:
        shapes = ", ".join(
            f"{name} {_describe(value)}" for name, value in zip(one.inputs, inputs, strict=True)
        )
        error.add_note(f"in {SETTING}[{one.name!r}], with {shapes}")
        raise
    found = {}
    for name, value in _flat(one.name, result):
        try:
            found[name] = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ContractError(
                f"returned a value that is not a number: {error}",
                setting=f"{SETTING}[{one.name!r}]",
                fix="return a number, a vector, or several by name",
            ) from error
    return found


def _of_object(metric: Any, inputs: Sequence[Any]) -> Any:
    if hasattr(metric, "to"):
        metric = metric.to("cpu") or metric
    if hasattr(metric, "sync_on_compute"):
        metric.sync_on_compute = False  # the rows are those of all ranks, and one rank computes
    metric.reset()
    count = len(inputs[0])
    for first in range(0, count, _CHUNK_ROWS):
        metric.update(*(value[first : first + _CHUNK_ROWS] for value in inputs))
    found = metric.compute() if count else {}
    metric.reset()
    return found


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return f"a list of {len(value)}"


def _is_array(value: object) -> TypeGuard[Tensor | np.ndarray[Any, Any]]:
    return isinstance(value, Tensor | np.ndarray)


def _flat(name: str, result: Any) -> Iterator[tuple[str, Any]]:
    """Yields name and number of each value in a result: ``NAME``, ``NAME_KEY`` or ``NAME_NUMBER``."""
    if isinstance(result, Mapping):
        for key, value in result.items():
            yield from _flat(f"{name}_{key}", value)
    elif isinstance(result, list | tuple) or (_is_array(result) and result.ndim and len(result) != 1):
        for number, value in enumerate(result):
            yield from _flat(f"{name}_{number}", value)
    else:
        yield name, result
