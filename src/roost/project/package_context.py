"""Importing and running a package's own code in a process that serves other packages too."""

from __future__ import annotations

import os
import secrets
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from roost.base.system.site_packages import is_installed
from roost.config import objects
from roost.package.package import PackageFolder
from roost.project.dlnest import import_names
from roost.train.step import seeding

_RENAMED = "roost_package_"


@contextmanager
def package_code(package: PackageFolder) -> Iterator[None]:
    """Makes the package's code importable within the block, as in its worker: the working folder is the
    package, no bytecode is written to it, and loaded modules with the names of its files are set aside.
    Afterwards the folder, modules, import names, ``sys.path`` and random generators are as before.

    The working folder belongs to the process: no other thread may rely on it during the block. Objects built
    from the package's code keep working afterwards, but modules that they import only then are not found.
    """
    folder = os.open(
        ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    )  # a descriptor also works if the folder is moved or removed
    path, bytecode, finders = list(sys.path), sys.dont_write_bytecode, list(sys.meta_path)
    put_away = _put_away(package)
    try:
        with seeding.isolated():
            os.chdir(package.path)
            sys.dont_write_bytecode = True
            yield
    finally:
        _rename(objects.unload_project(package.path))
        if import_names.FINDER not in finders:
            import_names.uninstall()
        sys.modules.update(put_away)
        sys.path[:], sys.dont_write_bytecode = path, bytecode
        os.fchdir(folder)
        os.close(folder)


def _put_away(package: PackageFolder) -> dict[str, types.ModuleType]:
    """Removes and returns the modules in ``sys.modules`` whose names the package's own modules need."""
    own = {name for name in _names(package) if not _is_installed(sys.modules.get(name))}
    found = {
        name: module
        for name, module in sys.modules.items()
        if name.partition(".")[0] in own or name.startswith(_RENAMED)
    }
    for name in found:
        del sys.modules[name]
    return found


def _rename(modules: Mapping[str, types.ModuleType]) -> None:
    """Keeps the modules under unique names: torch.compile imports the modules it traces through, by their
    ``__name__``."""
    prefix = f"{_RENAMED}{secrets.token_hex(6)}"
    for name, module in modules.items():
        module.__name__ = f"{prefix}.{name}"
        sys.modules[module.__name__] = module


def _names(package: PackageFolder) -> set[str]:
    """Returns the top-level names that can be imported from the package: those of its root, and of the
    folders of files named by the config, because `roost.config.objects` puts these on the path."""
    folders = {package.path, *(package.path / folder for folder in _named_folders(package.args))}
    names = {entry.stem for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return names - sys.stdlib_module_names - {"__main__", "roost"}


def _named_folders(args: Mapping[str, Any]) -> Iterator[Path]:
    for name in ("runner", "dataset", "hooks"):
        yield from (Path(text.rpartition(":")[0]).parent for text in _files(args.get(name)))
    for name, value in args.items():  # of DLNest's contract
        if name.endswith("_file_path") and isinstance(value, str):
            yield Path(value).parent


def _files(value: Any) -> Iterator[str]:
    """Yields every class path of a file (``file.py:Name``) in a nested setting."""
    if isinstance(value, str):
        if objects.FILE_CLASS_PATH.fullmatch(value):
            yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _files(inner)


def _is_installed(module: types.ModuleType | None) -> bool:
    """Whether a module is an installed library: loading one twice can crash (NumPy), and no project replaces
    one."""
    known = getattr(module, "__dict__", {})
    places = [known.get("__file__"), *known.get("__path__", [])]
    return any(is_installed(str(place)) for place in places)
