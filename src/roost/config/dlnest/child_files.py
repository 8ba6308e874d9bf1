"""The files of a config of DLNest's contract: the root file, and those in ``child_jsons``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from roost.base.config_files import MAX_DEPTH, MAX_FILES, ConfigFile
from roost.base.errors import ConfigError

CHILDREN = "child_jsons"
"""The key with the files to merge above the file that lists them; never part of the merged config."""
ROOT_FOLDER = "root_file_path"
"""The key with the project's folder."""

_DECISIVE = {"runner_file_path", "life_cycle_file_path"}
"""Keys that only DLNest's contract has."""

ReadFile = Callable[[Path], ConfigFile]
"""Reads one file."""


def is_root(values: Mapping[str, Any]) -> bool:
    """Whether the values of a root file are of DLNest's contract.

    Each of `_DECISIVE` alone decides. Other keys of that contract may as well be the user's in a native
    config, which has ``runner``, or includes it.
    """
    if _DECISIVE & values.keys():
        return True
    if "runner" in values:
        return False
    return CHILDREN in values or ("model_file_path" in values and "include" not in values)


class MergeOrder(NamedTuple):
    """The files of a config."""

    files: list[ConfigFile]
    """From the lowest to the highest: a later file replaces what an earlier one has set."""
    notes: list[str]
    """Notes for the user, one line each."""


def merge_order(root: ConfigFile, tuning: ConfigFile | None, read: ReadFile) -> MergeOrder:
    """Returns the files of a config in the order of DLNest: the root file, then each child with its own
    children, in the order in which they are listed; the tuning file last, with its children.

    A relative child is in the folder ``root_file_path``; if there is no such file, beside the file that lists
    it.

    Args:
        root: The root file.
        tuning: The tuning file, if there is one.
        read: Reads a child.

    Raises:
        ConfigError: ``child_jsons`` is not a list of texts, a child does not exist or cannot be read, files
            list each other, or there are too many.
    """
    order = _Order(_root_folder(root), read)
    for one in filter(None, (root, tuning)):
        order.add(one, ())
    return MergeOrder(order.files, order.notes)


def _root_folder(root: ConfigFile) -> Path:
    given = root.values.get(ROOT_FOLDER)
    return root.file.parent / given if isinstance(given, str) else root.file.parent


class _Order:
    def __init__(self, folder: Path, read: ReadFile) -> None:
        self._folder, self._read = folder, read
        self.files: list[ConfigFile] = []
        self.notes: list[str] = []

    def add(self, one: ConfigFile, chain: tuple[ConfigFile, ...]) -> None:
        """Adds a file and its children; ``chain`` has the files that lead to it."""
        self.files.append(one)
        for name, where in _children(one):
            path = self._child_path(name, one, where)
            inside = (*chain, one)
            real = os.path.realpath(path)
            if real in (os.path.realpath(above.file) for above in inside):
                ring = " -> ".join([*(above.display_name for above in inside), name])
                raise ConfigError(
                    f"files list each other: {ring}",
                    setting=CHILDREN,
                    where=where,
                    fix="remove one of them from its child_jsons",
                )
            if len(inside) > MAX_DEPTH or len(self.files) >= MAX_FILES:
                raise ConfigError(
                    f"the config has more than {MAX_FILES} files, or they are nested deeper than {MAX_DEPTH}",
                    setting=CHILDREN,
                    where=where,
                )
            self.add(self._read(path), inside)

    def _child_path(self, name: str, lister: ConfigFile, where: object) -> Path:
        folders = dict.fromkeys(Path(os.path.normpath(one)) for one in (self._folder, lister.file.parent))
        found = dict.fromkeys(
            path for one in folders if (path := Path(os.path.normpath(one / name))).is_file()
        )
        if not found:
            searched = " and ".join(map(str, folders))
            raise ConfigError(
                f"there is no file {name}",
                setting=CHILDREN,
                received=name,
                where=where,
                fix="write its whole path" if Path(name).is_absolute() else f"looked in {searched}",
            )
        path, *others = found
        if others and not others[0].samefile(path):
            self.notes.append(f"{name} is read from {path}, not {others[0]}: root_file_path comes first")
        return path


def _children(one: ConfigFile) -> Iterator[tuple[str, object]]:
    """Yields the children of a file, each with the line that lists it."""
    if CHILDREN not in one.values:
        return
    given = one.values[CHILDREN]
    for number, name in enumerate(given if isinstance(given, list) else [None]):
        if not isinstance(name, str) or not name or "\0" in name:
            raise ConfigError(
                "expected a list of files",
                setting=CHILDREN,
                received=given,
                where=one.where((CHILDREN,)),
                fix='write ["a.json", "b.json"]',
            )
        yield name, one.where((CHILDREN, number))
