"""What a report shows: the grid, the summaries of its cells, and the rows of their worst and best cases.

Only these rows are read, so a report takes about as long for a million samples as for a thousand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roost.base.errors import NotFound
from roost.evaluation import case_inputs
from roost.package.results.evaluations import evaluation_rows
from roost.package.results.evaluations.evaluation_folder import EvaluationCell, EvaluationFolder
from roost.package.results.evaluations.row_columns import ERROR, GROUP, ID, NO_LABEL, ColumnType

MAX_LABELS = 60
"""Labels of a group that a report lists, beside the best and the worst ones."""

STATISTICS_HEAD = (
    "metric", "mean", "95 % interval", "std", "min", "median", "max", "count", "not finite", "missing",
)  # fmt: skip
"""The columns of the table of a cell's metrics."""


class CaseRow(NamedTuple):
    """A sample of a list of worst or best cases."""

    id: Any
    value: float
    metrics: dict[str, Any]
    groups: dict[str, str]
    outputs: dict[str, Any]
    """The other values of its row, and its input."""
    files: dict[str, str]
    """By name: the path of a file below the folder of the cell."""


class CaseList(NamedTuple):
    """The samples at one end of a metric."""

    metric: str
    end: str
    cases: list[CaseRow]


class CellContent(NamedTuple):
    """A finished cell."""

    cell: EvaluationCell
    summary: dict[str, Any]
    worst: list[CaseList]
    best: list[CaseList]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """The statistics of the metrics, by name."""
        found: dict[str, dict[str, Any]] = self.summary["metrics"]
        return found


class ReportContent(NamedTuple):
    """An evaluation as a report shows it."""

    folder: EvaluationFolder
    cells: list[CellContent]
    unfinished: list[EvaluationCell]

    @property
    def package(self) -> str:
        """The name of the package."""
        return self.folder.path.parent.parent.name

    def datasets(self) -> dict[str, list[CellContent]]:
        """Returns the cells by set: only results on the same samples are compared."""
        found: dict[str, list[CellContent]] = {}
        for one in self.cells:
            found.setdefault(one.cell.dataset, []).append(one)
        return found


def read_content(folder: EvaluationFolder) -> ReportContent:
    """Reads the finished cells of an evaluation.

    Raises:
        NotFound: The folder has no grid.
        ConfigError: Rows are Parquet, and pyarrow is not installed.
        RoostError: Rows cannot be read.
    """
    cells = folder.cells()
    if not cells:
        raise NotFound(
            "this is no evaluation: it has no cells",
            received=str(folder.path),
            fix="name a folder <package>/evaluations/<name>",
        )
    read = [(cell, cell.summary) for cell in cells]
    return ReportContent(
        folder,
        [_cell_content(cell, summary) for cell, summary in read if summary is not None],
        [cell for cell, summary in read if summary is None],
    )


def _cell_content(cell: EvaluationCell, summary: dict[str, Any]) -> CellContent:
    lists = [*summary["worst"], *summary["best"]]
    positions = {case["position"] for one in lists for case in one["cases"]}
    types = evaluation_rows.column_types(cell.path) if positions else {}
    rows = evaluation_rows.rows_at(cell.path, sorted(positions)) if positions else {}
    inputs = case_inputs.read_inputs(cell.path)

    def made(listed: Sequence[Mapping[str, Any]]) -> list[CaseList]:
        return [
            CaseList(
                one["metric"],
                one["end"],
                [_case_row(case, rows[case["position"]], types, inputs) for case in one["cases"]],
            )
            for one in listed
        ]

    return CellContent(cell, summary, made(summary["worst"]), made(summary["best"]))


def _case_row(
    case: Mapping[str, Any],
    row: Mapping[str, Any],
    types: Mapping[str, ColumnType],
    inputs: Mapping[str, Mapping[str, Any]],
) -> CaseRow:
    found = CaseRow(case["id"], case["value"], {}, {}, {}, {})
    for name, value in inputs.get(str(case["id"]), {}).items():
        if isinstance(value, dict) and set(value) == {"file"}:
            found.files[name] = value["file"]
        else:
            found.outputs[name] = value
    for name, value in row.items():
        if name in (ID, ERROR):
            continue
        if name.startswith(GROUP):
            found.groups[name.removeprefix(GROUP)] = NO_LABEL if value is None else str(value)
        elif value is None:
            continue
        elif types[name].kind == "file":
            found.files[name] = value
        elif types[name].kind in ("bool", "int", "float"):
            found.metrics[name] = value
        else:
            found.outputs[name] = value
    return found


def metrics_of(cells: Sequence[CellContent]) -> list[str]:
    """Returns the names of all metrics of some cells, in the order of the cells."""
    return list(dict.fromkeys(name for one in cells for name in one.metrics))


def best_and_worst_mean(cells: Sequence[CellContent], metric: str) -> tuple[float | None, float | None]:
    """Returns the best and the worst mean of a metric in some cells; None where it is not known which values
    are better, or no two cells differ."""
    entries = [one.metrics[metric] for one in cells if metric in one.metrics]
    means = {entry["mean"] for entry in entries if entry["mean"] is not None}
    better = next((entry["better"] for entry in entries), None)
    if better is None or len(means) < 2:
        return None, None
    return (min(means), max(means)) if better == "min" else (max(means), min(means))


def count_text(number: int, noun: str) -> str:
    """Returns a number of things: ``1 sample``, ``3 samples``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown_labels(group: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the rows of a group that a report lists: all where they are few, else the largest ones and
    those that are marked."""
    rows: list[Mapping[str, Any]] = group["rows"]
    if len(rows) <= MAX_LABELS:
        return rows
    marked = {label for side in ("best", "worst") for label in group[side].values()}
    largest = sorted(range(len(rows)), key=lambda place: (-rows[place]["count"], place))[:MAX_LABELS]
    return [row for place, row in enumerate(rows) if place in set(largest) or row["label"] in marked]
