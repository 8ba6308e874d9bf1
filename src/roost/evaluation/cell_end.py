"""The end of a cell and of the grid: the rank that computed the last batch merges the rows and summarizes
them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roost.base import durable
from roost.base.errors import ContractError
from roost.evaluation import cell as cells
from roost.evaluation import grid, summary
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.reports import report_files
from roost.evaluation.summary import Case, SetValues
from roost.package.results import evaluations
from roost.package.results.evaluations import Rows
from roost.package.results.row_columns import ERROR, GROUP, ID
from roost.train.step import seeding

HELPER_PREFIX = "rows/"
"""The prefix of values that only serve `Runner.summarize`, as a metric of a whole set in a config needs
them."""


def worst_cases(runner: Any) -> list[Case] | None:
    """Returns the cases that a Runner wants to be listed; None if it names none.

    Raises:
        ConfigError: They are no list of metric, end and number.
    """
    given = getattr(runner, "worst_cases", None)
    return summary.parse_cases(given, setting="Runner.worst_cases") if given else None


def finish_cell(folder: Path, evaluated: EvaluatedSet, runner: Any) -> bool:
    """Merges and summarizes the rows of a cell if all its batches have rows; returns whether it is finished.

    Each rank calls this after its share; the one that comes last finds all batches.

    Args:
        folder: The folder of the cell.
        evaluated: Its set.
        runner: For `Runner.summarize` and `Runner.worst_cases`.

    Raises:
        RoostError: An id is missing or occurs twice.
        ConfigError: A metric of `Runner.worst_cases` does not exist.
        OSError: The rows could not be written; the parts remain.
    """
    with cells.locked_folder(folder):
        if (folder / evaluations.SUMMARY).is_file():
            return True
        if evaluations.rows_path(folder) is None and len(evaluations.finished_batches(folder)) < len(
            evaluated.sizes
        ):
            return False
        for written in (folder, folder / evaluations.FILES):  # by now no rank writes into them
            if written.is_dir():
                durable.sweep(written)
        evaluations.merge(folder, evaluated.ids)
        cell = cells.read_cell(folder)
        assert cell is not None
        set_values = _set_values(folder, runner, evaluated.name, seed=cell.seed)
        made = summary.summarize(
            evaluations.read_rows(folder, summary.needed_columns(folder)),
            identity=cells.joined_digest(
                [getattr(cell.identity, one) for one in cell.identity.__struct_fields__]
            ),
            cases=worst_cases(runner),
            set_values=set_values,
            batch_values=evaluations.read_batch_values(folder),
        )
        summary.write(folder, made)  # last: with it the cell is finished
        return True


def _set_values(folder: Path, runner: Any, split: str, *, seed: int) -> SetValues:
    """Returns what `Runner.summarize` makes of the values of all samples."""
    types = evaluations.column_types(folder)
    hidden = [name for name in types if name.startswith(HELPER_PREFIX)]
    method = getattr(type(runner), "summarize", None)
    if method is None or getattr(method, "is_default", False):
        return SetValues({}, hidden)
    values = _tensors(evaluations.read_rows(folder))
    with seeding.isolated(seeding.mix(seed, "summarize", split)), torch.no_grad():
        found = runner.summarize(values, split)
    try:
        return SetValues({str(name): float(value) for name, value in dict(found).items()}, hidden)
    except (TypeError, ValueError) as error:
        raise ContractError(
            f"summarize() must return numbers by name: {error}", received=found, fix='return {"f1": 0.5}'
        ) from error


def _tensors(rows: Rows) -> dict[str, Tensor]:
    """Returns the numbers of the samples that were not skipped, by name, in the set's order."""
    good = np.ones(len(rows), bool)
    for place, _ in _skipped_places(rows):
        good[place] = False
    places = np.flatnonzero(good)
    found: dict[str, Tensor] = {}
    for name, column in rows.columns.items():
        if name == ID or name.startswith(GROUP) or not (column.is_number or column.kind == "array"):
            continue
        found[name] = torch.from_numpy(np.ascontiguousarray(column.take(places).values))
    return found


def _skipped_places(rows: Rows) -> list[tuple[int, str]]:
    if ERROR not in rows.columns:
        return []
    return [(place, text) for place, text in enumerate(rows.columns[ERROR].items()) if text is not None]


def finish_evaluation(folder: Path) -> bool:
    """Writes the reports of an evaluation if all its cells are finished; returns whether they are.

    Each rank calls this at its end; the one that comes last finds all cells finished.

    Args:
        folder: The folder of the evaluation.

    Raises:
        Refused: The folder cannot be written.
    """
    with cells.locked_folder(folder):
        found = grid.read_grid(folder)
        if found is None or not found.is_finished:
            return False
        for above in {parent for one in found.cells for parent in _above(folder, one.folder)}:
            durable.sweep(above)
        if not (folder / report_files.HTML).is_file():  # written last
            report_files.write_reports(folder)
        return True


def _above(folder: Path, cell: str) -> list[Path]:
    """Returns the folders of an evaluation that hold the folder of a cell."""
    return [folder / parent for parent in Path(cell).parents]
