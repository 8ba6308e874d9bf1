"""The project's folder of a config: the folder that a run copies, and at which its paths start."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import ConfigError, NotFound
from roost.base.text.typed_path import typed_path
from roost.config import interpolation
from roost.config.layers import Config

SETTING = "project"
OPTION = "--project"


@dataclass(frozen=True)
class ProjectFolder:
    """A project's folder, and how it was found."""

    path: Path
    note: str | None = None
    """A line for the user; None if there is nothing to choose, or the caller named the folder."""


def named_project(config: Config, given: Path | None) -> ProjectFolder | None:
    """Returns the project's folder that the caller or the config names; None if neither does.

    Args:
        config: The merged config; its ``project`` is relative to the file that sets it.
        given: The folder that the caller names, relative to the current folder.

    Raises:
        NotFound: ``given`` does not exist.
        ConfigError: ``project`` of the config is not a folder.
    """
    if given is not None:
        return ProjectFolder(given_folder(given))
    if config.values.get(SETTING) is None:
        return None
    value = interpolation.resolve(config.values, {"package": "${package}"}, where=config.where)[SETTING]
    where = config.where(SETTING)
    path = _absolute(config.folder_of(SETTING), Path(value)) if isinstance(value, str) and value else None
    if path is None or not path.is_dir():
        raise ConfigError(
            "there is no such folder" if path is not None else "is not a folder",
            setting=SETTING,
            received=value,
            where=where,
            fix="it is the folder of the code, relative to the file that sets it"
            f"{'' if path is None else f', here {path}'}; a key of your own needs another name",
        )
    return ProjectFolder(path, f"project: {path}, which {where} names")


def given_folder(given: Path) -> Path:
    """Returns the absolute path of the folder that a caller names, relative to the current folder.

    Raises:
        NotFound: It does not exist.
    """
    path = _absolute(Path.cwd(), given)
    if not path.is_dir():
        raise NotFound("there is no such folder", setting=OPTION, received=str(given))
    return path


def _absolute(folder: Path, path: Path) -> Path:
    try:
        return Path(os.path.normpath(folder / typed_path(path)))
    except (NotFound, ValueError):  # no such user after ~; a zero byte
        return folder / path


def nearest_project(config: Config, files: Mapping[str, str]) -> ProjectFolder:
    """Returns the folder of a config if it holds all files that the config names; else the nearest folder
    above that does.

    Args:
        config: The merged config.
        files: The files that it names, as relative paths, each with the dotted key that names it.

    Raises:
        ConfigError: No folder holds all of them.
    """
    own = config.path.parent
    if not files:
        return ProjectFolder(own)
    folders = list(searched_folders(own))
    for folder in folders:
        if all((folder / name).is_file() for name in files):
            below = config.path.relative_to(folder)
            note = f"project: {folder}, the nearest folder above {below} that holds {', '.join(files)}"
            return ProjectFolder(folder, None if folder == own else note)
    raise _no_project_error(config, files, folders)


def _no_project_error(config: Config, files: Mapping[str, str], folders: list[Path]) -> ConfigError:
    holders = {name: next((one for one in folders if (one / name).is_file()), None) for name in files}
    missing = next((name for name, holder in holders.items() if holder is None), None)
    searched = f"looked in {', '.join(map(str, folders))}"
    if missing is None:
        places = ", ".join(f"{name} is in {holder}" for name, holder in holders.items())
        return ConfigError(
            f"no folder holds all files that the config names: {places}",
            where=config.path,
            fix=f"move them into one folder, at which all paths start; {searched}",
        )
    key = files[missing]
    return ConfigError(
        f"the file {missing} does not exist",
        setting=key,
        received=missing,
        where=config.where(key) or config.where(key.split(".")[0]),
        fix=f"paths start at the project's folder, which {OPTION} names; {searched}",
    )


def searched_folders(folder: Path) -> Iterator[Path]:
    """Yields a folder and those above it, up to the root of its git repository or to the home folder.

    Ends before a folder into which other users may put code: one that everyone may write, such as /tmp, or
    that belongs to neither root, the caller, nor the owner of ``folder``.
    """
    home = Path.home()
    owners = {0, os.geteuid(), folder.stat().st_uid} if folder.is_dir() else set()
    for one in (folder, *folder.parents):
        if one != folder and (one == Path(one.anchor) or not _is_trusted(one, owners)):
            return
        yield one
        if one == home or (one / ".git").exists():
            return


def _is_trusted(folder: Path, owners: set[int]) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid in owners and not status.st_mode & stat.S_IWOTH
