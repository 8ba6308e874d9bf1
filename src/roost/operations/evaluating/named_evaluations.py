"""The cells of evaluations that a word on a command line names: a package, an evaluation, or one cell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from roost.base.errors import NotFound, UsageError
from roost.base.text.word_list import join_names
from roost.operations import resolve
from roost.package.results.evaluations import evaluation_folder
from roost.package.results.evaluations.evaluation_folder import CELL, CELLS, EvaluationCell, EvaluationFolder

_MAX_NAMED = 8


class NamedCells(NamedTuple):
    """The finished cells that a word names."""

    path: Path
    cells: list[EvaluationCell]
    unfinished: int
    """The number of cells of the evaluation that are not finished."""


def find_cells(word: str | Path) -> NamedCells:
    """Returns the finished cells of what a word names.

    Args:
        word: The folder of a cell, an evaluation (``PACKAGE/evaluations/NAME`` or ``PACKAGE/NAME``), or a
            package with one evaluation: by path, name in ``./runs``, or task.

    Raises:
        NotFound: There is no such evaluation, or it has no finished cell.
        UsageError: The package has several evaluations.
        RoostError: A file of a finished cell is not as it was written.
    """
    path = Path(word)
    if (path / CELL).is_file():
        return NamedCells(path, [_cell_at(path)], 0)
    folder = find_evaluation(word)
    cells = EvaluationFolder(folder).cells()
    evaluation_folder.require_whole(cells, folder, with_samples=False)
    finished = [one for one in cells if one.summary is not None]
    if not finished:
        raise NotFound(
            "no cell of this evaluation is finished",
            received=str(folder),
            fix="`roost evaluate` with its name goes on with it",
        )
    return NamedCells(folder, finished, len(cells) - len(finished))


def _cell_at(path: Path) -> EvaluationCell:
    """Returns the cell in a folder, which need not be inside an evaluation."""
    found = evaluation_folder.read_cell(path)
    assert found is not None
    cell = EvaluationCell(path, found.variant, found.checkpoint, found.dataset, "finished", path.name)
    evaluation_folder.require_whole([cell], path, with_samples=False)
    if cell.summary is None:
        raise NotFound(
            "this cell is not finished",
            received=str(path),
            fix="`roost evaluate` with the name of its evaluation goes on with it",
        )
    return cell


def find_evaluation(word: str | Path) -> Path:
    """Returns the folder of the evaluation that a word names, as for `find_cells`.

    Raises:
        NotFound: There is none.
        UsageError: The package has several evaluations.
    """
    if (Path(word) / CELLS).is_file():
        return Path(word)
    parent, _, name = str(word).rpartition(os.sep)
    if parent and (root := _package(parent)) is not None:
        inside = root / evaluation_folder.NAME / name
        if (inside / CELLS).is_file():
            return inside
    package = resolve.find_package(word)
    found = evaluation_folder.read_all(package)
    if not found:
        raise NotFound(
            "the package has no evaluation",
            received=str(package),
            fix=f"`roost evaluate {package}` makes one",
        )
    if len(found) > 1:
        named = join_names([f"{package}/{one.name}" for one in found], _MAX_NAMED)
        raise UsageError(
            f"the package has {len(found)} evaluations", received=str(package), fix=f"name one of {named}"
        )
    return found[0].path


def _package(word: str) -> Path | None:
    try:
        return resolve.find_package(word)
    except (NotFound, UsageError):
        return None
