"""Inside a package for a while: its folder, modules and randomness, and nothing of them afterwards."""

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
from roost.train.step import seeding

_RENAMED = "roost_package_"


@contextmanager
def inside(package: PackageFolder) -> Iterator[None]:
    """Where the package's own code can be imported and run as its worker would, in a process that serves
    others too: the working folder is the package, no bytecode lands in it, and modules of the names that its
    files have are put away. Afterwards folder, modules, ``sys.path`` and random generators are as before.

    The working folder belongs to the process: no other thread may count on it meanwhile. What was built from
    the package's code works on afterwards, but what that code imports only then is not found.
    """
    folder = os.open(
        ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    )  # also of one that was moved or removed
    path, bytecode = list(sys.path), sys.dont_write_bytecode
    put_away = _put_away(package)
    try:
        with seeding.isolated():
            os.chdir(package.path)
            sys.dont_write_bytecode = True
            yield
    finally:
        _rename(objects.unload_project(package.path))
        sys.modules.update(put_away)
        sys.path[:], sys.dont_write_bytecode = path, bytecode
        os.fchdir(folder)
        os.close(folder)


def _put_away(package: PackageFolder) -> dict[str, types.ModuleType]:
    """Takes the modules out of ``sys.modules`` that stand where the package's own would go."""
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
    """Gives them names under which they stay: torch.compile imports whatever it traces through, by the name
    that the module says of itself."""
    prefix = f"{_RENAMED}{secrets.token_hex(6)}"
    for name, module in modules.items():
        module.__name__ = f"{prefix}.{name}"
        sys.modules[module.__name__] = module


def _names(package: PackageFolder) -> set[str]:
    """What can be imported from the package by a bare name: of its root, and of the folders that the files
    named by the config lie in, because `roost.config.objects` puts these on the path."""
    folders = {package.path, *(package.path / folder for folder in _named_folders(package.args))}
    names = {entry.stem for folder in folders if folder.is_dir() for entry in folder.iterdir()}
    return names - sys.stdlib_module_names - {"__main__", "roost"}


def _named_folders(args: Mapping[str, Any]) -> Iterator[Path]:
    for name in ("runner", "dataset", "hooks"):
        yield from (Path(text.rpartition(":")[0]).parent for text in _files(args.get(name)))


def _files(value: Any) -> Iterator[str]:
    """Every class or function of a file that is named in there."""
    if isinstance(value, str):
        if objects.FILE_CLASS_PATH.fullmatch(value):
            yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _files(inner)


def _is_installed(module: types.ModuleType | None) -> bool:
    """To load one of these twice would crash some (NumPy), and no project means to replace them."""
    known = getattr(module, "__dict__", {})
    places = [known.get("__file__"), *known.get("__path__", [])]
    return any(is_installed(str(place)) for place in places)
