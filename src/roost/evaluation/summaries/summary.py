"""The summary of a cell: statistics of each metric, tables by group, best and worst cases, histograms.

It follows from the rows alone, to the byte: it has no times, and the draws of the bootstrap are seeded by the
cell's identity. A number that is not finite is counted apart and never averaged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from roost.base import durable
from roost.base.errors import ConfigError
from roost.base.text import metric_direction
from roost.base.text.suggestions import did_you_mean
from roost.evaluation.summaries import bootstrap
from roost.package.results.evaluations import evaluation_rows
from roost.package.results.evaluations.evaluation_folder import SUMMARY
from roost.package.results.evaluations.evaluation_rows import Rows
from roost.package.results.evaluations.row_columns import ERROR, GROUP, ID, NO_LABEL, RowColumn

FORMAT = 1
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
DEFAULT_CASES = 10
_BINS = 40
_MAX_SKIPPED = 1000
"""Skipped samples and labels of a group that a summary names; all are counted."""
_MAX_LABELS = 1000

Array = np.ndarray[Any, Any]
Direction = Literal["min", "max"]


class Case(NamedTuple):
    """A request for the samples with the worst values of a metric, as in `Runner.worst_cases`."""

    metric: str
    worst: Direction
    """Where the worst values are: ``max`` for an error rate."""
    number: int
    setting: str = "worst_cases"
    """Where the request comes from, for messages."""

    @property
    def best(self) -> Direction:
        """Where the best values are."""
        return "min" if self.worst == "max" else "max"


class SetValues(NamedTuple):
    """Values of a whole set beside the statistics of its rows."""

    values: Mapping[str, float]
    """By name: what `Runner.summarize` and metrics of whole sets have returned."""
    hidden: Collection[str] = ()
    """The metrics that the summary leaves out, because they only serve `Runner.summarize`."""


def parse_cases(given: object, *, setting: str = "worst_cases") -> list[Case]:
    """Checks a list of ``(metric, "max" | "min", count)``.

    Raises:
        ConfigError: It is something else.
    """
    made = []
    for one in given if isinstance(given, list | tuple) else [given]:
        entry = one if isinstance(one, list | tuple) else (None,)
        is_case = len(entry) == 3 and isinstance(entry[0], str) and entry[1] in ("min", "max")
        if not is_case or isinstance(entry[2], bool) or not isinstance(entry[2], int) or entry[2] < 1:
            raise ConfigError(
                "is no list of metric, end and number",
                setting=setting,
                received=one,
                fix='give [("wer", "max", 10)]: the ten samples with the largest values are the worst',
            )
        made.append(Case(*entry)._replace(setting=setting))
    return made


def check_cases(cases: Sequence[Case], known: Collection[str]) -> None:
    """Checks that there are the metrics of some cases.

    Raises:
        ConfigError: One is missing; the error lists those that there are.
    """
    for case in cases:
        if case.metric not in known:
            names = sorted(known)
            listed = (
                f"the metrics are: {', '.join(names)}" if names else "test() returned no number per sample"
            )
            raise ConfigError(
                f"there is no such metric of a sample; {listed}",
                setting=case.setting,
                received=case.metric,
                fix=f"{did_you_mean(case.metric, names)}name one of them, or return it from test()",
            )


def summarize(
    rows: Rows,
    *,
    identity: str,
    cases: Sequence[Case] | None = None,
    set_values: SetValues | None = None,
    batch_values: Sequence[Mapping[str, Any]] = (),
    directions: Mapping[str, Direction] | None = None,
) -> dict[str, Any]:
    """Returns the summary of a cell's rows.

    Args:
        rows: The rows; of their columns only numbers, groups, ids and errors are used.
        identity: The identity of the cell, which seeds the draws of the bootstrap.
        cases: Of which metrics the worst and the best samples are listed; None: ten of each metric of which
            it is known which values are better.
        set_values: Values of the whole set.
        batch_values: Values of batches, as `evaluation_rows.read_batch_values` returns them.
        directions: Whether smaller or larger values of a metric are better, as far as it is known beside what
            ``cases`` and names of metrics say.

    Raises:
        ConfigError: A metric of ``cases`` does not exist.
    """
    check_cases(cases or (), rows.metrics)
    set_values = set_values or SetValues({})
    hidden = set(set_values.hidden)
    better = _better(rows, cases or (), directions or {}, [*set_values.values, *_batch_names(batch_values)])
    names = [name for name in rows.metrics if name not in hidden]
    errors = evaluation_rows.skipped(rows)
    evaluated = len(rows) - len(errors)
    metrics: dict[str, Any] = {}
    for name in names:
        column = rows.columns[name]
        entry = _statistics(column, evaluated, seed=bootstrap.seed_of(identity, name))
        metrics[name] = {"from": "samples", "better": better.get(name), **entry}
    for name, value in _batch_means(batch_values).items():
        if name not in hidden and name not in metrics:
            metrics[name] = {"from": "batches", "better": better.get(name), **value}
    for name, number in set_values.values.items():
        if name not in hidden:
            metrics[name] = {"from": "set", "better": better.get(name), **_number(number, evaluated)}
    chosen = _default_cases(names, better) if cases is None else list(cases)
    return {
        "format": FORMAT,
        "samples": len(rows),
        "evaluated": evaluated,
        "skipped": [{"id": id_, "error": text} for id_, text in errors[:_MAX_SKIPPED]],
        "num_skipped": len(errors),
        "metrics": metrics,
        "groups": {name: _by_group(rows, name, names, better) for name in rows.groups},
        "worst": [_ranked(rows, case.metric, case.worst, case.number) for case in chosen],
        "best": [_ranked(rows, case.metric, case.best, case.number) for case in chosen],
    }


def needed_columns(cell: Path) -> list[str]:
    """Returns the names of the columns that `summarize` uses. Raises as `evaluation_rows.read_rows`."""
    types = evaluation_rows.column_types(cell)
    metrics = evaluation_rows.metric_names(types)
    return [name for name in types if name in (ID, ERROR, *metrics) or name.startswith(GROUP)]


def write(cell: Path, summary: Mapping[str, Any]) -> None:
    """Writes summary.json of a cell durably."""
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False)
    durable.write(cell / SUMMARY, text.encode(errors="backslashreplace") + b"\n")


# ---- metrics --------------------------------------------------------------------------------------------


def _better(
    rows: Rows, cases: Sequence[Case], directions: Mapping[str, Direction], others: Sequence[str]
) -> dict[str, Direction]:
    """Returns which values of each metric are better, as far as it is known."""
    found: dict[str, Direction] = {}
    for name in [*rows.metrics, *others]:
        if (usual := directions.get(name) or metric_direction.usual_mode(name)) is not None:
            found[name] = usual
    return found | {case.metric: case.best for case in cases}


def finite_values(column: RowColumn) -> tuple[Array, Array]:
    """Returns the finite numbers of a column as float64, and their places."""
    values = column.values.astype(np.float64)
    good = np.isfinite(values)
    if column.missing is not None:
        good &= ~column.missing
    places = np.flatnonzero(good)
    return values[places], places


def _statistics(column: RowColumn, evaluated: int, *, seed: int) -> dict[str, Any]:
    values, _ = finite_values(column)
    missing = 0 if column.missing is None else int(column.missing.sum())
    present = len(column) - missing
    nan = int(np.isnan(column.values).sum()) - (missing if column.kind == "float" else 0)
    found: dict[str, Any] = {"count": len(values)}
    if not len(values):
        found |= {"mean": None, "std": None, "interval": None, "min": None, "max": None}
    else:
        ordered = np.sort(values)
        found |= {
            **_moments(values),
            "interval": bootstrap.mean_interval(values, seed=seed),
            "min": float(ordered[0]),
            "max": float(ordered[-1]),
            "quantiles": {str(share): _quantile(ordered, share) for share in QUANTILES},
            "histogram": _histogram(ordered),
        }
    return found | {"nan": nan, "infinite": present - nan - len(values), "missing": evaluated - present}


def _quantile(ordered: Array, share: float) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        found = float(np.quantile(ordered, share))
    # Between two values whose difference overflows there is none.
    return found if math.isfinite(found) else float(np.quantile(ordered, share, method="lower"))


def _moments(values: Array) -> dict[str, float | None]:
    """Returns the mean, and the standard deviation of a sample (divided by n - 1)."""
    mean = bootstrap.exact_mean(values)
    if len(values) < 2:
        return {"mean": mean, "std": None}
    with np.errstate(over="ignore"):
        squares = (values - mean) ** 2
    variance = bootstrap.exact_mean(squares) * (len(values) / (len(values) - 1))
    return {"mean": mean, "std": math.sqrt(variance) if math.isfinite(variance) else None}


def _histogram(ordered: Array) -> dict[str, Any]:
    """Returns the edges of the bins and the numbers of values; a bin for each integer where these are few."""
    low, high = float(ordered[0]), float(ordered[-1])
    if high - low < _BINS and bool((ordered == np.floor(ordered)).all()):
        edges = np.arange(low - 0.5, high + 1.0)
    elif not math.isfinite(high - low):  # overflow
        edges = np.array([low, high])
    else:
        edges = np.linspace(low, high, _BINS + 1)
        edges = edges if (np.diff(edges) > 0).all() else np.array([low, np.nextafter(high, math.inf)])
    places = np.searchsorted(ordered, edges[1:-1], side="left")
    counts = np.diff(np.concatenate([[0], places, [len(ordered)]]))
    return {"edges": edges.tolist(), "counts": counts.tolist()}


def _batch_names(batch_values: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(
        dict.fromkeys(name for one in batch_values for name in one if name not in ("batch", "samples"))
    )


def _batch_means(batch_values: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the means of values of batches, weighted by their samples."""
    found = {}
    for name in _batch_names(batch_values):
        pairs = [(one[name], one["samples"]) for one in batch_values if name in one]
        good = [(value, count) for value, count in pairs if value is not None and math.isfinite(value)]
        total = sum(count for _, count in good)
        mean = math.fsum(value * count for value, count in good) / total if total else None
        lost = sum(count for _, count in pairs) - total
        found[name] = {"count": total, "mean": mean, "nan": lost}
    return found


def _number(value: float, evaluated: int) -> dict[str, Any]:
    mean = value if math.isfinite(value) else None
    return {"count": evaluated, "mean": mean, "nan": int(value != value), "infinite": int(math.isinf(value))}


# ---- groups ---------------------------------------------------------------------------------------------


def _by_group(
    rows: Rows, group: str, names: Sequence[str], better: Mapping[str, Direction]
) -> dict[str, Any]:
    labels, codes = label_codes(rows.columns[GROUP + group])
    counts = np.bincount(codes, minlength=len(labels))
    means = {name: _group_means(rows.columns[name], codes, len(labels)) for name in names}
    found: dict[str, Any] = {"labels": len(labels), "unlabeled": 0, "rows": [], "best": {}, "worst": {}}
    if NO_LABEL in labels:
        found["unlabeled"] = int(counts[labels.index(NO_LABEL)])
    shown = set(range(len(labels)))
    for name, (mean, number) in means.items():
        known = np.flatnonzero(number > 0)
        known = known[known < len(labels) - (NO_LABEL in labels)]  # samples without a label are no group
        if name in better and len(known) > 1 and (ends := _ends(mean, known)) is not None:
            low, high = ends
            best, worst = (low, high) if better[name] == "min" else (high, low)
            found["best"][name], found["worst"][name] = labels[best], labels[worst]
    if len(labels) > _MAX_LABELS:
        largest = np.argsort(-counts, kind="stable")[:_MAX_LABELS].tolist()
        marked = {labels.index(label) for side in ("best", "worst") for label in found[side].values()}
        shown = {*largest, *marked}
    for code in sorted(shown):
        entry: dict[str, Any] = {"label": labels[code], "count": int(counts[code]), "metrics": {}}
        for name, (mean, number) in means.items():
            value = float(mean[code]) if number[code] else None
            entry["metrics"][name] = {"mean": value, "count": int(number[code])}
        found["rows"].append(entry)
    return found


def _ends(mean: Array, known: Array) -> tuple[int, int] | None:
    """Returns the labels with the lowest and the highest mean; None where all are equal."""
    low, high = int(known[np.argmin(mean[known])]), int(known[np.argmax(mean[known])])
    return None if mean[low] == mean[high] else (low, high)


def label_codes(column: RowColumn) -> tuple[list[str], Array]:
    """Returns the labels of a group, in their order, and for each row the position of its label; `NO_LABEL`
    is the last."""
    items = [None if item != item or item == NO_LABEL else item for item in column.items()]  # NaN is no label
    order = {label: place for place, label in enumerate(_sorted_labels(set(items)))}
    codes = np.fromiter((order[item] for item in items), np.int64, len(items)) if items else np.zeros(0, int)
    return [NO_LABEL if label is None else str(label) for label in order], codes


def _sorted_labels(labels: set[Any]) -> list[Any]:
    known = [label for label in labels if label is not None]
    try:
        numbers = {label: float(label) for label in known}
    except ValueError:
        numbers = {}
    if numbers and all(map(math.isfinite, numbers.values())):
        known.sort(key=lambda label: (numbers[label], str(label)))
    else:
        known.sort(key=str)
    return [*known, *([None] if None in labels else [])]


def _group_means(column: RowColumn, codes: Array, count: int) -> tuple[Array, Array]:
    values, places = finite_values(column)
    number = np.bincount(codes[places], minlength=count)
    sums = np.bincount(codes[places], weights=values, minlength=count)
    return sums / np.maximum(number, 1), number


# ---- cases ----------------------------------------------------------------------------------------------


def _default_cases(names: Sequence[str], better: Mapping[str, Direction]) -> list[Case]:
    return [
        Case(name, "max" if better[name] == "min" else "min", DEFAULT_CASES)
        for name in names
        if name in better
    ]


def _ranked(rows: Rows, metric: str, end: Direction, count: int) -> dict[str, Any]:
    """Returns the samples at one end of a metric; of equal values those that come first in the set."""
    values, places = finite_values(rows.columns[metric])
    signed = values if end == "min" else -values
    if len(signed) > count:
        limit = np.partition(signed, count - 1)[count - 1]
        kept = np.flatnonzero(signed <= limit)
        order = kept[np.argsort(signed[kept], kind="stable")][:count]
    else:
        order = np.argsort(signed, kind="stable")
    ids = rows.columns[ID].take(places[order]).items()
    cases = [
        {"id": id_, "position": int(places[place]), "value": float(values[place])}
        for id_, place in zip(ids, order.tolist(), strict=True)
    ]
    return {"metric": metric, "end": end, "cases": cases}
