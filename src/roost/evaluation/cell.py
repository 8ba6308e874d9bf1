"""The beginning of a cell: what it is, by digests, and how its samples are divided into batches.

Both are decided once, when its folder is made, and are in ``cell.json``.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from roost.base import durable
from roost.base.errors import Refused
from roost.config.settings import Settings
from roost.evaluation.evaluated_set import EvaluatedSet
from roost.package import snapshot
from roost.package.package import PackageFolder
from roost.package.results.evaluations import evaluation_rows
from roost.package.results.evaluations.evaluation_folder import CELL, CellFile, read_cell

CODE_SUFFIXES = frozenset(
    [".py", ".pyi", ".pyx", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".so", ".json", ".yaml", ".yml"]
)
"""The files of a package that decide what `Runner.test` computes."""
_OF_TEST = ("runner", "dataset", "seed", "precision", "evaluation_precision", "determinism", "step_mode")
"""roost's own settings that decide it; the data section counts with the data."""


def prepare_cell(folder: Path, cell: CellFile) -> CellFile:
    """Makes the folder of a cell with its cell.json, unless it exists; returns what cell.json holds.

    Raises:
        Refused: The folder has another cell.
        OSError: It cannot be written.
    """
    found = read_cell(folder)
    if found is None:
        durable.make_folders(folder)
        write_cell(folder, cell)
        return cell
    if different := found.identity.difference(cell.identity):
        raise Refused(
            f"this cell was begun with other {' and '.join(different)}",
            where=folder,
            fix="give the evaluation another --name: what is there is kept",
        )
    if found.batches != cell.batches:
        raise Refused(
            "this cell was begun with other batches", where=folder, fix="give the evaluation another --name"
        )
    return found


def write_cell(folder: Path, cell: CellFile) -> None:
    """Writes cell.json."""
    durable.write(folder / CELL, msgspec.json.format(msgspec.json.encode(cell), indent=1) + b"\n")


def run_lengths(sizes: Iterable[int]) -> list[tuple[int, int]]:
    """Returns the sizes of batches as (samples, batches in a row)."""
    return [(size, sum(1 for _ in same)) for size, same in itertools.groupby(sizes)]


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Holds a lock of a folder among the ranks and sessions that evaluate into it; without a file of its
    own."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def finished_batches(folder: Path, count: int) -> set[int]:
    """Returns the numbers of the batches of a cell that have rows, in parts or merged.

    Args:
        folder: The folder of the cell, which exists.
        count: How many batches it has.
    """
    with locked_folder(folder):  # another rank may be merging the parts, and removes them then
        if evaluation_rows.rows_path(folder) is not None:
            return set(range(count))
        return evaluation_rows.finished_batches(folder)


# ---- digests --------------------------------------------------------------------------------------------


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def variant_digest(arguments: Mapping[str, Any]) -> str:
    """Returns the digest of a variant: of its arguments, whatever its name."""
    return _digest(arguments)


def code_digest(package: PackageFolder, settings: Mapping[str, Any]) -> str:
    """Returns the digest of what computes: the package's code as it is now, the settings of the user, and
    those of roost that decide the values of a sample.

    Args:
        package: The package.
        settings: The settings of the evaluation, unresolved.
    """
    names = sorted(name for name in package.manifest["files"] if Path(name).suffix in CODE_SUFFIXES)
    code = [[name, snapshot.file_digest(package.path / name)] for name in names]
    roosts = {field.encode_name for field in msgspec.structs.fields(Settings)}
    own = {key: value for key, value in settings.items() if key not in roosts or key in _OF_TEST}
    return _digest([code, own])


def data_digest(evaluated: EvaluatedSet, settings: Mapping[str, Any]) -> str:
    """Returns the digest of a set: its ordered ids and groups, its batches, and the data section."""
    data = {
        key: value
        for key, value in dict(settings.get("data") or {}).items()
        if key not in ("num_workers", "prefetch", "loader_timeout")
    }
    return _digest(
        [evaluated.name, evaluated.digest(), run_lengths(evaluated.sizes), data, settings.get("dataset")]
    )


def joined_digest(parts: Sequence[str]) -> str:
    """Returns one digest of several."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
