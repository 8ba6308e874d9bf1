"""Objects from settings: a class by its path, made with the arguments beside it.

A config may only name classes and functions of a few libraries and of the project itself. Everything else
is refused before anything is imported, so reading a config can never reach ``os.system``.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from roost.base.errors import ConfigError
from roost.base.installed import is_installed
from roost.base.suggest import proposal

ALLOWED = ("torch.optim", "torch.nn", "torchvision", "torchmetrics")
"""Libraries, or parts of them, whose classes and functions a config may name."""

Where = Callable[[str], object]
"""Gives the place where a dotted key was set, such as ``config.yaml:12``."""


class _Unfit(ConfigError):
    """Ours, to be told from an error that the project's own code raises while it is imported."""


def locate(
    path: str, *, root: Path | None = None, setting: str | None = None, where: object = None
) -> Callable[..., Any]:
    """The class or function that a setting names.

    Args:
        path: ``torch.optim.AdamW``, or ``Model/Net.py:Net`` for a file of the project.
        root: The project's or package's folder; the working folder if left out. Files are imported as
            modules below it (``Model.Net``), so it comes first on ``sys.path``, then the file's folder.
        setting: The setting that names it, for messages.
        where: Where it was set, for messages.

    Raises:
        ConfigError: The path is not one that a config may name, or there is nothing there. An error inside
            the project's own file passes through.
    """
    try:
        if ".py:" in path:
            found, named = _from_file(path, Path.cwd() if root is None else root)
        else:
            found, named = _from_library(path)
        if not (inspect.isclass(found) or inspect.isroutine(found)):
            raise _Unfit(f"{named} is neither a class nor a function")
    except _Unfit as error:
        asked = {} if setting is None else {"setting": setting, "received": path}
        raise ConfigError(error.message, where=where, fix=error.fix, **asked) from None
    made: Callable[..., Any] = found
    return made


def build(
    spec: Mapping[str, Any],
    root: Path | None = None,
    setting: str | None = None,
    where: Where = lambda key: None,
    /,
    **runtime: Any,
) -> Any:
    """The object that ``{"class": path, **arguments}`` describes.

    Args:
        spec: The path, see `locate`, and arguments from the config.
        root: The project's folder.
        setting: The dotted key of the spec, for messages.
        where: Where a dotted key was set, for messages.
        **runtime: Arguments that nobody typed, such as ``params``; no message shows their values.

    Raises:
        ConfigError: There is no such class, or it does not take these arguments.
    """
    place = _Place(setting, where)
    path = spec.get("class")
    if not isinstance(path, str):
        raise ConfigError(
            "class is missing", received=dict(spec), **place.of(), fix="name a class: `class: ...`"
        )
    at = place.of("class")
    made = locate(path, root=root, **at)
    arguments = {name: value for name, value in spec.items() if name != "class"}
    for name in (name for name in arguments if name in runtime):
        raise ConfigError(f"{path} gets {name!r} from roost", **place.of(name), fix=f"remove {name}")
    _check_arguments(path, made, arguments, runtime, place)
    if ".py:" in path:
        return made(**arguments, **runtime)
    try:
        return made(**arguments, **runtime)
    except (TypeError, ValueError) as error:
        # A library's class that refuses its values: the config is at fault, not the project's code.
        raise ConfigError(
            f"{path} does not take these arguments: {error}", received=arguments, **{**at, "setting": setting}
        ) from error


class _Place(NamedTuple):
    """Of a spec, for messages."""

    setting: str | None
    where: Where

    def of(self, name: str | None = None) -> dict[str, Any]:
        """Setting and place of the spec, or of one of its keys."""
        key = ".".join(filter(None, (self.setting, name))) or None
        return {"setting": key, "where": self.where(key) if key is not None else None}


def _check_arguments(
    path: str,
    made: Callable[..., Any],
    given: Mapping[str, Any],
    runtime: Mapping[str, Any],
    place: _Place,
) -> None:
    try:
        signature = inspect.signature(made)
    except ValueError:  # written in C, without a signature
        return
    takes = {name: one for name, one in signature.parameters.items() if one.kind in _BY_NAME}
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    shape = f"it is {path}{inspect.Signature(bare)}"
    is_open = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in signature.parameters.values())
    for name in given:
        if name not in takes and not is_open:
            fix = proposal(name, takes) + shape
            raise ConfigError(
                f"{path} takes no argument {name!r}", received=given[name], **place.of(name), fix=fix
            )
    for name in runtime:
        if name not in takes and not is_open:
            raise ConfigError(f"{path} takes no {name!r}, which roost gives", **place.of("class"), fix=shape)
    for name, one in takes.items():
        if one.default is inspect.Parameter.empty and name not in given and name not in runtime:
            at = place.of("class")
            raise ConfigError(f"{path} needs the argument {name!r}", **at, fix=f"give it: {shape}")


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def forget(root: Path) -> dict[str, types.ModuleType]:
    """Unloads every module of a project, so that another one can be loaded in the same process; gives them.

    Two packages have modules of the same names; without this the second would run code of the first. A worker
    serves one package and never calls it; it is for who loads several.
    """
    folders = tuple({f"{root.absolute()}/", f"{root.resolve()}/"})

    def is_below(place: object) -> bool:
        # A virtual environment may lie in the project's folder, and torch must not be loaded twice.
        return f"{place}/".startswith(folders) and not is_installed(str(place))

    doomed = []
    for name, module in sys.modules.items():
        known = getattr(module, "__dict__", {})
        places = [known.get("__file__"), *known.get("__path__", [])]
        if name != "__main__" and any(map(is_below, places)):
            doomed.append(name)
    taken = {name: sys.modules.pop(name) for name in doomed}
    sys.path[:] = [entry for entry in sys.path if not is_below(entry)]
    importlib.invalidate_caches()
    return taken


# --- libraries ----------------------------------------------------------------------------------------


def _from_library(path: str) -> tuple[object, str]:
    parts = path.split(".")
    if not any(path.startswith(prefix + ".") for prefix in ALLOWED):
        raise _Unfit(
            f"{path!r} is not something that a config may name",
            fix=f"{_as_file(path)}write a path below {', '.join(ALLOWED)}, or a file: Model/Net.py:Net",
        )
    if not all(part.isidentifier() and not part.startswith("_") for part in parts):
        raise _Unfit(f"{path!r} is no path of a class")
    found: object = _imported(parts[0])
    for i, part in enumerate(parts[1:], 1):
        here = ".".join(parts[:i])
        found = _member(found, part, here)
        # Also what a module merely imported (`torch.optim.adam.torch.hub.load`) would be reachable.
        if isinstance(found, types.ModuleType) and found.__name__ != f"{here}.{part}":
            raise _Unfit(f"{path!r} leads out of {parts[0]}'s own modules", fix="name the class itself")
    if not _is_allowed(getattr(found, "__module__", None)):
        raise _Unfit(f"{path!r} comes from {getattr(found, '__module__', None)}", fix="name a class")
    return found, path


def _as_file(path: str) -> str:
    pieces = path.split(".")
    is_file = len(pieces) > 1 and Path(*pieces[:-1]).with_suffix(".py").is_file()
    return f"did you mean {'/'.join(pieces[:-1])}.py:{pieces[-1]}? " if is_file else ""


def _is_allowed(module: object) -> bool:
    name = f"{module}."
    return any(name.startswith(prefix + ".") for prefix in ALLOWED)


def _imported(library: str) -> types.ModuleType:
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        raise _Unfit(f"{library} is not installed", fix=f"pip install {library}") from None


def _member(owner: object, name: str, path: str) -> object:
    if hasattr(owner, name):
        return getattr(owner, name)
    is_package = isinstance(owner, types.ModuleType) and hasattr(owner, "__path__")
    if is_package and importlib.util.find_spec(f"{path}.{name}") is not None:
        return importlib.import_module(f"{path}.{name}")
    public = [other for other in dir(owner) if not other.startswith("_")]
    fix = proposal(name, public).strip() or None
    raise _Unfit(f"{path} has no {name!r}", fix=fix)


# --- files of the project -----------------------------------------------------------------------------


def _from_file(path: str, root: Path) -> tuple[object, str]:
    file_name, _, name = path.rpartition(":")
    pure = PurePosixPath(file_name)
    if pure.is_absolute() or ".." in pure.parts:
        raise _Unfit(f"{path!r} leads out of the project", fix="write the path below the project's folder")
    parts = pure.with_suffix("").parts
    if not all(part.isidentifier() for part in (*parts, name)):
        raise _Unfit(f"{path!r} is no name that Python can import", fix="use letters, digits and _ only")
    file = root.absolute() / pure
    if not file.is_file():
        near = difflib.get_close_matches(file_name, _python_files(root), n=1)
        fix = f"did you mean {near[0]}:{name}?" if near else f"make it, or name a file below {root}"
        raise _Unfit(f"there is no file {file_name}", fix=fix)
    _put_on_path(root.absolute(), file.parent)
    module = _import_file(".".join(parts), file)
    if name not in vars(module):
        classes = [other for other, value in vars(module).items() if inspect.isclass(value)]
        has = f"it has {', '.join(classes)}" if classes else "it has no class"
        raise _Unfit(f"{file_name} has no {name!r}", fix=proposal(name, classes) + has)
    return vars(module)[name], path


def _python_files(root: Path) -> list[str]:
    shallow = [*root.glob("*.py"), *root.glob("*/*.py")]
    return [file.relative_to(root).as_posix() for file in shallow]


def _put_on_path(root: Path, folder: Path) -> None:
    """Root first, so that a project's modules go before installed ones; the file's folder right after."""
    wanted = list(dict.fromkeys((str(root), str(folder))))
    sys.path[:] = [wanted[0], *wanted[1:], *(entry for entry in sys.path if entry not in wanted)]
    importlib.invalidate_caches()


def _import_file(name: str, file: Path) -> types.ModuleType:
    """Imports ``file`` as ``name`` and as nothing else.

    Not by the path: a folder ``Dataset/`` without ``__init__.py`` would lose to the ``Dataset.py`` inside it,
    because that folder is on the path too.
    """
    loaded = sys.modules.get(name)
    if loaded is not None and _is_of(loaded, file):
        return loaded
    *parents, _ = name.split(".")
    folder = file.parents[len(parents)]
    for number, parent in enumerate(parents, 1):
        folder = folder / parent
        _import_package(".".join(parents[:number]), folder)
    if loaded is not None or name in sys.stdlib_module_names:
        raise _Unfit(
            f"the name {name} belongs to another module ({getattr(loaded, '__file__', 'a part of Python')})",
            fix="rename the file",
        )
    return _executed(name, importlib.util.spec_from_file_location(name, file))


def _is_of(module: types.ModuleType, file: Path) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and Path(origin).exists() and Path(origin).samefile(file)


def _import_package(name: str, folder: Path) -> None:
    loaded = sys.modules.get(name)
    if loaded is not None:
        if str(folder) not in [str(entry) for entry in getattr(loaded, "__path__", [])]:
            raise _Unfit(
                f"the name {name} belongs to another module ({getattr(loaded, '__file__', loaded)})",
                fix=f"rename the folder {folder.name}",
            )
        return
    initial = folder / "__init__.py"
    if initial.is_file():
        places = [str(folder)]
        _executed(
            name, importlib.util.spec_from_file_location(name, initial, submodule_search_locations=places)
        )
        return
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[name] = importlib.util.module_from_spec(spec)


def _executed(name: str, spec: importlib.machinery.ModuleSpec | None) -> types.ModuleType:
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    if "." in name:
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, module)
    return module
