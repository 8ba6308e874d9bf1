"""Analysis scripts: found by path or name, checked before anything is started, and imported."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from roost.base import safe_read
from roost.base.errors import ContractError, NotFound, Refused
from roost.base.text.suggestions import did_you_mean
from roost.base.text.typed_path import typed_path

FOLDER = "AnalyzeScripts"
FUNCTION = "experience"
MODULE = "analysis_script"
"""The module name of a script: its own name could be that of a module that it imports."""

_MAX_LISTED = 20


class Script(NamedTuple):
    """A script, and its source when it was checked."""

    path: Path
    source: bytes


def find(name: str, folders: Sequence[Path]) -> Path:
    """Returns the file for ``name``: a path as typed, else a name, with or without ``.py``, in the first of
    ``folders`` that has it.

    Raises:
        NotFound: There is no such script; names the folders and their scripts.
    """
    typed = typed_path(name)
    if typed.is_file():
        return typed.absolute()
    pure, known = PurePath(name), _describe_known_scripts(folders)
    if not name or pure.is_absolute() or ".." in pure.parts:  # a path, not a name in these folders
        raise NotFound("there is no such script", setting="-s", received=name, fix=f"create it, {known}")
    for folder in folders:
        for path in (folder / pure, folder / f"{name}.py"):
            if path.is_file():
                return path
    if typed.is_dir():
        raise NotFound("the script is a folder", setting="-s", received=name, fix=f"name a file, {known}")
    places = ", ".join(str(folder) for folder in folders)
    near = did_you_mean(name.removesuffix(".py"), _script_names(folders)).strip()
    raise NotFound(
        f"there is no such script, neither here nor in {places}",
        setting="-s",
        received=name,
        fix=" ".join(filter(None, (near, f"create it, {known}"))),
    )


def _script_names(folders: Sequence[Path]) -> list[str]:
    found = {
        path.relative_to(folder).with_suffix("").as_posix()
        for folder in folders
        if folder.is_dir()
        for path in folder.rglob("*.py")
    }
    return sorted(found)


def _describe_known_scripts(folders: Sequence[Path]) -> str:
    names = _script_names(folders)
    more = f" … {len(names)} in all" if len(names) > _MAX_LISTED else ""
    if not names:
        return f"or put one into {FOLDER}"
    return f"or name one of {FOLDER}: {', '.join(names[:_MAX_LISTED])}{more}"


def read(path: Path) -> Script:
    """Reads a script and checks, without running it, that it is Python with a callable `experience`.

    Raises:
        ContractError: The script is not valid Python, or has no `experience` that takes one argument.
        Refused: The script cannot be read, or is far too long for one.
    """
    try:
        source = bytes(safe_read.read(path))
    except OSError as error:
        raise Refused(f"the script cannot be read: {error.strerror or error}", where=path) from None
    try:
        tree = ast.parse(source, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ContractError(
            f"the script is not valid Python: {getattr(error, 'msg', None) or error}", where=f"{path}:{line}"
        ) from None
    _check(tree, path)
    return Script(path, source)


_FIX = f"write `def {FUNCTION}(self): ...`"


def _check(tree: ast.Module, path: Path) -> None:
    defined: ast.stmt | None = None
    bound: set[str] = set()
    for node in _top_level_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
            defined = node if node.name == FUNCTION else defined
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
    if not {FUNCTION, "*"} & bound:  # a star import may bring it
        functions = [name for name in bound if not name.startswith("_")]
        fix = f"{did_you_mean(FUNCTION, functions)}{_FIX}"
        raise ContractError(f"the script has no function `{FUNCTION}`", where=path, fix=fix)
    if defined is None:
        return  # assigned or imported: checked when the script is imported
    where = f"{path}:{defined.lineno}"
    if not isinstance(defined, ast.FunctionDef):
        kind = "a class" if isinstance(defined, ast.ClassDef) else "a coroutine"
        raise ContractError(f"`{FUNCTION}` is {kind}, not a function", where=where, fix=_FIX)
    wrong = _signature_problem(defined.args)
    if wrong:
        raise ContractError(f"`{FUNCTION}` {wrong}", where=where, fix=_FIX)


def _signature_problem(arguments: ast.arguments) -> str | None:
    """Returns why a function cannot be called with one argument; None if it can."""
    positional = [*arguments.posonlyargs, *arguments.args]
    if not positional and arguments.vararg is None:
        return "takes no argument, but is called with the analysis"
    needed = positional[1 : len(positional) - len(arguments.defaults)]
    needed += [
        one
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    return (
        f"needs {', '.join(one.arg for one in needed)}, but is called only with the analysis"
        if needed
        else None
    )


def _top_level_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the top-level nodes of a module, including those inside ``if`` and ``try``."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level_nodes(child)


def load(source: Path, path: Path, package: Path) -> Callable[[Any], Any]:
    """Imports a script and returns its `experience`.

    Args:
        source: The copy of the script, whose bytes are run.
        path: The original path: its ``__file__``, which tracebacks name, and whose folder is importable.
        package: The package, whose folders have priority on ``sys.path``.

    Raises:
        ContractError: `experience` is not a function.
        Exception: Any error of the script.
    """
    _add_to_path(str(path.parent), package)
    loader = _CopyLoader(MODULE, str(path))
    loader.copy = source
    text = loader.get_source(MODULE) or ""
    # Tracebacks show the lines that ran, also after an edit; the entry has no time, so it is never checked.
    linecache.cache[str(path)] = (len(text), None, text.splitlines(keepends=True), str(path))
    spec = importlib.util.spec_from_file_location(MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # dataclasses look up their module
    loader.exec_module(module)
    found = getattr(module, FUNCTION, None)
    if not callable(found):
        raise ContractError(f"`{FUNCTION}` is {type(found).__name__}, not a function", where=path, fix=_FIX)
    made: Callable[[Any], Any] = found
    return made


class _CopyLoader(importlib.machinery.SourceFileLoader):
    """Runs the bytes that were checked and hashed, even if the file has changed since."""

    copy: Path

    def get_data(self, path: str) -> bytes:
        """Returns the bytes of the copy; never bytecode from the folder of the script."""
        if path != self.path:
            raise FileNotFoundError(path)
        return bytes(safe_read.read(self.copy))


def _add_to_path(folder: str, package: Path) -> None:
    """Inserts ``folder`` into ``sys.path`` after the folders of the package, before installed packages."""
    below = (str(package), f"{package}/")
    own = [entry for entry in sys.path if entry == below[0] or entry.startswith(below[1])]
    front = [str(package), *(entry for entry in own if entry != str(package))]
    sys.path[:] = list(dict.fromkeys([*front, folder, *sys.path]))
    importlib.invalidate_caches()
