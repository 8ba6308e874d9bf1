"""The files and folders that a config of DLNest's contract names, and their places in a package.

A path keeps its place below the project's folder. One outside of it is in the package's own folder: a file
under its name, a folder under its stem, as DLNest says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.base.errors import ConfigError
from roost.config.dlnest.bundled_plugins import is_path
from roost.config.dlnest.dlnest_settings import DlnestSettings
from roost.config.dlnest.root_folder import RootFolder
from roost.config.settings import Where
from roost.package import snapshot
from roost.package.package import PackageFolder

PLACES = "places"
"""The key of request.json with the places of paths that are elsewhere in the package than written."""


@dataclass
class NamedPaths:
    """The paths that a config names, found in its project."""

    inside: list[Path] = field(default_factory=list)
    """Files and folders of the project, absolute."""
    outside: dict[str, Path] = field(default_factory=dict)
    """Files and folders outside of the project's folder, also those to which a link in it leads: by their
    places."""
    places: dict[str, str] = field(default_factory=dict)
    """The place in the package of each written path that does not keep its place as written."""

    def sources(self) -> list[Path]:
        """Returns every path that is copied."""
        return [*self.inside, *self.outside.values()]


def find_named(settings: DlnestSettings, root: RootFolder, where: Where) -> NamedPaths:
    """Returns the files and folders that a config names, after checking that each exists.

    Args:
        settings: The settings of the config.
        root: The project's folder.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A path does not exist, or is no file or folder; or two paths have the same place in the
            package.
    """
    found = NamedPaths()
    project = root.path.resolve()
    for key, written in _written_paths(settings):
        path = root.resolve(written)
        if not path.exists():
            start = f"paths start at the project's folder, {root.path}"
            raise ConfigError(
                f"there is no file or folder {written}",
                setting=key,
                received=written,
                where=where(key),
                fix=f"write where it is now; {start}" if Path(written).is_absolute() else start,
            )
        if not (path.is_file() or path.is_dir()):
            raise ConfigError(
                "is neither a file nor a folder, so it cannot be copied",
                setting=key,
                received=written,
                where=where(key),
            )
        place = _place(path, root.path, project)
        if not place:
            raise ConfigError("the root folder cannot be copied", setting=key, where=where(key))
        actual = path.resolve()
        if actual == project / place:
            found.inside.append(path)
        else:
            _add_outside(found, place, actual, project, key, where)
        if os.path.normpath(written) != place:
            found.places[written] = place
    return found


def _written_paths(settings: DlnestSettings) -> Iterator[tuple[str, str]]:
    """Yields the dotted key and the text of every path that is copied."""
    for _, _, key, written in classes(settings):
        yield key, written
    for number, written in enumerate(settings.other_file_paths):
        yield f"other_file_paths.{number}", written
    for number, written in enumerate(settings.plugins):
        if is_path(written):
            yield f"plugins.{number}", written


def classes(settings: DlnestSettings) -> Iterator[tuple[str, str, str, str]]:
    """Yields each class: its dotted key, its name, the dotted key of its file, and its file."""
    runner = settings.runner_key
    yield f"{runner}_name", settings.runner_name, f"{runner}_file_path", settings.runner_file_path
    yield "dataset_name", settings.dataset_name, "dataset_file_path", settings.dataset_file_path
    yield "life_cycle_name", settings.life_cycle_name, "life_cycle_file_path", settings.life_cycle_file_path


def _place(path: Path, root: Path, project: Path) -> str:
    """Returns the place of a path in the package, relative to it."""
    for folder in (root, project):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return path.stem if path.is_dir() else path.name


def _add_outside(found: NamedPaths, place: str, actual: Path, project: Path, key: str, where: Where) -> None:
    other = found.outside.get(place)
    if other is None and "/" not in place and (project / place).exists() and place != ".":
        other = project / place
        if other.resolve() == actual:  # a link in the project
            other = None
    if other is not None and other != actual:
        raise ConfigError(
            f"{actual} and {other} would have the same place in the package, {place}",
            setting=key,
            where=where(key),
            fix="rename one of them",
        )
    if place in snapshot.RESERVED_NAMES:
        raise ConfigError(
            f"{place} is a name that the package reserves", setting=key, where=where(key), fix="rename it"
        )
    found.outside[place] = actual


def packaged_path(package: Path, request: Mapping[str, Any], written: str) -> Path:
    """Returns the path in a package of a file or folder that its settings name.

    Args:
        package: The package's folder.
        request: Its request.json.
        written: The path in the settings, as written.

    Raises:
        ConfigError: The path is outside of the package, because it was not named when the package was made.
    """
    places: Mapping[str, str] = request.get(PLACES) or {}
    place = os.path.normpath(places.get(written, written))
    if os.path.isabs(place) or place.split("/")[0] == "..":  # noqa: PTH117  - a text
        raise ConfigError(
            "the package has no copy of this file, because its config did not name it",
            received=written,
            fix="start a new run with `roost run`",
        )
    return package / place


def require_packaged(settings: DlnestSettings, package: PackageFolder, where: Where) -> list[Path]:
    """Returns the files and folders in a package that its settings name.

    Raises:
        ConfigError: One is not in the package.
    """
    request, found = package.request, []
    for key, written in _written_paths(settings):
        try:
            path = packaged_path(package.path, request, written)
        except ConfigError as error:
            raise ConfigError(
                error.message, setting=key, received=written, where=where(key), fix=error.fix
            ) from None
        if not path.exists():
            raise ConfigError(
                f"the package has no {path.relative_to(package.path)}",
                setting=key,
                received=written,
                where=where(key),
            )
        found.append(path)
    return found
