"""The folder of a package for pictures, tables and weights that are written without naming a file."""

from __future__ import annotations

from pathlib import Path

from roost.base import durable
from roost.base.errors import Refused
from roost.package.package import PackageFolder

NAME = "exports"
UNFINISHED = "weights"
"""The name of a file of weights in its scratch folder until it is complete; its rename is the last step of an
export."""


def export_path(package: PackageFolder, name: str, *, fix: str) -> Path:
    """Returns the path of a file of this name, in a folder that exists.

    Args:
        package: The package.
        name: The name of the file or folder to write.
        fix: How to name a file elsewhere, for errors.

    Raises:
        Refused: The folder cannot be written, or is of the project whose code the package holds.
    """
    folder, manifest = package.path / NAME, package.manifest
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise Refused("is no folder of the package's own", where=folder, fix=fix)
    if any(f"{NAME}/{name}" in manifest[kind] for kind in ("files", "links")):
        raise Refused("is a copied file of the project, which must not change", where=folder / name, fix=fix)
    try:
        durable.make_folder(folder, exist_ok=True)
    except OSError as error:
        raise Refused(f"cannot be written: {error.strerror}", where=folder, fix=fix) from error
    return folder / name
