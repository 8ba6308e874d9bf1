"""The end of a cell and of the grid: the rank that computed the last batch merges the rows and summarizes
them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roost.base import durable
from roost.evaluation import case_inputs, grid
from roost.evaluation import cell as cells
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.evaluation.reports import report_files
from roost.evaluation.summaries import set_metrics, summary
from roost.evaluation.summaries.summary import Case
from roost.package import session_folder
from roost.package.results.evaluations import evaluation_folder, evaluation_rows
from roost.package.seals import seal, session_seal
from roost.package.seals.session_seal import FOLDER_SEAL

_CASES = "worst_cases"


def worst_cases(runner: Any) -> list[Case] | None:
    """Returns the cases that a Runner wants to be listed; None if it names none.

    Raises:
        ConfigError: They are no list of metric, end and number.
    """
    given = getattr(runner, _CASES, None)
    return summary.parse_cases(given, setting=_setting_of(given, runner.args)) if given else None


def _setting_of(given: object, settings: Mapping[str, Any]) -> str:
    """Returns the setting with these cases, such as ``runner.worst_cases``, from which the Runner has read
    them; without one its attribute."""
    shown = json.dumps(given, default=str)  # a tuple and a list are the same
    for name, section in settings.items():
        if isinstance(section, Mapping) and json.dumps(section.get(_CASES), default=str) == shown:
            return f"{name}.{_CASES}"
    return f"Runner.{_CASES}"


def finish_cell(folder: Path, evaluated: EvaluatedSet, runner: Any) -> bool:
    """Merges and summarizes the rows of a cell if all its batches have rows; returns whether this call has
    finished it.

    Each rank calls this after its share; the one that comes last finds all batches.

    Args:
        folder: The folder of the cell.
        evaluated: Its set.
        runner: For its `summarize`, ``test_metrics`` and ``worst_cases``.

    Raises:
        RoostError: An id is missing or occurs twice.
        ConfigError: A metric of the worst cases does not exist.
        OSError: The rows could not be written; the parts remain.
    """
    with cells.locked_folder(folder):
        if evaluation_folder.is_finished_cell(folder):
            return False
        if evaluation_rows.rows_path(folder) is None and len(evaluation_rows.finished_batches(folder)) < len(
            evaluated.sizes
        ):
            return False
        for written in (folder, folder / evaluation_folder.FILES):  # by now no rank writes into them
            if written.is_dir():
                durable.sweep(written)
        evaluation_rows.merge(folder, evaluated.ids)
        cell = evaluation_folder.read_cell(folder)
        assert cell is not None
        set_values = set_metrics.compute_set_values(folder, runner, evaluated.name, seed=cell.seed)
        made = summary.summarize(
            evaluation_rows.read_rows(folder, summary.needed_columns(folder)),
            identity=cells.joined_digest(
                [getattr(cell.identity, one) for one in cell.identity.__struct_fields__]
            ),
            cases=worst_cases(runner),
            set_values=set_values,
            batch_values=evaluation_rows.read_batch_values(folder),
        )
        case_inputs.write_inputs(folder, evaluated, made, seed=cell.seed)
        summary.write(folder, made)
        session_seal.write_folder_seal(folder, max_seconds=math.inf)  # last: with it the cell is finished
        return True


def finish_evaluation(folder: Path) -> bool:
    """Writes the reports of an evaluation, and its seal, if all its cells are finished; returns whether they
    are.

    Each rank calls this at its end; the one that comes last finds all cells finished.

    Args:
        folder: The folder of the evaluation.

    Raises:
        Refused: The folder cannot be written.
    """
    with cells.locked_folder(folder):
        found = evaluation_folder.read_grid(folder)
        if found is None or not found.is_finished:
            return False
        for above in {parent for one in found.cells for parent in _above(folder, one.folder)}:
            durable.sweep(above)
        if not (folder / FOLDER_SEAL).is_file():  # written last
            grid.write_grid(folder, found)
            report_files.write_reports(folder)
            _seal_evaluation(folder, [one.folder for one in found.cells])
            print(f"report: {folder / report_files.HTML}", flush=True)
        return True


def _seal_evaluation(folder: Path, cell_folders: Sequence[str]) -> None:
    """Seals the files of an evaluation, and the seals of its cells."""
    names = [evaluation_folder.CELLS, report_files.MARKDOWN, report_files.HTML]
    if not any((folder / session_folder.FOLDER).iterdir()):  # else the seals of its sessions have it
        names.append(evaluation_folder.REQUEST)
    names += [f"{cell}/{FOLDER_SEAL}" for cell in cell_folders]
    seal.write(folder / FOLDER_SEAL, folder, names)


def _above(folder: Path, cell: str) -> list[Path]:
    """Returns the folders of an evaluation that hold the folder of a cell."""
    return [folder / parent for parent in Path(cell).parents]
