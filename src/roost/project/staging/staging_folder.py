"""The folder of the staged archives: on a fast local disk, private to its user."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from roost.base import durable
from roost.base.errors import ConfigError, RoostError
from roost.base.system import mounts, state_folder
from roost.base.text.typed_path import typed_path
from roost.package.results.staged_archives import STAGE_KEY

VARIABLE = "ROOST_SCRATCH"
SETTING = f"{STAGE_KEY}.to"
ANOTHER_FOLDER = f"name a folder on another disk: {SETTING}, or the variable {VARIABLE}"


def staging_folder(to: str | None = None) -> Path:
    """Returns the folder of the staged archives; it need not exist.

    It is in ``to``, else in ``$ROOST_SCRATCH``, else in ``$TMPDIR`` or in the user's cache, whichever comes
    first and is on a disk of this machine, else in the system's folder for temporary files.
    """
    name = f"roost-staged-{os.geteuid()}"  # a scratch disk may be shared by users
    if given := to or os.environ.get(VARIABLE):
        return typed_path(given).absolute() / name
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = cache if cache.is_absolute() else typed_path("~/.cache")
    candidates = [
        Path(one) for one in (os.environ.get("TMPDIR", ""), home) if one and Path(one).is_absolute()
    ]
    local = (one for one in candidates if not mounts.is_remote(mounts.file_system_type(one)))
    return next(local, Path(tempfile.gettempdir())) / name


def prepare(folder: Path, package: Path | None, *, setting: str | None, where: object | None) -> None:
    """Makes the folder if it is missing.

    Args:
        folder: The folder.
        package: The package of the run, in which it must not be.
        setting: The setting that named it, for messages.
        where: Where that was set.

    Raises:
        ConfigError: It is inside the package.
        RoostError: It cannot be made, or belongs to another user.
    """
    if package is not None and folder.resolve().is_relative_to(package.resolve()):
        what = "the staging folder is inside the package, which would hold a copy of the data"
        raise ConfigError(what, setting=setting, where=where or folder, fix=ANOTHER_FOLDER)
    try:
        if not folder.is_dir():
            durable.make_folders(folder.parent)
            durable.make_folder(folder, exist_ok=True, mode=0o700)
        state_folder.require_owner(folder)
    except OSError as error:
        what = f"the staging folder cannot be made: {error.strerror or error}"
        raise RoostError(what, setting=setting, where=folder, fix=ANOTHER_FOLDER) from error
