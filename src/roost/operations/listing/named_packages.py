"""The packages that words on a command line name: paths, names, tasks, sweeps, patterns, folders, queries."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from roost.base.errors import NotFound, UsageError
from roost.operations.listing.list_packages import find_packages
from roost.package.dlnest import original_folder

_OPERATORS = frozenset(" :=<>")
_LIST_FIX = "`roost ls` lists all packages"


def split_words(words: Sequence[str]) -> tuple[list[Path], str]:
    """Returns the folders at the beginning of some words, and the rest as a query. A word is a folder if it
    exists, or looks like a path."""
    folders: list[Path] = []
    for word in words:
        is_path = word.startswith((".", "/", "~")) and not set(word) & _OPERATORS
        if not word or not (is_path or Path(word).is_dir()):
            break
        folders.append(Path(word))
    return folders, " ".join(words[len(folders) :])


def is_query(text: str) -> bool:
    """Whether a text has an operator of a query."""
    return bool(set(text) & _OPERATORS)


def select_packages(words: Sequence[str]) -> list[Path]:
    """Returns the packages that words name, each once, in the order of the words.

    Each word is the path of a package, its name in ``./runs``, a task, a sweep (what is left of it), a folder
    of packages, or a pattern of paths or names with ``*``, ``?`` or ``[``. If one of them has an operator,
    they are folders and a query, as for `roost ls`.

    Raises:
        NotFound: A word names nothing.
        UsageError: The query is not valid, or a word is empty.
    """
    if not all(map(str.strip, words)):
        # An unset variable of a script must not mean the current folder, all of which `rm` would remove.
        raise UsageError("a word is empty", fix="name a package; all of the current folder are `.`")
    folders, query = split_words(words)
    terms = words[len(folders) :]
    if any(map(is_query, terms)) and not any(map(_is_name, terms)):
        found = find_packages(folders or [None], query).selected
        if not found:
            raise NotFound("no package matches the query", received=query, fix=_LIST_FIX)
        return [one.folder / one.name for one in found]
    return list(dict.fromkeys(path for word in words for path in _find_each(word)))


def names_one_package(word: str) -> bool:
    """Whether a word names a package, a task or a sweep, or nothing; not a folder of packages, a pattern or a
    query."""
    from roost.operations import resolve

    if _is_package(Path(word)):
        return True
    if is_query(word) and not _is_name(word):
        return False
    if glob.has_magic(word) and not os.path.lexists(word):
        return False
    if Path(word).is_dir():
        return not find_packages([word]).selected
    try:
        resolve.find_package(word)
    except UsageError:  # a sweep
        return False
    except NotFound:
        pass
    return True


def _find_each(word: str) -> Iterator[Path]:
    if glob.has_magic(word) and not os.path.lexists(word):
        yield from _find_by_pattern(word)
    elif _is_package(Path(word)):
        yield Path(word)
    elif Path(word).is_dir() and (inside := find_packages([word]).selected):
        yield from (one.folder / one.name for one in inside)
    else:
        yield from _find_by_name(word)


def _find_by_pattern(pattern: str) -> Iterator[Path]:
    from roost.operations import resolve

    candidates = [Path(one) for one in sorted(glob.glob(pattern))]  # noqa: PTH207  - the pattern may be absolute
    if not candidates and "/" not in pattern:
        candidates = sorted(Path(resolve.RUNS_FOLDER).glob(pattern))
    found = [path for path in candidates if _is_package(path)]
    if not found:
        raise NotFound("no package matches the pattern", received=pattern, fix=_LIST_FIX)
    yield from found


def _find_by_name(name: str) -> Iterator[Path]:
    from roost.operations import resolve

    try:
        yield resolve.find_package(name)
    except UsageError:  # a sweep
        remaining = [Path(one.package) for one in resolve.find_tasks(name) if not resolve.is_removed(one)]
        if not remaining:
            fix = "`roost restore` lists those in the trash"
            raise NotFound("all packages of this sweep were removed", received=name, fix=fix) from None
        yield from remaining


def _is_name(word: str) -> bool:
    """Whether a word, which may look like a query, is a path or the name of a package."""
    from roost.operations import resolve

    return os.path.lexists(word) or resolve.find_in_runs(word) is not None


def _is_package(path: Path) -> bool:
    from roost.operations import resolve  # the queue, 15 ms of imports that a list does not need

    return resolve.is_package(path) or original_folder.is_original(path)
