"""The folder of an evaluation, ``<package>/evaluations/<name>/``, and what its JSON files hold.

A cell is one combination of variant, checkpoint and set::

    request.json         what was asked
    cells.json           the grid: its cells in order, what each of them is, and their states
    report.md  report.html
    seal.json            the sizes and digests of these files, and of the seals of the cells; written last
    <cell>/
        cell.json            identity, plan and format of the rows (``parquet`` or ``jsonl``), decided once
        parts/<first batch>-<rank>-<session>.<format>    rows, until they are merged
        rows.<format>        all rows, by the position of their ids in the set; columns.json beside JSON lines
        batches.jsonl        what the batches have of their own: {"batch": 0, "samples": 32, "loss": 0.5}
        files/               files of samples
        inputs.json          inputs of the worst and the best cases
        summary.json
        seal.json            sizes and digests of all of them; written last: with it the cell is finished
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any, Literal, NamedTuple

import msgspec

from roost.base import durable, safe_read
from roost.base.errors import RoostError
from roost.package import sessions
from roost.package.seals import session_seal

NAME = "evaluations"
CELL, CELLS, REQUEST, SUMMARY = "cell.json", "cells.json", "request.json", "summary.json"
FILES, BATCHES, INPUTS = "files", "batches.jsonl", "inputs.json"
REPORT = "report.html"
FOLLOWS_TRAINING = "follows_training"
"""The key of request.json: the training of the package evaluates when it has finished."""
_MAX_NAMED = 5

Format = Literal["parquet", "jsonl"]


# ---- cell.json ------------------------------------------------------------------------------------------


class CellIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell computes, by SHA-256: cells with equal digests have equal results."""

    weights: str
    variant: str
    code: str
    data: str

    def difference(self, other: CellIdentity) -> list[str]:
        """Returns the names of the digests that differ."""
        return [name for name in self.__struct_fields__ if getattr(self, name) != getattr(other, name)]


class CellFile(msgspec.Struct, frozen=True, kw_only=True):
    """The content of cell.json."""

    identity: CellIdentity
    variant: str
    """The name of the variant."""
    arguments: dict[str, Any]
    """Its arguments of `Runner.test`."""
    checkpoint: str
    """The selector as it was typed."""
    checkpoint_ids: list[int]
    dataset: str
    batches: list[tuple[int, int]]
    """The plan: how many batches in a row have how many samples, as (samples, batches)."""
    samples: int
    groups: list[str]
    format: Format
    """The format of the rows."""
    seed: int

    @property
    def sizes(self) -> list[int]:
        """The number of samples of each batch."""
        return [size for size, count in self.batches for _ in range(count)]


def read_cell(folder: Path) -> CellFile | None:
    """Returns the content of a cell's cell.json; None if it has none.

    Raises:
        RoostError: It cannot be read.
    """
    path = folder / CELL
    try:
        return msgspec.json.decode(safe_read.read(path), type=CellFile)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise RoostError(f"cell.json cannot be read: {error}", where=path, fix="remove the folder") from error


# ---- cells.json -----------------------------------------------------------------------------------------

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

    def equal_cells(self) -> dict[str, list[GridCell]]:
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
        copied = self.equal_cells()
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

    A cell is finished when its folder is sealed. cells.json has that once all are: a grid may have thousands
    of cells, and is not written for each of them.

    Raises:
        RoostError: It cannot be read.
    """
    path = folder / CELLS
    try:
        found = msgspec.json.decode(safe_read.read(path), type=Grid)
        if outside := [one.folder for one in found.cells if not _is_below(one.folder)]:
            raise ValueError(f"a cell is outside of the evaluation: {outside[0]}")
        return msgspec.structs.replace(found, cells=[_with_state(folder, one) for one in found.cells])
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # of msgspec, too
        raise RoostError(
            f"cells.json cannot be read: {error}", where=path, fix="give the evaluation another --name"
        ) from error


def _with_state(folder: Path, one: GridCell) -> GridCell:
    if one.state == "finished" or not is_finished_cell(folder / one.folder):
        return one
    return msgspec.structs.replace(one, state="finished")


def is_finished_cell(cell: Path) -> bool:
    """Whether the folder of a cell is sealed."""
    return (cell / session_seal.FOLDER_SEAL).is_file()


def _is_below(folder: str) -> bool:
    """Whether a path of cells.json, which another program may have written, stays in the evaluation."""
    path = PurePath(folder)
    return not path.is_absolute() and ".." not in path.parts


# ---- evaluations ----------------------------------------------------------------------------------------


class EvaluationCell(NamedTuple):
    """A cell of an evaluation, as cells.json lists it."""

    path: Path
    variant: str
    checkpoint: str
    dataset: str
    state: str
    folder: str
    """The path below the folder of the evaluation."""

    @classmethod
    def of(cls, one: GridCell, evaluation: Path) -> EvaluationCell:
        """Returns a cell of the grid of an evaluation, whose folder is given."""
        return cls(evaluation / one.folder, one.variant, one.checkpoint, one.dataset, one.state, one.folder)

    @property
    def label(self) -> str:
        """The cell for people."""
        return f"{self.variant} / {self.checkpoint} / {self.dataset}"

    @property
    def summary(self) -> dict[str, Any] | None:
        """The content of summary.json; None before the cell is finished."""
        return sessions.load_json(self.path / SUMMARY)


def require_whole(cells: Iterable[EvaluationCell], where: Path, *, with_samples: bool = True) -> None:
    """Compares the files of finished cells with their seals.

    Args:
        cells: The cells.
        where: The folder that the error names.
        with_samples: Whether also those of samples, which may be many and large.

    Raises:
        RoostError: One is not as it was written.
    """

    def is_judged(name: str) -> bool:
        return with_samples or not name.startswith(f"{FILES}/")

    damages = ((one.folder, session_seal.folder_damage(one.path, is_judged=is_judged)) for one in cells)
    found = [f"{cell}: {damage}" for cell, damage in damages if damage is not None]
    if found:
        more = f"; {len(found) - _MAX_NAMED:,} more cells" if len(found) > _MAX_NAMED else ""
        raise RoostError(
            f"finished cells are not as they were written: {'; '.join(found[:_MAX_NAMED])}{more}",
            where=where,
            fix="remove the folders of these cells: `roost evaluate` with this name computes them again",
        )


class EvaluationFolder(NamedTuple):
    """The folder of an evaluation."""

    path: Path

    @property
    def name(self) -> str:
        """Its name in the package."""
        return self.path.name

    @property
    def request(self) -> dict[str, Any]:
        """The content of request.json."""
        return sessions.load_json(self.path / REQUEST) or {}

    @property
    def is_finished(self) -> bool:
        """Whether it is sealed, with its report, and no cell was removed since."""
        is_sealed = (self.path / session_seal.FOLDER_SEAL).is_file()
        return is_sealed and all(one.path.is_dir() for one in self.cells())

    def require_whole(self) -> None:
        """Compares the files of the finished cells with their seals. Raises as `require_whole`."""
        require_whole(self.cells(), self.path)

    def cells(self) -> list[EvaluationCell]:
        """Returns the cells in the order of the grid; none where cells.json is missing, or cannot be read."""
        try:
            grid = read_grid(self.path)
        except RoostError:
            return []
        return [] if grid is None else [EvaluationCell.of(one, self.path) for one in grid.cells]


def unfinished_followers(package: Path) -> list[Path]:
    """Returns the folders of the evaluations that the training of a package has to carry out at its end."""
    root = package / NAME
    found = []
    for folder in sorted(root.iterdir()) if root.is_dir() else ():
        one = EvaluationFolder(folder)
        if (
            not durable.is_staging(folder.name)
            and one.request.get(FOLLOWS_TRAINING) is True
            and not one.is_finished
        ):
            found.append(folder)
    return found


def read_all(package: Path) -> list[EvaluationFolder]:
    """Returns the evaluations of a package, by name."""
    root = package / NAME
    if not root.is_dir():
        return []
    return [EvaluationFolder(path) for path in sorted(root.iterdir()) if (path / CELLS).is_file()]
