"""Imports the files that a config of DLNest's contract names, from the package."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import types
from pathlib import Path

from roost.base.errors import ConfigError, ContractError
from roost.base.system import cold_restart
from roost.base.text.suggestions import did_you_mean
from roost.config.section_schema import Where
from roost.package.dlnest.named_paths import PLACES, packaged_path
from roost.package.package import PackageFolder
from roost.project.dlnest import import_names

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
        return package.path / Path(written).name  # a package that DLNest's own program has made
    return packaged_path(package.path, request, written)


def load_class(
    written: str,
    name: str,
    package: PackageFolder,
    *,
    settings: tuple[str, str],
    where: Where,
    has_bare_name: bool = False,
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
        has_bare_name: Whether its module has the bare name of its file, too: the dataset's has, and objects
            in checkpoints and loader workers refer to it by that name.

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
    module = import_file(file, package.path, has_bare_name=has_bare_name)
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


def import_file(file: Path, package: Path, *, has_bare_name: bool = False) -> types.ModuleType:
    """Imports a file of the package as the module that the project's own code would import it as
    (``Model.Runner``), or by a name of its own where that name is another module's.

    Args:
        file: The file.
        package: The package's folder.
        has_bare_name: Whether the module has the bare name of its file, too, if no other module has it.
    """
    put_on_path(package, file.parent)
    name = _module_name(file, package)
    bare = file.stem if has_bare_name and _is_free(file, package) else name
    module = sys.modules.get(name)
    # The folder of the same name remains a package.
    folders = [str(package / bare)] if bare != name and (package / bare).is_dir() else None
    if module is None or not _is_at(module, file.with_suffix("")):
        module = _execute(bare, name, file, folders)
    elif folders is not None:  # the project's own code has imported it before
        module.__path__ = folders
    sys.modules[bare] = module
    for one, other in list(sys.modules.items()):
        # What the import system does: modules are attributes of their packages.
        parent, _, child = one.rpartition(".")
        package_module = sys.modules.get(parent)
        if (other is module or package_module is module) and package_module not in (None, other):
            vars(package_module).setdefault(child, other)
    return module


def _execute(name: str, other_name: str, file: Path, folders: list[str] | None) -> types.ModuleType:
    """Executes a file as a module of two names, which may be the same, and of the folders as a package."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if folders is not None:
        module.__path__ = folders
    before = {one: sys.modules.get(one) for one in (name, other_name)}
    sys.modules[name] = sys.modules[other_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        for one, other in before.items():
            if other is None:
                sys.modules.pop(one, None)
            else:
                sys.modules[one] = other
        raise
    return module


def put_on_path(package: Path, folder: Path) -> None:
    """Puts the package's root first on ``sys.path``, except for the folder of `import_names`, and a folder of
    it last, unless they are on it."""
    if str(package) not in sys.path:
        sys.path.insert(1 if sys.path[:1] == [import_names.FOLDER] else 0, str(package))
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()


def _module_name(file: Path, package: Path) -> str:
    parts = file.relative_to(package).with_suffix("").parts
    if all(part.isidentifier() for part in parts) and parts[0] not in sys.stdlib_module_names:
        outer = [(".".join(parts[:end]), package.joinpath(*parts[:end])) for end in range(1, len(parts) + 1)]
        if all(name not in sys.modules or _is_at(sys.modules[name], place) for name, place in outer):
            return ".".join(parts)
    # Of the place in the package, because a pickle has the name, and a package can be moved.
    return _UNIQUE + hashlib.sha256("/".join(parts).encode()).hexdigest()[:12]


def _is_free(file: Path, package: Path) -> bool:
    """Whether no other module has the bare name of a file; a folder of the project may have it."""
    loaded = sys.modules.get(file.stem)
    return file.stem not in sys.stdlib_module_names and (
        loaded is None or _is_at(loaded, package / file.stem)
    )


def _is_at(module: types.ModuleType, place: Path) -> bool:
    """Whether a module is loaded from a path, which is given without ``.py``; or is its folder."""
    known = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
    files = (place, Path(f"{place}.py"), place / "__init__.py")
    return any(Path(one) in files for one in known if one)


def _is_own_class(value: object, module: types.ModuleType) -> bool:
    return inspect.isclass(value) and value.__module__ == module.__name__
