"""Checks the paths that mirrors write to inside a package."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from roost.base.errors import ConfigError
from roost.config.sections.mirrors import CsvSettings, MirrorSettings, TensorBoardSettings
from roost.config.settings import Where
from roost.package import snapshot


def check(settings: MirrorSettings, *, copied: Iterable[str], where: Where) -> None:
    """Checks that the path of each mirror that writes files is free.

    Args:
        settings: The section ``mirrors``.
        copied: The project's files and links in the package, relative to it.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A path is outside the package, or is used by other files.
    """
    taken = [PurePath(one) for one in copied]
    if (csv := settings.csv) is not False:
        file = CsvSettings().file if csv is True else csv.file
        _check("mirrors.csv.file", file, taken, where)
    if (tensorboard := settings.tensorboard) is not False:
        folder = TensorBoardSettings().folder if tensorboard is True else tensorboard.folder
        _check("mirrors.tensorboard.folder", folder, taken, where)


def _check(setting: str, given: str, copied: Iterable[PurePath], where: Where) -> None:
    path = PurePath(given)
    # `${package}` has no value before the package is created, and is absolute then.
    is_outside = path.is_absolute() or ".." in path.parts or not path.name or "${" in given
    # Below a link, the mirror would write into the project.
    is_taken = not is_outside and (
        path.parts[0] in snapshot.RESERVED_NAMES
        or any(one.is_relative_to(path) or path.is_relative_to(one) for one in copied)
    )
    is_table = setting.endswith(".file")
    if is_outside or is_taken or (is_table and path.suffix != ".csv"):
        raise ConfigError(
            "must be an unused path inside the package" + " that ends in .csv" * is_table,
            setting=setting,
            received=given,
            where=where(setting) or where(setting.rpartition(".")[0]),
            fix="give another path; `roost export --records` writes anywhere",
        )
