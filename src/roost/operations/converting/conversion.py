"""The result of converting a config: settings, keys of the user, code, and what has no counterpart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roost.base.errors import ConfigError
from roost.config.other_tools.option_tables.option_table import Option
from roost.config.values.nested_values import Values, merge, nested

_MISSING = object()


@dataclass
class ConvertedOption:
    """An option of the other trainer with its value, and what became of it."""

    option: Option
    value: Any
    is_given: bool
    """Whether a file or the command line gave the value; else it is the other trainer's default."""
    location: str | None
    """Where it was given, such as ``exp.yaml:12``."""
    keys: list[str] = field(default_factory=list)
    """The dotted keys that it sets here."""
    lost: str = ""
    """The effect of the value that is lost here; empty if none is."""


@dataclass
class Conversion:
    """The settings, code and notes that a config becomes, collected while it is read."""

    tool: str
    source: Path
    section: str
    """The key of the section that only the project's code reads."""
    options: dict[str, ConvertedOption] = field(default_factory=dict)
    settings: Values = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    """The comment of each dotted key: the option there."""
    own: Values = field(default_factory=dict)
    """The content of `section`."""
    losses: list[tuple[str, str]] = field(default_factory=list)
    """Keys without a counterpart that are no options of the table, each with the reason."""
    remarks: list[str] = field(default_factory=list)
    """Remarks for the user: what to check, and where numbers may differ."""
    files: dict[str, str] = field(default_factory=dict)
    """Further files of the project by their names."""
    evaluation: str | None = None
    """The command that evaluates a trained package as the config asks."""

    def add_options(
        self,
        table: Mapping[str, Option],
        given: Mapping[str, Any],
        where: Callable[[str], object],
    ) -> None:
        """Adds options of a table: those that are given, and the defaults of all others."""
        for name, option in table.items():
            is_given = name in given
            location = where(name) if is_given else None
            self.options[name] = ConvertedOption(
                option,
                given[name] if is_given else option.initial,
                is_given,
                None if location is None else str(location),
            )

    def value(self, name: str) -> Any:
        """Returns the value of an option: the one that is given, else its default there."""
        return self.options[name].value

    def put(self, key: str, value: Any, *names: str) -> None:
        """Sets a dotted key.

        Args:
            key: A setting of roost.
            value: Its value.
            *names: The options that determine it.
        """
        self.settings = merge(self.settings, nested(tuple(key.split(".")), value))
        for name in names:
            if key not in self.options[name].keys:
                self.options[name].keys.append(key)
        if names:
            self.comments[key] = ", ".join(
                f"{name}{'' if self.options[name].is_given else ' (default)'}" for name in names
            )

    def lose(self, name: str, why: str) -> None:
        """Records that the value of an option, or of another key there, has no counterpart."""
        if name in self.options:
            self.options[name].lost = why
        else:
            self.losses.append((name, why))

    def without_counterpart(self) -> list[tuple[str, str]]:
        """Returns what the config has and roost has not, each with the reason."""
        found = [(name, one.lost) for name, one in self.options.items() if one.lost]
        return [*found, *self.losses]

    # ---- values of a type -------------------------------------------------------------------------------

    def whole(self, name: str, *, least: int | None = None) -> int:
        """Returns the value of an option that must be a whole number; ``1e3`` and ``5.0`` are.

        Raises:
            ConfigError: It is not, or it is less than ``least``.
        """
        value = self.value(name)
        return whole_number(value, name, self.options[name].location, least=least)

    def number(self, name: str) -> float:
        """Returns the value of an option that must be a number.

        Raises:
            ConfigError: It is not.
        """
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, "expected a number")
        return value

    def flag(self, name: str) -> bool:
        """Returns the value of an option that must be true or false; ``ture`` and ``flase`` are accepted
        there, too.

        Raises:
            ConfigError: It is neither.
        """
        value = self.value(name)
        found = _FLAGS.get(value.lower(), _MISSING) if isinstance(value, str) else value
        if not isinstance(found, bool):
            raise self.error(name, "expected true or false")
        return found

    def error(self, name: str, problem: str, fix: str | None = None) -> ConfigError:
        """Returns the error for the value of an option."""
        one = self.options[name]
        return ConfigError(problem, setting=name, received=one.value, where=one.location, fix=fix)


_FLAGS = {"true": True, "ture": True, "false": False, "flase": False}


def whole_number(value: Any, name: str, where: object, *, least: int | None = None) -> int:
    """Returns a value that must be a whole number; ``1e3`` and ``5.0`` are.

    Raises:
        ConfigError: It is not, or it is less than ``least``.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or value != value or abs(value) > 10**15 or int(value) != value:
        raise ConfigError("expected a whole number", setting=name, received=value, where=where)
    if least is not None and value < least:
        raise ConfigError(f"expected {least} or more", setting=name, received=value, where=where)
    return int(value)
