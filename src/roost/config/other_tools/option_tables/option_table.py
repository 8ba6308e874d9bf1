"""An option of another trainer with its default and its equivalent; and options that belong together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from roost.base.config_files import parse_scalar

NO_VALUE = ("none", "off", "required", "a recipe", "the data", "all", "one")
"""Texts of defaults that are None, or false for a flag, to the converter."""
_TEXT = object()


class Option(NamedTuple):
    """An option of the other trainer, with its default there and its equivalent here."""

    name: str
    default: str
    """The default there, as the page shows it."""
    keys: Sequence[str] = ()
    """Settings; ``NAME`` and ``N`` are a name of yours and a number of a list."""
    commands: Sequence[str] = ()
    """Equivalent commands."""
    note: str = ""
    """A remark that the setting's help does not contain, or the only text of an option without equivalent."""
    value: Any = _TEXT
    """The default there as a value, if the text of `default` is not one."""

    @property
    def initial(self) -> Any:
        """The default there as a value; None if there is none."""
        if self.value is not _TEXT:
            return self.value
        return None if self.default in NO_VALUE else parse_scalar(self.default)


class Group(NamedTuple):
    """Options that belong together."""

    heading: str
    options: Sequence[Option]
    nothing_here: str = "–"
    """Shown for an option without a setting or a command."""


def by_name(groups: Iterable[Group]) -> dict[str, Option]:
    """Returns the options of groups by their names; the first of a name."""
    found: dict[str, Option] = {}
    for group in groups:
        for option in group.options:
            found.setdefault(option.name, option)
    return found
