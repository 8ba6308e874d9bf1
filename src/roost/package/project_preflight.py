"""Checks of a project before its package is created, without importing its code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from roost.base.errors import ConfigError, Refused
from roost.base.text.suggestions import did_you_mean
from roost.config import allowed_classes, interpolation
from roost.config.dlnest import bundled_plugins
from roost.config.dlnest.dlnest_settings import DlnestSettings, parse_dlnest_settings
from roost.config.layers import Config
from roost.config.objects import FILE_CLASS_PATH
from roost.config.other_tools import foreign_keys
from roost.config.run_settings import RunSettings
from roost.config.sections.mirrors import CsvSettings, TensorBoardSettings
from roost.config.sections.yaml_project import DatasetSettings, ObjectSettings, RunnerSettings
from roost.config.settings import Settings, Where, parse_settings
from roost.package import snapshot
from roost.package.dlnest import named_paths
from roost.package.kinds import PackageKind
from roost.package.package import PackageFolder
from roost.package.results import staged_archives

_ANALYSIS_FOLDER = "AnalyzeScripts"


def check_settings(values: Mapping[str, Any], *, project: Path, package: str, where: Where) -> Settings:
    """Returns the typed settings, with references resolved as the worker will resolve them.

    Args:
        values: All settings.
        project: The project's folder, ``${project}``.
        package: The value of ``${package}``.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A reference, key, type or range is wrong.
    """
    context = {"project": str(project), "package": package}
    settings = parse_settings(interpolation.resolve(values, context, where=where), where=where)
    staged_archives.check(values, settings.data.stage, where)
    return settings


def check_new_config(config: Config, *, project: Path) -> Settings:
    """Returns the typed settings of a config of which a new package is to be made. A config of another tool,
    and keys that other tools have for settings, are accepted only in packages that an older version made.

    Raises:
        ConfigError: As `check_settings` does; or a key of another tool would have no effect.
    """
    foreign_keys.refuse(config)
    return check_settings(config.values, project=project, package="${package}", where=config.where)


def named_files(settings: Settings, *, root: Path, where: Where) -> list[Path]:
    """Returns the files that the settings name, after checking that each exists, is valid Python and contains
    the named class. Classes of libraries are checked as far as possible without importing them.

    Args:
        settings: Typed settings.
        root: The folder to which the paths are relative.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A file is missing, cannot be parsed, or does not contain the class; or a config may not
            name the class.
    """
    files = set()
    for key, path in named_classes(settings):
        if "." not in key or ".py" in path or not allowed_classes.is_allowed(path):
            files.add(_checked_file(key, path, root, where))
    scripts = root / _ANALYSIS_FOLDER
    if scripts.is_dir():
        files |= {path for path in scripts.rglob("*.py") if path.is_file()}
    return sorted(files)


def named_classes(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yields every class and function that the sections name, including optimizers and schedulers: its dotted
    key, and its path."""
    yield from _classes_below("runner", settings.runner)
    yield from _classes_below("dataset", settings.dataset)
    for number, hook in enumerate(settings.hooks):
        yield from _classes_below(f"hooks.{number}", hook)
    for name, optimizer in settings.optimizers.items():
        yield from _classes_below(f"optimizers.{name}", optimizer)


def code_files(settings: Settings) -> dict[str, str]:
    """Returns the files of the classes and functions that the settings name, as relative paths, each with the
    dotted key that names it first; without paths that `named_files` refuses."""
    found: dict[str, str] = {}
    for key, path in named_classes(settings):
        name = path.rpartition(":")[0]
        if name.endswith(".py") and not Path(name).is_absolute() and ".." not in Path(name).parts:
            found.setdefault(name, key)
    return found


def format_classes(*sections: str | RunnerSettings | DatasetSettings | ObjectSettings) -> str:
    """Returns the classes of Runner, Dataset or hooks as one text: a class path, or all that a section
    names."""
    found = [
        path
        for one in sections
        for _, path in ([("", one)] if isinstance(one, str) else _classes_below("", one))
    ]
    return ", ".join(dict.fromkeys(found))


_FUNCTION_KEYS = ("dataset.collate", "runner.visualize")
_VALUE_NAME_KEYS = ("inputs", "predicts")


def _classes_below(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        is_class = "." not in key.removeprefix("hooks.") or key.endswith(".class")
        if is_class or f"{key}.".startswith(_FUNCTION_KEYS) or FILE_CLASS_PATH.fullmatch(value):
            yield key, value
        return
    for name, inner in _items(value):
        yield from _classes_below(f"{key}.{name}", inner)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Struct):
        own = {part.encode_name: getattr(value, part.name) for part in fields(value)}
        arguments = own.pop("arguments", {})
        return {
            **{name: one for name, one in own.items() if name not in _VALUE_NAME_KEYS},
            **arguments,
        }.items()
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()


def _checked_file(key: str, path: str, root: Path, where: Where) -> Path:
    name, _, class_name = path.rpartition(":")
    at = where(key) or where(key.split(".")[0])
    if not name.endswith(".py") or not class_name.isidentifier():
        raise _no_file_error(key, path, at)
    if Path(name).is_absolute() or ".." in Path(name).parts:
        fix = "write the path below the project's folder"
        raise ConfigError("the path leaves the project", setting=key, received=path, where=at, fix=fix)
    file = root / name
    if not file.is_file():
        fix = f"paths start at the project's folder, {root}"
        raise ConfigError(f"the file {name} does not exist", setting=key, received=path, where=at, fix=fix)
    _require_class(file, class_name, display_name=name, setting=key, received=path, where=at)
    return file


def _require_class(
    file: Path, class_name: str, *, display_name: str, setting: str, received: str, where: str | None
) -> None:
    """Checks that a Python file is valid, and that it has a class, as far as is visible without importing it.

    Raises:
        ConfigError: It has not; the error has ``setting``, ``received`` and ``where``.
    """
    names = _top_level_names(file, setting)
    if names is not None and class_name not in names:
        fix = did_you_mean(class_name, names).strip() or f"write `class {class_name}`"
        raise ConfigError(
            f"{display_name} has no {class_name!r}", setting=setting, received=received, where=where, fix=fix
        )


def _no_file_error(key: str, path: str, where: str | None) -> ConfigError:
    if key in ("runner", "dataset") or key.startswith("hooks.") or ".py" in path:
        fix = "write it as Model/Runner.py:Runner"
        return ConfigError("not a path of file and class", setting=key, received=path, where=where, fix=fix)
    try:
        allowed_classes.require_allowed(path)
    except ConfigError as error:
        words = error.fix or ""
        home = _usual_module(key)
        if home and path.isidentifier() and path[0].isupper() and "did you mean" not in words:
            words = f"did you mean {home}.{path}? {words}"
        return ConfigError(error.message, setting=key, received=path, where=where, fix=words or None)
    raise AssertionError(path)


def _usual_module(key: str) -> str:
    """The module of most classes of such a key, without importing torch."""
    if not key.startswith("optimizers."):
        return ""
    return "torch.optim.lr_scheduler" if ".scheduler" in key else "torch.optim"


def _top_level_names(file: Path, key: str) -> set[str] | None:
    """The names that a Python file binds at its top level; None if a star import may bind more."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ConfigError(
            f"{file.name} is not valid Python: {getattr(error, 'msg', error)}",
            setting=key,
            where=f"{file}:{line}",
        ) from None
    bound = set(_bound_names(tree))
    return None if "*" in bound else bound


def _bound_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        else:  # inside `if`, `try` and assignments
            yield from _bound_names(node)


def require_classes(settings: DlnestSettings, find: Callable[[str], Path], where: Where) -> None:
    """Checks that the Runner, the Dataset and the LifeCycle of DLNest's contract are in their files.

    Args:
        settings: The settings, whose files exist.
        find: Returns the path of a file that the settings name.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A file is not valid Python, or has not its class.
    """
    for key, class_name, file_key, written in named_paths.classes(settings):
        file = find(written)
        if not file.is_file():
            raise ConfigError("is not a file", setting=file_key, received=written, where=where(file_key))
        _require_class(
            file, class_name, display_name=written, setting=key, received=class_name, where=where(key)
        )


def require_plugins(settings: DlnestSettings, find: Callable[[str], Path], where: Where) -> None:
    """Checks the plugins of a config, as far as is visible without importing them.

    Args:
        settings: The settings, whose files exist.
        find: Returns the path of a file that the settings name.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: There is no such plugin, a file has not its class, or two plugins have one name.
    """
    found: dict[str, str] = {}
    for number, entry in enumerate(settings.plugins):
        key = f"plugins.{number}"
        name: str | None = entry
        if bundled_plugins.is_path(entry):
            file = find(entry)
            if not file.is_file():
                raise ConfigError("is not a file", setting=key, received=entry, where=where(key))
            _require_class(
                file,
                bundled_plugins.PLUGIN_CLASS,
                display_name=entry,
                setting=key,
                received=entry,
                where=where(key),
            )
            name = _plugin_name(file)
        elif entry not in bundled_plugins.BUNDLED_PLUGINS:
            raise bundled_plugins.no_plugin_error(entry, key, where)
        if name is not None and name in found:
            raise bundled_plugins.same_plugin_error(name, (found[name], entry), key, where)
        if name is not None:
            found[name] = entry


def _plugin_name(file: Path) -> str | None:
    """Returns the name that a file gives its plugin by a text; None if only its import would say it."""
    for node in ast.parse(file.read_bytes(), str(file)).body:
        if isinstance(node, ast.ClassDef) and node.name == bundled_plugins.PLUGIN_CLASS:
            for one in node.body:
                if (
                    isinstance(one, ast.Assign)
                    and isinstance(one.value, ast.Constant)
                    and isinstance(one.value.value, str)
                    and any(isinstance(target, ast.Name) and target.id == "_NAME" for target in one.targets)
                ):
                    return one.value.value or None
    return None


def parse_package_settings(
    package: PackageFolder, values: Mapping[str, Any], *, project: Path, folder: str, where: Where
) -> RunSettings:
    """Returns the typed settings of a package, according to its kind.

    Args:
        package: The package.
        values: Its settings, possibly with overrides of a coming session.
        project: The project's folder, ``${project}`` in native settings.
        folder: The value of ``${package}`` in native settings.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A reference, key, type or range is wrong.
    """
    if PackageKind.of(package.request) is PackageKind.DLNEST:
        return parse_dlnest_settings(values, where=where)
    return check_settings(values, project=project, package=folder, where=where)


def code_of(settings: RunSettings, package: PackageFolder, where: Where) -> list[Path]:
    """Returns the files and folders of a package that its settings name, after checking that each exists and
    has the class that is named.

    Raises:
        ConfigError: One is missing, or has not the class; or a config may not name the class.
    """
    if isinstance(settings, DlnestSettings):
        request, found = package.request, named_paths.require_packaged(settings, package, where)

        def find(written: str) -> Path:
            return named_paths.packaged_path(package.path, request, written)

        require_classes(settings, find, where)
        require_plugins(settings, find, where)
        return found
    assert isinstance(settings, Settings)
    return named_files(settings, root=package.path, where=where)


def require_runner(package: PackageFolder) -> None:
    """Checks that a package has a Runner, for everything that builds its model.

    Raises:
        Refused: It is the package of a command, or was created from Python with settings without a Runner.
    """
    if PackageKind.of(package.request) is PackageKind.IMPORT:
        message = "the package has the records of a run of another system, and none of its code"
        raise Refused(message, where=package.path, fix="continue it where it ran, or write a config")
    if PackageKind.of(package.request) is PackageKind.COMMAND:
        message = "the package is of a program, which has no Runner"
        raise Refused(message, where=package.path, fix="use the program itself, or write a config")
    if PackageKind.of(package.request) is not PackageKind.DLNEST and package.args.get("runner") is None:
        raise Refused(
            "the package names no Runner: it was created from Python, and only a program can continue it",
            where=package.path,
            fix="start its program again (`roost show` has the command), or write in Python: "
            f"with roost.open_package({str(package.path)!r}) as run: run.load()",
        )


def check_mirror_paths(settings: RunSettings, *, copied: Iterable[str], where: Where) -> None:
    """Checks that the path of each mirror that writes files is free.

    Args:
        settings: The settings of the run.
        copied: The project's files and links in the package, relative to it.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A path is outside the package, or is used by other files.
    """
    taken = [PurePath(one) for one in copied]
    mirrors, key = settings.mirrors, settings.key("mirrors")
    if (csv := mirrors.csv) is not False:
        file = CsvSettings().file if csv is True else csv.file
        _check_mirror_path(f"{key}.csv.file", file, taken, where)
    if (tensorboard := mirrors.tensorboard) is not False:
        folder = TensorBoardSettings().folder if tensorboard is True else tensorboard.folder
        _check_mirror_path(f"{key}.tensorboard.folder", folder, taken, where)


def _check_mirror_path(setting: str, given: str, copied: Iterable[PurePath], where: Where) -> None:
    path = PurePath(given)
    # `${package}` has no value before the package is created, and is absolute then.
    is_outside = path.is_absolute() or ".." in path.parts or not path.name or "${" in given
    # Below a link, the mirror would write into the project.
    is_taken = not is_outside and (
        path.parts[0] in snapshot.RESERVED_NAMES
        or any(one.is_relative_to(path) or path.is_relative_to(one) for one in copied)
    )
    is_table = setting.endswith(".file")
    if is_outside or is_taken or (is_table and path.suffix != ".csv"):
        raise ConfigError(
            "must be an unused path inside the package" + " that ends in .csv" * is_table,
            setting=setting,
            received=given,
            where=where(setting) or where(setting.rpartition(".")[0]),
            fix="give another path; `roost export --records` writes anywhere",
        )
