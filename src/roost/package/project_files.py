"""What of a project can be checked before anything is made, without importing its code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from roost.base.errors import ConfigError, Refused
from roost.base.suggest import proposal
from roost.config import interpolation
from roost.config.settings import Settings, typed
from roost.package.package import Package

Where = Callable[[str], str | None]

_ANALYSIS_FOLDER = "AnalyzeScripts"


def checked(values: Mapping[str, Any], *, project: Path, package: str, where: Where) -> Settings:
    """The typed settings, with references resolved as the worker will resolve them.

    Args:
        values: All settings.
        project: The project's folder, ``${project}``.
        package: What ``${package}`` stands for.
        where: Where a dotted key was set, for messages.

    Raises:
        ConfigError: A reference, key, type or range is wrong.
    """
    context = {"project": str(project), "package": package}
    return typed(interpolation.resolve(values, context, where=where), where=where)


def named_files(settings: Settings, *, root: Path, where: Where) -> list[Path]:
    """The files that the settings name, each looked at: it is there, is Python, and has the class.

    Args:
        settings: Typed settings.
        root: The folder that the names start from.
        where: Where a dotted key was set, for messages.

    Raises:
        ConfigError: One is missing, cannot be parsed, or does not have the class.
    """
    named = [("runner", settings.runner), ("dataset", settings.dataset)]
    named += [(f"hooks.{i}", hook) for i, hook in enumerate(settings.hooks)]
    files = {_file(key, path, root, where) for key, path in named}
    scripts = root / _ANALYSIS_FOLDER
    if scripts.is_dir():
        files |= {path for path in scripts.rglob("*.py") if path.is_file()}
    return sorted(files)


def _file(key: str, path: str, root: Path, where: Where) -> Path:
    name, _, class_name = path.rpartition(":")
    at = where(key) or where(key.split(".")[0])
    if not name.endswith(".py") or not class_name.isidentifier():
        fix = "write it as Model/Runner.py:Runner"
        raise ConfigError("names no file and class", setting=key, received=path, where=at, fix=fix)
    file = root / name
    if not file.is_file():
        fix = f"paths start at the config's folder, {root}"
        raise ConfigError(f"there is no file {name}", setting=key, received=path, where=at, fix=fix)
    names = _names(file, key)
    if names is not None and class_name not in names:
        fix = proposal(class_name, names).strip() or f"write `class {class_name}`"
        raise ConfigError(f"{name} has no {class_name!r}", setting=key, received=path, where=at, fix=fix)
    return file


def _names(file: Path, key: str) -> set[str] | None:
    """What a Python file binds anywhere at its top; None when a star import may bind more."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ConfigError(
            f"{file.name} is no valid Python: {getattr(error, 'msg', error)}",
            setting=key,
            where=f"{file}:{line}",
        ) from None
    bound = set(_bound(tree))
    return None if "*" in bound else bound


def _bound(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        else:  # inside `if`, `try` and assignments
            yield from _bound(node)


def require_runner(package: Package) -> None:
    """For whatever builds what a package trains.

    Raises:
        Refused: It was made from Python, of settings that name no Runner.
    """
    if package.args.get("runner") is None:
        raise Refused(
            "the package names no Runner: it was made from Python, and only a program can read it or go on",
            where=package.path,
            fix=f"with roost.open_package({str(package.path)!r}) as run: run.load()",
        )
