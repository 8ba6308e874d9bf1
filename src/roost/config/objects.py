"""Objects from settings: a class by its path, called with the arguments next to it.

A config may only name classes and functions of a few libraries and of the project itself. All other paths
are refused before anything is imported, so reading a config can never reach ``os.system``.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import re
import sys
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

from roost.base.errors import ConfigError
from roost.base.system import cold_restart
from roost.base.system.collector_pause import paused_collector
from roost.base.system.site_packages import is_installed
from roost.base.text.suggestions import did_you_mean
from roost.config import allowed_classes, call_arguments
from roost.config.allowed_classes import ClassPathError
from roost.config.call_arguments import SpecLocation

Where = Callable[[str], object]
"""Returns where a dotted key was set, such as ``config.yaml:12``."""


def locate(
    path: str, *, root: Path | None = None, setting: str | None = None, where: object = None
) -> Callable[..., Any]:
    """Imports the class or function that a setting names.

    Args:
        path: ``torch.optim.AdamW``, or ``Model/Net.py:Net`` for a file of the project.
        root: The project's or package's folder; the working folder if None. Files are imported as modules
            below it (``Model.Net``), so it comes first on ``sys.path``, then the file's folder.
        setting: The setting that names it, for messages.
        where: Where it was set, for messages.

    Raises:
        ConfigError: A config may not name the path, or there is no such class or function. An error inside
            the project's own file is not caught.
    """
    try:
        cold_restart.restart_if_needed(root)
        if ".py:" in path:
            found, named = _from_file(path, Path.cwd() if root is None else root)
        else:
            found, named = allowed_classes.import_allowed(path), path
        cold_restart.restart_if_needed(root)
        # A file of the project may also define a callable object.
        is_callable = (
            callable(found) if ".py:" in path else inspect.isclass(found) or inspect.isroutine(found)
        )
        if not is_callable:
            raise ClassPathError(f"{named} is neither a class nor a function")
    except ClassPathError as error:
        origin = {} if setting is None else {"setting": setting, "received": path}
        raise ConfigError(error.message, where=where, fix=error.fix, **origin) from None
    target: Any = found
    return target  # type: ignore[no-any-return]


def build(
    spec: Mapping[str, Any],
    root: Path | None = None,
    setting: str | None = None,
    where: Where = lambda key: None,
    /,
    **runtime: Any,
) -> Any:
    """Builds the object that ``{"class": path, **arguments}`` describes.

    Args:
        spec: The path, see `locate`, and arguments from the config.
        root: The project's folder.
        setting: The dotted key of the spec, for messages.
        where: Returns where a dotted key was set, for messages.
        **runtime: Arguments from roost, such as ``params``; messages do not show their values.

    Raises:
        ConfigError: There is no such class, or it does not take these arguments.
    """
    return _Builder(Path.cwd() if root is None else root, where).build(spec, setting, runtime)


def build_callable(
    spec: Mapping[str, Any],
    root: Path | None = None,
    setting: str | None = None,
    where: Where = lambda key: None,
    /,
    *,
    inputs: int,
    inputs_setting: str | None = None,
) -> Callable[..., Any]:
    """Returns a callable from ``{"class": path, **arguments}``: an instance of the class, or the function
    with the arguments bound.

    Args:
        spec: As for `build`.
        root: As for `build`.
        setting: As for `build`.
        where: As for `build`.
        inputs: The number of positional values with which the callable will be called.
        inputs_setting: The setting that determines this number; ``inputs`` of the spec if None.

    Raises:
        ConfigError: As `build`; or the callable does not take this number of values.
    """
    builder = _Builder(Path.cwd() if root is None else root, where)
    location, path = SpecLocation(setting, where), str(spec.get("class"))
    inputs_setting = (
        inputs_setting if inputs_setting is not None else ".".join(filter(None, (setting, "inputs")))
    )
    target = locate(path, root=builder.root, **location.error_context("class"))
    if inspect.isclass(target):
        found = builder.build(spec, setting, {})
        if not callable(found):
            raise ConfigError(
                f"an instance of {path} cannot be called",
                **location.error_context("class"),
                fix="name a function",
            )
        call_arguments.check_inputs(
            path, getattr(found, "forward", found), {}, inputs, location, inputs_setting
        )
        return found  # type: ignore[no-any-return]
    given = {name: value for name, value in spec.items() if name != "class"}
    call_arguments.check_inputs(path, target, given, inputs, location, inputs_setting)
    whole = builder.objects(given, location, {})
    return functools.partial(target, **whole) if whole else target


FILE_CLASS_PATH = re.compile(r"[\w/.-]+\.py:\w+")
"""The path of a class or function in a file of the project."""


class _Builder(NamedTuple):
    root: Path
    where: Where

    def build(
        self,
        spec: Mapping[str, Any],
        setting: str | None,
        runtime: Mapping[str, Any],
        offered: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """See `build`. A nested spec also gets those values of ``offered``, from the outer spec, that it
        takes."""
        location, path = SpecLocation(setting, self.where), spec.get("class")
        if not isinstance(path, str):
            raise ConfigError(
                "class is missing",
                received=dict(spec),
                **location.error_context(),
                fix="name a class: `class: ...`",
            )
        target = locate(path, root=self.root, **location.error_context("class"))
        given = {name: value for name, value in spec.items() if name != "class"}
        runtime = {
            **runtime,
            **{n: value for n, value in offered.items() if call_arguments.accepts(target, n)},
        }
        for name in given:
            if name in runtime:
                raise ConfigError(
                    f"{path} gets {name!r} from roost", **location.error_context(name), fix=f"remove {name}"
                )
        call_arguments.check_names(path, target, given, runtime, location)
        whole = self.objects(given, location, {**offered, **runtime})
        if FILE_CLASS_PATH.fullmatch(path):
            return call_arguments.call(target, whole, runtime)
        try:
            return call_arguments.call(target, call_arguments.convert_types(target, whole, location), runtime)
        except ConfigError:
            raise
        except Exception as error:
            if raised_in_project(error, self.root):  # in a function that the library's class called
                raise
            bad_argument = call_arguments.find_bad_argument(
                whole, lambda other: call_arguments.call(target, other, runtime)
            )
            at = location.error_context("class" if bad_argument is None else bad_argument)
            raise ConfigError(
                f"{path} does not take {'these arguments' if bad_argument is None else 'this'}: "
                f"{describe_error(error)}",
                received=given if bad_argument is None else given[bad_argument],
                fix=call_arguments.describe_arguments(target),
                **{**at, **({"setting": setting} if bad_argument is None else {})},
            ) from error

    def objects(
        self, given: Mapping[str, Any], location: SpecLocation, offered: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Builds the arguments of a spec."""
        return {
            name: self._object(one, location.error_context(name)["setting"], offered)
            for name, one in given.items()
        }

    def _object(self, value: Any, key: str, offered: Mapping[str, Any]) -> Any:
        """Builds one value: a class with its arguments, a function by its path, or the value itself."""
        if isinstance(value, Mapping):
            if "class" in value:
                return self.build(value, key, {}, offered)
            return {name: self._object(one, f"{key}.{name}", offered) for name, one in value.items()}
        if isinstance(value, list):
            return [self._object(one, f"{key}.{number}", offered) for number, one in enumerate(value)]
        is_path = isinstance(value, str) and (
            FILE_CLASS_PATH.fullmatch(value) or allowed_classes.is_allowed(value)
        )
        return locate(value, root=self.root, setting=key, where=self.where(key)) if is_path else value


def raised_in_project(error: BaseException, root: Path) -> bool:
    """Whether a frame of the error's traceback is code of the project at ``root``."""
    frames = traceback.walk_tb(error.__traceback__)
    files = [frame.f_code.co_filename for frame, _ in frames if not _is_roost(frame.f_globals)]
    folder = f"{root.absolute()}/"
    return any(file.startswith(folder) and not is_installed(file) for file in files)


def _is_roost(names: Mapping[str, Any]) -> bool:
    return str(names.get("__name__")).startswith("roost.")


def describe_error(error: BaseException) -> str:
    """Returns a description of an error: the text of a ValueError, or the class and the text of another
    error."""
    if isinstance(error, ZeroDivisionError):
        return "it causes a division by zero"
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def unload_project(root: Path) -> dict[str, types.ModuleType]:
    """Unloads every module of a project, so that another one can be loaded in the same process; returns the
    modules.

    Two packages have modules of the same names; without this call the second package would run code of the
    first. A worker serves one package and never calls this function; processes that load several packages do.
    """
    folders = tuple({f"{root.absolute()}/", f"{root.resolve()}/"})

    def is_below(location: object) -> bool:
        # A virtual environment may be inside the project's folder, and torch must not be loaded twice.
        return f"{location}/".startswith(folders) and not is_installed(str(location))

    unloaded = []
    for name, module in sys.modules.items():
        known = getattr(module, "__dict__", {})
        locations = [known.get("__file__"), *known.get("__path__", [])]
        if name != "__main__" and any(map(is_below, locations)):
            unloaded.append(name)
    modules = {name: sys.modules.pop(name) for name in unloaded}
    sys.path[:] = [entry for entry in sys.path if not is_below(entry)]
    importlib.invalidate_caches()
    return modules


# --- files of the project -----------------------------------------------------------------------------


def _from_file(path: str, root: Path) -> tuple[object, str]:
    file_name, _, name = path.rpartition(":")
    pure = PurePosixPath(file_name)
    if pure.is_absolute() or ".." in pure.parts:
        raise ClassPathError(
            f"{path!r} leads out of the project", fix="write a path below the project's folder"
        )
    parts = pure.with_suffix("").parts
    if not all(part.isidentifier() for part in (*parts, name)):
        raise ClassPathError(
            f"{path!r} is not a name that Python can import", fix="use only letters, digits and _"
        )
    file = root.absolute() / pure
    if not file.is_file():
        near = difflib.get_close_matches(file_name, _python_files(root), n=1)
        fix = f"did you mean {near[0]}:{name}?" if near else f"create it, or name a file below {root}"
        raise ClassPathError(f"there is no file {file_name}", fix=fix)
    _put_on_path(root.absolute(), file.parent)
    module = _import_file(".".join(parts), file)
    if name not in vars(module):
        own = {other: value for other, value in vars(module).items() if _is_candidate(value, module)}
        has = f"it has {', '.join(own)}" if own else "it has no class and no function"
        raise ClassPathError(f"{file_name} has no {name!r}", fix=did_you_mean(name, own) + has)
    return vars(module)[name], path


def _is_candidate(value: object, module: types.ModuleType) -> bool:
    """Whether to suggest the object in an error: a class, or a function that the module defines itself."""
    return inspect.isclass(value) or (inspect.isfunction(value) and value.__module__ == module.__name__)


def _python_files(root: Path) -> list[str]:
    shallow = [*root.glob("*.py"), *root.glob("*/*.py")]
    return [file.relative_to(root).as_posix() for file in shallow]


def _put_on_path(root: Path, folder: Path) -> None:
    """Puts the root first, so that a project's modules take precedence over installed ones, then the
    folder."""
    first = list(dict.fromkeys((str(root), str(folder))))
    sys.path[:] = [*first, *(entry for entry in sys.path if entry not in first)]
    importlib.invalidate_caches()


def _import_file(name: str, file: Path) -> types.ModuleType:
    """Imports ``file`` as the module ``name``.

    ``sys.path`` is not searched: that folder is on the path, too, so a file ``Dataset/Dataset.py`` would be
    found in place of a folder ``Dataset/`` without ``__init__.py``.
    """
    loaded = sys.modules.get(name)
    if loaded is not None and _is_module_of(loaded, file):
        return loaded
    *parents, _ = name.split(".")
    folder = file.parents[len(parents)]
    for number, parent in enumerate(parents, 1):
        folder = folder / parent
        _import_package(".".join(parents[:number]), folder)
    if loaded is not None or name in sys.stdlib_module_names:
        raise ClassPathError(
            f"the name {name} belongs to another module ({getattr(loaded, '__file__', 'a part of Python')})",
            fix="rename the file",
        )
    return _execute_module(name, importlib.util.spec_from_file_location(name, file))


def _is_module_of(module: types.ModuleType, file: Path) -> bool:
    origin = getattr(module, "__file__", None)
    return origin is not None and Path(origin).exists() and Path(origin).samefile(file)


def _import_package(name: str, folder: Path) -> None:
    loaded = sys.modules.get(name)
    if loaded is not None:
        if str(folder) not in [str(entry) for entry in getattr(loaded, "__path__", [])]:
            raise ClassPathError(
                f"the name {name} belongs to another module ({getattr(loaded, '__file__', loaded)})",
                fix=f"rename the folder {folder.name}",
            )
        return
    initial = folder / "__init__.py"
    if initial.is_file():
        locations = [str(folder)]
        _execute_module(
            name, importlib.util.spec_from_file_location(name, initial, submodule_search_locations=locations)
        )
        return
    spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    sys.modules[name] = importlib.util.module_from_spec(spec)


def _execute_module(name: str, spec: importlib.machinery.ModuleSpec | None) -> types.ModuleType:
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with paused_collector():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    if "." in name:
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, module)
    return module
