"""The project's folder of a config of DLNest's contract: ``root_file_path``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from roost.base.errors import ConfigError
from roost.config.dlnest.child_files import ROOT_FOLDER
from roost.config.layers import Config
from roost.config.project_folder import given_folder


@dataclass(frozen=True)
class RootFolder:
    """A project's folder, at which all paths of its config start."""

    path: Path
    notes: tuple[str, ...] = ()
    """Notes for the user, one line each."""
    former: Path | None = None
    """A ``root_file_path`` that no longer exists: the project was moved. Paths in it are now in `path`."""

    def resolve(self, written: str) -> Path:
        """Returns the absolute path of a path in the config, without ``..``."""
        path = Path(os.path.normpath(self.path / written))
        if self.former is not None and path.is_relative_to(self.former):
            return self.path / path.relative_to(self.former)
        return path


def find_root(config: Config, given: Path | None) -> RootFolder:
    """Returns the project's folder: that of the caller, or ``root_file_path`` (a relative one starts at the
    folder of the root config file), or the folder of the root config file.

    An absolute ``root_file_path`` that does not exist is that of another machine, or from before the project
    was moved: the folder of the root config file is taken, with a note.

    Raises:
        NotFound: ``given`` does not exist.
        ConfigError: A relative ``root_file_path`` does not exist, or it is not a text.
    """
    own, written = config.path.parent, config.values.get(ROOT_FOLDER)
    former = _former_root(written, own)
    if given is not None:
        return RootFolder(given_folder(given), former=former)
    if not written:
        return RootFolder(own)
    where = config.where(ROOT_FOLDER)
    if former is not None:
        note = f"{ROOT_FOLDER} {former} ({where}) does not exist: the project is {own}, the config's folder"
        return RootFolder(own, (note,), former)
    path = Path(os.path.normpath(own / written)) if isinstance(written, str) and "\0" not in written else None
    if path is None or not path.is_dir():
        raise ConfigError(
            "there is no such folder",
            setting=ROOT_FOLDER,
            received=written,
            where=where,
            fix=f"it is the folder of the project; a relative one starts at {own}",
        )
    if path.resolve() == own.resolve():
        return RootFolder(path)
    # A copied project still names the folder of the first one.
    is_copy = (path / config.path.name).is_file()
    advice = (
        f'; of {own}, the config alone is used (for its code, write "{ROOT_FOLDER}": ".")' if is_copy else ""
    )
    return RootFolder(path, (f"project: {path}, which {ROOT_FOLDER} ({where}) names{advice}",))


def _former_root(written: object, own: Path) -> Path | None:
    """Returns an absolute ``root_file_path`` that does not exist."""
    if not isinstance(written, str) or not Path(written).is_absolute() or Path(written).is_dir():
        return None
    return Path(os.path.normpath(written))
