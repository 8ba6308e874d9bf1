"""`SavedFiles`: the files that an analysis saves, with safe names; a file never replaces another."""

from __future__ import annotations

import os
from pathlib import Path

from roost.analysis import analysis_folder
from roost.base import durable
from roost.base.errors import ContractError, UsageError
from roost.package import package_name


class SavedFiles:
    """The saved files of one analysis.

    Args:
        place: The folder of the analysis.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.saved: list[str] = []
        """Names of the files in the order in which they were written."""

    def write(self, name: str, suffix: str, data: bytes) -> Path:
        """Writes ``name.suffix``, or ``name-2.suffix``, ``-3`` … if that exists; returns the path.

        Raises:
            ContractError: The name is not a plain file name.
            OSError: The file cannot be written.
        """
        stem = _check_name(name).removesuffix(f".{suffix}")
        number = 1
        while True:
            path = self.place / (f"{stem}.{suffix}" if number == 1 else f"{stem}-{number}.{suffix}")
            if path.name not in analysis_folder.RESERVED_NAMES and not os.path.lexists(path):
                break
            number += 1
        durable.write(path, data)
        self.saved.append(path.name)
        return path


def _check_name(name: object) -> str:
    try:
        is_safe = isinstance(name, str) and package_name.folder_name(name) == name
    except UsageError:
        is_safe = False
    if isinstance(name, str) and is_safe:
        return name
    raise ContractError(
        "is not a file name",
        setting="save(name)",
        received=name,
        fix="use letters, digits, '-', '_', '.' and no '/'; do not begin with '.' or '-'",
    )
