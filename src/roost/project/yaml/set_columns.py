"""The keys ``ids`` and ``groups`` of a set in a config: values of its samples that an evaluation uses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roost.base.errors import ConfigError, ContractError
from roost.base.text.typed_path import typed_path
from roost.config import call_arguments, objects
from roost.config.settings import Where

COLUMNS = ("ids", "groups")


def own_columns(spec: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Returns the columns of ``{class, **arguments}`` that are not arguments of the class."""
    given = {name: spec[name] for name in COLUMNS if name in spec}
    if not given or not isinstance(spec.get("class"), str):
        return given
    target = objects.locate(spec["class"], root=root)
    return {name: value for name, value in given.items() if not call_arguments.accepts(target, name)}


def attach(made: Any, columns: Mapping[str, Any], root: Path, setting: str, where: Where) -> None:
    """Sets the columns of a set as its attributes.

    Args:
        made: The set.
        columns: As `own_columns` returns them.
        root: The folder of the project's files.
        setting: The dotted key of the set.
        where: Returns where a dotted key was set, for messages.

    Raises:
        ConfigError: A column is neither a list, nor a file, nor a function.
        ContractError: The set takes no attributes.
    """
    for name, given in columns.items():
        key = f"{setting}.{name}"
        if name == "groups":
            if not isinstance(given, Mapping):
                raise ConfigError(
                    "groups have names",
                    setting=key,
                    received=given,
                    where=where(key),
                    fix="write groups: {speaker: Data.py:speakers}",
                )
            found: Any = {
                group: _values(one, made, root, f"{key}.{group}", where) for group, one in given.items()
            }
        else:
            found = _values(given, made, root, key, where)
        try:
            setattr(made, name, found)
        except AttributeError as error:
            raise ContractError(
                f"{type(made).__name__} takes no attribute {name}",
                setting=key,
                where=where(key),
                fix=f"let its class have `{name}`",
            ) from error


def _values(given: object, made: Any, root: Path, key: str, where: Where) -> list[Any]:
    if isinstance(given, list):
        return given
    if isinstance(given, str) and objects.FILE_CLASS_PATH.fullmatch(given):
        return list(objects.locate(given, root=root, setting=key, where=where(key))(made))
    if isinstance(given, str) and (path := root / typed_path(given)).is_file():
        return path.read_text().splitlines()
    raise ConfigError(
        "is neither a list nor a text file with a line for each sample, nor a function of the set",
        setting=key,
        received=given,
        where=where(key),
        fix="write a list, the path of a file, or a function such as Data.py:speakers",
    )
