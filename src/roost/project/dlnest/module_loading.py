"""Imports the files that a config of document 000's contract names, from the package."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
import types
from pathlib import Path

from roost.base.errors import ConfigError, ContractError
from roost.base.system import cold_restart
from roost.base.text.suggestions import did_you_mean
from roost.config.section_schema import Where
from roost.package.dlnest.named_paths import PLACES, packaged_path
from roost.package.package import PackageFolder

_UNIQUE = "roost_file_"
"""Prefix of the name of a module that cannot have the name of its path."""


def packaged_file(written: str, package: PackageFolder) -> Path:
    """Returns the file of the package that a path of its config leads to.

    A path below the project's folder keeps its place; a file from elsewhere is in the package's root.

    Raises:
        ConfigError: The path leads out of the package.
    """
    request = package.request
    if Path(written).is_absolute() and written not in (request.get(PLACES) or {}):
        return package.path / Path(written).name  # a package that document 000's own program has made
    return packaged_path(package.path, request, written)


def load_class(
    written: str, name: str, package: PackageFolder, *, settings: tuple[str, str], where: Where
) -> type:
    """Imports a class of the project from the package.

    The package's root is first on ``sys.path``. The file's folder is last, so that modules of the project
    import those next to them by their bare names, and none of them hides an installed one.

    Args:
        written: The path of its file, as the config gives it.
        name: The class's name.
        package: The package.
        settings: The keys of path and name, for messages.
        where: Returns where a key was set, for messages.

    Raises:
        ConfigError: There is no such file.
        ContractError: The file has no such class.
        Exception: An error of the project's code.
    """
    path_key, name_key = settings
    file = packaged_file(written, package)
    if not file.is_file():
        raise ConfigError(
            "the package has no such file",
            setting=path_key,
            received=written,
            where=where(path_key),
            fix="name a file of the project, and begin a new run",
        )
    cold_restart.restart_if_needed(package.path)
    module = import_file(file, package.path)
    cold_restart.restart_if_needed(package.path)
    found = vars(module).get(name)
    if not inspect.isclass(found):
        own = [key for key, value in vars(module).items() if _is_own_class(value, module)]
        has = f"it has {', '.join(own)}" if own else "it has no class"
        raise ContractError(
            f"{file.relative_to(package.path)} has no class of this name",
            setting=name_key,
            received=name,
            where=where(name_key),
            fix=did_you_mean(name, own) + has,
        )
    return found


def import_file(file: Path, package: Path) -> types.ModuleType:
    """Imports a file of the package as the module that the project's own code would import it as
    (``Model.Runner``), or by a name of its own where that name is another module's."""
    put_on_path(package, file.parent)
    name = _module_name(file, package)
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)
    return module


def add_bare_name(module: types.ModuleType, package: Path) -> None:
    """Makes a module importable by the bare name of its file, too, as the dataset's module is: objects in
    checkpoints and loader workers refer to it by that name.

    A folder of the project that has the same name remains importable as a package.
    """
    file = Path(str(module.__file__))
    name, folder = file.stem, package / file.stem
    loaded = sys.modules.get(name)
    is_folder = loaded is not None and [str(folder)] == list(getattr(loaded, "__path__", []))
    if name in sys.stdlib_module_names or (loaded is not None and not is_folder):
        return
    if folder.is_dir():
        module.__path__ = [str(folder)]
    sys.modules[name] = module


def put_on_path(package: Path, folder: Path) -> None:
    """Puts the package's root first on ``sys.path`` and a folder of it last, unless they are on it."""
    if str(package) not in sys.path:
        sys.path.insert(0, str(package))
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()


def _module_name(file: Path, package: Path) -> str:
    parts = file.relative_to(package).with_suffix("").parts
    name = ".".join(parts)
    if all(part.isidentifier() for part in parts) and parts[0] not in sys.stdlib_module_names:
        taken = [_leads_elsewhere(parts[: end + 1], package) for end in range(len(parts))]
        if not any(taken):
            return name
    return _UNIQUE + hashlib.sha256(os.fsencode(file)).hexdigest()[:12]


def _leads_elsewhere(parts: tuple[str, ...], package: Path) -> bool:
    """Whether the module of this name is loaded from another place than the package."""
    loaded = sys.modules.get(".".join(parts))
    if loaded is None:
        return False
    place = package.joinpath(*parts)
    known = [getattr(loaded, "__file__", None), *getattr(loaded, "__path__", [])]
    return not any(
        Path(one) in (place, place.with_suffix(".py"), place / "__init__.py") for one in known if one
    )


def _is_own_class(value: object, module: types.ModuleType) -> bool:
    return inspect.isclass(value) and value.__module__ == module.__name__
