"""The grid of an evaluation, ``cells.json``: its cells in order, what each of them is, and their states.

A cell is finished when its folder is sealed. cells.json has that once all are: a grid may have thousands of
cells, and is not written for each of them.

The rank that comes first makes it, under the lock of the folder; the others, and later sessions, take it as
it is: the checkpoints that ``best`` and ``last`` meant at the beginning remain those of the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from roost.base import durable, safe_read
from roost.base.errors import RoostError
from roost.evaluation import cell as cells
from roost.evaluation.cell import CellIdentity
from roost.package.results import evaluations
from roost.package.seals.session_seal import FOLDER_SEAL

State = Literal["waiting", "finished"]


class GridCell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell of the grid."""

    variant: str
    checkpoint: str
    """The selector as it was typed."""
    dataset: str
    folder: str
    """Its folder below that of the evaluation, from the template; it identifies the cell in its grid."""
    identity: CellIdentity
    samples: int
    batches: int
    state: State = "waiting"
    same_as: str | None = None
    """The folder of an earlier cell that computes the same: this one is copied from it."""
    found_in: str | None = None
    """The folder, below the package, from which a finished cell was copied."""


class GridCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Weights of the grid, as they were found at the beginning."""

    name: str
    """The selector."""
    ids: list[int] = []
    """The checkpoints, the preferred first."""
    average: str | None = None
    """The average that the run keeps; None: the trained weights."""
    file: str | None = None
    sha256: str
    """The digest of the weights."""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """The content of cells.json."""

    checkpoints: list[GridCheckpoint]
    variants: dict[str, dict[str, Any]]
    cells: list[GridCell]
    threads: int
    """The threads of one operation: another number would sum in another order."""
    device: str
    """The type of the device on which it began."""

    def checkpoint(self, name: str) -> GridCheckpoint:
        """Returns the weights with this name."""
        return next(one for one in self.checkpoints if one.name == name)

    def twins(self) -> dict[str, list[GridCell]]:
        """Returns the later cells that compute the same as an earlier one and are not finished, by the folder
        of the earlier one."""
        found: dict[str, list[GridCell]] = {}
        for cell in self.cells:
            if cell.same_as is not None and cell.state != "finished":
                found.setdefault(cell.same_as, []).append(cell)
        return found

    def by_checkpoint(self) -> Iterator[tuple[GridCheckpoint, list[GridCell]]]:
        """Yields the cells that have to be computed, or copied to others, by weights, so that each is loaded
        once."""
        copied = self.twins()
        for one in self.checkpoints:
            found = [
                cell
                for cell in self.cells
                if cell.checkpoint == one.name
                and cell.same_as is None
                and (cell.state != "finished" or cell.folder in copied)
            ]
            if found:
                yield one, found

    @property
    def is_finished(self) -> bool:
        """Whether all cells are finished."""
        return all(cell.state == "finished" for cell in self.cells)


def read_grid(folder: Path) -> Grid | None:
    """Returns the grid of an evaluation with the states that its cells have now; None before it was made.

    Raises:
        RoostError: It cannot be read.
    """
    found = _read(folder)
    return None if found is None else _with_states(folder, found)


def _with_states(folder: Path, grid: Grid) -> Grid:
    """Returns a grid in which a cell is finished if its folder is sealed, or cells.json says so and its
    folder was not removed."""
    return msgspec.structs.replace(grid, cells=[_with_state(folder, one) for one in grid.cells])


def _with_state(folder: Path, one: GridCell) -> GridCell:
    if one.state == "finished":
        if (folder / one.folder).is_dir():
            return one
        return msgspec.structs.replace(one, state="waiting", same_as=None, found_in=None)
    is_finished = evaluations.is_finished_cell(folder / one.folder)
    return msgspec.structs.replace(one, state="finished") if is_finished else one


def _read(folder: Path) -> Grid | None:
    path = folder / evaluations.CELLS
    try:
        return msgspec.json.decode(safe_read.read(path), type=Grid)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise RoostError(
            f"cells.json cannot be read: {error}", where=path, fix="give the evaluation another --name"
        ) from error


def write_grid(folder: Path, grid: Grid) -> None:
    """Writes cells.json. The caller holds the lock of the folder."""
    data = msgspec.json.format(msgspec.json.encode(grid), indent=1) + b"\n"
    durable.write(folder / evaluations.CELLS, data)


def open_grid(folder: Path, make: Callable[[], Grid]) -> Grid:
    """Returns the grid of an evaluation, made by ``make`` if there is none yet. A finished cell whose folder
    was removed is to be computed again."""
    with cells.locked_folder(folder):
        found = _read(folder)
        if found is None:
            found = make()
            write_grid(folder, found)
        now = _with_states(folder, found)
        pairs = zip(found.cells, now.cells, strict=True)
        if any(before.state == "finished" != one.state for before, one in pairs):  # its folder was removed
            durable.discard(folder / FOLDER_SEAL)  # the reports will be others, too
            write_grid(folder, now)
        return now
