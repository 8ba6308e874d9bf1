"""The script of an analysis: found by its path or name, looked at before anything is started, imported."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from roost.base import safe_read
from roost.base.errors import ContractError, NotFound
from roost.base.text.suggestions import did_you_mean

FOLDER = "AnalyzeScripts"
FUNCTION = "experience"
MODULE = "analysis_script"
"""The name under which a script is imported; its own could be that of a module that it needs."""

_MAX_LISTED = 20


class Script(NamedTuple):
    """A script as it was when it was looked at."""

    path: Path
    source: bytes


def find(asked: str, folders: Sequence[Path]) -> Path:
    """The file that ``asked`` means: a path as typed, else a name, with or without ``.py``, in the first of
    ``folders`` that has it.

    Raises:
        NotFound: Nothing is called so; names the folders and what is there.
    """
    typed = Path(asked).expanduser()
    if typed.is_file():
        return typed.absolute()
    pure, known = PurePath(asked), _describe_known_scripts(folders)
    if not asked or pure.is_absolute() or ".." in pure.parts:  # a path, and not a name in those folders
        raise NotFound("there is no such script", setting="-s", received=asked, fix=f"make it, {known}")
    for folder in folders:
        for path in (folder / pure, folder / f"{asked}.py"):
            if path.is_file():
                return path
    if typed.is_dir():
        raise NotFound("the script is a folder", setting="-s", received=asked, fix=f"name a file, {known}")
    places = ", ".join(str(folder) for folder in folders)
    near = did_you_mean(asked.removesuffix(".py"), _script_names(folders)).strip()
    raise NotFound(
        f"there is no such script, neither here nor in {places}",
        setting="-s",
        received=asked,
        fix=" ".join(filter(None, (near, f"make it, {known}"))),
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
    there = f"{', '.join(names[:_MAX_LISTED])}{more}" if names else "none"
    return f"or name one of {FOLDER}; there are: {there}"


def read(path: Path) -> Script:
    """The script, made sure to be Python with a function that can be called, without running any of it.

    Raises:
        ContractError: It is no valid Python, or has no `experience` that takes one argument.
        OSError: It cannot be read.
    """
    source = bytes(safe_read.read(path))
    try:
        tree = ast.parse(source, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 1
        raise ContractError(
            f"the script is no valid Python: {getattr(error, 'msg', None) or error}", where=f"{path}:{line}"
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
        return  # assigned or imported: what it is shows when the script is imported
    where = f"{path}:{defined.lineno}"
    if not isinstance(defined, ast.FunctionDef):
        kind = "a class" if isinstance(defined, ast.ClassDef) else "a coroutine"
        raise ContractError(f"`{FUNCTION}` is {kind}, not a function", where=where, fix=_FIX)
    wrong = _signature_problem(defined.args)
    if wrong:
        raise ContractError(f"`{FUNCTION}` {wrong}", where=where, fix=_FIX)


def _signature_problem(arguments: ast.arguments) -> str | None:
    """Why it cannot be called with one argument."""
    positional = [*arguments.posonlyargs, *arguments.args]
    if not positional and arguments.vararg is None:
        return "takes no argument, and gets the analysis"
    needed = positional[1 : len(positional) - len(arguments.defaults)]
    needed += [
        one
        for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    return f"needs {', '.join(one.arg for one in needed)}, and gets the analysis alone" if needed else None


def _top_level_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """What is done at the top of a module, inside ``if`` and ``try`` too."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level_nodes(child)


def load(source: Path, path: Path, package: Path) -> Callable[[Any], Any]:
    """The `experience` of a script, imported.

    Args:
        source: The copy whose bytes are run.
        path: Where the script was: its ``__file__``, which tracebacks name, and whose folder it imports its
            neighbours from.
        package: The package, whose folders stay in front on ``sys.path``.

    Raises:
        ContractError: What it calls `experience` is no function.
        Exception: Whatever the script raises.
    """
    _add_to_path(str(path.parent), package)
    loader = _CopyLoader(MODULE, str(path))
    loader.copy = source
    spec = importlib.util.spec_from_file_location(MODULE, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # dataclasses look their module up
    loader.exec_module(module)
    found = getattr(module, FUNCTION, None)
    if not callable(found):
        raise ContractError(f"`{FUNCTION}` is {type(found).__name__}, not a function", where=path, fix=_FIX)
    made: Callable[[Any], Any] = found
    return made


class _CopyLoader(importlib.machinery.SourceFileLoader):
    """Runs the bytes that were looked at and hashed, whatever the file holds by now."""

    copy: Path

    def get_data(self, path: str) -> bytes:
        """The copy's bytes; never bytecode that lies beside the script."""
        if path != self.path:
            raise FileNotFoundError(path)
        return bytes(safe_read.read(self.copy))


def _add_to_path(folder: str, package: Path) -> None:
    """After the folders of the package, whose modules go first, and before what is installed."""
    below = (str(package), f"{package}/")
    own = [entry for entry in sys.path if entry == below[0] or entry.startswith(below[1])]
    front = [str(package), *(entry for entry in own if entry != str(package))]
    sys.path[:] = list(dict.fromkeys([*front, folder, *sys.path]))
    importlib.invalidate_caches()
