"""Where mirrors may write into a package."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from roost.base.errors import ConfigError
from roost.config.sections.mirrors import CsvSettings, MirrorSettings, TensorBoardSettings
from roost.config.settings import Where
from roost.package import snapshot


def check(settings: MirrorSettings, *, copied: Iterable[str], where: Where) -> None:
    """Makes sure that each mirror of files has a place of its own.

    Args:
        settings: The section.
        copied: The project's files in the package and its links, below it.
        where: Where a dotted key was set, for messages.

    Raises:
        ConfigError: A place lies outside of the package or is taken.
    """
    taken = [PurePath(one) for one in copied]
    if (csv := settings.csv) is not False:
        file = CsvSettings().file if csv is True else csv.file
        _check("mirrors.csv.file", file, taken, where)
    if (tensorboard := settings.tensorboard) is not False:
        folder = TensorBoardSettings().folder if tensorboard is True else tensorboard.folder
        _check("mirrors.tensorboard.folder", folder, taken, where)


def _check(setting: str, given: str, copied: Iterable[PurePath], where: Where) -> None:
    place = PurePath(given)
    # `${package}` is known once the package is made, and absolute then.
    is_outside = place.is_absolute() or ".." in place.parts or not place.name or "${" in given
    # Below a link it would land in the project.
    is_taken = not is_outside and (
        place.parts[0] in snapshot.RESERVED_NAMES
        or any(one.is_relative_to(place) or place.is_relative_to(one) for one in copied)
    )
    is_table = setting.endswith(".file")
    if is_outside or is_taken or (is_table and place.suffix != ".csv"):
        raise ConfigError(
            "must name a place of its own below the package" + " that ends in .csv" * is_table,
            setting=setting,
            received=given,
            where=where(setting) or where(setting.rpartition(".")[0]),
            fix="give another; `roost export --records` writes anywhere",
        )
