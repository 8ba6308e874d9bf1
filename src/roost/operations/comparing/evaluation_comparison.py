"""``compare --evaluation``: evaluations A and B sample by sample, paired by the ids of the samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from roost.base.errors import NotFound, UsageError
from roost.base.text.suggestions import did_you_mean
from roost.base.text.word_list import join_names
from roost.evaluation.summaries import bootstrap
from roost.evaluation.summaries.summary import Direction, finite_values, label_codes
from roost.operations import work_progress
from roost.operations.evaluating.named_evaluations import NamedCells, find_cells
from roost.package.results.evaluations import evaluation_rows
from roost.package.results.evaluations.evaluation_folder import EvaluationCell
from roost.package.results.evaluations.evaluation_rows import Rows
from roost.package.results.evaluations.row_columns import GROUP, ID, RowColumn

MAX_IDS = 10
"""Ids that are named of those that only one side has."""
MAX_LABELS = 100
"""Labels of a group that are compared, those with the most samples."""
_MAX_NAMED = 8

Array = np.ndarray[Any, Any]


class ComparedSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample with different values on the two sides."""

    id: Any
    a: float
    b: float
    difference: float
    """The value of A minus that of B."""
    texts_a: dict[str, str]
    """The texts that the sample has on side A, by name."""
    texts_b: dict[str, str]


class GroupDifference(msgspec.Struct, frozen=True, kw_only=True):
    """The paired difference of a metric over the samples with one label."""

    label: str
    count: int
    mean_a: float
    mean_b: float
    difference: float
    interval: tuple[float, float] | None


class PairedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of samples, such as the speakers."""

    labels: int
    """The number of labels with compared samples."""
    rows: list[GroupDifference]
    """The labels, those first for which A is worst compared with B; at most `MAX_LABELS`."""


class PairedMetric(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the samples that both sides have."""

    name: str
    better: Direction | None
    """Whether smaller or larger values are better; None: it is not known."""
    count: int
    """Samples with a finite value on both sides."""
    not_compared: int
    """Samples of both sides without one."""
    mean_a: float | None
    mean_b: float | None
    difference: float | None
    """The mean of A minus that of B, over the compared samples."""
    interval: tuple[float, float] | None
    """The ends of the 95 % interval of the difference, by a paired bootstrap."""
    larger: int
    """Samples with a larger value on side A."""
    smaller: int
    equal: int
    worse: list[ComparedSample]
    """The samples where A is worse than B, the largest difference first; where it is not known which values
    are better, those that differ most."""
    groups: dict[str, PairedGroup]

    @property
    def wins(self) -> int | None:
        """Samples where A is better; None: it is not known which values are."""
        return None if self.better is None else self.smaller if self.better == "min" else self.larger

    @property
    def losses(self) -> int | None:
        """Samples where A is worse."""
        return None if self.better is None else self.larger if self.better == "min" else self.smaller

    @property
    def verdict(self) -> Literal["A better", "B better", "different", "no difference"]:
        """The conclusion of the interval: a difference only where zero is outside of it."""
        if self.interval is None or self.difference is None or self.interval[0] <= 0 <= self.interval[1]:
            return "no difference"
        if self.better is None:
            return "different"
        return "A better" if (self.difference < 0) == (self.better == "min") else "B better"


class SetDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of a whole set, or of its batches: no samples to pair, so no interval."""

    name: str
    better: Direction | None
    value_a: float | None
    """The value of A, over all samples of A, also those that B does not have."""
    value_b: float | None
    difference: float | None


class PairedCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell of A and one of B on the same set."""

    a: str
    """Variant, checkpoint and set of the cell of A."""
    b: str
    path_a: str
    path_b: str
    paired: int
    """Samples that both sides have."""
    only_a: int
    only_b: int
    ids_only_a: list[Any]
    """The first ids that only A has."""
    ids_only_b: list[Any]
    metrics: list[PairedMetric]
    set_metrics: list[SetDifference]
    """The metrics of whole sets that both sides have."""
    metrics_only_a: list[str]
    metrics_only_b: list[str]


class EvaluationComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two evaluations sample by sample."""

    path_a: str
    path_b: str
    cells: list[PairedCell]
    only_a: list[str]
    """Cells without a counterpart."""
    only_b: list[str]


def compare_evaluations(
    a: str | Path, b: str | Path, *, metrics: Sequence[str] = (), num_samples: int = 10
) -> EvaluationComparison:
    """Compares two evaluations, sample by sample.

    Cells with the same variant, checkpoint and set are compared; where no two are the same, the only cells of
    the two sides on one set.

    Args:
        a: A package, an evaluation or a cell, see `find_cells`.
        b: Another one.
        metrics: Only these; empty: all that both sides have.
        num_samples: How many samples are listed where A is worse.

    Raises:
        NotFound: There is no such evaluation; or a metric does not exist.
        UsageError: No cells, or no samples, can be paired.
        ConfigError: Rows are Parquet, and pyarrow is not installed.
        RoostError: Rows cannot be read.
    """
    left, right = find_cells(a), find_cells(b)
    pairs = _paired(left, right)
    made = [
        _compare_cells(one, other, metrics, num_samples)
        for one, other in work_progress.track(pairs, "comparing cells")
    ]
    used_a, used_b = {one.path for one, _ in pairs}, {other.path for _, other in pairs}
    return EvaluationComparison(
        path_a=str(left.path),
        path_b=str(right.path),
        cells=made,
        only_a=[one.label for one in left.cells if one.path not in used_a],
        only_b=[one.label for one in right.cells if one.path not in used_b],
    )


def _paired(left: NamedCells, right: NamedCells) -> list[tuple[EvaluationCell, EvaluationCell]]:
    """Returns the cells that are compared."""
    if left.path.resolve() == right.path.resolve():
        raise UsageError(
            "both are the same evaluation",
            received=str(left.path),
            fix="name two cells of it, or another one",
        )
    if len(left.cells) == len(right.cells) == 1:
        return [(left.cells[0], right.cells[0])]
    by_key = {(one.variant, one.checkpoint, one.dataset): one for one in right.cells}
    same = [
        (one, by_key[key])
        for one in left.cells
        if (key := (one.variant, one.checkpoint, one.dataset)) in by_key
    ]
    if same:
        return same
    found = [(one, other) for one, other in _single(left, right)]
    if not found:
        raise UsageError(
            "no cell of A has a counterpart in B: their variants, checkpoints or sets differ",
            received=f"{left.path} {right.path}",
            fix=f"name two cells: {left.cells[0].path}, {right.cells[0].path}",
        )
    return found


def _single(left: NamedCells, right: NamedCells) -> Iterator[tuple[EvaluationCell, EvaluationCell]]:
    """Yields the cells of sets of which each side has one cell."""
    for dataset in dict.fromkeys(one.dataset for one in left.cells):
        mine = [one for one in left.cells if one.dataset == dataset]
        theirs = [one for one in right.cells if one.dataset == dataset]
        if len(mine) == len(theirs) == 1:
            yield mine[0], theirs[0]


def _compare_cells(
    a: EvaluationCell, b: EvaluationCell, names: Sequence[str], num_samples: int
) -> PairedCell:
    types_a, types_b = evaluation_rows.column_types(a.path), evaluation_rows.column_types(b.path)
    metrics_a, metrics_b = evaluation_rows.metric_names(types_a), evaluation_rows.metric_names(types_b)
    both = [name for name in metrics_a if name in metrics_b]
    of_sets = _set_differences(a, b)
    all_names = [*both, *(one.name for one in of_sets)]
    for name in names:
        if name not in all_names:
            known = join_names(all_names, _MAX_NAMED) if all_names else "none"
            raise NotFound(
                f"not both evaluations have this metric; both have: {known}",
                setting="-m",
                received=name,
                fix=f"{did_you_mean(name, all_names)}name one of these",
            )
    chosen = [name for name in both if not names or name in names]
    groups = [name for name in types_a if name.startswith(GROUP)]
    rows_a = evaluation_rows.read_rows(a.path, [ID, *chosen, *groups])
    rows_b = evaluation_rows.read_rows(b.path, [ID, *chosen])
    places_a, places_b = _common(rows_a, rows_b)
    if not len(places_a):
        raise UsageError(
            "the two have no sample in common: their ids differ",
            received=f"{rows_a.ids[:2]} and {rows_b.ids[:2]}",
            fix="compare evaluations of the same set",
        )
    only_a, only_b = _others(rows_a, places_a), _others(rows_b, places_b)
    pairing = _Pairing(a, b, rows_a, rows_b, places_a, places_b, num_samples)
    return PairedCell(
        a=a.label,
        b=b.label,
        path_a=str(a.path),
        path_b=str(b.path),
        paired=len(places_a),
        only_a=len(only_a),
        only_b=len(only_b),
        ids_only_a=rows_a.columns[ID].take(only_a[:MAX_IDS]).items(),
        ids_only_b=rows_b.columns[ID].take(only_b[:MAX_IDS]).items(),
        metrics=[pairing.metric(name) for name in chosen],
        set_metrics=[one for one in of_sets if not names or one.name in names],
        metrics_only_a=[name for name in metrics_a if name not in metrics_b],
        metrics_only_b=[name for name in metrics_b if name not in metrics_a],
    )


def _set_differences(a: EvaluationCell, b: EvaluationCell) -> list[SetDifference]:
    """Returns the metrics of both summaries that are no means of samples."""
    left, right = ((cell.summary or {}).get("metrics", {}) for cell in (a, b))
    found = []
    for name, one in left.items():
        other = right.get(name)
        if other is None or "samples" in (one.get("from"), other.get("from")):
            continue
        value_a, value_b = one.get("mean"), other.get("mean")
        is_complete = value_a is not None and value_b is not None
        better = next((side["better"] for side in (one, other) if side.get("better") in ("min", "max")), None)
        difference = value_a - value_b if is_complete else None
        found.append(
            SetDifference(name=name, better=better, value_a=value_a, value_b=value_b, difference=difference)
        )
    return found


def _common(left: Rows, right: Rows) -> tuple[Array, Array]:
    """Returns the places of the samples that both have, in the order of the first."""
    one, other = left.columns[ID], right.columns[ID]
    if one.kind == other.kind == "int":
        _, places_a, places_b = np.intersect1d(
            one.values, other.values, assume_unique=True, return_indices=True
        )
        order = np.argsort(places_a)
        return places_a[order], places_b[order]
    by_id = {id_: place for place, id_ in enumerate(right.ids)}
    pairs = [(place, by_id[id_]) for place, id_ in enumerate(left.ids) if id_ in by_id]
    return np.array([a for a, _ in pairs], np.int64), np.array([b for _, b in pairs], np.int64)


def _others(rows: Rows, places: Array) -> Array:
    rest = np.ones(len(rows), bool)
    rest[places] = False
    return np.flatnonzero(rest)


class _Pairing:
    """Two cells with the places of their common samples."""

    def __init__(
        self,
        a: EvaluationCell,
        b: EvaluationCell,
        rows_a: Rows,
        rows_b: Rows,
        places_a: Array,
        places_b: Array,
        num_samples: int,
    ) -> None:
        self._a, self._b, self._rows_a, self._rows_b = a, b, rows_a, rows_b
        self._places_a, self._places_b, self._num_samples = places_a, places_b, num_samples

    def metric(self, name: str) -> PairedMetric:
        """Compares a metric."""
        values_a = _numbers(self._rows_a.columns[name])[self._places_a]
        values_b = _numbers(self._rows_b.columns[name])[self._places_b]
        good = np.flatnonzero(np.isfinite(values_a) & np.isfinite(values_b))
        values_a, values_b = values_a[good], values_b[good]
        with np.errstate(over="ignore"):
            differences = values_a - values_b
        better = self._better(name)
        has_any = len(good) > 0
        return PairedMetric(
            name=name,
            better=better,
            count=len(good),
            not_compared=len(self._places_a) - len(good),
            mean_a=bootstrap.exact_mean(values_a) if has_any else None,
            mean_b=bootstrap.exact_mean(values_b) if has_any else None,
            difference=bootstrap.exact_mean(differences) if has_any else None,
            interval=bootstrap.mean_interval(differences, seed=bootstrap.seed_of("paired", name)),
            larger=int((differences > 0).sum()),
            smaller=int((differences < 0).sum()),
            equal=int((differences == 0).sum()),
            worse=self._worse(differences, values_a, values_b, good, better),
            groups={
                group: self._by_label(group, values_a, values_b, good, better)
                for group in self._rows_a.groups
            },
        )

    def _better(self, name: str) -> Direction | None:
        for cell in (self._a, self._b):
            found = (cell.summary or {}).get("metrics", {}).get(name, {}).get("better")
            if found in ("min", "max"):
                return "min" if found == "min" else "max"
        return None

    def _worse(
        self, differences: Array, values_a: Array, values_b: Array, good: Array, better: Direction | None
    ) -> list[ComparedSample]:
        loss = np.abs(differences) if better is None else differences if better == "min" else -differences
        order = np.argsort(-loss, kind="stable")[: self._num_samples]
        order = order[loss[order] > 0]
        places_a, places_b = self._places_a[good[order]], self._places_b[good[order]]
        texts_a, texts_b = _texts(self._a, places_a), _texts(self._b, places_b)
        ids = self._rows_a.columns[ID].take(places_a).items()
        return [
            ComparedSample(
                id=id_,
                a=float(values_a[at]),
                b=float(values_b[at]),
                difference=float(differences[at]),
                texts_a=texts_a[int(place_a)],
                texts_b=texts_b[int(place_b)],
            )
            for id_, at, place_a, place_b in zip(ids, order.tolist(), places_a, places_b, strict=True)
        ]

    def _by_label(
        self, group: str, values_a: Array, values_b: Array, good: Array, better: Direction | None
    ) -> PairedGroup:
        labels, codes = label_codes(self._rows_a.columns[GROUP + group].take(self._places_a[good]))
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(labels) + 1))
        largest = np.argsort(-np.diff(ends), kind="stable")[:MAX_LABELS]
        found = []
        for number in sorted(largest.tolist()):
            here = order[ends[number] : ends[number + 1]]
            differences = values_a[here] - values_b[here]
            one = GroupDifference(
                label=labels[number],
                count=len(here),
                mean_a=bootstrap.exact_mean(values_a[here]),
                mean_b=bootstrap.exact_mean(values_b[here]),
                difference=bootstrap.exact_mean(differences),
                interval=bootstrap.mean_interval(
                    differences, seed=bootstrap.seed_of("paired", group, labels[number])
                ),
            )
            found.append(one)
        found.sort(key=lambda one: _loss(one.difference, better), reverse=True)
        return PairedGroup(labels=len(labels), rows=found)


def _loss(difference: float, better: Direction | None) -> float:
    """Returns by how much A is worse; where that is not known, by how much it differs."""
    return abs(difference) if better is None else difference if better == "min" else -difference


def _numbers(column: RowColumn) -> Array:
    """Returns the numbers of a column, NaN where none is finite."""
    values, places = finite_values(column)
    found = np.full(len(column), np.nan)
    found[places] = values
    return found


def _texts(cell: EvaluationCell, places: Array) -> dict[int, dict[str, str]]:
    """Returns the texts of single rows."""
    rows = evaluation_rows.rows_at(cell.path, places.tolist()) if len(places) else {}
    types = evaluation_rows.column_types(cell.path)
    names = [name for name, type_ in types.items() if type_.kind == "text" and not name.startswith(GROUP)]
    return {
        place: {name: row[name] for name in names if name != ID and row[name] is not None}
        for place, row in rows.items()
    }
